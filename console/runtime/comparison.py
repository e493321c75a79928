"""Comparison of two recorded sessions for Python programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from ..present.comparison import comparison_text, difference_lines
from ..session.query.comparison import Comparison, Spread, folded
from .frames import ColumnKind, ColumnTable
from .results import lines_html

if TYPE_CHECKING:
    import pandas as pd

#: Cells of a line in a notebook.
_HTML_WIDTH: Final = 110


class SessionDiff:
    """What differs between two sessions, as `gconsole diff` shows it, as HTML in a notebook."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @property
    def is_different(self) -> bool:
        """Whether nodes, facts or findings differ; metrics always do."""
        return self.comparison.is_different

    @property
    def facts(self) -> pd.DataFrame:
        """A row per fact that differs and the nodes of which it does: versions, hardware, links."""
        rows = [to_builtins(change) | {"nodes": list(change.nodes)} for change in folded(self.comparison.changed)]
        kinds: dict[str, ColumnKind] = {"what": "string", "a": "string", "b": "string", "nodes": "object"}
        return ColumnTable("facts", kinds, {}, rows).frame()

    @property
    def findings(self) -> pd.DataFrame:
        """A row per finding with its culprits, and whether session a and b have it."""
        compared = self.comparison
        only_a, only_b = compared.findings_only_a, compared.findings_only_b
        rows = [
            {"finding": finding, "a": finding not in only_b, "b": finding not in only_a}
            for finding in (*only_a, *only_b, *compared.findings_both)
        ]
        kinds: dict[str, ColumnKind] = {"finding": "string", "a": "boolean", "b": "boolean"}
        return ColumnTable("findings", kinds, {}, rows).frame()

    def df(self) -> pd.DataFrame:
        """A row per metric: its distribution in both sessions, such as `median_a` and `p99_b`."""
        names = [name for name in Spread.__struct_fields__ for name in (f"{name}_a", f"{name}_b")]
        rows: list[dict[str, Any]] = []
        for figure in self.comparison.figures:
            row: dict[str, Any] = {"metric": figure.name}
            for session, spread in (("a", figure.a), ("b", figure.b)):
                row |= {f"{name}_{session}": value for name, value in to_builtins(spread or {}).items()}
            rows.append(row)
        kinds: dict[str, ColumnKind] = {"metric": "string"}
        kinds |= {name: "Int64" if name.startswith("samples") else "Float64" for name in names}
        return ColumnTable("metrics", kinds, {}, rows).frame()

    def __str__(self) -> str:
        return comparison_text(self.comparison)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return lines_html(difference_lines(self.comparison, _HTML_WIDTH, "name"))
