"""SQL over the records of a source: DuckDB with a view a kind, read-only, and shut off from everything else.

A question is one statement that reads: anything that writes, loads, attaches or sets is refused by what it is, and
DuckDB itself may then open no file but those of the source, load no extension, and let nobody change that.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from ...records import ClockNode
from ..format.to_arrow import TABLES, schema_of
from .clock_columns import Piece, pieces, tables_for, with_cluster_time
from .dictionary import meaning_of, unit_of, words_of
from .output import unit_of_column
from .schema_groups import alike
from .sources import GivenUp, Source, Tables
from .validate import QueryCancelled, QueryError, QueryRefused, check
from .views import SHORT_VIEWS
from .watchdog import Watch

#: What DuckDB may use of the console's machine.
MEMORY: Final = "1GB"
SPILL: Final = "4GB"
DEADLINE_S: Final = 60.0
#: Rows of an answer, unless more are asked for.
ROW_LIMIT: Final = 10_000
_BATCH_ROWS: Final = 8192
_DESCRIBE: Final = re.compile(r'\s*(?:DESCRIBE|DESC)(?:\s+(?:TABLE\s+)?"?(\w+)"?)?\s*;?\s*', re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """The rows of a question."""

    columns: tuple[str, ...]
    units: tuple[str, ...]  # "" where a column's name tells none
    rows: pa.Table
    truncated: bool  # there were more than the limit
    took_s: float
    damage: tuple[str, ...] = ()  # what could not be read, in words: the answer is without it


class Database:
    """The tables of one source. One question at a time; `cancel` may be called from another thread."""

    def __init__(self, source: Source, scratch: Path | None = None, memory: str = MEMORY) -> None:
        """`scratch` is a folder for what does not fit into memory; without one such a question fails."""
        self._source, self._scratch, self._memory = source, scratch, memory
        self._folders: set[Path] = set()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._tables: frozenset[str] = frozenset()
        self._timed = False  # whether the tables have the time of the cluster
        self._cancelled = threading.Event()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cancel(self) -> None:
        """Give up the question under way, or about to be: it ends with QueryCancelled."""
        self._cancelled.set()

    def ask(self, sql: str, *, limit: int | None = ROW_LIMIT, deadline_s: float = DEADLINE_S) -> Answer:
        """The answer in memory, of at most `limit` rows. Raises QueryError, and what the source raises."""
        began = time.monotonic()
        schema, batches = self.stream(sql, deadline_s=deadline_s)
        kept: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            kept.append(batch)
            rows += batch.num_rows
            if limit is not None and rows > limit:
                break
        batches.close()  # type: ignore[attr-defined]
        table = pa.Table.from_batches(kept, schema=schema)
        cut = table if limit is None else table.slice(0, limit)
        units, took_s = tuple(map(unit_of_column, schema)), time.monotonic() - began
        return Answer(tuple(schema.names), units, cut, cut.num_rows < table.num_rows, took_s)

    def stream(self, sql: str, *, deadline_s: float = DEADLINE_S) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The columns of the answer, and its rows as they come. Raises QueryError, and what the source raises."""
        sql = _described(sql)
        connection = self._connect(sql)
        check(connection, sql)
        _only_read(connection)
        watch = Watch(connection, deadline_s, self._cancelled)
        try:
            with watch:
                reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
        except duckdb.Error as error:
            raise self._why(error, watch) from error
        schema = _told_apart(reader.schema)
        return schema, self._batches(reader, schema, connection, watch)

    def _batches(
        self, reader: pa.RecordBatchReader, schema: pa.Schema, connection: duckdb.DuckDBPyConnection, watch: Watch
    ) -> Iterator[pa.RecordBatch]:
        try:
            with watch:
                while True:
                    try:
                        yield pa.RecordBatch.from_arrays(reader.read_next_batch().columns, schema=schema)
                    except StopIteration:
                        return
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._why(error, watch) from error

    def _why(self, error: Exception, watch: Watch) -> QueryError:
        if self._cancelled.is_set():
            self._cancelled.clear()
            return QueryCancelled("cancelled")
        if watch.is_over:
            return QueryError(f"no answer within {watch.deadline_s:g} s; ask for less, or give it longer: --timeout")
        text = str(error).split("\n\nLINE 1")[0].strip()
        if "Out of Memory" in text:
            return QueryError(f"the answer needs more than {self._memory} of memory; ask for fewer columns or rows")
        if "read-only mode" in text:
            return QueryRefused("only questions: this would write")
        if "disabled by configuration" in text or "Permission Error" in text:
            return QueryRefused(f"only the records can be read here: {text.splitlines()[0]}")
        return QueryError(text)

    # -- names ---------------------------------------------------------------------------------------------------------

    def names(self) -> dict[str, tuple[str, ...]]:
        """Every table and short view, with its columns: for completion."""
        connection = self._connect("")
        found: dict[str, tuple[str, ...]] = {}
        query = """SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns()
                   WHERE schema_name = 'main' GROUP BY ALL ORDER BY ALL"""
        for name, columns in connection.execute(query).fetchall():
            found[name] = tuple(columns)
        return found

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connect(self, sql: str) -> duckdb.DuckDBPyConnection:
        """A connection that has the tables which the question names, and is locked."""
        named, timed = tables_for(sql)
        wanted, timed = self._tables | named, self._timed or timed
        if self._connection is None or wanted != self._tables or timed != self._timed:
            self.close()
            self._connection = self._open(wanted, timed)
            self._tables, self._timed = wanted, timed
        return self._connection

    def _open(self, wanted: frozenset[str], timed: bool) -> duckdb.DuckDBPyConnection:
        try:
            tables = self._source.tables(wanted)
        except GivenUp as error:
            raise QueryCancelled("cancelled") from error
        connection = duckdb.connect(":memory:", config={**_CONFIG, "memory_limit": self._memory})
        try:
            connection.execute("CREATE SCHEMA plain; CREATE SCHEMA told")
            for table in TABLES:
                _make_table(connection, table, tables)
            lines = _make_lines(connection) if timed else ""
            for table in TABLES:
                told = with_cluster_time(f"SELECT * FROM told.{table}", lines)
                connection.execute(f"CREATE VIEW {table} AS {told}")
            for view in SHORT_VIEWS:
                connection.execute(f"CREATE VIEW {view.name} AS {view.sql}")
            _make_dictionary(connection)
            self._lock(connection, tables)
        except duckdb.Error as error:
            connection.close()
            raise QueryError(f"its Parquet cannot be read: {str(error).splitlines()[0]}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _lock(self, connection: duckdb.DuckDBPyConnection, tables: Tables) -> None:
        paths = [str(path) for files in tables.files.values() for path in files]
        connection.execute("SET allowed_paths = ?", [paths])
        if self._scratch is not None:
            connection.execute("SET temp_directory = ?", [str(self._scratch / "spill")])
            connection.execute(f"SET max_temp_directory_size = '{SPILL}'")
        else:
            connection.execute("SET temp_directory = ''")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")


_CONFIG: Final[dict[str, Any]] = {
    "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
    "allow_community_extensions": "false", "allow_persistent_secrets": "false", "python_enable_replacements": "false",
}  # fmt: skip


def _make_table(connection: duckdb.DuckDBPyConnection, table: str, tables: Tables) -> None:
    """The records of one kind: its columns as this version knows them, whatever an older or newer file has."""
    connection.register(f"empty_{table}", schema_of(table).empty_table())
    connection.execute(f"CREATE TABLE plain.{table} AS FROM empty_{table}")
    connection.unregister(f"empty_{table}")
    parts = [f"SELECT * FROM plain.{table}"]
    if table in tables.columns:
        connection.register(f"live_{table}", tables.columns[table])
        parts.append(f"SELECT * FROM live_{table}")
    for files in alike(tables.files.get(table, ())):
        listed = ", ".join(_quoted(str(path)) for path in files)
        known, read = set(schema_of(table).names), f"read_parquet([{listed}], hive_partitioning = false)"
        had = connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
        columns = ", ".join(f'"{row[0]}"' for row in had if row[0] in known)
        parts.append(f"SELECT {columns} FROM {read}")
    connection.execute(f"CREATE VIEW told.{table} AS {' UNION ALL BY NAME '.join(parts)}")


def _make_lines(connection: duckdb.DuckDBPyConnection) -> str:
    """The lines of the nodes to the common clock; the table's name, "" where no node has one."""
    rows = connection.sql("SELECT * FROM told.clock_node ORDER BY rx, seq").to_arrow_table().to_pylist()
    found = [astuple(piece) for piece in pieces(msgspec.convert(row, ClockNode) for row in rows)]
    if not found:
        return ""
    connection.register("pieces", _table([field.name for field in fields(Piece)], found))
    connection.execute("CREATE TABLE plain.clock_pieces AS FROM pieces")
    connection.unregister("pieces")
    return "plain.clock_pieces"


def _make_dictionary(connection: duckdb.DuckDBPyConnection) -> None:
    """The table that DESCRIBE reads."""
    rows = connection.execute(
        "SELECT table_name, column_name, data_type, column_index FROM duckdb_columns() WHERE schema_name = 'main'"
    ).fetchall()
    meanings = {(table, word.field): word.meaning for table in TABLES[:-1] for word in words_of(table)}
    facts = [(table, column, kind, place, unit_of(column), meanings.get((table, column), _OURS.get(column, "")))
             for table, column, kind, place in rows]  # fmt: skip
    connection.register("dictionary_rows", _table(("table", "column", "type", "place", "unit", "meaning"), facts))
    told = [(table, "records", _first_sentence(meaning_of(table))) for table in TABLES[:-1]]
    told += [("unknown", "records", "Records of kinds that this version does not know.")]
    told += [(view.name, "view", view.meaning) for view in SHORT_VIEWS]
    connection.register("tables_rows", _table(("name", "what", "meaning"), told))
    for name in ("dictionary", "tables"):
        connection.execute(f"CREATE TABLE plain.{name} AS FROM {name}_rows")
        connection.unregister(f"{name}_rows")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(":")


_OURS: Final = {
    "t_cluster": "when it was, on the clock of the cluster, ns; null where no clock model reaches",
    "bound_ns": "how far t_cluster may be off, ns",
}


def _table(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# -- the question ------------------------------------------------------------------------------------------------------


def _described(sql: str) -> str:
    """DESCRIBE of one of our tables has units and meanings; of anything else it is DuckDB's own."""
    match = _DESCRIBE.fullmatch(sql)
    if match is None:
        return sql
    if match[1] is None:
        return "FROM plain.tables"
    name = match[1].lower()
    if name not in TABLES and name not in (view.name for view in SHORT_VIEWS):
        return sql
    return f"""SELECT "column", type, unit, meaning FROM plain.dictionary WHERE "table" = '{name}' ORDER BY place"""


def _only_read(connection: duckdb.DuckDBPyConnection) -> None:
    """From here to the next question nothing can be written: a SELECT may hold an INSERT, which no kind of it tells."""
    with contextlib.suppress(duckdb.TransactionException):  # the first question ends none before it
        connection.execute("ROLLBACK")
    connection.execute("BEGIN TRANSACTION READ ONLY")


def _told_apart(schema: pa.Schema) -> pa.Schema:
    """Columns of the same name get numbers, as in `SELECT a.node, b.node`: JSON and Parquet would lose one of them."""
    taken: set[str] = set()
    made = []
    for field in schema:
        name, number = field.name, 1
        while name.lower() in taken:
            name, number = f"{field.name}_{number}", number + 1
        taken.add(name.lower())
        made.append(field.with_name(name))
    return pa.schema(made)


__all__ = ["Answer", "Database", "QueryCancelled", "QueryError", "QueryRefused"]
