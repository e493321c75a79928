"""Where a figure with its error bar stands on a line of characters."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ..status import GLYPHS, Status
from ..text import fit, width_of
from .plot import round_up, short
from .spans import Span


@dataclass(frozen=True)
class Lane:
    """One rank's figure: `value` ± `error` in the unit of all lanes. None is unknown; `figure` is its text."""

    key: Hashable
    label: str
    figure: str
    value: float | None
    error: float | None
    status: Status


def bar(lane: Lane, width: int, top: float) -> list[Span]:
    """`├──●──┤` in exactly `width` cells between 0 and `top`; without a known error only the glyph, with a `?`."""
    if lane.value is None or width < 3:
        return [Span(fit("" if width < 3 else f"{GLYPHS['unknown']} unknown", width), "unknown")]
    at = _cell(lane.value, width, top)
    if lane.error is None:
        spans = [Span("·" * at, "rule"), Span(GLYPHS[lane.status], lane.status)]
        return [*spans, Span(fit("?", max(0, width - at - 1)), "muted")]
    first = _cell(lane.value - lane.error, width, top)
    last = _cell(lane.value + lane.error, width, top)
    left = "├" + "─" * (at - first - 1) if at > first else ""
    right = "─" * (last - at - 1) + "┤" if last > at else ""
    return [
        Span("·" * first, "rule"), Span(left, "muted"), Span(GLYPHS[lane.status], lane.status), Span(right, "muted"),
        Span(" " * (width - last - 1)),
    ]  # fmt: skip


def _cell(value: float, width: int, top: float) -> int:
    return min(width - 1, max(0, round(value / top * (width - 1))))


def top_of(lanes: tuple[Lane, ...]) -> float:
    """The right end of the axis: the next round number not below any lane's far end."""
    return round_up(max(((lane.value or 0) + (lane.error or 0) for lane in lanes), default=1.0))


def ticks(width: int, top: float, unit: str) -> str:
    """The axis: 0, the middle where there is room, and the end with the unit, in exactly `width` cells."""
    end = f"{short(top)} {unit}"
    if width < width_of(end) + 2:
        return fit("0", max(0, width))
    middle = short(top / 2)
    at = round((width - 1) / 2) - len(middle) // 2
    line = "0".ljust(at) + middle if at > 2 and at + len(middle) + 2 <= width - width_of(end) else "0"
    return line + " " * (width - width_of(line) - width_of(end)) + end
