"""The result of a query as rows and as charts, and the completion of SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from msgspec.structs import replace

from ....present.spans import Line, Span, plain
from ....text import format
from ....text.cells import clean, fit, width_of
from ...models.column import ColumnField
from ...models.export_table import ExportTable
from ...models.filter_language import Completion, Vocabulary
from ...models.grouping import Grouping
from ...models.list_kind import ListKind
from ...models.plot import AXIS_CELLS, Plot, curve_lines, heading, short
from ...models.rows import PlainRow

ResultFormat = Literal["table", "line", "bar", "heat"]
#: Cells. Upper bound on the width of a column.
_WIDEST: Final = 40
_SHADES: Final = " ░▒▓█"
#: Cells of labels beside bars and heat.
_LABEL: Final = 24


@dataclass(frozen=True)
class ResultRow(PlainRow):
    """One row of the result; `key` is its index."""

    key: int
    values: tuple[Any, ...]

    @property
    def version(self) -> int:
        """The index: rows never change."""
        return self.key


@dataclass(frozen=True)
class QueryResult:
    """The outcome of a query: rows, or an error."""

    sql: str
    columns: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    rows: tuple[ResultRow, ...] = ()
    truncated: bool = False
    took_s: float = 0.0
    damage: tuple[str, ...] = ()  # parts of the session that could not be read
    error: str = ""

    def head(self) -> str:
        """Number of rows, duration, and what could not be read."""
        lacks = f"; skipped (unreadable): {clean(', '.join(self.damage))}" if self.damage else ""
        truncated = " (truncated)" if self.truncated else ""
        return f"{format.plural(len(self.rows), 'row')}{truncated} in {format.seconds(self.took_s)}{lacks}"

    @cached_property
    def numeric(self) -> tuple[int, ...]:
        """Indices of numeric columns."""
        return tuple(
            index for index in range(len(self.columns))
            if any(_is_figure(row.values[index]) for row in self.rows)
            and all(row.values[index] is None or _is_figure(row.values[index]) for row in self.rows)
        )  # fmt: skip

    def drawings(self) -> tuple[ResultFormat, ...]:
        """The formats it can be shown in."""
        if not self.rows or not self.numeric:
            return ("table",)
        formats: list[ResultFormat] = ["table", "line", "bar"]
        if len(self.columns) >= 3 and self.numeric[-1] not in (0, 1):
            formats.append("heat")
        return tuple(formats)

    def width_of(self, index: int) -> int:
        """Width of a column in cells."""
        longest = max((width_of(cell(row.values[index])) for row in self.rows[:500]), default=0)
        return min(_WIDEST, max(longest, width_of(self.title(index))))

    def title(self, index: int) -> str:
        """Name of a column, with its unit unless the name ends with it."""
        name, unit = clean(self.columns[index]), self.units[index]
        return f"{name} {unit}" if unit in ("°C",) or (unit == "ns" and not name.endswith("_ns")) else name

    def export_tables(self, selected: ResultRow | None) -> list[ExportTable]:
        """The result, and the selected row."""
        if not self.rows:
            return []
        rows = f"{len(self.rows)} rows{' (truncated)' if self.truncated else ''}"
        tables = [ExportTable(f"Result: {rows}", self.kind, self.rows, self.columns)]
        if selected is not None:
            tables.append(ExportTable("Selected: 1 row", self.kind, [selected], self.columns))
        return tables

    @cached_property
    def kind(self) -> ListKind[ResultRow]:
        """The kind of its rows, for copy and export."""
        return ListKind(
            noun="answer", sort=self.columns[0] if self.columns else "",
            fields={name: _field(name, index) for index, name in enumerate(self.columns)},
            vocabulary=Vocabulary((), lambda entry: ()), groupings=(Grouping("none", None),),
            row_state=lambda row: None, as_object=lambda row: dict(zip(self.columns, row.values, strict=True)),
            name=lambda row: "",
        )  # fmt: skip


def cell(value: Any) -> str:
    """A value as text."""
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


def chart_lines(result: QueryResult, how: ResultFormat, width: int, height: int) -> list[Line]:
    """The result as a chart of at most `width` cells and `height` lines (of the curve)."""
    if how == "bar":
        return _bars(result, width)
    if how == "heat":
        return _heat(result, width)
    return _curve(result, width, height)


def _curve(result: QueryResult, width: int, height: int) -> list[Line]:
    """The last numeric column by row, labelled with the first column at both ends."""
    index = result.numeric[-1]
    values = np.array([np.nan if row.values[index] is None else float(row.values[index]) for row in result.rows])
    numbers = values[~np.isnan(values)]
    least = float(numbers.min()) if numbers.size else 0.0
    plot = Plot(result.title(index), "", values, low=min(0.0, least))
    room = max(1, width - AXIS_CELLS - 1)
    curve = curve_lines(replace(plot, values=_stretched(values, 2 * room)), room, max(3, height - 4))
    lines = [Line(tuple(spans)) for spans in (heading(plot, with_now=False), *curve)]
    first, last = (
        cell(result.rows[end].values[0]) if index else f"row {end % len(result.rows) + 1}" for end in (0, -1)
    )
    gap = max(1, room - width_of(first) - width_of(last))
    return [*lines, plain(" " * AXIS_CELLS + first + " " * gap + last, "muted")]


def _stretched(values: np.ndarray[Any, np.dtype[np.float64]], columns: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values, repeated if they are fewer than the columns."""
    if len(values) >= columns:
        return values
    stretched: np.ndarray[Any, np.dtype[np.float64]] = values[np.arange(columns) * len(values) // columns]
    return stretched


def _bars(result: QueryResult, width: int) -> list[Line]:
    """One bar per row, labelled with the other columns."""
    index = result.numeric[-1]
    numbers = [row.values[index] for row in result.rows if row.values[index] is not None]
    most = max(map(abs, numbers), default=0) or 1
    labels = [_label(row, index) for row in result.rows]
    label = min(_LABEL, max(map(width_of, labels)))
    room = max(1, width - label - 12)
    lines = [plain(result.title(index), "strong")]
    for row, text in zip(result.rows, labels, strict=True):
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


def _heat(result: QueryResult, width: int) -> list[Line]:
    """First column down, second across, last numeric one as shade; two cells each if they fit."""
    index = result.numeric[-1]
    down = list(dict.fromkeys(row.values[0] for row in result.rows if _can_be_key(row.values[0])))
    across = list(dict.fromkeys(row.values[1] for row in result.rows if _can_be_key(row.values[1])))
    values = {tuple(row.values[:2]): row.values[index] for row in result.rows if all(map(_can_be_key, row.values[:2]))}
    numbers = [value for value in values.values() if value is not None]
    least, most = (min(numbers), max(numbers)) if numbers else (0, 0)
    label = min(_LABEL, max([0, *(width_of(cell(each)) for each in down)]))
    shown = across[: max(1, width - label - 2)]
    size = 2 if 2 * len(shown) <= width - label - 2 else 1
    scale = f"{_SHADES[1]} {short(least)}  …  {_SHADES[-1]} {short(most)}"
    lines = [Line((Span(result.title(index), "strong"), Span(f"  {scale}", "muted")))]
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
    """The rows of a result."""
    return tuple(ResultRow(index, tuple(values)) for index, values in enumerate(rows))


#: SQL keywords that completion offers.
_SQL: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "USING", "DESCRIBE", "DISTINCT", "HAVING",
    "BETWEEN", "DESC", "COUNT(*)", "avg(", "min(", "max(", "sum(", "median(", "quantile_cont(", "list(",
)  # fmt: skip
#: Keywords that a table follows.
_BEFORE_TABLE: Final = ("FROM", "JOIN", "DESCRIBE", "DESC", "SUMMARIZE")


def complete(text: str, cursor: int, names: Mapping[str, Sequence[str]]) -> Completion:
    """Completions of the word before the cursor; `names` are the tables with their columns."""
    match = re.search(r"\w*$", text[:cursor])
    assert match is not None
    start, begun = match.start(), match[0].casefold()
    before = re.findall(r"\w+|\S", text[:start])
    mentioned = [name for name in names if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)]
    columns = list(dict.fromkeys(column for name in mentioned for column in names[name]))
    if before and before[-1].upper() in _BEFORE_TABLE:
        candidates: list[str] = list(names)
    elif not before:
        candidates = [*_SQL, *names]
    else:
        candidates = [*columns, *_SQL, *names]
    options = [word for word in dict.fromkeys(candidates) if word.casefold().startswith(begun)]
    if options == [text[start:cursor]]:
        options = []
    return Completion(start, cursor, tuple(options))
