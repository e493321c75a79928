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
