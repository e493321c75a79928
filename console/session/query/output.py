"""The rows of an answer as they leave the console: a table for people; JSON, CSV and Parquet for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, BinaryIO, Final, Literal

import msgspec
import pyarrow as pa

from ...text.csv_cell import cell
from ...text.sanitize import printable, printable_lines
from ...text.table import table
from .dictionary import unit_of

Format = Literal["table", "json", "csv", "parquet"]
FORMATS: Final[tuple[Format, ...]] = ("table", "json", "csv", "parquet")
#: The columns of what EXPLAIN says, which is a drawing.
_PLAN: Final = ["explain_key", "explain_value"]
#: A cell of a table for people is cut off there.
WIDEST: Final = 100
_encoder: Final = msgspec.json.Encoder(enc_hook=str)


class Limited:
    """At most so many rows of an answer; `truncated` once there were more."""

    def __init__(self, batches: Iterable[pa.RecordBatch], limit: int | None) -> None:
        self._batches, self._limit = batches, limit
        self.rows = 0
        self.truncated = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            room = batch.num_rows if self._limit is None else self._limit - self.rows
            self.truncated = batch.num_rows > room
            kept = batch.slice(0, room)
            self.rows += kept.num_rows
            if kept.num_rows:
                yield kept
            if self.truncated:
                return


def write(how: Format, schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    """Write the rows as they come. Raises OSError, and what the rows raise."""
    _WRITERS[how](schema, batches, out)


def value_of(value: Any) -> Any:
    """A value as JSON has it: whole decimals (sums of integers) are integers, what is not a number is null."""
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case float():
            return value if abs(value) != float("inf") and value == value else None
        case bytes():
            return value.decode(errors="replace")
        case pa.MonthDayNano():
            return _span(value)
        case list() | tuple():
            return [value_of(each) for each in value]
        case dict():
            return {str(key): value_of(each) for key, each in value.items()}
    return value


def _span(value: pa.MonthDayNano) -> str:
    """An interval as people read it: `2 months 3 days 04:05:06.5`."""
    whole_s, rest_ns = divmod(abs(value.nanoseconds), 1_000_000_000)
    fraction = f".{rest_ns:09d}".rstrip("0") if rest_ns else ""
    sign = "-" if value.nanoseconds < 0 else ""
    clock = f"{sign}{whole_s // 3600:02d}:{whole_s // 60 % 60:02d}:{whole_s % 60:02d}{fraction}"
    named = [f"{count} {word}" for count, word in ((value.months, "months"), (value.days, "days")) if count]
    return " ".join([*named, clock] if value.nanoseconds or not named else named)


def rows_of(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """The rows of a batch, as JSON has their values."""
    columns = [_values(column) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield [value_of(value) for value in row]


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; where they are instants of years that nobody can write, as text."""
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        try:
            values = column.cast(pa.string()).to_pylist()
        except pa.ArrowException:
            values = ["out of range"] * len(column)
    return values


def cell_text(value: Any) -> str:
    """A value for people: one line, nothing that steers a terminal; unknown is a dash."""
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


def _table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    rows = [row for batch in batches for row in rows_of(batch)]
    if schema.names == _PLAN:
        out.writelines(printable_lines(str(text)).encode() + b"\n" for _, text in rows)
        return
    rows = [[_cut(cell_text(value)) for value in row] for row in rows]
    titles = [_title(field) for field in schema]
    is_number = (pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in schema)
    align = "".join(">" if right else "<" for right in is_number)
    out.writelines(line.encode() + b"\n" for line in table(rows, header=titles, align=align, rule=True))


def _title(field: pa.Field) -> str:
    """A column's name; its unit too, where the name only hints at it."""
    unit = unit_of_column(field)
    return printable(field.name) + (f" [{unit}]" if unit in ("ns", "°C") and not field.name.endswith("_ns") else "")


def unit_of_column(field: pa.Field) -> str:
    """The unit that a column's name says, where it has figures; "" where not."""
    is_figure = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
    return unit_of(field.name) if is_figure else ""


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _json(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    names, before = schema.names, b"[\n "
    for batch in batches:
        for row in rows_of(batch):
            out.write(before + _encoder.encode(dict(zip(names, row, strict=True))))
            before = b",\n "
    out.write(b"[]\n" if before == b"[\n " else b"\n]\n")


def _csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    try:
        writer.writerow([cell(name) for name in schema.names])
        for batch in batches:
            writer.writerows([cell(value) for value in row] for row in rows_of(batch))
    finally:
        text.detach()


def _parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    import pyarrow.parquet as pq

    kept = pa.schema([pa.field(field.name, _kept(field.type), metadata=field.metadata) for field in schema])
    with pq.ParquetWriter(out, kept, compression="zstd") as writer:
        for batch in batches:
            columns = [
                column if to.type == column.type else pa.array([value_of(one) for one in _values(column)], to.type)
                for column, to in zip(batch.columns, kept, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=kept))


def _kept(kind: pa.DataType) -> pa.DataType:
    """What Parquet has no type for is text there."""
    return pa.string() if pa.types.is_interval(kind) else kind


_WRITERS: Final[dict[Format, Callable[[pa.Schema, Iterable[pa.RecordBatch], BinaryIO], None]]] = {
    "table": _table, "json": _json, "csv": _csv, "parquet": _parquet,
}  # fmt: skip
