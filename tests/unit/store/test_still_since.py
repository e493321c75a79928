"""Time since which a rank is stalled, from its observed activity."""

import msgspec

from gconsole.core.store import Store
from gconsole.records import Rank, RankStat, Stack

SECOND = 1_000_000_000
WHO = {"node": "n", "agent": "a", "job": "j", "rank": 0, "pid": 9, "start_ticks": 7}


def a_tick(at_s, **figures):
    known = RankStat(**WHO, t=at_s * SECOND, mono=at_s * SECOND, state="idle", proc_state="S", cpu_pct=0.0,
                     ctx_switches_s=0.0)  # fmt: skip
    return msgspec.structs.replace(known, **figures)


def a_native_read(began_s, ended_s):
    return Stack(**WHO, t=ended_s * SECOND, capture="c", sample=0, status="ok", mode="blocking", native=True,
                 began=int(began_s * SECOND), ended=int(ended_s * SECOND))  # fmt: skip


def since(*records):
    store = Store()
    store.apply([Rank(**WHO, source="environ"), *records])
    still_since = store.ranks["n", 9, 7].still_since
    return None if still_since is None else still_since / SECOND


def test_background_thread_activity_is_not_movement_while_the_main_thread_sleeps():
    background = {"state": "moving", "cpu_pct": 1.0}
    assert since(a_tick(1), a_tick(2, **background), a_tick(3)) == 1


def test_main_thread_wakeup_or_high_cpu_use_counts_as_movement():
    assert since(a_tick(1), a_tick(2, state="moving", ctx_switches_s=3.0), a_tick(3)) == 3
    assert since(a_tick(1), a_tick(2, state="moving", cpu_pct=60.0), a_tick(3)) == 3
    assert since(a_tick(1), a_tick(2, state="moving", proc_state="R", cpu_pct=1.0)) is None


def test_wakeup_caused_by_a_native_stack_read_is_not_movement():
    woken = {"state": "moving", "ctx_switches_s": 2.0}
    assert since(a_tick(1), a_tick(2, **woken), a_native_read(1.5, 2.1), a_tick(3)) == 1, "before the read ended"
    assert since(a_tick(1), a_native_read(1.5, 2.1), a_tick(2), a_tick(3, **woken), a_tick(4)) == 1, "after it"


def test_wakeup_before_or_after_a_native_stack_read_counts_as_movement():
    woken = {"state": "moving", "ctx_switches_s": 2.0}
    assert since(a_tick(1), a_tick(2, **woken), a_tick(3), a_native_read(3.5, 3.6), a_tick(4)) == 3
    assert since(a_tick(1), a_native_read(1.5, 1.6), a_tick(2), a_tick(3), a_tick(4, **woken), a_tick(5)) == 5


def pauses(*records):
    store = Store()
    store.apply([Rank(**WHO, source="environ"), *records])
    return store.ranks["n", 9, 7].longest_pause_s


def test_pause_counts_only_after_the_rank_was_active_for_several_samples():
    moves = {"state": "moving", "ctx_switches_s": 50.0}
    still = [a_tick(second) for second in range(1, 10)]
    assert pauses(*still, a_tick(10, **moves)) == 0.0, "one wake-up is no recovery"
    assert pauses(*still, *(a_tick(second, **moves) for second in (10, 11, 12))) == 9.0
    assert pauses(*still, a_tick(10, **moves), a_tick(11), a_tick(12, **moves)) == 0.0


def test_longest_of_several_pauses_is_kept():
    moves = {"state": "moving", "ctx_switches_s": 50.0}
    active = [a_tick(second, **moves) for second in (10, 11, 12)]
    again = [a_tick(13), a_tick(14), *(a_tick(second, **moves) for second in (15, 16, 17))]
    assert pauses(a_tick(1), *active, *again) == 9.0
