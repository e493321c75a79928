"""The evidence on a job that died, from records as nodes send them."""

from __future__ import annotations

from typing import Any

import pytest

from gconsole.core.store import Store
from gconsole.monitor.crash_evidence import DELAY_NS, crash_evidence, launchers_of
from gconsole.records import AgentCost, Failure, Log, Node, NodeState, Output, Process, Rank

S = 1_000_000_000


def a_rank(number: int, node: str = "n1", pid: int | None = None, **fields: Any) -> Rank:
    own = {"job": "j", "rank": number, "pid": pid or 100 + number, "start_ticks": 1, "world_size": 2, "t": 10 * S}
    return Rank(**{"node": node, "source": "environ", "rx": 10 * S + 1, **own, **fields})


def an_end(number: int, node: str = "n1", code: int | None = 1, at: int = 20 * S, **fields: Any) -> Rank:
    times = {"alive_at": at - S // 20, "ended_at": at, "t": at + S, "rx": at + S + 1}
    return a_rank(number, node, status="exited", exit_code=code, **{**times, **fields})


def an_output(pid: int, rank: int | None, text: str | None, **fields: Any) -> Output:
    own = {"job": "j", "rank": rank, "pid": pid, "start_ticks": 1, "stream": "stderr", "path": f"/log/{pid}"}
    size = None if text is None else len(text)
    return Output(**{"node": "n1", "text": text, "size": size, **own, **fields})


def ok(node: str) -> NodeState:
    return NodeState(node=node, state="ok")


def a_store(*records: Any) -> Store:
    store = Store()
    store.apply([ok("n1"), ok("n2"), *records])
    return store


def test_job_of_which_all_ranks_live_has_no_evidence():
    assert crash_evidence(a_store(a_rank(0), a_rank(1))) == []


def test_ranks_have_their_ends_outputs_and_children():
    child = Process(node="n1", pid=7, start_ticks=2, ppid=101, uid=1, comm="x", role="child", job="j", rank=1)
    store = a_store(a_rank(0), a_rank(1), child, an_end(1, code=-9), an_output(101, 1, "words\n"))

    (evidence,) = crash_evidence(store)

    assert (evidence.job, evidence.attempt, evidence.world_size) == ("j", 0, 2)
    alive, dead = evidence.ranks
    assert (alive.state, dead.state, dead.exit_code, dead.children) == ("running", "ended", -9, (7,))
    assert (dead.ended_lo_ns, dead.ended_hi_ns) == (20 * S - S // 20, 20 * S), "the clock of their only node"
    assert [(output.stream, output.text) for output in dead.outputs] == [("stderr", "words\n")]


def test_ends_on_several_nodes_without_a_clock_model_carry_the_delay_of_the_network():
    store = a_store(an_end(0), an_end(1, "n2", at=21 * S, t=21 * S, rx=21 * S + 5 * S))
    first, second = crash_evidence(store)[0].ranks
    assert first.ended_hi_ns is not None and second.ended_hi_ns is not None and second.ended_lo_ns is not None
    assert second.ended_hi_ns == 26 * S, "its clock is 5 s behind at most"
    assert second.ended_hi_ns - second.ended_lo_ns == S // 20 + DELAY_NS


def test_output_that_ranks_share_is_that_of_the_launcher_with_its_exit_code():
    launcher = Process(node="n1", pid=9, start_ticks=1, ppid=1, uid=1, comm="x", role="launcher", job="j")
    gone = Process(
        node="n1", pid=9, start_ticks=1, ppid=1, uid=1, comm="x", role="launcher", job="j", gone=True, exit_code=1
    )
    store = a_store(an_end(0), an_end(1), launcher, gone, an_output(9, None, "all\n", stream="file"))
    (evidence,) = crash_evidence(store)
    assert [(each.output.text, each.node) for each in evidence.launchers] == [("all\n", "n1")]
    assert [(end.node, end.pid, end.exit_code) for end in evidence.launcher_ends] == [("n1", 9, 1)]
    assert launchers_of(store, "j").living == 0 and len(launchers_of(store, "j").failed) == 1


def test_only_faults_around_the_end_count():
    faults = [
        Log(node="n1", source="kernel", fault="xid", text=str(at), at=at * S) for at in (1, 600, 1190, 1210, 2000)
    ]
    store = a_store(an_end(0, at=1200 * S), *faults)
    assert [fault.text for fault in crash_evidence(store)[0].faults] == ["600", "1190", "1210"]


def test_each_attempt_has_only_its_own_part_of_a_common_file():
    store = a_store(
        an_end(0, attempt=0), an_end(0, attempt=1, pid=200),
        an_output(9, None, "first\n", stream="file", path="/log"),
        an_output(9, None, "first\nsecond\n", stream="file", path="/log", attempt=1),
    )  # fmt: skip
    texts = [[each.output.text for each in evidence.launchers] for evidence in crash_evidence(store)]
    assert texts == [["first\n"], ["second\n"]]


def test_outputs_of_an_attempt_that_was_never_seen_are_of_their_ranks():
    store = a_store(a_rank(0, attempt=1), an_output(100, 3, "boom\n", attempt=0))
    (evidence,) = crash_evidence(store)
    (rank,) = evidence.ranks
    assert (evidence.attempt, rank.rank, rank.state, rank.outputs[0].text) == (0, 3, "ended", "boom\n")


def test_earlier_run_of_the_same_name_is_no_part_of_the_newest_one():
    store = a_store(
        an_end(0), an_end(1), an_output(9, None, "old\n", stream="file"),
        a_rank(0, pid=300, start_ticks=900, t=40 * S), an_end(1, pid=301, start_ticks=900, at=50 * S),
        an_output(301, 1, "new\n", start_ticks=900),
    )  # fmt: skip
    (evidence,) = crash_evidence(store)
    assert [(rank.pid, rank.state) for rank in evidence.ranks] == [(300, "running"), (301, "ended")]
    assert "old" not in str(evidence)


def test_ranks_of_a_lost_node_are_of_unknown_state():
    lost = NodeState(node="n2", state="lost", rx=30 * S, error=Failure("silent", "no data for 10 s"))
    store = a_store(a_rank(0), a_rank(1, "n2"), lost, an_end(0, at=40 * S))
    (evidence,) = crash_evidence(store)
    assert [(rank.rank, rank.state) for rank in evidence.ranks] == [(0, "ended"), (1, "unknown")]
    assert [(loss.node, loss.reason) for loss in evidence.losses] == [("n2", "no data for 10 s")]


def a_node(agent: str, boot_id: str, init: int | None, rx: int) -> Node:
    return Node(
        node="n2", agent=agent, hostname="n2", boot_id=boot_id, init_start_ticks=init, kernel="6", arch="x86_64",
        python="3.11", uid=0, pid=1, sample_interval_ms=1000, rx=rx,
    )  # fmt: skip


def a_state(state: str, name: str, at: int) -> NodeState:
    error = Failure(name, name) if name else None
    return NodeState(node="n2", state=state, rx=at, error=error)


@pytest.mark.parametrize("name", ["console_late", "gateway_lost", "agent_crashed"])
def test_node_whose_connection_alone_was_lost_is_not_lost(name):
    store = a_store(a_rank(0), a_rank(1, "n2"), a_state("ok", "", 20 * S), a_state("lost", name, 30 * S),
                    an_end(0, at=40 * S))  # fmt: skip
    (evidence,) = crash_evidence(store)
    assert evidence.losses == ()
    store.apply([a_state("lost", "timeout", 50 * S)])
    (evidence,) = crash_evidence(store)
    assert [loss.reason for loss in evidence.losses] == ["timeout"], "it cannot be reached again"


@pytest.mark.parametrize(
    ("agent", "measured_s", "kept"),
    [("a", 34, False), ("a", 29, True), ("b", 34, True)],
    ids=["same agent", "delivered late", "another agent"],
)
def test_node_whose_agent_goes_on_was_not_lost(agent, measured_s, kept):
    """A connection that was silent for seconds, half an hour before a rank raises an exception."""
    store = a_store(
        a_node("a", "b", None, 10 * S), a_rank(0), a_rank(1, "n2"), a_state("ok", "", 20 * S),
        a_state("lost", "lost", 30 * S), a_state("ok", "", 33 * S),
        AgentCost(node="n2", agent=agent, sample_interval_ms=1000, t=measured_s * S, rx=35 * S),
        an_end(0, at=2_000 * S),
    )  # fmt: skip
    losses = [loss for evidence in crash_evidence(store) for loss in evidence.losses]
    assert bool(losses) is kept


@pytest.mark.parametrize(
    ("boot_id", "init", "at_s", "kept"),
    [("b", 7, 45, False), ("c", 7, 45, True), ("b", 9_000, 45, True), ("b", None, 45, True), ("b", 7, 100, True)],
    ids=["has run on", "rebooted", "container restarted", "unknown", "out of reach for long"],
)  # fmt: skip
def test_node_that_is_there_again_without_a_restart_was_not_lost(boot_id, init, at_s, kept):
    store = a_store(
        a_node("a", "b", 7, 10 * S), a_rank(0), a_rank(1, "n2"), a_state("ok", "", 20 * S),
        a_state("lost", "lost", 30 * S), an_end(0, at=40 * S),
        *[a_node("b", boot_id, init, at_s * S)] * 2,  # an agent repeats it
    )  # fmt: skip
    losses = [loss for evidence in crash_evidence(store) for loss in evidence.losses]
    assert bool(losses) is kept


def test_ended_ranks_are_kept_when_another_agent_starts_on_their_node():
    from gconsole.records import Node

    def a_node(agent: str) -> Node:
        return Node(
            node="n1", agent=agent, hostname="n1", boot_id="b", kernel="6", arch="x", python="3", uid=0, pid=1,
            sample_interval_ms=1000,
        )  # fmt: skip

    store = a_store(a_node("a"), a_rank(0), an_end(1), an_output(101, 1, "words\n"), a_node("b"))
    (evidence,) = crash_evidence(store)
    assert [(rank.rank, rank.outputs[0].text) for rank in evidence.ranks] == [(1, "words\n")]
