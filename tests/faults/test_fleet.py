"""Faults of many nodes at once, of the network to all of them, and of nodes that violate the protocol."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import GCONSOLE
from rig import Node, Rig, keys

from . import fake_agent
from .busy_cores import cores_awake
from .consoles import Recorder, Screen, SessionReader, any_instant, until
from .dns_server import StubDnsServer
from .measurements import Row, is_kept, write

#: Number of nodes for faults/RESULTS.md and `make full`; half of them are enough logins for the quick test.
MANY = 64 if is_kept() or os.environ.get("TEST_TIER") == "full" else 32
NAMES = [f"n{number:02}" for number in range(MANY)]
LEFT, RIGHT = NAMES[: MANY // 2], NAMES[MANY // 2 :]
#: The node with a real agent, whose latency is measured; records of the fake agents are processed in 0.3 ms.
REAL = NAMES[-1]
#: What the screen shows while one half is disconnected.
SHOWN = f"{len(RIGHT)}/{MANY} nodes"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Rig]:
    """Two nodes with fake agents, and one behind a bastion."""
    with Rig(nodes=["left", "right"], name="gcf2") as rig:
        rig.add_node("inner", behind=rig.add_bastion())
        for node in rig.nodes:
            shutil.copy(fake_agent.__file__, node.folder / "fake_agent.py")
            for how in fake_agent.KINDS:
                script = node.folder / how
                script.write_text(f"#!/bin/sh\nexec python3 -I -S {node.inside}/fake_agent.py {how}\n")
                script.chmod(0o755)
        yield rig


def entry(node: Node, name: str, how: str = "") -> str:
    """A hosts.toml entry of that name with a fake agent, or with a real one."""
    lines = ["[[nodes]]", f'hosts = "{name}"', f'address = "{node.address}"', f"port = {node.port}"]
    return "\n".join([*lines, *([f'python = "{node.inside}/{how}"'] if how else []), ""])


def many_nodes(rig: Rig, folder: Path) -> Path:
    """A hosts.toml with many nodes, one half on the left node, the other on the right one."""
    left, right = rig.nodes[:2]
    entries = [entry(left if name in LEFT else right, name, "" if name == REAL else "light") for name in NAMES]
    return rig.write_hosts_toml(folder / "many.toml", only=[], extra="\n".join(entries))


def test_half_of_the_fleet_reconnects_after_an_outage_without_record_loss(fleet: Rig, tmp_path: Path) -> None:
    recorder = Recorder(many_nodes(fleet, tmp_path), tmp_path)
    try:
        recorder.wait_for(NAMES)
        recorder.wait_for_ticks(NAMES, 1)
        with cores_awake() if is_kept() else contextlib.nullcontext():
            _kill_half(fleet, recorder)
    finally:
        recorder.close()


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("consoles", [1, 2])
def test_screen_shows_an_outage_of_half_of_the_fleet(fleet: Rig, tmp_path: Path, consoles: int) -> None:
    """With one console that shows and records, or with two; 64 logins then share these cores with their sshd."""
    with contextlib.ExitStack() as open_ones:
        screen = open_ones.enter_context(contextlib.closing(Screen(many_nodes(fleet, tmp_path), tmp_path)))
        screen.terminal.until(f"{MANY}/{MANY} nodes")
        if consoles == 1:
            recorded = screen.record("night")
        else:
            recorded = open_ones.enter_context(contextlib.closing(Recorder(many_nodes(fleet, tmp_path), tmp_path)))
        recorded.wait_for(NAMES)
        recorded.wait_for_ticks(NAMES, 1)
        for _ in range(3):
            _kill_half(fleet, recorded, screen, "" if consoles == 1 else ", two consoles")


def _kill_half(fleet: Rig, recorder: SessionReader, screen: Screen | None = None, among: str = "") -> None:
    """With a screen, records also wait for its repaints: latency is measured without one."""
    if screen:
        screen.watch()
    began, before_ticks, meanwhile_ticks = recorder.read().count(*RIGHT), *((15, 5) if is_kept() else (3, 3))
    calm_ns = time.time_ns()
    recorder.wait_for_ticks(RIGHT, before_ticks)
    injected_ns = any_instant()
    fleet.nodes[0].down()
    try:
        recorder.wait_for(LEFT, "lost")
        if screen:
            until(lambda: screen.first_match(SHOWN, injected_ns), "the screen shows it")
        recorder.wait_for_ticks(RIGHT, meanwhile_ticks)  # few: after 10 s a connection is closed
    finally:
        fleet.nodes[0].up()
    repaired_ns = time.time_ns()
    recorder.wait_for(LEFT)
    recorder.wait_for_ticks(LEFT, 1)
    states = [state for state in recorder.tally.states if state.rx >= injected_ns]
    assert not recorder.tally.dropped(injected_ns) & set(RIGHT), "the other half is not affected"
    first_lost = {
        name: next(state.rx for state in states if state.node == name and state.state == "lost") for name in LEFT
    }
    well = [state.rx for state in states if state.state == "ok"]
    before, meanwhile = (calm_ns, injected_ns), (injected_ns, repaired_ns)
    real, scripts = (
        [statistics.median(recorder.latency.of(names, *span)) for span in (before, meanwhile)]
        for names in ([REAL], RIGHT[:-1])
    )
    content = screen.first_match(SHOWN, injected_ns) if screen else None
    if screen:
        screen.stop_watching()
    count, doubled = recorder.read().count(*RIGHT).since(began), recorder.tally.count().doubled
    write(
        Row(
            fault=f"{len(LEFT)} of {MANY} nodes fail at once{among}", lost=count.lost, doubled=doubled, gap=count.gap,
            unhealthy_s=(max(first_lost.values()) - injected_ns) / 1e9, healthy_s=(max(well) - repaired_ns) / 1e9,
            shown_s=(content.at - injected_ns) / 1e9 if content else None, screen=SHOWN if content else "",
            others_ratio=None if screen else real[1] / real[0],
            note=f"last of the {len(LEFT)}; no linger; one node with an agent, {MANY - 1} with scripts; latency"
            " of the other half"
            f" {scripts[0] / 1e6:.2f} ms before, {scripts[1] / 1e6:.2f} ms meanwhile",
        )
    )  # fmt: skip
    assert (count.lost, doubled, count.gap) == (0, 0, 0)


def test_restarted_bastion_causes_no_record_loss_behind_it(fleet: Rig, tmp_path: Path) -> None:
    bastion = fleet.node("bastion")
    hosts = fleet.write_hosts_toml(tmp_path / "inner.toml", only=["inner"], agent={"linger_s": 600})
    recorder = Recorder(hosts, tmp_path)
    try:
        recorder.wait_for_ticks(["inner"])
        injected_ns = any_instant()
        bastion.stop_sshd(sessions=True)
        recorder.wait_for(["inner"], "lost")
        bastion.start_sshd()
        repaired_ns = time.time_ns()
        recorder.wait_for(["inner"])
        recorder.wait_for_ticks(["inner"])
        states = [state for state in recorder.tally.states if state.rx >= injected_ns]
        lost_ns, healthy_ns = (
            next(record.rx for record in states if record.state == state) for state in ("lost", "ok")
        )
        message = recorder.tally.first_message("^lost: ", injected_ns)
        count = recorder.stop().count()
    finally:
        recorder.close()
    assert message
    write(
        Row(
            fault="bastion restarted", lost=count.lost, doubled=count.doubled, gap=count.gap,
            shown_s=message.after_s(injected_ns), screen=message.text,
            unhealthy_s=(lost_ns - injected_ns) / 1e9, healthy_s=(healthy_ns - repaired_ns) / 1e9,
        )
    )  # fmt: skip
    assert (count.lost, count.doubled, count.gap, count.agents) == (0, 0, 0, 1)


def test_node_reconnects_by_its_last_address_during_a_dns_outage(fleet: Rig, tmp_path: Path) -> None:
    left, right = fleet.nodes[:2]
    names = {"left.gcf.test": left, "right.gcf.test": right}
    with fleet.known_hosts.open("a") as file:
        file.writelines(keys.known_hosts_line([name], node.port, node.host_key()) for name, node in names.items())
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(f"nameserver {_bridge(fleet)}\noptions timeout:1 attempts:1\n")
    addresses = {node.name: {"address": name} for name, node in names.items()}
    hosts = fleet.write_hosts_toml(tmp_path / "hosts.toml", only=["left", "right"], nodes=addresses,
                                   agent={"linger_s": 600})  # fmt: skip
    server = StubDnsServer(_bridge(fleet), {"left.gcf.test": left.address})
    server.start()
    argv = ["unshare", "-m", "sh", "-c", f'mount --bind {resolver} /etc/resolv.conf && exec "$@"', "sh", str(GCONSOLE)]
    recorder = Recorder(hosts, tmp_path, "night", argv)
    try:
        recorder.wait_for_ticks(["left"])
        until(lambda: recorder.read().first_message("^dns: .*right"), "the failure is called dns")
        server.paused = True
        injected_ns = any_instant()
        left.stop_sshd(sessions=True)
        left.start_sshd()
        repaired_ns = time.time_ns()
        until(lambda: "left" in recorder.read().dropped(injected_ns), "the link is lost")
        recorder.wait_for(["left"])
        recorder.wait_for_ticks(["left"])
        server.add("right.gcf.test", right.address)
        server.paused = False
        recorder.wait_for(["right"])
        recorder.wait_for_ticks(["left", "right"])
        states = [state for state in recorder.tally.states if state.rx >= injected_ns]
        healthy_ns = next(state.rx for state in states if state.node == "left" and state.state == "ok")
        message = recorder.tally.first_message("^dns: .*right")
        count = recorder.stop().count()
    finally:
        recorder.close()
        server.close()
    assert message
    write(
        Row(
            fault="DNS unavailable while a link is lost", lost=count.lost, doubled=count.doubled, gap=count.gap,
            healthy_s=(healthy_ns - repaired_ns) / 1e9, screen=message.text,
            note="healthy during the DNS outage, at the cached address; `dns` for a node that was never reached",
        )
    )  # fmt: skip
    assert server.unanswered
    assert (count.lost, count.doubled, count.gap, count.agents) == (0, 0, 0, 2)


def _bridge(fleet: Rig) -> str:
    """The address of this machine on the nodes' network."""
    return fleet._builder.relay_address()


