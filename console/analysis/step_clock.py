"""The step clock: the period of a job's steps from a figure that repeats with them, such as CPU use or network traffic.

The autocorrelation of a periodic figure has peaks at multiples of its period. A late multiple, found by following the
earlier ones, gives the period to a fraction of the sampling interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

import msgspec

#: Correlation of a figure with itself one period later, from which it is periodic.
LEAST_CORRELATION: Final = 0.5
#: Periods that must have been seen, and samples per period: fewer are a coincidence.
LEAST_PERIODS: Final = 4
LEAST_LAG: Final = 3


class StepClock(msgspec.Struct, frozen=True):
    """The period of a figure. Durations are in seconds."""

    period_s: float
    correlation: float  # of the figure with itself one period later


def step_clock(values: Sequence[float], interval_s: float) -> StepClock | None:
    """The step clock of a figure sampled every `interval_s`, oldest first; None where it is not periodic.

    Raises ValueError if `interval_s` is not positive.
    """
    if interval_s <= 0:
        raise ValueError("the interval of samples must be positive")
    count = len(values)
    centred = [value - fmean(values) for value in values] if count else []
    if count < LEAST_PERIODS * LEAST_LAG or not any(centred):
        return None
    longest = count // 2
    correlations = [_correlation(centred, lag) for lag in range(longest + 1)]
    first = _first_peak(correlations, count // LEAST_PERIODS)
    if first is None:
        return None
    period = _vertex(correlations, first)
    multiple = 2
    while round(multiple * period) < longest:  # each peak predicts the next one
        near = range(max(1, round(multiple * period) - 1), min(longest, round(multiple * period) + 2))
        peak = max(near, key=lambda lag: correlations[lag])
        if correlations[peak] < LEAST_CORRELATION:
            break
        period = _vertex(correlations, peak) / multiple
        multiple += 1
    return StepClock(period * interval_s, correlations[first]) if multiple > 2 else None


def _correlation(centred: Sequence[float], lag: int) -> float:
    """Of a figure with itself `lag` samples later, by the variance of the parts that overlap."""
    early, late = centred[: len(centred) - lag], centred[lag:]
    norm = (sum(value * value for value in early) * sum(value * value for value in late)) ** 0.5
    return sum(a * b for a, b in zip(early, late, strict=True)) / norm if norm else 0.0


def _first_peak(correlations: Sequence[float], most: int) -> int | None:
    """The first peak nearly as high as any other, after the correlation has fallen: not a part of a period."""
    fell = next((lag for lag, value in enumerate(correlations) if value < LEAST_CORRELATION / 2), None)
    if fell is None:
        return None
    peaks = [
        lag
        for lag in range(max(fell, LEAST_LAG), min(most, len(correlations) - 2) + 1)
        if correlations[lag] >= max(correlations[lag - 1], correlations[lag + 1])
    ]
    highest = max((correlations[lag] for lag in peaks), default=0.0)
    if highest < LEAST_CORRELATION:
        return None
    return next(lag for lag in peaks if correlations[lag] >= max(LEAST_CORRELATION, 0.6 * highest))


def _vertex(correlations: Sequence[float], peak: int) -> float:
    """The position of a peak between samples: the vertex of the parabola through it and its neighbours."""
    before, highest, after = correlations[peak - 1], correlations[peak], correlations[peak + 1]
    bend = before - 2 * highest + after
    return peak + (0.5 * (before - after) / bend if bend < 0 else 0.0)
