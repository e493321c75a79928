"""`gconsole watch` on real nodes: alerts of a real hang, restarts, reload, and the heartbeat of a blind watch."""

from __future__ import annotations

import time
from pathlib import Path

from jobs import gloo_environment, start_torchrun
from rig import Rig

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
