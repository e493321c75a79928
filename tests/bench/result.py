"""The outcome of a benchmark as rows of one table, and the table as text for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

HEAD = ("what", "measured", "goal", "", "peer", "ratio")


@dataclass(frozen=True)
class Row:
    """One figure. `met` is None if there is no goal; `ratio` is measured to peer, both from the same run."""

    what: str
    measured: str
    goal: str = ""
    met: bool | None = None
    peer: str = ""
    ratio: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        verdict = {True: "met", False: "missed", None: "no goal"}[self.met]
        ratio = f"{self.ratio:.2f}" if self.ratio is not None else ""
        return (self.what, self.measured, self.goal, verdict, self.peer, ratio)


@dataclass(frozen=True)
class Outcome:
    """All rows of one benchmark, the method, and what was tried if a goal is missed."""

    rows: list[Row]
    how: list[str] = field(default_factory=list)
    attempts: Sequence[str] = ()

    @property
    def missed(self) -> list[Row]:
        return [row for row in self.rows if row.met is False]


def middle(values: Sequence[float], unit: str, digits: int = 2) -> str:
    """The median with its unit, and the range of the runs: `0.60 s (0.59 to 0.62, 5 runs)`."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f}, {len(values)} runs)"


def as_text(outcomes: dict[str, Outcome]) -> str:
    """A table with aligned columns."""
    rows = [HEAD, *(row.cells for outcome in outcomes.values() for row in outcome.rows)]
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in rows
    )
