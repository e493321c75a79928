"""torchrun jobs on real nodes, shared by the tests: ranks, capture, verdict, watched variables, and the job's end."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import Job, Rank, start_torchrun
from live_fleet import LiveFleet, started_fleet
from program import batch
from rig import Rig

from gconsole.records import RankStat

pytestmark = pytest.mark.usefixtures("needs_torch")

NOBODY = 65534
WATCH = {"locals": ["step", "rank", "nobody_has_this"], "every_s": 1}


@pytest.fixture(scope="module")
def job(rig: Rig, needs_torch: None) -> Iterator[Job]:
    """Four ranks on two nodes that make steps."""
    with start_torchrun(rig, rig.nodes[:2], nproc_per_node=2) as job:
        job.wait_ready()
        yield job


@pytest.fixture
def stopped_rank(rig: Rig, job: Job) -> Iterator[Rank]:
    """Rank 2, stopped during the test."""
    rank = job.ranks[2]
    rig.node(rank.node).kill(rank.pid, signal.SIGSTOP)
    yield rank
    rig.node(rank.node).kill(rank.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def hosts_of_a_foreign_job(
    needs_namespaces: None, needs_torch: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A node where the login has no privileges except sudo; the two ranks there belong to `nobody`."""
    with Rig(nodes=0, name="others") as rig:
        node = rig.add_node("node1", "sudo")
        with start_torchrun(rig, [node], nproc_per_node=2, user=NOBODY) as job:
            job.wait_ready()
            yield rig.write_hosts_toml(tmp_path_factory.mktemp("others") / "hosts.toml")


def group_of(report: dict[str, Any], rank: int) -> dict[str, Any]:
    """The group of a capture that contains a rank."""
    [capture] = report["captures"]
    return next(group for group in capture["groups"] if rank in group["ranks"] and group["role"] == "rank")


def state_of(rig: Rig, rank: Rank) -> str:
    """The kernel's state letter of a rank's process."""
    line = next(line for line in rig.node(rank.node).ps().splitlines() if line.split()[0] == str(rank.pid))
    return line.split()[1]


def hosts_of(rig: Rig, folder: Path, **changes: Any) -> Path:
    """The two nodes of the job."""
    return rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in rig.nodes[:2]], **changes)


def stats_of(watch: LiveFleet) -> dict[int, RankStat]:
    return {now.rank.rank: now.stat for now in watch.store.ranks.values() if now.stat and now.stat.watched}


def test_every_rank_is_reported_with_its_node_and_pid(rig: Rig, job: Job, tmp_path: Path) -> None:
    run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml"), "--for", "3s")
    assert [(rank.rank, rank.node) for rank in job.ranks] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
    reported = {(row["rank"], row["node"], row["pid"]) for row in run.report["ranks"]}
    assert reported == {(rank.rank, rank.node, rank.pid) for rank in job.ranks}
    [line] = run.report["jobs"]
    assert line["world_size"] == 4
    assert line["ranks_found"] == list(range(4))
    assert line["ranks_missing"] == []
    assert {row["state"] for row in run.report["ranks"]} <= {"moving", "idle"}
    assert run.status == 0
    assert "4/4 ranks" in run.stdout


def test_stepping_job_is_diagnosed_as_moving(rig: Rig, job: Job, tmp_path: Path) -> None:
    run = batch(hosts_of(rig, tmp_path), "--diagnose")
    [verdict] = run.report["verdicts"]
    assert (run.status, verdict["state"], run.report["findings"]) == (0, "moving", [])


async def test_step_variable_of_every_rank_is_read_while_it_runs(rig: Rig, job: Job, tmp_path: Path) -> None:
    hosts = hosts_of(rig, tmp_path, watch=WATCH)
    async with started_fleet(hosts) as watch:
        await watch.sampled()
        await watch.until(lambda: len(stats_of(watch)) == 4, 60.0)
        first = stats_of(watch)
        await watch.until(
            lambda: all(stat.watched_at != first[rank].watched_at for rank, stat in stats_of(watch).items())
        )
        now = stats_of(watch)
        assert all(now[rank].step > first[rank].step for rank in first), "steps advance while the job is watched"
    assert {rank: stat.watched["rank"] for rank, stat in now.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    assert all(set(stat.watched) == {"step", "rank"} for stat in now.values()), "only watched variables are sent"
    costs = [node.cost.watch_cpu_pct for node in watch.store.nodes.values()]
    assert all(cost is not None and cost > 0 for cost in costs), "its CPU cost is reported"


def test_capture_shows_the_stopped_rank_and_the_others_in_all_reduce(
    rig: Rig, stopped_rank: Rank, tmp_path: Path
) -> None:
    run = batch(hosts_of(rig, tmp_path), "--capture")
    assert run.status == 0, run.stderr
    assert group_of(run.report, 2)["class"] == "stopped"
    for rank in (0, 1, 3):
        group = group_of(run.report, rank)
        assert group["class"] == "collective"
        assert group["path"][-1]["function"] == "all_reduce"


def test_diagnose_reports_the_stopped_rank_of_an_uninstrumented_job(
    rig: Rig, stopped_rank: Rank, tmp_path: Path
) -> None:
    run = batch(hosts_of(rig, tmp_path), "--diagnose")
    assert state_of(rig, stopped_rank) == "T"
    [verdict] = run.report["verdicts"]
    assert (run.status, verdict["kind"], verdict["confidence"]) == (1, "rank_stopped", "certain")
    assert [(culprit["rank"], culprit["class"]) for culprit in verdict["culprits"]] == [(2, "stopped")]


def test_ranks_of_another_user_are_missing_with_a_sudo_hint(hosts_of_a_foreign_job: Path) -> None:
    run = batch(hosts_of_a_foreign_job)
    assert run.status == 3, run.stdout
    [line] = run.report["jobs"]
    assert line["world_size"] == 2
    assert line["ranks_found"] == []
    assert [missing["rank"] for missing in line["ranks_missing"]] == [0, 1]
    assert all("sudo" in missing["reason"] for missing in line["ranks_missing"]), line


def test_unreadable_ranks_are_in_the_capture_with_a_sudo_hint(hosts_of_a_foreign_job: Path) -> None:
    run = batch(hosts_of_a_foreign_job, "--capture")
    assert run.status == 3
    [group] = run.report["captures"][0]["groups"]
    assert (group["status"], group["path"], group["processes"]) == ("no_permission", [], 2)
    assert 'run_as = "sudo"' in group["try"]
    assert group["try"] in run.stdout


def test_stopped_job_exits_with_status_0_on_both_nodes(job: Job) -> None:
    assert job.stop() == [0, 0], job.output()
