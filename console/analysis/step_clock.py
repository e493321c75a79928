"""The period of a job's steps in a figure that is sampled regularly, such as the traffic of a port or power.

No instrumentation is needed: each step of a job computes, then exchanges gradients. The autocorrelation of
such a curve has a peak at every multiple of the period and a trough between them. The period is that one whose
multiples and half multiples differ most, refined by the distances of the bursts; its error is at most 1 % from ten
steps on, and 3 % from four on.

Two samplings serve: figures of one second show steps of 3.5 to 75 s, traffic in intervals of 50 ms those of 0.2 to 7 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .pace import WINDOW_S, Slowdown, Slowness

#: Samples. Shorter periods are not reported, and below `LEAST_SEEN` they are not seen: two samples each are too few.
LEAST_PERIOD: Final = 3.5
LEAST_SEEN: Final = 2.0
#: Periods that a curve has at least, and multiples of one that are compared: steps of a loaded machine drift apart.
LEAST_PERIODS: Final = 4
MOST_MULTIPLES: Final = 6
#: Seconds after which a window of figures of one second is dropped.
LONGEST_WINDOW_S: Final = 300
#: Mean of the autocorrelation at the multiples, less that at the half multiples, from which a curve has a period. Noise
#: reaches it in up to 10 % of the windows (with a third of their samples unknown), so one window proves nothing.
LEAST_SCORE: Final = 0.6
#: Multiples of the period score alike: the shortest that scores this share of the best one is taken.
AMONG_BEST: Final = 0.8
#: Steps drift apart, so that the autocorrelation at the multiples of their period falls. Where it rises again by this
#: much, to this share of that at the period, that is of a part of a step, such as a micro-batch or a layer.
RISE, AGAIN = 0.25, 0.8
#: Share of the length of a pattern below which periods are of its parts.
WHOLE: Final = 0.75
#: Share of the mean that the standard deviation has at least, of power and of traffic. Traffic pauses while a step
#: computes; with less contrast steps are shorter than a sample, whose sums repeat with another period.
LEAST_CONTRAST: Final = 0.1
WORK_CONTRAST: Final = 0.5
SMOOTH: Final = (0.25, 0.5, 0.25)
#: The autocorrelation is known at lags of so many parts of a sample, as the curve has no higher frequencies.
PARTS: Final = 4
#: Share of the highest value below which traffic pauses, and share of the periods of a curve that have such a pause of
#: two samples: steps shorter than two seconds have none.
LOW: Final = 0.3
WITH_PAUSE: Final = 0.7
#: Height between the lowest and the highest value above which a sample belongs to a burst, and share by which the
#: distances of bursts may differ from the period.
BURST: Final = 0.15
MOST_UNEVEN: Final = 0.35
#: Share of its samples that a curve may lack, and of the pairs of two samples that are known at a lag at least: where
#: fewer are, such as of gaps that repeat themselves, the autocorrelation is taken for lower than it is.
MOST_UNKNOWN: Final = 0.3
LEAST_PAIRS: Final = 0.4
#: Share of the samples of a window whose absence may hide as much work as two windows may differ by.
MOST_HIDDEN: Final = 0.05
#: Relative distance of neighbouring candidates.
GRID: Final = 0.004
#: Consecutive windows whose periods agree within this factor make a steady clock.
STEADY_WINDOWS: Final = 3
STEADY: Final = 1.25
#: A slow job moves as many bytes a step as before, within this factor: otherwise it does something else.
SAME_WORK: Final = 1.4
#: Autocorrelation at the earlier period above which a curve still has it.
STILL_PERIODIC: Final = 0.3
#: Height between the lowest and the highest value of a window above which a sample belongs to a pulse; of a curve that
#: counts work, share of the highest: a later phase of a job may send a tenth, one that stands still sends nothing.
PULSE: Final = 0.3
WORK_PULSE: Final = 0.02

Curve = NDArray[np.float32] | NDArray[np.float64]


class Sampling(NamedTuple):
    """How a curve is sampled, and the windows in which a period is looked for, in samples."""

    every_s: float
    window: int
    growth: int  # of a window without a period
    longest: int  # window, which is dropped
    in_minute: int  # windows in one of `pace.WINDOW_S`


EACH_SECOND: Final = Sampling(1.0, window=int(WINDOW_S), growth=15, longest=LONGEST_WINDOW_S, in_minute=1)
#: Seconds of a window of shorter samples.
_FINE_WINDOW_S: Final = 30


def fine_sampling(every_s: float) -> Sampling:
    """Samples that are shorter than a second."""
    window = round(_FINE_WINDOW_S / every_s)
    return Sampling(every_s, window, growth=window, longest=window, in_minute=int(WINDOW_S) // _FINE_WINDOW_S)


class Period(NamedTuple):
    """The period of a curve in samples, and how clearly it shows: 0 to 2."""

    length: float
    score: float


def period_of_curve(values: Curve, least_contrast: float = WORK_CONTRAST) -> Period | None:
    """The period of a curve, NaN where it is unknown; None without one."""
    correlation = _autocorrelation(values, least_contrast)
    if correlation is None or len(values) < LEAST_PERIODS * LEAST_PERIOD:
        return None
    periods, multiples, halves, starts, counts = _combs(len(values))
    lags = _lags(correlation)
    peaks = np.add.reduceat(np.interp(multiples, lags, correlation), starts) / counts
    troughs = np.add.reduceat(np.interp(halves, lags, correlation), starts) / counts
    is_first = np.interp(periods, lags, correlation) >= STILL_PERIODIC  # half of a period has peaks, too, not this one
    scores = np.where(is_first, peaks - troughs, 0.0)
    while True:
        if scores.max() < LEAST_SCORE:
            return None
        best = int(np.argmax(scores >= AMONG_BEST * scores.max()))
        while best + 1 < len(scores) and scores[best + 1] >= scores[best]:
            best += 1
        whole = _whole(correlation, float(periods[best]))
        if whole is None:
            break
        scores[periods < WHOLE * whole] = 0.0  # of parts of this one
    length = _refined(correlation, float(periods[best]))
    length = _by_bursts(values, length) or length
    return Period(length, float(scores[best])) if length >= LEAST_PERIOD else None


def _autocorrelation(values: Curve, least_contrast: float) -> NDArray[np.float64] | None:
    """By lag in parts of a sample, up to half of the length; None of a curve that is unknown or flat.

    At each lag the mean is of pairs of known values: a value between two known ones may have been that of a burst.
    """
    is_known = ~np.isnan(values)
    count = len(values)
    if count < 2 or is_known.mean() < 1 - MOST_UNKNOWN:
        return None
    instants, seen = np.flatnonzero(is_known), values[is_known].astype(np.float64)
    if seen.std() < least_contrast * abs(seen.mean()) or not seen.any():
        return None
    curve = np.zeros(count)
    curve[instants] = seen - np.polyval(np.polyfit(instants, seen, 1), instants)
    curve = np.convolve(np.pad(curve, 1, "edge"), SMOOTH, "valid")  # else short pulses miss half of their multiples
    weights = np.convolve(np.pad(is_known.astype(np.float64), 1, "edge"), SMOOTH, "valid")
    spectrum, known_spectrum = np.fft.rfft(curve, 2 * count), np.fft.rfft(weights, 2 * count)
    products = np.fft.irfft(spectrum * np.conj(spectrum), 2 * count * PARTS)[: count // 2 * PARTS + 1] * PARTS
    pairs = np.fft.irfft(known_spectrum * np.conj(known_spectrum), 2 * count)[: count // 2 + 1]
    if products[0] <= 0:
        return None
    lags = _lags(products)
    mean = products / np.maximum(np.interp(lags, np.arange(len(pairs)), pairs), LEAST_PAIRS * (count - lags))
    correlation: NDArray[np.float64] = mean / mean[0]
    return correlation


def _lags(correlation: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.arange(len(correlation)) / PARTS


@lru_cache(maxsize=32)
def _combs(
    count: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.intp], NDArray[np.intp]]:
    """Candidates of a curve of so many samples, their multiples and half multiples, where each begins, how many."""
    low, high = np.log(LEAST_SEEN), np.log(count / LEAST_PERIODS)
    periods = np.exp(np.arange(low, high + GRID / 2, GRID))
    counts = np.minimum(count // 2 / periods, MOST_MULTIPLES).astype(np.intp)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    numbers = np.arange(counts.sum()) - np.repeat(starts, counts) + 1
    lengths = np.repeat(periods, counts)
    return periods, numbers * lengths, (numbers - 0.5) * lengths, starts, counts


def _refined(correlation: NDArray[np.float64], period: float) -> float:
    """The period by the furthest peak that is clear: peak after peak, each within a quarter of the period."""
    length = period * PARTS
    for number in range(1, int((len(correlation) - 2) / length) + 1):
        first = round((number - 0.25) * length)
        if first >= len(correlation):
            break  # the period has grown
        peak = first + int(np.argmax(correlation[first : round((number + 0.25) * length) + 1]))
        if peak + 1 >= len(correlation) or correlation[peak] < STILL_PERIODIC:
            break
        before, top, after = correlation[peak - 1 : peak + 2]
        bend = before - 2 * top + after
        offset = 0.5 * (before - after) / bend if bend < 0 else 0.0
        length = float((peak + min(0.5, max(-0.5, offset))) / number)
    return length / PARTS


def _whole(correlation: NDArray[np.float64], period: float) -> float | None:
    """The lag at which a pattern repeats of which this period is a part; None where it is whole."""
    length = period * PARTS
    peaks = [
        float(correlation[round((number - 0.25) * length) : round((number + 0.25) * length) + 1].max())
        for number in range(1, int((len(correlation) - 1) / length - 0.25) + 1)
    ]
    if not peaks:
        return None
    rises = np.array(peaks) - np.minimum.accumulate(peaks)
    later = np.flatnonzero((rises >= RISE) & (np.array(peaks) >= AGAIN * peaks[0]))
    return period * float(1 + later[np.argmax(np.array(peaks)[later])]) if len(later) else None


def _by_bursts(values: Curve, period: float) -> float | None:
    """The mean distance of the bursts of a curve of about this period; None where there is not one in each.

    Steps that differ blur the autocorrelation, and less so the distance of the first burst to the last one.
    """
    seen = np.nan_to_num(values.astype(np.float64), nan=float(np.nanmin(values)))
    low, high = float(seen.min()), float(np.quantile(seen, 0.98))
    is_high = np.concatenate(([False], seen > low + BURST * (high - low), [False]))
    begins, ends = np.flatnonzero(is_high[1:] & ~is_high[:-1]), np.flatnonzero(is_high[:-1] & ~is_high[1:])
    whole = (begins > 0) & (ends < len(seen))
    centres = np.array([
        np.average(np.arange(begin, end), weights=seen[begin:end] - low)
        for begin, end in zip(begins[whole], ends[whole], strict=True)
    ])  # fmt: skip
    distances = np.diff(centres)
    if len(distances) < LEAST_PERIODS or (np.abs(distances / period - 1.0) > MOST_UNEVEN).any():
        return None
    return float(distances.mean())


def _pauses(curve: Curve, period: float) -> bool:
    """Whether traffic pauses for two samples in most of its periods."""
    with np.errstate(invalid="ignore"):
        is_low = np.asarray(curve < LOW * np.nanquantile(curve, 0.98))
    is_pause = is_low[1:] & is_low[:-1]
    pauses = np.count_nonzero(is_pause[1:] & ~is_pause[:-1]) + int(is_pause[0])
    return bool(pauses >= WITH_PAUSE * np.count_nonzero(~np.isnan(curve)) / period)


class _Window(NamedTuple):
    """One stretch of a curve with a period."""

    period: float  # samples
    work: float  # sum of the curve in one period
    low: float
    high: float


class StepClock:
    """The period of one curve over time: whether it goes on, and whether it has become lastingly longer.

    `conserves`: the curve counts work, such as bytes, which a slow step has as much of as another one. `finer` is the
    clock of the same curve in shorter samples: the steps that it has shown are those of the job, too.
    """

    def __init__(self, *, conserves: bool, sampling: Sampling = EACH_SECOND, finer: StepClock | None = None) -> None:
        self._conserves, self._sampling, self._finer = conserves, sampling, finer
        self._contrast = WORK_CONTRAST if conserves else LEAST_CONTRAST
        # instants are numbers of samples
        self._began: int | None = None  # of the open window
        self._begins = True  # no window was tried yet
        self._now = 0  # of the last read
        self._tried = 0  # its length when it had no period yet
        self._windows: deque[_Window] = deque(maxlen=STEADY_WINDOWS)
        self._slowness: Slowness = Slowness(sampling.in_minute, finer._slowness if finer is not None else None)
        self._work: deque[float] = deque(maxlen=240)  # of the windows that were not slow
        self._pulse: int | None = None  # the newest one
        self._newest: int | None = None  # that is known
        self._longest_pause = 0

    @property
    def period_s(self) -> float | None:
        """Seconds of a step; None unless the newest windows agree."""
        periods = [window.period for window in self._windows]
        if len(periods) < STEADY_WINDOWS or max(periods) > STEADY * min(periods):
            return None
        return median(periods) * self._sampling.every_s

    @property
    def pulse_age_s(self) -> float | None:
        """Seconds since the curve was last high, up to its newest known value; None where no period was seen."""
        if self._pulse is None or self._newest is None or not self._windows:
            return None
        return (self._newest - self._pulse) * self._sampling.every_s

    @property
    def longest_pause_s(self) -> float:
        """The longest time between two pulses that followed each other."""
        return self._longest_pause * self._sampling.every_s

    @property
    def slowdown(self) -> Slowdown | None:
        """How much longer the period has become; None where it is not lastingly longer."""
        return self._slowness.slowdown((self._began or 0) * self._sampling.every_s)

    def read(self, now: int, values: Curve) -> None:
        """The newest values, the last one of the sample with the number `now`; NaN where unknown.

        What is older than the last read, as after a jump in a recording, is read as if it had arrived one by one.
        """
        window, growth = self._sampling.window, self._sampling.growth
        if self._begins:
            reported = np.flatnonzero(~np.isnan(values))
            if not len(reported):
                return
            self._began = now - len(values) + 1 + int(reported[0])
            self._now = self._began + window - 1 - growth
        for number in range(max(self._now, now - len(values)) + growth, now, growth):
            self._read(number, values[: len(values) - (now - number)])
        self._read(now, values)
        self._now = now

    def _read(self, now: int, values: Curve) -> None:
        assert self._began is not None
        self._follow_pulses(now, values)
        length = min(now + 1 - self._began, len(values))
        length -= length % self._sampling.growth
        if length < self._sampling.window or length == self._tried:
            return
        self._tried, self._begins = length, False
        curve = values[len(values) - length :]
        period = period_of_curve(curve, self._contrast)
        if period is not None and (not self._conserves or _pauses(curve, period.length)):
            self._close(curve, period, now)
        elif length >= self._sampling.longest:
            self._slowness.skip()  # it pauses, or does something else
            self._began, self._tried = now + 1, 0

    def _close(self, curve: Curve, period: Period, now: int) -> None:
        seen = curve[~np.isnan(curve)].astype(np.float64)
        low, high = float(seen.min()), float(np.quantile(seen, 0.98))
        window = _Window(period.length, float((seen - low).mean()) * period.length, low, high)
        assert self._began is not None
        step_s, began_s = period.length * self._sampling.every_s, self._began * self._sampling.every_s
        if self._slowness.is_slow(step_s) and not self._is_slower(curve, window):
            if len(seen) > (1 - MOST_HIDDEN) * len(curve):
                self._slowness.skip()  # other work, not the same in more time
        elif not self._slowness.close(step_s, step_s, began_s):
            self._work.append(window.work)
        self._windows.append(window)
        self._began, self._tried = now + 1, 0

    def _is_slower(self, curve: Curve, window: _Window) -> bool:
        """Whether a longer period is the same step in more time: as much work, and nothing of the earlier period."""
        correlation, earlier_s = _autocorrelation(curve, self._contrast), self._slowness.earlier_s
        if correlation is None or earlier_s is None:
            return False
        earlier = earlier_s / self._sampling.every_s
        if earlier >= LEAST_SEEN and np.interp(earlier, _lags(correlation), correlation) >= STILL_PERIODIC:
            return False
        works: Iterable[float] = self._work
        if self._finer is not None and not self._slowness.is_known:
            works = (*self._finer._work, *self._work)
        return not self._conserves or median(works) / SAME_WORK <= window.work <= median(works) * SAME_WORK

    def _follow_pulses(self, now: int, values: Curve) -> None:
        if self._pulse is not None:
            values = values[max(0, len(values) - 1 - now + self._pulse) :]  # from the newest pulse on
        first = now - len(values) + 1
        reported = np.flatnonzero(~np.isnan(values))
        if len(reported):
            self._newest = first + int(reported[-1])
        if not self._windows:
            return
        low, high = median(w.low for w in self._windows), median(w.high for w in self._windows)
        least = WORK_PULSE * high if self._conserves else low + PULSE * (high - low)
        with np.errstate(invalid="ignore"):
            is_high = np.asarray(values >= least)
        pulses = first + np.flatnonzero(is_high)
        if len(pulses):
            before = pulses[0] if self._pulse is None else self._pulse
            self._longest_pause = max(self._longest_pause, int(np.diff(pulses, prepend=before).max()))
            self._pulse = int(pulses[-1])
