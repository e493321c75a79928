"""Curves in braille, two dots wide and four high a character, and values with error bars on a line of characters."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import median
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...present.spans import GLYPHS, Span, Status
from ...text import format
from ...text.cells import fit, width_of

Floats = NDArray[np.floating[Any]]

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # left and right column of a character, top to bottom
_BLANK = 0x2800


class Plot(msgspec.Struct, frozen=True, eq=False):
    """One curve. `values` are oldest first, one each `step_s` seconds up to now; NaN is unknown and leaves a gap.

    The axis is from `low` to `high`; None: the next round number above the highest value. `spread`: minimum and maximum
    of each step, of which the values are means.
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
        """Upper end of the axis, above `low`."""
        if self.high is not None and self.high > self.low:
            return self.high
        most = self.summary()[2]
        return max(round_up(most) if most is not None else 1.0, self.low + 1)

    @property
    def now(self) -> float | None:
        """The newest value; None if unknown."""
        return None if not self.values.size or math.isnan(self.values[-1]) else float(self.values[-1])

    @property
    def is_known(self) -> bool:
        """Whether any value is known."""
        return self.summary()[1] is not None

    def summary(self) -> tuple[float | None, float | None, float | None]:
        """Minimum, mean and maximum of the known values."""
        if not (~np.isnan(self.values)).any():
            return None, None, None
        least, most = self.spread or (self.values, self.values)
        return float(np.nanmin(least)), float(np.nanmean(self.values)), float(np.nanmax(most))


def round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, … that is not below the value; 1 for 0 and below."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def short(value: float | None) -> str:
    """A value in at most five characters: "100", "0.5", "1980", "81.9G"."""
    if value is None:
        return format.UNKNOWN
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 9_999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.0f}{unit}" if abs(value) >= 99.5 or value == int(value) else f"{value:.1f}{unit}"


