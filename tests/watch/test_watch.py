"""`gconsole watch` on real nodes: alerts of a real hang, restarts, reload, and the heartbeat of a blind watch."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from jobs import gloo_environment, start_torchrun
from program import GCONSOLE
from rig import Rig
from rig.waiting import wait_until

from tests.hangs.labels import JOBS
from tests.hangs.live_jobs import running, wait_ready

from .live_watch import alerts, rule, watching


def test_hang_is_alerted_once_also_across_a_restart(rig: Rig, needs_torch: None, tmp_path: Path) -> None:
    labelled = next(job for job in JOBS if job.id == "sleeps_in_step")
    log, beat = tmp_path / "alerts", tmp_path / "alive"
    hosts = rig.write_hosts_toml(
        tmp_path / "hosts.toml", only=[node.name for node in rig.nodes[:2]],
        extra=f'[watch]\nstall_s = 6\nheartbeat_file = "{beat}"\nheartbeat_s = 1\n{rule(log)}',
    )  # fmt: skip
    with running(rig, labelled):
        with watching(hosts) as watch:
            watch.wait(lambda: alerts(log))
        assert watch.process.returncode == 1
        with watching(hosts) as watch:
            watch.wait(lambda: [e for e in watch.events("finding") if e["finding"]["id"] == "rank_missing"])
            found_ns = time.time_ns()
            # Each pass evaluates the rules before its heartbeat; at its end the watch waits for commands of rules.
            watch.wait(lambda: beat.exists() and beat.stat().st_mtime_ns > found_ns + 2_000_000_000)
        (alert,) = alerts(log)
    assert (alert["event"], alert["finding"]["id"], alert["finding"]["culprits"]) == (
        "open",
        "rank_missing",
        ["rank 1"],
    )
    assert alert["verdict"]["culprits"][0]["rank"] == 1


def node_states(records: Path) -> list[dict[str, Any]]:
    """The records of the states of nodes that a console wrote so far."""
    lines = records.read_text().rpartition("\n")[0].splitlines() if records.exists() else []
    return [record for record in map(json.loads, lines) if record["kind"] == "node_state"]


def states(records: Path) -> list[str]:
    return [record["state"] for record in node_states(records)]


def test_console_that_was_stopped_until_its_agents_ended_calls_no_node_lost(rig: Rig, tmp_path: Path) -> None:
    """As a laptop that was suspended: what ends on a node at that time did not end because the node was lost."""
    nodes = rig.nodes[:2]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name for node in nodes])
    records = tmp_path / "records.ndjson"
    argv = [str(GCONSOLE), "batch", str(hosts), "--for", "10m", "--records", str(records)]
    console = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: states(records).count("ok") == 2)
        console.send_signal(signal.SIGSTOP)
        wait_until(lambda: not any("gconsole" in node.ps() for node in nodes))
        console.send_signal(signal.SIGCONT)
        wait_until(lambda: states(records).count("ok") == 4)
        console.send_signal(signal.SIGINT)
        console.wait(60)
    finally:
        console.kill()
    losses = [each["error"] for each in node_states(records) if each["state"] == "lost"]
    assert losses
    assert {loss["name"] for loss in losses} == {"console_late"}
    assert all("the console was late by" in loss["text"] for loss in losses)


def test_set_up_of_a_group_in_mid_training_is_a_hang_after_stall_s(rig: Rig, needs_torch: None, tmp_path: Path) -> None:
    nodes, log, trains_s = rig.nodes[:2], tmp_path / "alerts", 30.0
    extra = f"[watch]\nstall_s = 6\n{rule(log)}"
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name for node in nodes], extra=extra)
    with watching(hosts) as watch:
        watch.wait(lambda: any("2 of 2" in event["text"] for event in watch.events("seen")))
        variables = {**gloo_environment(rig), "TRAINS_S": f"{trains_s:g}"}
        script = Path(__file__).parent / "jobs" / "late_new_group.py"
        with start_torchrun(rig, nodes, 2, script, variables) as job:
            wait_ready(job)
            watch.wait(lambda: alerts(log))  # DEADLINE_S is as long as a set-up at the start may take
    (alert,) = alerts(log)
    assert (alert["finding"]["id"], alert["finding"]["culprits"]) == ("rank_missing", ["rank 2"])


def test_heartbeat_stops_while_a_node_is_not_seen_and_goes_on_afterwards(rig: Rig, tmp_path: Path) -> None:
    beat = tmp_path / "alive"
    hosts = rig.write_hosts_toml(
        tmp_path / "hosts.toml", only=[node.name for node in rig.nodes[:2]],
        extra=f'[watch]\nheartbeat_file = "{beat}"\nheartbeat_s = 1\n',
    )  # fmt: skip

    def stamp() -> int:
        return beat.stat().st_mtime_ns if beat.exists() else 0

    with watching(hosts) as watch:
        watch.wait(stamp)
        node = rig.nodes[1]
        before = len(watch.events("blind"))  # at its start, until the nodes are connected
        node.down()
        try:
            watch.wait(lambda: any(node.name in event["text"] for event in watch.events("blind")[before:]))
            stopped = stamp()
            time.sleep(5)  # five heartbeats
            assert stamp() == stopped
        finally:
            node.up()
        watch.wait(lambda: stamp() > stopped)
        time.sleep(3)  # three passes
    assert len(watch.events("seen")) == 2, "at the start, and once after the node came back"
    assert watch.process.returncode == 0


def test_saved_rules_hold_at_once_and_an_invalid_file_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name])
    text = hosts.read_text()
    with watching(hosts) as watch:
        watch.wait(lambda: any("1 of 1" in event["text"] for event in watch.events("seen")))
        hosts.write_text(text + rule(tmp_path / "x", on='["no_such_finding"]'))
        watch.wait(lambda: watch.events("rejected"))
        hosts.write_text(text + f'[[watch.rule]]\nname = "m"\non = ["info"]\ntextfile = "{tmp_path}/m.prom"\n')
        watch.wait(lambda: watch.events("reloaded"))
        watch.wait(lambda: (tmp_path / "m.prom").exists())
    assert "no_such_finding" in watch.events("rejected")[0]["text"]


def test_watch_without_a_reachable_node_goes_on_and_says_so(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name])
    node = rig.nodes[0]
    node.down()
    try:
        with watching(hosts) as watch:
            watch.wait(lambda: any(f"{node.name} (" in event["text"] for event in watch.events("blind")))
            node.up()
            watch.wait(lambda: any("1 of 1" in event["text"] for event in watch.events("seen")))
    finally:
        node.up()
