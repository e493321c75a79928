"""The straggler of a job that makes progress: over many samples, the rank that waits least for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

from ..stacks.frame_models import FrameClass
from .job_view import WAITING, JobView
from .rank_state import RankState

#: Samples a rank needs before its shares count.
MIN_SAMPLES: Final = 5
#: Share of samples in which the others must wait, and their lead over the straggler.
WAIT_SHARE: Final = 0.5
LEAD: Final = 0.4
#: Probability, over all ranks, that a rank like the others is seen waiting as seldom as the straggler.
CHANCE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Straggler:
    """One rank that the others wait for in most steps."""

    state: RankState
    cls: FrameClass  # its most frequent class while it does not wait
    share: float  # of the samples in which it waited
    others: float  # median of that of the others
    samples: int


def straggler(view: JobView) -> Straggler | None:
    """The rank that waits least, if that is significant; None where no rank stands out.

    Refuses where ranks wait for messages rather than in collectives: the stages of a pipeline wait for each other by
    design. Refuses where several ranks stand out: then work is distributed unevenly, and no single rank is slow.
    Refuses where the others were in one long wait: that is a single event.
    """
    ranks = [state for state in view.states if len(state.classes) >= MIN_SAMPLES]
    if len(ranks) < 2 or len(ranks) < len(view.states):
        return None
    if any("p2p" in rank.classes for rank in ranks):
        return None
    shares = sorted((_share(rank), rank.rank or 0, rank) for rank in ranks)
    lowest, _, slow = shares[0]
    others = [share for share, _, _ in shares[1:]]
    median = others[len(others) // 2]
    if median < WAIT_SHARE or others[0] - lowest < LEAD:
        return None
    if _chance(slow, others[0]) * len(ranks) > CHANCE or not _alternates(shares[1:]):
        return None
    own = Counter(cls for cls in slow.classes if cls not in WAITING)
    return Straggler(slow, max(own, key=lambda cls: (own[cls], cls)), lowest, median, len(slow.classes))


def _share(state: RankState) -> float:
    return sum(cls in WAITING for cls in state.classes) / len(state.classes)


def _chance(state: RankState, share: float) -> float:
    """Probability that a rank waiting with this `share` is seen waiting so seldom (binomial)."""
    samples, waits = len(state.classes), sum(cls in WAITING for cls in state.classes)
    return sum(comb(samples, k) * share**k * (1 - share) ** (samples - k) for k in range(waits + 1))


def _alternates(others: Sequence[tuple[float, int, RankState]]) -> bool:
    """Whether a waiting rank was woken meanwhile, so that steps pass."""
    return any(rank.wakes_s is None or rank.wakes_s * rank.watched_s >= 2 * MIN_SAMPLES for _, _, rank in others)
