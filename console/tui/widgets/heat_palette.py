"""The bars of a heat map: their colours, and rows of them as segments that are made once and used for ever."""

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
#: Stands for the level of a figure that nobody knows.
UNKNOWN_LEVEL: Final = LEVELS
#: How much of a figure's colour is in the ground it stands on: as much as leaves the text readable.
_TINT = 0.4
#: Equal levels in a row, of which a busy fleet has many: one segment.
_RUNS = re.compile(b"|".join(re.escape(bytes([level])) + b"+" for level in range(LEVELS + 1)), re.DOTALL)


def bar(level: int | None) -> str:
    """The character whose height says the same as its colour."""
    return "·" if level is None or level == UNKNOWN_LEVEL else BARS[level * len(BARS) // LEVELS]


class Ink:
    """Segments of bars, by what they show. `pen` gives the style of a name; a new theme wants a new ink."""

    def __init__(self, pen: Callable[[str], Style]) -> None:
        self._pen = pen
        self._runs: dict[tuple[HeatScale, bytes], Segment] = {}

    def segments(self, scale: HeatScale, levels: bytes) -> list[Segment]:
        """One segment for each run of equal levels."""
        runs = self._runs
        found = []
        for run in _RUNS.findall(levels):
            segment = runs.get((scale, run))
            if segment is None:
                segment = runs[scale, run] = self._made(scale, run)
            found.append(segment)
        return found

    def _made(self, scale: HeatScale, run: bytes) -> Segment:
        style = "unknown" if run[0] == UNKNOWN_LEVEL else f"ink {scale} {run[0]}"
        return Segment(bar(run[0]) * len(run), self._pen(style))


@lru_cache(16_384)
def bars(scale: HeatScale, levels: tuple[int | None, ...]) -> tuple[Span, ...]:
    """The bars of one node: equal neighbours, of which a busy fleet has many, are one span."""
    spans = []
    for level, same in groupby(levels):
        style = "unknown" if level is None else f"ink {scale} {level}"
        spans.append(Span(bar(level) * sum(1 for _ in same), style))
    return tuple(spans)


@lru_cache(16)
def heat_colors(stops: str) -> tuple[str, ...]:
    """The colours of all levels, between stops given as "#rrggbb #rrggbb …"; the terminal's own are not mixed."""
    if stops.startswith("ansi_"):
        named = stops.split()
        return tuple(named[level * len(named) // LEVELS] for level in range(LEVELS))
    colors = [Color.parse(stop) for stop in stops.split()]
    spans = list(pairwise(colors)) or [(colors[0], colors[0])]
    found = []
    for level in range(LEVELS):
        at = level / (LEVELS - 1) * len(spans)
        span = min(int(at), len(spans) - 1)
        found.append(spans[span][0].blend(spans[span][1], at - span).hex6.lower())
    return tuple(found)


def tint(color: str, background: str) -> str:
    """The ground a figure of that colour stands on."""
    return Color.parse(background).blend(Color.parse(color), _TINT).hex6.lower()
