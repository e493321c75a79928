"""Nodes behind a bastion: half-open connections on either leg are detected; a slow agent is not disconnected."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Node, Rig

from . import node_faults
from .consoles import Recorder, any_instant, until
from .lossy_link import lossy_link
from .measurements import Row, write

INNER = ["inner1", "inner2"]
STOPPED_S = 4


@pytest.fixture(scope="module")
def tunnels() -> Iterator[Rig]:
    with Rig(nodes=0, name="gcf3") as rig:
        bastion = rig.add_bastion()
        for name in INNER:
            rig.add_node(name, behind=bastion)
        yield rig


@pytest.fixture(scope="module")
def recorder(tunnels: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    folder: Path = tmp_path_factory.mktemp("tunnels")
    recorder = Recorder(tunnels.write_hosts_toml(folder / "hosts.toml", agent={"linger_s": 600}), folder)
    try:
        yield recorder
    finally:
        recorder.close()


@pytest.mark.parametrize(("leg", "hit"), [
    pytest.param("between bastion and node", {"inner1"}, id="behind"),
    pytest.param("between console and bastion", set(INNER), id="before"),
])  # fmt: skip
def test_half_open_connection_on_either_leg_of_a_bastion_is_reconnected(
    tunnels: Rig, recorder: Recorder, leg: str, hit: set[str]
) -> None:
    """Half-open: packets are dropped without RST, while new connections would work."""
    recorder.wait_for(INNER)
    with lossy_link(_cable(tunnels, hit), seed=3) as link:
        _wait_for_new_ticks(recorder)  # their packets passed the link, which has recorded the connections
        before = recorder.read().count()
        injected_ns = any_instant()
        link.forget_connections()
        until(lambda: hit <= recorder.read().dropped(injected_ns), f"{hit} given up")
        recorder.wait_for(INNER)
        recorder.wait_for_ticks(INNER, 1)  # before the link works again
    lost_ns, healthy_ns = max(_lost(recorder, injected_ns).values()), _last_well(recorder, injected_ns)
    count, message = recorder.read().count().since(before), recorder.tally.first_message("^lost: ", injected_ns)
    assert message
    write(
        Row(
            fault=f"half-open TCP {leg}", lost=count.lost, doubled=count.doubled, gap=count.gap,
            shown_s=message.after_s(injected_ns), screen=message.text,
            unhealthy_s=(lost_ns - injected_ns) / 1e9, healthy_s=(healthy_ns - lost_ns) / 1e9,
            note="healthy counts from the detection of the loss: the link does not recover here",
        )
    )  # fmt: skip
    assert (count.lost, count.doubled, count.gap) == (0, 0, 0)
    assert recorder.tally.count().agents == len(INNER)
    assert recorder.tally.dropped(injected_ns) == hit, "other nodes are not affected"


def _wait_for_new_ticks(recorder: Recorder) -> None:
    """Wait until each node has sent a tick with a later timestamp than now."""
    now_ns, ticks = time.time_ns(), recorder.latency.ticks
    until(
        lambda: (
            recorder.read()
            and all(any(rx - latency_ns > now_ns for rx, latency_ns in ticks[node][-3:]) for node in INNER)
        ),
        "new ticks of each",
    )


def _cable(tunnels: Rig, hit: set[str]) -> Node:
    return tunnels.node("bastion" if len(hit) > 1 else min(hit))


def _lost(recorder: Recorder, since_ns: int) -> dict[str, int]:
    """When each node was first reported as lost since then."""
    states = reversed(recorder.read().states)
    return {state.node: state.rx for state in states if state.state == "lost" and state.rx >= since_ns}


def _last_well(recorder: Recorder, since_ns: int) -> int:
    return max(state.rx for state in recorder.read().states if state.state == "ok" and state.rx >= since_ns)


def test_briefly_stopped_agent_behind_a_bastion_keeps_its_connection(tunnels: Rig, recorder: Recorder) -> None:
    recorder.wait_for(INNER)
    node = tunnels.node("inner2")
    before = recorder.read().count()
    pid = node_faults.lingering(node, recorder.process.pid)
    injected_ns = any_instant()
    node.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)  # the fault
    node.kill(pid, signal.SIGCONT)
    repaired_ns = time.time_ns()
    _wait_for_new_ticks(recorder)  # a loss during the stop would be recorded before them
    recorder.wait_for(INNER)
    lost, message = _lost(recorder, injected_ns), recorder.tally.first_message("^lost: ", injected_ns)
    count = recorder.read().count().since(before)
    write(
        Row(
            fault=f"agent behind a bastion stopped {STOPPED_S} s (SIGSTOP), continued", lost=count.lost,
            doubled=count.doubled, gap=count.gap,
            shown_s=message.after_s(injected_ns) if message else None, screen=message.text if message else "",
            unhealthy_s=(lost[node.name] - injected_ns) / 1e9 if lost else None,
            healthy_s=(_last_well(recorder, injected_ns) - repaired_ns) / 1e9 if lost else None,
        )
    )  # fmt: skip
    assert (count.lost, count.doubled, count.gap) == (0, 0, 0)
    assert not recorder.tally.dropped(injected_ns), "its sshd answers"
