"""Windows of a running job, with and without what is measured, in the order ABBA: their steps, and the difference."""

from __future__ import annotations

import array
import asyncio
import bisect
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

#: Seconds of a change between two windows that count for neither.
SETTLE_S = 2.0
RESAMPLES = 4000


class Window(NamedTuple):
    """A window on CLOCK_MONOTONIC; `is_loaded`: with what is measured."""

    is_loaded: bool
    begin: float
    end: float


class Cost(NamedTuple):
    """Percent by which a step is longer: median of the blocks, and its interval of 95 % by resampling them."""

    median_pct: float
    low_pct: float
    high_pct: float
    blocks: int

    @property
    def text(self) -> str:
        return f"{self.median_pct:+.2f} % ({self.low_pct:+.2f} to {self.high_pct:+.2f} with 95 %, {self.blocks} blocks)"


async def window(is_loaded: bool, window_s: float, settle_s: float = SETTLE_S) -> Window:
    """A window of that length, after a pause."""
    await asyncio.sleep(settle_s)
    begin = time.monotonic()
    await asyncio.sleep(window_s)
    return Window(is_loaded, begin, time.monotonic())


def cost_of(
    ends: array.array[float], windows: Sequence[Window], usual: Callable[[Iterable[float]], float] = statistics.median
) -> Cost:
    """The difference between the windows of each block of four; `ends` are the ends of all steps.

    `usual` is the step that stands for a window: the median, or the mean, in which single slow steps count, too.
    """
    steps = [(entry.is_loaded, _step_s(ends, entry, usual)) for entry in windows]
    costs = [_cost_pct(steps[index : index + 4]) for index in range(0, len(steps), 4)]
    chance = random.Random(11)
    resampled = sorted(statistics.median(chance.choices(costs, k=len(costs))) for _ in range(RESAMPLES))
    low, high = resampled[int(0.025 * RESAMPLES)], resampled[int(0.975 * RESAMPLES) - 1]
    return Cost(statistics.median(costs), low, high, len(costs))


def step_ms(ends: array.array[float], windows: Sequence[Window]) -> float:
    """Median step of all windows."""
    return 1000 * statistics.median(_step_s(ends, entry, statistics.median) for entry in windows)


def _step_s(ends: array.array[float], entry: Window, usual: Callable[[Iterable[float]], float]) -> float:
    inside = ends[bisect.bisect_left(ends, entry.begin) : bisect.bisect_right(ends, entry.end)]
    return usual(after - before for before, after in itertools.pairwise(inside))


def _cost_pct(block: Sequence[tuple[bool, float]]) -> float:
    loaded = statistics.fmean(step for is_loaded, step in block if is_loaded)
    free = statistics.fmean(step for is_loaded, step in block if not is_loaded)
    return 100 * (loaded / free - 1)