def columns(values: Floats, count: int) -> tuple[Floats, Floats]:
    """Minimum and maximum of each of `count` equal parts, NaN if unknown; a spike of one second is never lost.

    Fewer values than columns are at the right end.
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

    It is as thick as `spread`. Known neighbours are joined. Values beyond an end of the axis are drawn at that end.
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


#: Cells left of a curve: a label, a blank, the axis.
AXIS_CELLS: Final = 8


def curve_lines(plot: Plot, width: int, height: int, *, middle: bool = False) -> list[list[Span]]:
    """The curve in `height` lines of `width` cells right of its labelled axis, and the line below them."""
    labels = {0: plot.top, height - 1: plot.low} | ({height // 2: (plot.top + plot.low) / 2} if middle else {})
    lines = []
    for y, dots in enumerate(braille(plot.values, width, height, plot.low, plot.top, plot.spread)):
        label = short(labels[y]) if y in labels else ""
        axis = Span(f"{label:>{AXIS_CELLS - 2}} ", "muted"), Span("┤" if label else "│", "rule")
        lines.append([*axis, Span(dots, "accent")])
    return [*lines, [Span(" " * (AXIS_CELLS - 1)), Span("└" + "─" * width, "rule")]]


def heading(plot: Plot, *, with_now: bool, width: int | None = None) -> list[Span]:
    """Title and unit, and the newest, least, mean and greatest value; those that do not fit `width` are left out."""
    title = [Span(plot.title, "strong")] + ([Span(f" {plot.unit}", "muted")] if plot.unit else [])
    figures = dict(zip(("now", "min", "avg", "max"), (plot.now, *plot.summary()), strict=True))
    if not with_now:
        del figures["now"]
    for left_out in (None, "avg", "min", "max"):
        figures.pop(left_out or "", None)
        spans = list(title)
        for name, value in figures.items():
            spans += [Span(f"  {name} ", "muted"), Span(short(value), "text" if value is not None else "unknown")]
        if width is None or sum(width_of(span.text) for span in spans) <= width:
            break
    return spans


def time_axis(seconds: float, width: int) -> str:
    """The line below the curve: age of its left end, and `now` at the right."""
    back = f"{format.age(int(seconds * 1e9))} ago"
    return f"{back}{'now':>{width - len(back)}}" if len(back) + 4 <= width else f"{'now':>{width}}"[-width:]


def bars(values: Sequence[float] | Floats, width: int, low: float, high: float) -> str:
    """One line of braille of exactly `width` characters."""
    return braille(np.asarray(values, np.float64), width, 1, low, high)[0]


_BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def filled(values: Sequence[float] | Floats, height: int, top: float) -> list[str]:
    """A bar per value in `height` lines, between 0 and `top`; blank where unknown, a line at the bottom for 0."""
    eighths = [
        0 if math.isnan(value) else min(8 * height, max(1, round(8 * height * float(value) / top))) for value in values
    ]
    return ["".join(_BLOCKS[min(8, max(0, part - 8 * line))] for part in eighths) for line in range(height - 1, -1, -1)]


class Lane(msgspec.Struct, frozen=True):
    """One rank: `value` ± `error`, None if unknown, and `figure`, their text."""

    key: Hashable
    label: str
    figure: str
    value: float | None
    error: float | None
    status: Status


#: Median errors. A longer axis is not linear: error bars would vanish.
_FAR: Final = 50.0


class Axis(msgspec.Struct, frozen=True):
    """From 0 to `top`; with `fine` linear up to about there, then logarithmic."""

    top: float
    fine: float | None = None

    def share(self, value: float) -> float:
        """Position of a value, 0 to 1."""
        if self.fine is None:
            return value / self.top
        return math.log1p(max(0.0, value) / self.fine) / math.log1p(self.top / self.fine)

    @property
    def ticks(self) -> tuple[float, ...]:
        """The values between the ends that are labelled."""
        if self.fine is None:
            return (self.top / 2,)
        first = math.ceil(math.log10(self.fine))
        return tuple(10.0**power for power in range(first, math.ceil(math.log10(self.top))))


def axis_of(lanes: tuple[Lane, ...]) -> Axis:
    """The axis up to a round number that contains all lanes; logarithmic if that is far above the median error."""
    top = round_up(max(((lane.value or 0) + (lane.error or 0) for lane in lanes), default=1.0))
    errors = [lane.error for lane in lanes if lane.error]
    fine = median(errors) if errors else None
    return Axis(top, fine if fine is not None and top > _FAR * fine else None)


def bar(lane: Lane, width: int, axis: Axis) -> list[Span]:
    """`├──●──┤` in exactly `width` cells; without a known error the glyph with a `?`."""
    if lane.value is None or width < 3:
        return [Span(fit("" if width < 3 else f"{GLYPHS['unknown']} unknown", width), "unknown")]
    center = _cell(lane.value, width, axis)
    if lane.error is None:
        spans = [Span("·" * center, "rule"), Span(GLYPHS[lane.status], lane.status)]
        return [*spans, Span(fit("?", max(0, width - center - 1)), "muted")]
    first = _cell(lane.value - lane.error, width, axis)
    last = _cell(lane.value + lane.error, width, axis)
    left = "├" + "─" * (center - first - 1) if center > first else ""
    right = "─" * (last - center - 1) + "┤" if last > center else ""
    return [
        Span("·" * first, "rule"), Span(left, "muted"), Span(GLYPHS[lane.status], lane.status), Span(right, "muted"),
        Span(" " * (width - last - 1)),
    ]  # fmt: skip


def _cell(value: float, width: int, axis: Axis) -> int:
    return min(width - 1, max(0, round(axis.share(value) * (width - 1))))


def ticks(width: int, axis: Axis, unit: str) -> str:
    """Labels of the axis in exactly `width` cells: 0, what fits between, and the end with the unit.

    On a linear axis that is the middle; on a logarithmic one the powers of ten, and the word `log` before the end.
    """
    end = f"{'' if axis.fine is None else 'log  '}{short(axis.top)} {unit}"
    if width < width_of(end) + 2:
        end = f"{short(axis.top)} {unit}"
    if width < width_of(end) + 2:
        return fit("0", max(0, width))
    line = "0"
    for value in axis.ticks:
        label = short(value) if axis.fine is None else f"{value:g}"
        start = round(axis.share(value) * (width - 1)) - len(label) // 2
        if start >= len(line) + 2 and start + len(label) + 2 <= width - width_of(end):
            line = line.ljust(start) + label
    return line + " " * (width - width_of(line) - width_of(end)) + end
