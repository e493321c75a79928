"""Layout of a heat map: numbers if they fit, else bars, in columns of nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...text.cells import width_of
from ..models.heat_map import HeatRow

#: Cells between two columns of nodes.
GAP: Final = 2
#: Cells of a number with one blank, widest first, and of a bar.
_FIGURE_WIDTHS = (7, 6, 5, 4)
_BAR_WIDTH = 1
#: Least cells for the note of a node without numbers.
_NOTE_WIDTH = 8


@dataclass(frozen=True)
class HeatLayout:
    """`columns` of nodes side by side over `lines`; `cell` cells per GPU, 1 for a bar."""

    labels: tuple[str, ...]
    columns: int
    lines: int
    label: int
    cell: int
    gpus: int

    @property
    def node_width(self) -> int:
        """Cells of one node."""
        return self.label + self.room

    @property
    def room(self) -> int:
        """Cells right of the label."""
        return max(self.gpus * self.cell, _NOTE_WIDTH)


def plan(rows: Sequence[HeatRow], width: int, height: int) -> HeatLayout:
    """The widest layout in which all rows fit; if none does, the densest, which scrolls."""
    names = tuple(row.node for row in rows)
    gpus = max((len(row.cells) for row in rows), default=1) or 1
    needed = max(1, -(-len(rows) // max(1, height)))  # least columns in which all rows fit
    for cell in (*_FIGURE_WIDTHS, _BAR_WIDTH):
        layout = _plan(names, needed, cell, gpus)
        if layout.columns * (layout.node_width + GAP) - GAP <= width:
            return layout
    short = _without_prefix(names)
    node_width = _plan(short, 1, _BAR_WIDTH, gpus).node_width
    return _plan(short, min(needed, max(1, (width + GAP) // (node_width + GAP))), _BAR_WIDTH, gpus)


def _plan(labels: tuple[str, ...], columns: int, cell: int, gpus: int) -> HeatLayout:
    lines = -(-len(labels) // columns)
    longest = max((width_of(label) for label in labels), default=0)
    return HeatLayout(labels, columns, lines, longest + 2, cell, gpus)  # status glyph and a blank


def _without_prefix(names: tuple[str, ...]) -> tuple[str, ...]:
    """`node017` → `017` if all names have the same prefix and a number."""
    heads = {re.sub(r"\d*$", "", name) for name in names}
    short = tuple(name.removeprefix(next(iter(heads), "")) for name in names)
    return short if len(heads) == 1 and all(short) else names
