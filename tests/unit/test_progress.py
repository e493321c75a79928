"""How long a rank keeps the progress that a verdict gave it."""

import pytest

from gconsole.analysis.rank_progress import RankProgress
from gconsole.core.store import RankNow
from gconsole.monitor.progress import LASTS_NS, holds
from gconsole.records import Rank, RankStat

SECOND = 1_000_000_000
AT = 1_800_000_000 * SECOND


def rank_now(seconds_later, asleep_s):
    """A rank some seconds after its stack; `asleep_s`: its main thread has not run for that long, None: it ran."""
    t, mono = AT + seconds_later * SECOND, (1000 + seconds_later) * SECOND
    head = {"node": "n", "agent": "a", "seq": 1, "t": t, "mono": mono, "rx": t, "job": "j", "rank": 0, "pid": 7,
            "start_ticks": 1}  # fmt: skip
    asleep_since = None if asleep_s is None else mono - asleep_s * SECOND
    now = RankNow(Rank(**head, world_size=2, source="environ"), RankStat(**head, state="moving"))
    now.asleep_since = asleep_since
    return now


@pytest.mark.parametrize(("later", "asleep_s", "still_so"), [
    (60, 70, True), (60, 59, True), (60, 5, False), (60, None, False), (1, None, True),
], ids=["asleep all the time", "since about then", "ran meanwhile", "runs", "right after"])  # fmt: skip
def test_waiting_and_stalled_ranks_are_so_until_their_main_thread_runs(later, asleep_s, still_so):
    for state in ("waiting", "stalled"):
        assert holds(RankProgress(state, "", AT, slept=True), rank_now(later, asleep_s)) is still_so


def test_rank_that_runs_while_it_stands_still_is_stalled_until_the_next_verdict():
    assert holds(RankProgress("stalled", "", AT, slept=False), rank_now(600, None))


def test_rank_that_progressed_is_known_to_for_a_minute():
    entry = RankProgress("progressing", "", AT, slept=False)
    assert holds(entry, rank_now(50, None))
    assert not holds(entry, rank_now(LASTS_NS // SECOND + 1, None))


def test_pauses_of_a_rank_are_known_also_when_the_agent_of_its_node_is_replaced():
    from gconsole.core.store import Store
    from gconsole.records import Node, Rank

    def head(agent: str, at: int) -> dict:
        return {"node": "n1", "agent": agent, "seq": 1, "t": at, "mono": at, "rx": at}

    def a_node(agent: str, at: int) -> Node:
        return Node(
            **head(agent, at), hostname="n1", boot_id="b", kernel="6", arch="x86_64", python="3.11", uid=0, pid=1,
            sample_interval_ms=1000,
        )  # fmt: skip

    def a_rank(agent: str, at: int, start_ticks: int = 7) -> Rank:
        return Rank(**head(agent, at), job="j", rank=0, pid=9, start_ticks=start_ticks, source="environ")

    store = Store()
    store.apply([a_node("a", 1), a_rank("a", 2)])
    store.ranks["n1", 9, 7].longest_pause_s = 40.0
    store.apply([a_node("b", 3)])
    assert not len(store.ranks)
    store.apply([a_rank("b", 4), a_rank("b", 4, start_ticks=8)])
    assert [store.ranks["n1", 9, ticks].longest_pause_s for ticks in (7, 8)] == [40.0, 0.0]
