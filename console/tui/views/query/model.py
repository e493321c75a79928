"""The answer to a question as the screen shows it: a grid with columns of its own, and what can be drawn of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from ....present.spans import Line, Span, plain
from ....text import format
from ....text.cells import clean, fit, width_of
from ...models.filter_language import Vocabulary
from ...models.grouping import Grouping
from ...models.list_kind import ColumnField, ListKind
from ...models.plot import Plot, braille, short
from ...models.row import PlainRow
from ...models.table_export import ExportTable

ResultFormat = Literal["table", "line", "bar", "heat"]
#: A column of the grid is no wider than this.
_WIDEST: Final = 40
_SHADES: Final = " ░▒▓█"
#: Cells of labels beside bars and heat.
_LABEL: Final = 24


@dataclass(frozen=True)
class ResultRow(PlainRow):
    """One row, at its place."""

    key: int
    values: tuple[Any, ...]

    @property
    def version(self) -> int:
        return self.key


@dataclass(frozen=True)
class QueryResult:
    """What became of a question: rows, or the reason why there are none."""

    sql: str
    columns: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    rows: tuple[ResultRow, ...] = ()
    truncated: bool = False
    took_s: float = 0.0
    damage: tuple[str, ...] = ()  # what of a session could not be read
    error: str = ""

    def head(self) -> str:
        """How many, of how many, how long it took, and what it lacks."""
        count = f"{format.count(len(self.rows))} row{'s' * (len(self.rows) != 1)}"
        lacks = f"; skipped (unreadable): {clean(', '.join(self.damage))}" if self.damage else ""
        return f"{count}{' (truncated)' if self.truncated else ''} in {self.took_s:.2f} s{lacks}"

    @cached_property
    def numeric(self) -> tuple[int, ...]:
        """The places of columns that have figures."""
        return tuple(
            index for index in range(len(self.columns))
            if any(_is_figure(row.values[index]) for row in self.rows)
            and all(row.values[index] is None or _is_figure(row.values[index]) for row in self.rows)
        )  # fmt: skip

    def drawings(self) -> tuple[ResultFormat, ...]:
        """The ways in which it can be shown."""
        if not self.rows or not self.numeric:
            return ("table",)
        ways: list[ResultFormat] = ["table", "line", "bar"]
        if len(self.columns) >= 3 and self.numeric[-1] not in (0, 1):
            ways.append("heat")
        return tuple(ways)

    def width_of(self, index: int) -> int:
        """Cells that a column needs."""
        longest = max((width_of(cell(row.values[index])) for row in self.rows[:500]), default=0)
        return min(_WIDEST, max(longest, width_of(self.title(index))))

    def title(self, index: int) -> str:
        """A column's name, with its unit where the name does not say it."""
        name, unit = clean(self.columns[index]), self.units[index]
        return f"{name} {unit}" if unit in ("°C",) or (unit == "ns" and not name.endswith("_ns")) else name

    def export_tables(self, selected: ResultRow | None) -> list[ExportTable]:
        """What of it can be saved."""
        if not self.rows:
            return []
        rows = f"{len(self.rows)} rows{' (truncated)' if self.truncated else ''}"
        tables = [ExportTable(f"Result: {rows}", self.kind, self.rows, self.columns)]
        if selected is not None:
            tables.append(ExportTable("Selected: 1 row", self.kind, [selected], self.columns))
        return tables

    @cached_property
    def kind(self) -> ListKind[ResultRow]:
        """How its rows are written when they leave the console."""
        return ListKind(
            noun="answer", sort=self.columns[0] if self.columns else "",
            fields={name: _field(name, index) for index, name in enumerate(self.columns)},
            vocabulary=Vocabulary((), lambda entry: ()), groupings=(Grouping("none", None),),
            row_state=lambda row: None, as_object=lambda row: dict(zip(self.columns, row.values, strict=True)),
        )  # fmt: skip


def cell(value: Any) -> str:
    """A value in a grid."""
    match value:
        case None:
            return format.UNKNOWN
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}" if abs(value) < 1e15 else str(value)
        case list() | dict():
            return clean(_compact(value))
    return clean(str(value))


def _compact(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value, enc_hook=str).decode() if not isinstance(value, str) else value


def _field(name: str, index: int) -> ColumnField[ResultRow]:
    return ColumnField(
        name, name, lambda row: cell(row.values[index]), lambda row: row.values[index], lambda row, text: "text"
    )


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- drawings ----------------------------------------------------------------------------------------------------------


def chart_lines(answer: QueryResult, how: ResultFormat, width: int, height: int) -> list[Line]:
    """That drawing of the answer, in so much room; what does not fit is counted in its last line."""
    if how == "bar":
        return _bars(answer, width)
    if how == "heat":
        return _heat(answer, width)
    return _curve(answer, width, height)


