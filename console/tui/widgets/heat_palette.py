"""Bars of a heat map: characters, colours, and cached segments."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from ...present.spans import Span
from ...records.metrics import HeatScale
from ..models.heat_map import LEVELS

#: No full block: rows of busy GPUs would run into one.
BARS: Final = "▁▂▃▄▅▆▇"
#: Level of an unknown value.
UNKNOWN_LEVEL: Final = LEVELS
#: Share of the heat colour in the background of a number; more would make the text unreadable.
_TINT = 0.4
#: Runs of equal levels, one segment each.
_RUNS = re.compile(b"|".join(re.escape(bytes([level])) + b"+" for level in range(LEVELS + 1)), re.DOTALL)


def bar(level: int | None) -> str:
    """The bar character of a level."""
    return "·" if level is None or level == UNKNOWN_LEVEL else BARS[level * len(BARS) // LEVELS]


class Ink:
    """Cache of bar segments. `pen` returns the style of a name; create a new Ink after a theme change."""

    def __init__(self, pen: Callable[[str], Style]) -> None:
        self._pen = pen
        self._runs: dict[tuple[HeatScale, bytes], Segment] = {}

    def segments(self, scale: HeatScale, levels: bytes) -> list[Segment]:
        """One segment for each run of equal levels."""
        runs = self._runs
        segments = []
        for run in _RUNS.findall(levels):
            segment = runs.get((scale, run))
            if segment is None:
                segment = runs[scale, run] = self._made(scale, run)
            segments.append(segment)
        return segments

    def _made(self, scale: HeatScale, run: bytes) -> Segment:
        style = "unknown" if run[0] == UNKNOWN_LEVEL else f"ink {scale} {run[0]}"
        return Segment(bar(run[0]) * len(run), self._pen(style))


@lru_cache(16_384)
def bars(scale: HeatScale, levels: tuple[int | None, ...]) -> tuple[Span, ...]:
    """The bars of one node, equal neighbours as one span."""
    spans = []
    for level, same in groupby(levels):
        style = "unknown" if level is None else f"ink {scale} {level}"
        spans.append(Span(bar(level) * sum(1 for _ in same), style))
    return tuple(spans)


@lru_cache(16)
def heat_colors(stops: str) -> tuple[str, ...]:
    """The colour of each level, blended between stops given as "#rrggbb #rrggbb …"; ANSI colours are not blended."""
    if stops.startswith("ansi_"):
        named = stops.split()
        return tuple(named[level * len(named) // LEVELS] for level in range(LEVELS))
    colors = [Color.parse(stop) for stop in stops.split()]
    spans = list(pairwise(colors)) or [(colors[0], colors[0])]
    blended = []
    for level in range(LEVELS):
        position = level / (LEVELS - 1) * len(spans)
        span = min(int(position), len(spans) - 1)
        blended.append(spans[span][0].blend(spans[span][1], position - span).hex6.lower())
    return tuple(blended)


def tint(color: str, background: str) -> str:
    """Background of a number with that heat colour."""
    return Color.parse(background).blend(Color.parse(color), _TINT).hex6.lower()
