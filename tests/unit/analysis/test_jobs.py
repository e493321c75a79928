"""Job table: which ranks are present, and why others are missing."""

import random

import pytest

from gconsole.analysis.jobs import MOST_MISSING, job_table
from gconsole.records import Failure, NodeState, Rank, RankStat

LOST = Failure(name="lost", text="silent for 3 s")


def a_rank(rank, node="n1", pid=None, **more):
    fields = {"job": "llama", "world_size": 4, "local_rank": rank, "start_ticks": 1, "source": "environ", **more}
    return Rank(node=node, pid=100 + (rank or 0) if pid is None else pid, rank=rank, **fields)


def a_stat(rank, node="n1", pid=None, state="moving", **more):
    pid = 100 + rank if pid is None else pid
    return RankStat(node=node, job="llama", rank=rank, pid=pid, start_ticks=1, state=state, **more)


def denied(node="n1", pid=900, rank=None, **more):
    return a_rank(rank, node, pid, status="no_permission", reason="alice's; use sudo", **more)


def a_node(name, state="ok"):
    return NodeState(node=name, state=state, error=None if state == "ok" else LOST)


def the_job(ranks, stats=(), nodes=()):
    (job,) = job_table(ranks, stats, nodes).jobs
    return job


def missing(job):
    return [(one.rank, one.why, one.reason) for one in job.ranks_missing]


def test_a_complete_job_has_every_rank_and_its_state():
    job = the_job([a_rank(r) for r in range(4)], [a_stat(r) for r in range(3)] + [a_stat(3, state="stopped", step=7)])

    assert (job.job, job.attempt, job.world_size, job.ranks_found) == ("llama", 0, 4, (0, 1, 2, 3))
    assert job.ranks_missing == ()
    assert job.states == {"moving": 3, "stopped": 1}
    assert (job.rows[3].state, job.rows[3].step, job.rows[3].pid) == ("stopped", 7, 103)


def test_rank_without_statistics_has_state_unknown():
    assert the_job([a_rank(0)]).rows[0].state == "unknown"


def test_rank_never_discovered_is_not_found():
    assert missing(the_job([a_rank(0), a_rank(1), a_rank(3)])) == [(2, "not_found", "not found")]


def test_undiscovered_rank_may_be_elsewhere_if_nothing_says_where_ranks_meet():
    job = the_job([a_rank(rank, job="local~2520", source="argv") for rank in (0, 1)])

    assert [(one.rank, one.why) for one in job.ranks_missing] == [(2, "elsewhere"), (3, "elsewhere")]
    assert "no variable or argument says where the ranks meet" in job.ranks_missing[0].reason


def test_undiscovered_rank_of_a_job_of_one_node_is_not_found():
    job = the_job([a_rank(rank, job="local~2520", local_world_size=4) for rank in (0, 1, 3)])

    assert missing(job) == [(2, "not_found", "not found")]


def test_undiscovered_rank_is_unreachable_while_nodes_are_unreachable():
    nodes = [a_node("n1"), a_node("n3", "failed"), a_node("n2", "connecting")]

    assert missing(the_job([a_rank(0), a_rank(1), a_rank(3)], (), nodes)) == [
        (2, "unreachable", "not found; unreachable: n2, n3")
    ]


def test_many_unreachable_nodes_are_counted_not_listed():
    nodes = [a_node(f"n{i}", "failed") for i in range(2, 9)]

    assert missing(the_job([a_rank(0, world_size=2)], (), nodes))[0][2].endswith("n2, n3, n4, n5 and 3 more")


def test_exited_rank_is_missing_with_exit_reason_node_and_pid():
    job = the_job([a_rank(0), a_rank(1), a_rank(2), a_rank(3, status="exited", reason="exit code 3")])

    assert missing(job) == [(3, "exited", "exited: exit code 3 (n1 pid 103)")]
    assert [row.rank for row in job.rows] == [0, 1, 2]


def test_rank_restarted_in_another_process_is_found():
    ranks = [a_rank(0, world_size=1, pid=7, status="exited"), a_rank(0, world_size=1, pid=8)]

    assert the_job(ranks).ranks_found == (0,)


def test_ranks_of_a_lost_node_are_missing_and_their_state_is_unknown():
    ranks = [a_rank(0), a_rank(1), a_rank(2, "n2"), a_rank(3, "n3")]
    stats = [a_stat(0), a_stat(1), a_stat(2, "n2"), a_stat(3, "n3")]

    job = the_job(ranks, stats, [a_node("n1"), a_node("n2", "lost"), a_node("n3", "failed")])

    assert job.ranks_found == (0, 1)
    assert missing(job) == [(2, "node_lost", "node n2 lost"), (3, "unreachable", "node n3 unreachable")]
    assert [row.state for row in job.rows] == ["moving", "moving", "unknown", "unknown"]


