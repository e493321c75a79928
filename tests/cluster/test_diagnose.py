"""Diagnosing a real job on real nodes with one command."""

import json
from pathlib import Path
from typing import Any

from jobs import start_ring
from program import batch, gconsole
from rig import Rig

#: A user's model of that job's framework.
MODEL = r"hang.models=p2p wait_for_neighbour (^|/)blocked_ranks\.py$"


def verdict_of(report: dict[str, Any]) -> dict[str, Any]:
    [verdict] = report["verdicts"]
    return verdict


def states(rig: Rig, ranks: list[Any]) -> list[str]:
    """The kernel's state letters of the ranks' processes."""
    lines = {name: rig.node(name).ps().splitlines() for name in {rank.node for rank in ranks}}
    return [next(line.split()[1] for line in lines[r.node] if line.split()[0] == str(r.pid)) for r in ranks]


def test_rank_holding_a_lock_is_the_culprit_and_process_states_are_unchanged(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with start_ring(rig, rig.nodes, nproc_per_node=2, script="blocked_ranks.py", env={"BLOCKED_3": "lock"}) as job:
        ranks = job.wait_ready()
        before = states(rig, ranks)
        run = batch(hosts, "--diagnose", "--records", tmp_path / "records", "--set", MODEL)
        assert states(rig, ranks) == before
    assert run.status == 1, run.stderr
    verdict = verdict_of(run.report)
    assert (verdict["state"], verdict["kind"]) == ("hung", "rank_missing")
    [culprit] = verdict["culprits"]
    assert (culprit["rank"], culprit["class"], culprit["pid"]) == (3, "python_lock", ranks[3].pid)
    assert (culprit["site"]["function"], culprit["site"]["source"]) == ("take_twice", "with lock, lock:")
    assert verdict["victims"] == [0, 1, 2, 4, 5, 6, 7]
    assert [finding["id"] for finding in run.report["findings"]] == ["rank_missing"]
    assert "with lock, lock:" in run.stdout

    again = gconsole("batch", "--from", tmp_path / "records", "-o", tmp_path / "again.json")
    assert (again.status, again.stdout) == (1, run.stdout)
    assert json.loads((tmp_path / "again.json").read_text()) == run.report
    morning = gconsole("diagnose", tmp_path / "records", "-o", tmp_path / "morning.json")
    assert json.loads((tmp_path / "morning.json").read_text())["verdicts"] == run.report["verdicts"]
    assert morning.status == 1


def test_lock_without_native_stacks_is_undecided_and_suggests_native(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with start_ring(rig, rig.nodes[:2], nproc_per_node=2, script="blocked_ranks.py", env={"BLOCKED_3": "lock"}) as job:
        job.wait_ready()
        run = batch(hosts, "--diagnose", "--no-native", "--set", MODEL)
    verdict = verdict_of(run.report)
    assert (run.status, verdict["state"], verdict["culprits"]) == (1, "undecided", []), "it stands still: no success"
    assert verdict["stalled"]
    assert "native" in verdict["next_step"]
