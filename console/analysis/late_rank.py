"""The rank that the others lastingly wait for while steps advance, from light stack samples.

A few samples a minute prove nothing, so this says when to capture; the verdict comes from the captured stacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, sqrt
from typing import Final, NamedTuple

from ..text.format import seconds, step_time
from .hang.progress import waits_least
from .hang.rank_state import WAITING
from .places import Activity
from .stacks.frame_models import FrameClass

#: Seconds. The others must have waited for a rank for at least the first; samples older than the second are dropped.
LATE_S: Final = 45.0
HORIZON_S: Final = 600.0
#: Samples that each rank needs, and how many are kept at most.
LEAST_SAMPLES: Final = 6
MOST_SAMPLES: Final = 128
#: Waits of each other rank that are seen at least: of two ranks whose steps take their time by chance, one is the last
#: in all of twelve steps once in 2,000 times. The samples of one long wait prove no more than one.
LEAST_WAITS: Final = 12
#: Share of the samples of the others in which they had run since the sample before: steps pass.
PASSES: Final = 0.5
#: Quantile of the normal distribution for intervals of 95 %.
_NORMAL_95: Final = 1.96


class PlaceSample(NamedTuple):
    """Where a rank was in one light sample."""

    at_s: float  # CLOCK_REALTIME of the node
    cls: FrameClass | None
    activity: Activity | None  # apart from training
    slept: bool  # its main thread had not run since the sample before
    is_quiet: bool = False  # its data connections were silent since the sample before, so that no step has passed


class WaitShare(NamedTuple):
    """The share of the time in which a rank waits for others, with an interval of 95 % (Wilson's)."""

    share: float
    low: float
    high: float
    samples: int


class LateRank(NamedTuple):
    """One rank that the others wait for.

    `lead` is the share of the time in which they wait and it does not, between `low` and `high` at 95 % (Newcombe's
    interval of a difference of proportions). Where a step takes s seconds, it costs the others lead * s of each.
    """

    rank: int
    since_s: float  # for at least this long
    cls: FrameClass | None  # what it mostly does while it does not wait
    own: WaitShare
    others: WaitShare  # all together; samples of one rank, because those of one instant are no independent ones
    lead: float
    low: float
    high: float


def wait_share(samples: Sequence[PlaceSample], independent: int | None = None) -> WaitShare | None:
    """How much of the time a rank waits; None without samples. `independent` samples: by default all of them."""
    if not samples:
        return None
    count = independent or len(samples)
    share = sum(each.cls in WAITING for each in samples) / len(samples)
    middle = share + _NORMAL_95**2 / (2 * count)
    half = _NORMAL_95 * sqrt(share * (1 - share) / count + (_NORMAL_95 / (2 * count)) ** 2)
    scale = 1 + _NORMAL_95**2 / count
    return WaitShare(share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale), count)


def late_rank(ranks: Mapping[int, Sequence[PlaceSample]]) -> LateRank | None:
    """The rank that waits significantly less than all others; None where no rank stands out. Samples are oldest first.

    Refuses, as the verdict on stragglers does, where ranks wait for messages. Refuses where the others sleep: that is
    one long wait.
    """
    numbers = sorted(ranks)
    counted = _newest_waits(list(counted_samples(ranks).values()))
    if min(map(len, counted), default=0) < LEAST_SAMPLES or any(each.cls == "p2p" for rank in counted for each in rank):
        return None
    since_s = min(samples[-1].at_s - samples[0].at_s for samples in counted)
    slowest = waits_least([(sum(each.cls in WAITING for each in samples), len(samples)) for samples in counted])
    if slowest is None or since_s < LATE_S:
        return None
    others = [each for index, samples in enumerate(counted) if index != slowest for each in samples]
    if sum(not each.slept for each in others) < PASSES * len(others):
        return None
    own = wait_share(counted[slowest])
    rest = wait_share(others, min(map(len, counted)))
    assert own is not None
    assert rest is not None
    lead = rest.share - own.share
    low = lead - sqrt((rest.share - rest.low) ** 2 + (own.high - own.share) ** 2)
    high = lead + sqrt((rest.high - rest.share) ** 2 + (own.share - own.low) ** 2)
    classes = Counter(each.cls for each in counted[slowest] if each.cls not in WAITING)
    cls = classes.most_common(1)[0][0] if classes else None
    return LateRank(numbers[slowest], since_s, cls, own, rest, lead, max(0.0, low), min(1.0, high))


