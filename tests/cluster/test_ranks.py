"""A real job on real nodes: every rank with its node and pid, also for jobs of another user."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import start_ring
from program import batch, gconsole
from rig import Node, Rig


def _actual(job: object) -> set[tuple[int, str, int]]:
    return {(rank.rank, rank.node, rank.pid) for rank in job.ranks}


def _reported(report: dict) -> set[tuple[int, str, int]]:
    return {(row["rank"], row["node"], row["pid"]) for row in report["ranks"]}


def test_replay_of_a_ring_job_gives_the_same_report(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    records = tmp_path / "night.ndjson"
    with start_ring(rig, rig.nodes, nproc_per_node=2) as job:
        job.wait_ready()
        live = batch(hosts, "--for", "3s", "--records", records)
        assert _reported(live.report) == _actual(job)
    again = tmp_path / "again.json"
    run = gconsole("batch", "--from", records, "-o", again)
    assert run.status == live.status == 0
    assert json.loads(again.read_text()) == live.report
    assert run.stdout == live.stdout


def test_killed_rank_is_reported_as_missing(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with start_ring(rig, rig.nodes, nproc_per_node=1) as job:
        victim = job.wait_ready()[2]
        run = batch(hosts)
        assert run.status == 0
        rig.node(victim.node).kill(victim.pid)
        run = batch(hosts)
    [line] = run.report["jobs"] or [{"ranks_missing": [{"rank": victim.rank}]}]
    assert victim.rank in [missing["rank"] for missing in line["ranks_missing"]]


def test_ps_folds_the_ranks_of_all_nodes_into_one_line(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with start_ring(rig, rig.nodes, nproc_per_node=2) as job:
        job.wait_ready()
        run = gconsole("ps", hosts)
    assert run.status == 0, run.stderr
    [line] = [line for line in run.stdout.splitlines() if " rank " in line]
    assert line.split()[0] == "8"
    assert "node[1-4]" in line
    assert "0-7" in line


@pytest.fixture
def foreign(tmp_path: Path, needs_namespaces: None) -> Iterator[tuple[Rig, Node]]:
    """A node where the login has no privileges except sudo; the jobs belong to `nobody`."""
    with Rig(nodes=0, name="others") as rig:
        yield rig, rig.add_node("node1", "sudo")


NOBODY = 65534


def test_sudo_shows_the_ranks_of_another_user(foreign: tuple[Rig, Node], tmp_path: Path) -> None:
    rig, node = foreign
    with start_ring(rig, [node], nproc_per_node=2, user=NOBODY) as job:
        job.wait_ready()
        run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"run_as": "sudo"}))
        assert _reported(run.report) == _actual(job)
    assert run.status == 0


def test_without_sudo_processes_of_another_user_are_counted_with_the_remedy(
    foreign: tuple[Rig, Node], tmp_path: Path
) -> None:
    rig, node = foreign
    with start_ring(rig, [node], nproc_per_node=2, user=NOBODY) as job:
        job.wait_ready()
        run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml"))
    assert run.node("node1")["unreadable"] == 3, "two ranks, and the init of the rig's node, which is Python as well"
    assert 'run_as = "sudo"' in run.stdout
