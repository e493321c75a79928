"""Values with error bars on a line of characters."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import median
from typing import Final

from ...present.spans import GLYPHS, Span, Status
from ...text.cells import fit, width_of
from .plot import round_up, short


@dataclass(frozen=True)
class Lane:
    """One rank: `value` ± `error`, None if unknown, and `figure`, their text."""

    key: Hashable
    label: str
    figure: str
    value: float | None
    error: float | None
    status: Status


#: Median errors. A longer axis is not linear: error bars would vanish.
_FAR: Final = 50.0


@dataclass(frozen=True)
class Axis:
    """From 0 to `top`; with `fine` linear up to about there, then logarithmic."""

    top: float
    fine: float | None = None

    def share(self, value: float) -> float:
        """Position of a value, 0 to 1."""
        if self.fine is None:
            return value / self.top
        return math.log1p(max(0.0, value) / self.fine) / math.log1p(self.top / self.fine)

    @property
    def middle(self) -> float:
        """The value in the middle."""
        return self.top / 2 if self.fine is None else self.fine * (math.sqrt(1 + self.top / self.fine) - 1)


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
    """Labels of the axis in exactly `width` cells: 0, the middle if it fits, the end with the unit."""
    end = f"{short(axis.top)} {unit}"
    if width < width_of(end) + 2:
        return fit("0", max(0, width))
    middle = short(axis.middle) if axis.fine is None else f"{axis.middle:.2g}"
    start = round((width - 1) / 2) - len(middle) // 2
    line = "0".ljust(start) + middle if start > 2 and start + len(middle) + 2 <= width - width_of(end) else "0"
    return line + " " * (width - width_of(line) - width_of(end)) + end