def _curve(answer: QueryResult, width: int, height: int) -> list[Line]:
    """The last column of figures, row by row; below it the first column's values at both ends."""
    index = answer.numeric[-1]
    values = np.array([np.nan if row.values[index] is None else float(row.values[index]) for row in answer.rows])
    numbers = values[~np.isnan(values)]
    least = float(numbers.min()) if numbers.size else 0.0
    plot = Plot(answer.title(index), "", values, low=min(0.0, least))
    curve, room = max(3, height - 4), max(1, width - 9)
    lines = [_heading(answer, index, plot)]
    labels = {0: plot.top, curve - 1: plot.low}
    for y, dots in enumerate(braille(_stretched(values, 2 * room), room, curve, plot.low, plot.top)):
        label = short(labels[y]) if y in labels else ""
        lines.append(Line((Span(f"{label:>6} ", "muted"), Span("┤" if label else "│", "rule"), Span(dots, "accent"))))
    lines.append(Line((Span(" " * 7), Span("└" + "─" * room, "rule"))))
    first, last = (
        cell(answer.rows[end].values[0]) if index else f"row {end % len(answer.rows) + 1}" for end in (0, -1)
    )
    gap = max(1, room - width_of(first) - width_of(last))
    return [*lines, plain(" " * 8 + first + " " * gap + last, "muted")]


def _stretched(values: np.ndarray[Any, np.dtype[np.float64]], columns: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Few values over the whole width."""
    if len(values) >= columns:
        return values
    stretched: np.ndarray[Any, np.dtype[np.float64]] = values[np.arange(columns) * len(values) // columns]
    return stretched


def _heading(answer: QueryResult, index: int, plot: Plot) -> Line:
    spans = [Span(answer.title(index), "strong")]
    for name, value in zip(("min", "avg", "max"), plot.summary(), strict=True):
        spans += [Span(f"  {name} ", "muted"), Span(short(value))]
    return Line(tuple(spans))


def _bars(answer: QueryResult, width: int) -> list[Line]:
    """A bar a row, beside what its other columns say."""
    index = answer.numeric[-1]
    numbers = [row.values[index] for row in answer.rows if row.values[index] is not None]
    most = max(map(abs, numbers), default=0) or 1
    labels = [_label(row, index) for row in answer.rows]
    label = min(_LABEL, max(map(width_of, labels)))
    room = max(1, width - label - 12)
    lines = [plain(answer.title(index), "strong")]
    for row, text in zip(answer.rows, labels, strict=True):
        value = row.values[index]
        bar = "" if value is None else _bar(abs(value) / most, room)
        lines.append(Line((Span(fit(text, label) + " "), Span(bar, "accent"), Span(f" {cell(value)}", "muted"))))
    return lines


def _label(row: ResultRow, index: int) -> str:
    others = [cell(value) for place, value in enumerate(row.values) if place != index]
    return " ".join(others) if others else str(row.key + 1)


def _bar(share: float, room: int) -> str:
    eighths = round(share * room * 8)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def _heat(answer: QueryResult, width: int) -> list[Line]:
    """The first column down, the second across, the last figure as a shade; two cells each where there is room."""
    index = answer.numeric[-1]
    down = list(dict.fromkeys(row.values[0] for row in answer.rows if _can_be_key(row.values[0])))
    across = list(dict.fromkeys(row.values[1] for row in answer.rows if _can_be_key(row.values[1])))
    values = {tuple(row.values[:2]): row.values[index] for row in answer.rows if all(map(_can_be_key, row.values[:2]))}
    numbers = [value for value in values.values() if value is not None]
    least, most = (min(numbers), max(numbers)) if numbers else (0, 0)
    label = min(_LABEL, max([0, *(width_of(cell(each)) for each in down)]))
    shown = across[: max(1, width - label - 2)]
    size = 2 if 2 * len(shown) <= width - label - 2 else 1
    scale = f"{_SHADES[1]} {short(least)}  …  {_SHADES[-1]} {short(most)}"
    lines = [Line((Span(answer.title(index), "strong"), Span(f"  {scale}", "muted")))]
    for each in down:
        cells = "".join(_shade(values.get((each, other)), least, most) * size for other in shown)
        lines.append(Line((Span(f"{fit(cell(each), label)} "), Span(cells, "accent"))))
    first, last = cell(shown[0]), cell(shown[-1])
    gap = max(1, size * len(shown) - width_of(first) - width_of(last))
    lines.append(plain(" " * (label + 1) + first + " " * gap + last, "muted"))
    hidden = len(across) - len(shown)
    return [*lines, plain(f"{hidden} columns not shown", "warning")] if hidden else lines


def _can_be_key(value: Any) -> bool:
    return not isinstance(value, list | dict)


def _shade(value: float | None, least: float, most: float) -> str:
    if value is None:
        return "·"
    share = (value - least) / (most - least) if most > least else 1.0
    return _SHADES[1 + min(len(_SHADES) - 2, int(share * (len(_SHADES) - 1)))]


def rows_of(rows: Sequence[Sequence[Any]]) -> tuple[ResultRow, ...]:
    """The rows of a grid."""
    return tuple(ResultRow(index, tuple(values)) for index, values in enumerate(rows))


__all__ = ["QueryResult", "ResultFormat", "ResultRow", "cell", "chart_lines", "rows_of"]