def test_unreadable_process_with_a_guessed_rank_does_not_count_as_found():
    job = the_job([a_rank(r) for r in range(3)] + [denied(rank=3)], [a_stat(3, pid=900)])

    assert job.ranks_found == (0, 1, 2)
    assert missing(job) == [(3, "no_permission", "no permission: alice's; use sudo (n1)")]
    assert (job.rows[3].status, job.rows[3].state) == ("no_permission", "moving")


def test_unreadable_processes_without_a_rank_explain_every_missing_rank():
    job = the_job([a_rank(0), a_rank(1), denied(pid=900), denied("n2", 901)])

    assert [one.rank for one in job.ranks_missing] == [2, 3]
    assert {one.reason for one in job.ranks_missing} == {
        "no permission: 2 unreadable processes on n1, n2 may be this rank: alice's; use sudo"
    }


def test_only_unreadable_processes_are_missing_without_a_world_size():
    job = the_job([a_rank(0, world_size=None), denied(world_size=None)])

    assert (job.world_size, job.ranks_found) == (None, (0,))
    assert [one.rank for one in job.ranks_missing] == [None]


def test_only_the_newest_attempt_counts_and_older_processes_are_leftovers():
    ranks = [a_rank(r, attempt=1, world_size=2, pid=200 + r) for r in range(2)] + [a_rank(3, "n2", world_size=4)]

    job = the_job(ranks, [a_stat(3, "n2")])

    assert (job.attempt, job.world_size, job.ranks_found, job.ranks_missing) == (1, 2, (0, 1), ())
    assert [(row.rank, row.status) for row in job.rows] == [(0, "present"), (1, "present"), (3, "stale")]
    assert job.states == {"unknown": 2}


def test_two_processes_that_claim_one_rank_are_both_kept_and_flagged():
    job = the_job([a_rank(0, world_size=1), a_rank(0, "n2", 5, world_size=1)])

    assert [(row.node, row.pid) for row in job.rows] == [("n1", 100), ("n2", 5)]
    assert job.conflicts[0].text == "rank 0 is claimed by 2 processes: n1 pid 100, n2 pid 5"


def test_withdrawn_rank_makes_no_job():
    assert job_table([a_rank(0, status="withdrawn")], (), ()).jobs == ()


def test_of_several_records_of_one_process_the_last_counts():
    job = the_job([a_rank(0, world_size=1), a_rank(0, world_size=1, status="exited", reason="gone")])

    assert job.ranks_found == ()


def test_most_reported_world_size_wins_and_a_tie_takes_the_larger():
    assert the_job([a_rank(0), a_rank(1), a_rank(2, world_size=8)]).world_size == 4
    assert the_job([a_rank(0), a_rank(1, world_size=8)]).world_size == 8


def test_job_table_order_does_not_depend_on_record_order():
    ranks = [a_rank(r, f"n{r % 3}", job="a", attempt=r % 2) for r in range(12)]
    ranks += [a_rank(r, f"n{r % 3}", pid=500 + r, job="b") for r in range(12)]
    ranks += [denied(pid=pid, job="a") for pid in (5, 3, 4)]
    stats = [a_stat(r, f"n{r % 3}") for r in range(12)]
    expected = job_table(ranks, stats, [a_node("n2", "lost")])

    shuffled = ranks[:]
    random.Random(3).shuffle(shuffled)

    assert job_table(shuffled, stats[::-1], [a_node("n2", "lost")]) == expected
    assert [job.job for job in expected.jobs] == ["a", "b"]
    assert expected.rows[-1].job == "b"


def test_removed_node_does_not_explain_a_missing_rank():
    assert missing(the_job([a_rank(0, world_size=2)], (), [a_node("n9", "removed")])) == [(1, "not_found", "not found")]


def test_implausible_world_size_is_ignored_and_does_not_affect_other_jobs():
    """Each missing rank would be listed: 2^63 of them would block every report."""
    lies = [a_rank(0, pid=pid, job=f"lie-{pid}", world_size=size) for pid, size in ((1, 2**63 - 1), (2, MOST_MISSING))]
    honest = [a_rank(0), a_rank(1), a_rank(3)]

    jobs = {job.job: job for job in job_table(lies + honest, (), ()).jobs}

    assert missing(jobs["llama"]) == [(2, "not_found", "not found")]
    assert [jobs[name].world_size for name in ("lie-1", "lie-2")] == [None, None]
    assert not jobs["lie-1"].ranks_missing and jobs["lie-1"].ranks_found == (0,)


@pytest.mark.slow
def test_every_missing_rank_of_the_largest_world_size_is_listed():
    assert len(the_job([a_rank(0, world_size=MOST_MISSING)]).ranks_missing) == MOST_MISSING - 1