@pytest.mark.parametrize(("how", "fault_name", "pattern"), [
    ("garbage", "a node that sends garbage", "invalid record|not JSON|malformed frame"),
    ("endless", "a node that sends an endless line", "line longer than"),
    ("other_version", "an agent that speaks another protocol", "agent supports protocol 7 to 9"),
    ("flood", "a node that sends records as fast as it can", "faster than its quota"),
    # the control: how much the other node's latency varies by itself
    pytest.param("light", "control: two nodes without a fault", "", marks=pytest.mark.full),
])  # fmt: skip
def test_misbehaving_node_is_reported_and_does_not_affect_the_others(
    fleet: Rig, tmp_path: Path, how: str, fault_name: str, pattern: str
) -> None:
    left, right = fleet.nodes[:2]
    hosts = fleet.write_hosts_toml(tmp_path / "hosts.toml", only=[left.name], extra=entry(right, "bad", how))
    recorder = Recorder(hosts, tmp_path)
    loud = right.folder / "fake_agent.py.loud"
    ticks = 15 if is_kept() else 3
    with cores_awake() if is_kept() else contextlib.nullcontext():
        try:
            recorder.wait_for([left.name, "bad"])
            recorder.wait_for_ticks([left.name, "bad"], 1)
            calm_ns = time.time_ns()
            recorder.wait_for_ticks([left.name], ticks)
            injected_ns = any_instant()
            loud.touch()
            recorder.wait_for_ticks([left.name], ticks)
            if pattern:
                until(lambda: recorder.read().first_message(pattern, injected_ns), f"the message {pattern!r}")
            recorder.stop()
        finally:
            loud.unlink(missing_ok=True)
            recorder.close()
    good, bad = recorder.tally.count(left.name), recorder.tally.count("bad")
    message = recorder.tally.first_message(pattern, injected_ns) if pattern else None
    before, after = (statistics.median(recorder.latency.of([left.name], *span)) for span in (
        (calm_ns, injected_ns), (injected_ns, time.time_ns())))  # fmt: skip
    write(
        Row(
            fault=fault_name, lost=good.lost, doubled=good.doubled + bad.doubled, gap=bad.gap,
            others_ratio=after / before,
            shown_s=message.after_s(injected_ns) if message else None, screen=message.text if message else "",
            note=f"of the other node: {before / 1e6:.0f} ms before, {after / 1e6:.0f} ms meanwhile; of the bad one"
            f" {bad.records} records received, {bad.lost} were lost",
        )
    )  # fmt: skip
    assert (good.lost, good.doubled, bad.doubled) == (0, 0, 0)
    assert left.name not in recorder.tally.dropped()