def _newest_waits(ranks: Sequence[Sequence[PlaceSample]]) -> list[list[PlaceSample]]:
    """The newest samples with `LEAST_WAITS` waits of every rank but one, over `LATE_S`; none where there are fewer."""
    begins = sorted(map(_begin_of_waits, ranks))
    if len(begins) < 2 or begins[1] == -inf:
        return [[] for _ in ranks]
    begin_s = min(begins[1], min(samples[-1].at_s for samples in ranks if samples) - LATE_S)
    first = [sum(each.at_s < begin_s for each in samples) for samples in ranks]
    return [list(samples[max(0, index - 1) :]) for samples, index in zip(ranks, first, strict=True)]


def _begin_of_waits(samples: Sequence[PlaceSample]) -> float:
    """When the last `LEAST_WAITS` waits of a rank began; minus infinity where it has had fewer."""
    waits = [
        after.at_s
        for before, after in pairwise([None, *samples])
        if after is not None and after.cls in WAITING
        and (before is None or before.cls not in WAITING or not (after.slept or after.is_quiet))
    ]  # fmt: skip
    return waits[-LEAST_WAITS] if len(waits) >= LEAST_WAITS else -inf


def counted_samples(ranks: Mapping[int, Sequence[PlaceSample]]) -> dict[int, list[PlaceSample]]:
    """The samples of each rank, by number, after the last one in which any evaluated, compiled, saved or started."""
    busy_s = max(
        (each.at_s for samples in ranks.values() for each in samples if each.activity is not None), default=0.0
    )
    return {rank: [each for each in ranks[rank] if each.at_s > busy_s] for rank in sorted(ranks)}


class RankWait(NamedTuple):
    """How much of the time one rank waits for others."""

    rank: int
    node: str
    wait: WaitShare


class StepLength(NamedTuple):
    """How long a step takes; `curve`: the traffic or power that repeats with the steps, empty for a watched step."""

    seconds: float
    curve: str = ""


class JobWaits(NamedTuple):
    """The waiting of all ranks of one job, by light stack samples, and the rank that the others wait for."""

    job: str
    attempt: int
    ranks: tuple[RankWait, ...]  # the one that waits least first
    late: LateRank | None
    step: StepLength | None


def waits_of(
    job: str, attempt: int, samples: Mapping[int, Sequence[PlaceSample]], nodes: Mapping[int, str],
    step: StepLength | None,
) -> JobWaits:  # fmt: skip
    """The waiting of the ranks of one job; a rank without samples that count is not listed."""
    waits = [
        RankWait(rank, nodes[rank], share)
        for rank, counted in counted_samples(samples).items()
        if (share := wait_share(counted)) is not None
    ]
    waits.sort(key=lambda each: (each.wait.share, each.rank))
    return JobWaits(job, attempt, tuple(waits), late_rank(samples), step)


def late_text(late: LateRank, step: StepLength | None) -> str:
    """`Over 70 s the others wait in 100% (68–100 %) of the samples, rank 1 in 0% (0–32 %): …`, without a full stop."""
    text = (
        f"Over {seconds(late.since_s)} the others wait in {_percent(late.others)} of the samples, rank {late.rank} in "
        f"{_percent(late.own)}: they wait for it in {late.lead:.0%} of the time (95 %: {_range(late.low, late.high)})"
    )
    if step is None:
        return text
    low, lead, high = (1e3 * step.seconds * share for share in (late.low, late.lead, late.high))
    text = f"{text}, {lead:,.0f} ms of each step ({low:,.0f}–{high:,.0f} ms)"
    return f"{text}; a step takes {step_time(step.seconds)} by {step.curve}" if step.curve else text


def _percent(share: WaitShare) -> str:
    return f"{share.share:.0%} ({_range(share.low, share.high)})"


def _range(low: float, high: float) -> str:
    return f"{100 * low:.0f}–{100 * high:.0f} %"
