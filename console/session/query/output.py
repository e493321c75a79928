"""The rows of a query result in the formats they leave the console in: a text table, JSON and CSV."""

from __future__ import annotations

import csv
import io
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import msgspec

from ...text import format
from ...text.cells import table
from ...text.sanitize import cell, printable, printable_lines
from ..format.table_schema import unit_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Parquet is written by `Database.write_parquet`.
Format = Literal["table", "json", "csv"]
#: Rows as they are fetched: one tuple per row, one Python value per column.
Rows = list[tuple[Any, ...]]
#: The columns of EXPLAIN, whose value is a drawing.
_PLAN: Final = ["explain_key", "explain_value"]
#: Characters. A cell of the text table is cut off there.
WIDEST: Final = 100
_INTEGERS: Final = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
)  # fmt: skip
_encoder: Final = msgspec.json.Encoder(enc_hook=str)


class ResultColumn(msgspec.Struct, frozen=True):
    """One column of a query result: its name and SQL type."""

    name: str
    type: str

    @property
    def is_aligned_right(self) -> bool:
        """Whether the column is numeric."""
        return self.type in _INTEGERS or self.type in ("FLOAT", "DOUBLE")

    @property
    def unit(self) -> str:
        """The unit that the name implies, for figures; "" without one."""
        return unit_of(self.name) if self.is_aligned_right or self.type.startswith("DECIMAL") else ""


class ResultSet(msgspec.Struct, frozen=True):
    """The rows of a query, in memory."""

    columns: tuple[ResultColumn, ...]
    rows: Rows
    truncated: bool  # there were more than the limit
    took_s: float
    damage: tuple[str, ...] = ()  # what could not be read, as text: the result is without it
    lost: tuple[str, ...] = ()  # of that, what was complete once; not the end that is being written

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return every row as column name → value."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


class LimitedRows:
    """At most `limit` rows of a result; `truncated` once there were more."""

    def __init__(self, batches: Iterable[Rows], limit: int | None) -> None:
        self._batches, self._limit = batches, limit
        self.rows = 0
        self.truncated = False

    def __iter__(self) -> Iterator[Rows]:
        for batch in self._batches:
            room = len(batch) if self._limit is None else self._limit - self.rows
            self.truncated = len(batch) > room
            kept = batch[:room]
            self.rows += len(kept)
            if kept:
                yield kept
            if self.truncated:
                return


def write(
    how: Format, columns: Sequence[ResultColumn], batches: Iterable[Rows], out: BinaryIO, *, with_units: bool = False
) -> None:  # fmt: skip
    """Write the rows as they come. Raises OSError, as the rows.

    `with_units`: in a text table figures are rounded, and columns without any value are left out.
    """
    match how:
        case "table":
            _table(columns, batches, out, with_units)
        case "json":
            _json(columns, batches, out)
        case "csv":
            _csv(columns, batches, out)


def write_arrays(columns: Sequence[ResultColumn], arrays: Sequence[NDArray[Any]], out: BinaryIO) -> None:
    """Write a result in memory as Parquet; null where an array is masked. Raises OSError."""
    from ..format.duckdb_connection import connect
    from ..format.table_schema import literal

    with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch, connect() as connection:
        path = Path(scratch) / "rows.parquet"
        connection.register("rows", {column.name: values for column, values in zip(columns, arrays, strict=True)})
        connection.execute(f"COPY (FROM rows) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")
        with path.open("rb") as made:
            shutil.copyfileobj(made, out)


def value_of(value: Any) -> Any:
    """Return a value as JSON has it: whole decimals (sums of integers) are integers, NaN and infinity are null."""
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case float():
            return value if abs(value) != float("inf") and value == value else None
        case bytes():
            return value.decode(errors="replace")
        case list() | tuple():
            return [value_of(item) for item in value]
        case dict():
            return {str(key): value_of(item) for key, item in value.items()}
    return value


