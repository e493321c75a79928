"""Curves in braille: a character is two dots wide and four high, so that a minute fits in thirty cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...text import format

Floats = NDArray[np.floating[Any]]

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # left and right column of a character, top to bottom
_BLANK = 0x2800


@dataclass(frozen=True, eq=False)
class Plot:
    """One curve. `values` are oldest first, one each `step_s` seconds up to now; NaN is unknown and leaves a gap.

    `high` is the top of the axis; None takes the next round number above the highest value. The bottom is `low`.
    `spread` are the least and the most within each step, where the values are means of something finer.
    """

    title: str
    unit: str
    values: Floats
    step_s: float = 1.0
    low: float = 0.0
    high: float | None = None
    spread: tuple[Floats, Floats] | None = None

    @property
    def top(self) -> float:
        """The highest figure of the axis, above `low`."""
        if self.high is not None and self.high > self.low:
            return self.high
        most = self.summary()[2]
        return max(round_up(most) if most is not None else 1.0, self.low + 1)

    @property
    def now(self) -> float | None:
        """The newest value; None where it is unknown, whatever was before."""
        return None if not self.values.size or math.isnan(self.values[-1]) else float(self.values[-1])

    @property
    def is_known(self) -> bool:
        """Whether any value is known."""
        return self.summary()[1] is not None

    def summary(self) -> tuple[float | None, float | None, float | None]:
        """Least, mean and most of what is known."""
        if not (~np.isnan(self.values)).any():
            return None, None, None
        least, most = self.spread or (self.values, self.values)
        return float(np.nanmin(least)), float(np.nanmean(self.values)), float(np.nanmax(most))


def round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, … that is not below the value; 1 for what is not above 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def short(value: float | None) -> str:
    """A figure of an axis in at most five characters: "100", "0.5", "1980", "81.9G"."""
    if value is None:
        return format.UNKNOWN
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 9_999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.0f}{unit}" if abs(value) >= 99.5 or value == int(value) else f"{value:.1f}{unit}"


def columns(values: Floats, count: int) -> tuple[Floats, Floats]:
    """The least and the most of each of `count` equal parts; NaN where a part is unknown or has no value of its own.

    Of more values than columns none is lost: a spike of one second is drawn however wide the picture is. Fewer values
    stand at the right, where now is.
    """
    values = values.astype(np.float64)
    if len(values) < count:
        values = np.concatenate([np.full(count - len(values), np.nan), values])
    edges = np.linspace(0, len(values), count + 1).astype(int)
    return np.fmin.reduceat(values, edges[:-1]), np.fmax.reduceat(values, edges[:-1])


def braille(
    values: Floats, width: int, height: int, low: float, high: float, spread: tuple[Floats, Floats] | None = None
) -> list[str]:
    """The curve in `height` lines of `width` characters, between `low` at the bottom and `high` at the top.

    With a `spread` the curve is as thick as that is. Known neighbours are joined; beside what is unknown nothing is.
    What is beyond an end is drawn at that end.
    """
    if width <= 0 or height <= 0:
        return [""] * max(0, height)
    lows, highs = spread or (values, values)
    least, most = columns(lows, 2 * width)[0], columns(highs, 2 * width)[1]
    rows = 4 * height
    cells = np.full((height, width), _BLANK, np.int32)
    bottom = _rows(least, low, high, rows)
    top = _rows(most, low, high, rows)
    for x in range(2 * width):
        if np.isnan(least[x]):
            continue
        first, last = int(top[x]), int(bottom[x])
        if x and not np.isnan(least[x - 1]):  # reach to the row beside which the neighbour ends
            first, last = min(first, int(bottom[x - 1]) + 1), max(last, int(top[x - 1]) - 1)
        for y in range(first, last + 1):
            cells[y // 4, x // 2] |= _DOTS[x % 2][y % 4]
    return ["".join(map(chr, line)).replace(chr(_BLANK), " ") for line in cells]


def _rows(values: Floats, low: float, high: float, rows: int) -> Floats:
    """The row of dots of each value, 0 at the top."""
    share = np.clip((values - low) / (high - low), 0, 1)
    dots: Floats = np.rint((1 - np.nan_to_num(share)) * (rows - 1))
    return dots


def time_axis(seconds: float, width: int) -> str:
    """What stands below the curve: how far back the left end is, and now at the right."""
    back = f"{format.age(int(seconds * 1e9))} ago"
    return f"{back}{'now':>{width - len(back)}}" if len(back) + 4 <= width else f"{'now':>{width}}"[-width:]


def bars(values: Sequence[float] | Floats, width: int, low: float, high: float) -> str:
    """One line of braille of exactly `width` characters."""
    return braille(np.asarray(values, np.float64), width, 1, low, high)[0]
