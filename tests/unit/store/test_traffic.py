"""The traffic of ranks in short intervals: what is kept of records that are late, have gaps, or make no sense."""

import random

import numpy as np
import pytest

from gconsole.core.store import Store
from gconsole.core.store.traffic import KEPT_S, MOST_RANKS
from gconsole.records import Rank, RankTraffic

MS = 1_000_000
HEAD = {"node": "n1", "agent": "a", "seq": 1, "t": 1, "mono": 1, "rx": 1}
KEY = ("n1", 7, 3)


def record(first, *moved, every_ms=50, pid=7, source="tcp", node="n1"):
    return RankTraffic(
        **{**HEAD, "node": node}, job="llama", rank=0, pid=pid, start_ticks=3, source=source,
        began=first * every_ms * MS, every_ms=every_ms, moved_bytes=moved,
    )  # fmt: skip


def store_of(*records):
    store = Store()
    for each in records:
        store.apply([each])
    return store


def test_gap_between_two_records_is_unknown_and_a_late_record_fills_it():
    store = store_of(record(100, 1, 2), record(106, 7))
    curve = store.traffic.get(KEY)
    assert curve.newest == 106
    assert np.array_equal(curve.values()[-8:], [np.nan, 1, 2, np.nan, np.nan, np.nan, np.nan, 7], equal_nan=True)
    store.apply([record(102, 3, 4, 5, 6)])
    assert list(curve.values()[-7:]) == [1, 2, 3, 4, 5, 6, 7]
    assert curve.newest == 106


def test_seconds_are_sums_of_whole_seconds():
    store = store_of(*(record(20 * second, *[second] * 20) for second in range(10, 14)), record(280, 9, 9))
    newest, by_second = store.traffic.get(KEY).seconds()
    assert newest == 13
    assert list(by_second[-4:]) == [200, 220, 240, 260]
    assert np.isnan(by_second[:-4]).all()


def test_second_of_which_half_is_known_is_as_busy_throughout_and_one_with_less_is_unknown():
    store = store_of(record(20 * 10, *[3] * 20), record(20 * 11, *[4] * 10), record(20 * 12, *[5] * 9))
    store.apply([record(20 * 13, *[6] * 20)])
    newest, by_second = store.traffic.get(KEY).seconds()
    assert newest == 13
    assert np.array_equal(by_second[-4:], [60, 80, np.nan, 120], equal_nan=True)


@pytest.mark.parametrize("changed", [{"source": "rdma"}, {"every_ms": 100}])
def test_other_counter_or_other_intervals_begin_another_curve(changed):
    store = store_of(record(100, 1, 2))
    before = store.traffic.get(KEY)
    store.apply([record(300, 5, **changed)])
    after = store.traffic.get(KEY)
    assert after is not before
    assert np.isnan(after.values()[:-1]).all()


def test_curve_of_a_rank_that_ended_or_whose_agent_was_replaced_is_dropped():
    rank = {"job": "llama", "rank": 0, "pid": 7, "start_ticks": 3, "world_size": 1, "source": "environ"}
    store = store_of(Rank(**HEAD, **rank), record(100, 1))
    store.apply([Rank(**HEAD, **rank, status="exited")])
    assert store.traffic.get(KEY) is None
    store.apply([record(100, 1), record(100, 1, node="n2")])
    store.traffic.forget("n1")
    assert store.traffic.get(KEY) is None
    assert store.traffic.get(("n2", 7, 3)) is not None


def test_memory_is_limited_whatever_nodes_send():
    store = store_of(*(record(100, 1, pid=pid) for pid in range(MOST_RANKS + 50)))
    assert store.traffic.get(("n1", 49, 3)) is None
    assert store.traffic.get(("n1", 50, 3)) is not None


@pytest.mark.filterwarnings("error")
def test_records_beyond_all_reason_raise_nothing():
    chance = random.Random(5)
    for _ in range(20):
        store, every_ms = Store(), chance.choice((20, 50, 70, 333, 1000))
        for _ in range(60):
            first = chance.choice((0, -5, 100, 2**40, chance.randrange(10_000)))
            moved = [chance.choice((0, 1, 2**63 - 1)) for _ in range(chance.choice((0, 1, 20, 1000)))]
            store.apply([record(first, *moved, every_ms=every_ms)])
            curve = store.traffic.get(KEY)
            if curve is not None:
                assert len(curve.values()) == KEPT_S * 1000 // every_ms
                curve.seconds()
