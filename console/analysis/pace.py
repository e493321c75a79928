"""The pace of a job: the duration of its steps against its own earlier ones.

Steps are grouped into windows of a minute or longer. A window is slow if three quarters of its steps are: pauses, such
as an evaluation or a checkpoint, are one long step each and do not make it slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Final, Literal, NamedTuple

#: Seconds and readings that one window has at least.
WINDOW_S: Final = 60.0
LEAST_READINGS: Final = 5
#: Windows that are not judged: the first steps compile and fill caches.
WARM_UP: Final = 1
#: Earlier windows that must be known, and that are kept.
LEAST_EARLIER, MOST_EARLIER = 3, 240
#: A slow window has this many times the median of the earlier ones, and this many times the slowest of them.
SLOWER, ABOVE_SLOWEST = 2.0, 1.25
#: Consecutive slow windows from which a job is slow.
LASTING: Final = 3


class Slowdown(NamedTuple):
    """A job that has become slower. Durations are in seconds."""

    step_s: float  # median of the slow windows
    earlier_s: float  # median of the windows before
    since_s: float  # for at least this long


class Pulse(NamedTuple):
    """The steps of a job as seen in its traffic or power. Durations are in seconds."""

    source: Literal["nic", "gpu", "traffic"]
    curve: str  # the traffic of node1, the traffic of rank 0
    node: str  # whose ranks it shows
    period_s: float  # of a step
    age_s: float  # since the curve was last high
    longest_pause_s: float  # between two pulses that followed each other
    evidence: tuple[str, ...] = ()  # fields of records that the curve consists of


class Slowness:
    """Consecutive windows of a job, each with the duration of a step: whether it has become lastingly longer."""

    def __init__(self, in_minute: int = 1, shorter: Slowness | None = None) -> None:
        """`in_minute`: windows in the time of one; shorter ones are judged where so many times more are known.

        `shorter` is that of shorter windows of the same job: steps that these have shown are known, too.
        """
        self._in_minute, self._warm_up, self._shorter = in_minute, WARM_UP * in_minute, shorter
        self._earlier: deque[float] = deque(maxlen=MOST_EARLIER * in_minute)  # medians
        self._slow: list[float] = []  # medians of the consecutive slow windows up to now
        self._slow_since_s = 0.0
        self._skipped = 0  # consecutive windows that could not be compared

    @property
    def is_known(self) -> bool:
        """Whether enough windows of its own were not slow."""
        return len(self._earlier) >= LEAST_EARLIER * self._in_minute

    @property
    def earlier_s(self) -> float | None:
        """Median of the windows that were not slow; None without one."""
        return median(self._known) if self._known else None

    @property
    def _known(self) -> Sequence[float]:
        """The medians of the windows that were not slow, with the shorter ones until those of its own are enough."""
        if self._shorter is None or self.is_known:
            return self._earlier
        return (*self._shorter._earlier, *self._earlier)

    def _minutes(self) -> float:
        return len(self._earlier) / self._in_minute + (self._shorter._minutes() if self._shorter is not None else 0.0)

    def is_slow(self, fastest_s: float) -> bool:
        """Whether a window is slow whose steps take at least this long."""
        if self._minutes() < LEAST_EARLIER:
            return False
        return fastest_s >= max(SLOWER * median(self._known), ABOVE_SLOWEST * max(self._known))

    def close(self, fastest_s: float, median_s: float, began_s: float) -> bool:
        """Add a window that began at an instant, with the first quartile and the median of its steps; whether slow."""
        self._skipped = 0
        if self._warm_up:
            self._warm_up -= 1
        elif self.is_slow(fastest_s):
            if not self._slow:
                self._slow_since_s = began_s
            self._slow = [*self._slow, median_s][-MOST_EARLIER * self._in_minute :]
            return True
        else:
            self._earlier.extend((*self._slow, median_s))  # what ended by itself belongs to the job
            self._slow = []
        return False

    def skip(self) -> None:
        """Count a window that cannot be compared with those before it: a slow job is not healthy by one or some."""
        self._skipped += 1
        lasting = LASTING * self._in_minute
        if len(self._slow) < lasting or self._skipped >= lasting:
            self._slow = []

    def slowdown(self, now_s: float) -> Slowdown | None:
        """How much slower the job has become; None where it is not lastingly slower."""
        if len(self._slow) < LASTING * self._in_minute:
            return None
        return Slowdown(median(self._slow), median(self._known), now_s - self._slow_since_s)


class Pace:
    """The steps of one rank."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None  # (step, instant)
        self._window: list[float] = []  # durations of a step, by reading
        self._began_s = 0.0
        self._slowness = Slowness()

    @property
    def newest_s(self) -> float:
        """The instant of the newest reading; 0.0 without one."""
        return self._last[1] if self._last is not None else 0.0

    def add(self, step: int, at_s: float) -> None:
        """A reading: the rank was first seen at a step at an instant of its node's clock, in seconds."""
        before, self._last = self._last, (step, at_s)
        if before is None or step <= before[0] or at_s <= before[1]:
            return  # a counter that begins again
        if not self._window:
            self._began_s = before[1]
        self._window.append((at_s - before[1]) / (step - before[0]))
        if at_s - self._began_s >= WINDOW_S and len(self._window) >= LEAST_READINGS:
            fastest_s = quantiles(self._window, n=4, method="inclusive")[0]
            self._slowness.close(fastest_s, median(self._window), self._began_s)
            self._window = []

    @property
    def slowdown(self) -> Slowdown | None:
        """How much slower the job has become; None where it is not lastingly slower."""
        return self._slowness.slowdown(self.newest_s)