def json_rows(batch: Rows) -> Iterator[list[Any]]:
    """Yield the rows of a batch with their values as JSON has them."""
    for row in batch:
        yield [value_of(value) for value in row]


def cell_text(value: Any) -> str:
    """Return a value as one line of text without control characters; null is a dash."""
    match value:
        case None:
            return "–"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6g}" if abs(value) < 1e15 else str(value)
        case list() | dict():
            return printable(_encoder.encode(value).decode())
    return printable(str(value))


def _table(columns: Sequence[ResultColumn], batches: Iterable[Rows], out: BinaryIO, with_units: bool) -> None:
    rows = [row for batch in batches for row in json_rows(batch)]
    if [column.name for column in columns] == _PLAN:
        out.writelines(printable_lines(str(text)).encode() + b"\n" for _, text in rows)
        return
    kept = [
        index
        for index in range(len(columns))
        if not (with_units and rows) or any(row[index] is not None for row in rows)
    ]
    left_out = len(columns) - len(kept)
    columns, rows = [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]
    units = [column.unit if with_units else "" for column in columns]
    rows = [[_cut(_figure(value, unit)) for value, unit in zip(row, units, strict=True)] for row in rows]
    titles = [printable(column.name) if unit else _title(column) for column, unit in zip(columns, units, strict=True)]
    align = "".join(">" if column.is_aligned_right else "<" for column in columns)
    out.writelines(line.encode() + b"\n" for line in table(rows, header=titles, align=align, rule=True))
    if left_out:
        out.write(f"\n{format.plural(left_out, 'column')} without any value not shown; --format csv has all\n".encode())


def _figure(value: Any, unit: str) -> str:
    """Return a value with its unit as people read it: 63.0 GiB, 97 %, 412 W."""
    if not unit or not isinstance(value, int | float):
        return cell_text(value)
    match unit:
        case "bytes":
            return format.size(value)
        case "bytes/s":
            return f"{format.size(value)}/s"
        case "%":
            return f"{format.percent(value)} %"
        case "s" if 0 < value < 10:
            return f"{value:.3f} s"
    return f"{format.number(value)} {unit}"


def _title(column: ResultColumn) -> str:
    """Return a column's name; its unit too, where the name only hints at it."""
    unit = column.unit
    return printable(column.name) + (f" [{unit}]" if unit in ("ns", "°C") and not column.name.endswith("_ns") else "")


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _json(columns: Sequence[ResultColumn], batches: Iterable[Rows], out: BinaryIO) -> None:
    names, before = [column.name for column in columns], b"[\n "
    for batch in batches:
        for row in json_rows(batch):
            out.write(before + _encoder.encode(dict(zip(names, row, strict=True))))
            before = b",\n "
    out.write(b"[]\n" if before == b"[\n " else b"\n]\n")


def _csv(columns: Sequence[ResultColumn], batches: Iterable[Rows], out: BinaryIO) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    try:
        writer.writerow([cell(column.name) for column in columns])
        for batch in batches:
            writer.writerows([cell(value) for value in row] for row in json_rows(batch))
    finally:
        text.detach()


def parquet_value(name: str, kind: str) -> str:
    """Return the SQL of a column's value in Parquet; what Parquet has no type for is text."""
    if kind == "BLOB" or not (_TEXT_IN_PARQUET.search(kind) or _HUGE.search(kind)):
        return name
    return f"CAST({name} AS {'VARCHAR' if _TEXT_IN_PARQUET.search(kind) else _HUGE.sub('DECIMAL(38,0)', kind)})"


#: Parquet has no integers of 128 bits; DuckDB would write them as floats.
_HUGE: Final = re.compile(r"U?HUGEINT")
#: Types that are fetched as text, or that neither JSON nor Parquet has.
_TEXT_IN_PARQUET: Final = re.compile(
    r"INTERVAL|WITH TIME ZONE|TIMESTAMP_NS|UNION\(|BIT\b|BIGNUM|ENUM\(|MAP\((?!VARCHAR|\w*INT)|\bNULL\b|.\bBLOB\b"
)
