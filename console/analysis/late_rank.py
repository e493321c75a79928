"""The rank that the others lastingly wait for while steps advance, from light stack samples.

A few samples a minute prove nothing, so this says when to capture; the verdict comes from the captured stacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from .hang.progress import waits_least
from .hang.rank_state import WAITING
from .places import Activity
from .stacks.frame_models import FrameClass

#: Seconds. The others must have waited for a rank for at least the first; samples older than the second are dropped.
LATE_S: Final = 45.0
HORIZON_S: Final = 120.0
#: Samples that each rank needs, and how many are kept at most.
LEAST_SAMPLES: Final = 6
MOST_SAMPLES: Final = 64
#: Share of the samples of the others in which they had run since the sample before: steps pass.
PASSES: Final = 0.5


class PlaceSample(NamedTuple):
    """Where a rank was in one light sample."""

    at_s: float  # CLOCK_REALTIME of the node
    cls: FrameClass | None
    activity: Activity | None  # apart from training
    slept: bool  # its main thread had not run since the sample before


class LateRank(NamedTuple):
    """One rank that the others wait for."""

    rank: int
    since_s: float  # for at least this long


def late_rank(ranks: Mapping[int, Sequence[PlaceSample]]) -> LateRank | None:
    """The rank that waits significantly less than all others; None where no rank stands out. Samples are oldest first.

    Samples up to the last one in which any rank evaluated, compiled, saved or started do not count. Refuses, as the
    verdict on stragglers does, where ranks wait for messages. Refuses where the others sleep: that is one long wait.
    """
    busy = [each.at_s for samples in ranks.values() for each in samples if each.activity is not None]
    busy_s = max(busy, default=0.0)
    numbers = sorted(ranks)
    counted = [[each for each in ranks[rank] if each.at_s > busy_s] for rank in numbers]
    if min(map(len, counted), default=0) < LEAST_SAMPLES or any(each.cls == "p2p" for rank in counted for each in rank):
        return None
    since_s = min(samples[-1].at_s - samples[0].at_s for samples in counted)
    slowest = waits_least([(sum(each.cls in WAITING for each in samples), len(samples)) for samples in counted])
    if slowest is None or since_s < LATE_S:
        return None
    others = [each for index, samples in enumerate(counted) if index != slowest for each in samples]
    passes = sum(not each.slept for each in others) >= PASSES * len(others)
    return LateRank(numbers[slowest], since_s) if passes else None
