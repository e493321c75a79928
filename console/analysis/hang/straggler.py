"""Who holds back a job that moves: over many looks, who waits least for the others and works longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

from ..stacks.frame_models import FrameClass
from .job_view import WAITING, JobView
from .rank_state import RankState

#: Fewer looks than this say nothing about shares.
LEAST_LOOKS: Final = 5
#: So much of their time the others must be seen waiting, and so much more than the straggler.
WAIT_SHARE: Final = 0.5
LEAD: Final = 0.4
#: So often, by chance, a rank like the others would be seen waiting as seldom as the straggler is, over all ranks.
CHANCE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Straggler:
    """One rank that the others wait for in most steps."""

    standing: RankState
    cls: FrameClass  # what it is mostly seen in, when it does not wait
    share: float  # of the looks at which it waited
    others: float  # median of that of the others
    looks: int


def straggler(scene: JobView) -> Straggler | None:
    """The rank that waits least, where that can be no chance; None where nobody stands out.

    Refuses where ranks wait for messages rather than in collectives: the stages of a pipeline wait for each other by
    design. Refuses where several ranks stand out: then it is the work that is shared unevenly, not one rank that is
    slow. Refuses where the others stood in one long wait: that is one event, and no habit.
    """
    ranks = [standing for standing in scene.standings if len(standing.classes) >= LEAST_LOOKS]
    if len(ranks) < 2 or len(ranks) < len(scene.standings):
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


def _share(one: RankState) -> float:
    return sum(cls in WAITING for cls in one.classes) / len(one.classes)


def _chance(one: RankState, share: float) -> float:
    """How likely one that waits with that `share` is seen waiting so seldom (binomial)."""
    looks, waits = len(one.classes), sum(cls in WAITING for cls in one.classes)
    return sum(comb(looks, k) * share**k * (1 - share) ** (looks - k) for k in range(waits + 1))


def _alternates(others: Sequence[tuple[float, int, RankState]]) -> bool:
    """Whether somebody who waits has been woken meanwhile: steps go by."""
    return any(one.wakes_s is None or one.wakes_s * one.watched_s >= 2 * LEAST_LOOKS for _, _, one in others)
