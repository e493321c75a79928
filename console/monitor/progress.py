"""The progress of ranks, as long as the verdict that it comes from still holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..analysis.hang.diagnosis import Judgement
from ..analysis.rank_progress import RankProgress, progress_of
from ..core.store import ProcessKey, RankNow, Store
from ..core.versioned_table import Table
from ..records.kinds import is_gone
from .hang import evaluation

#: ns. A rank that progressed is known to do so for this long after its last sample.
LASTS_NS: Final = 60_000_000_000
#: ns. Samples of stacks and figures of a rank are taken by different threads of the agent.
SLACK_NS: Final = 2_500_000_000


def progress_in(store: Store) -> Mapping[ProcessKey, RankProgress]:
    """The progress of the ranks in a store, from the verdicts on its captures."""
    return current_progress(store.ranks, evaluation(store).judgements()) if len(store.captures) else {}


def current_progress(
    ranks: Table[ProcessKey, RankNow], judgements: Sequence[Judgement]
) -> Mapping[ProcessKey, RankProgress]:
    """The progress of live ranks by process. Without those that have done something since they were sampled."""
    progress = {}
    for judgement in judgements:
        for key, entry in progress_of(judgement).items():
            now = ranks.get(key)
            if now is not None and not is_gone(now.rank) and holds(entry, now):
                progress[key] = entry
    return progress


def holds(entry: RankProgress, now: RankNow) -> bool:
    """Whether a rank has not done anything since that contradicts its progress."""
    if now.stat is None:
        return True
    if entry.state not in ("waiting", "stalled"):
        return now.stat.t - entry.at <= LASTS_NS
    if not entry.slept:
        return True  # it runs, and only its stack tells whether it goes on
    if now.stat.t <= entry.at + SLACK_NS:
        return True
    if now.asleep_since is None:
        return False
    return now.stat.t - (now.stat.mono - now.asleep_since) <= entry.at + SLACK_NS
