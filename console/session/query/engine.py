"""SQL over the records of a source: DuckDB with a view per kind, read-only, and shut off from everything else.

A query is one statement that reads: anything that writes, loads, attaches or sets is refused by its statement type, and
DuckDB itself may then open no file but those of the source, load no extension, and keeps that configuration locked.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import msgspec
import numpy as np
from msgspec.structs import astuple, fields

from ...records import BadRecord, ClockNode, ClockSnapshot, decode
from ...records.kinds import SPECS
from ..format.duckdb_connection import CONFIG, connect, register_lines
from ..format.line_files import other_version
from ..format.table_schema import (
    TABLES,
    columns_of,
    formatted_lines,
    literal,
    meaning_of,
    parsed_lines,
    quoted,
    read_lines,
    unit_of,
    words_of,
)
from .limits import (
    DEADLINE_S,
    MEMORY,
    ROW_LIMIT,
    SPILL,
    QueryCancelled,
    QueryError,
    QueryRefused,
    QueryWatchdog,
    validate,
)
from .output import ResultColumn, ResultSet, Rows, parquet_value
from .source_tables import HistoryRows, SourceTables
from .sources import LoadCancelled, Source
from .views import (
    SHORT_VIEWS,
    Piece,
    RealPiece,
    has_to_cluster,
    pieces,
    real_pieces,
    tables_for,
    to_cluster_macros,
    views_named,
    with_cluster_time,
)

_Clock = TypeVar("_Clock", ClockNode, ClockSnapshot)
_BATCH_ROWS: Final = 8192
#: Folder within the scratch folder that `write_parquet` may write to.
OUTPUT: Final = "output"
_ALL_NAMES: Final = frozenset([*TABLES, *(view.name for view in SHORT_VIEWS)])
#: What lists tables and columns, in a query.
_LISTS: Final = re.compile(r"\b(show|pragma\w*|information_schema|pg_\w+|sqlite_\w+|duckdb_\w+|plain)\b", re.IGNORECASE)
_DESCRIBE: Final = re.compile(r'\s*(?:DESCRIBE|DESC)(?:\s+(?:TABLE\s+)?"?(\w+)"?)?\s*;?\s*', re.IGNORECASE)
#: Types that Python cannot hold without losing part of the value, or only with another package: fetched as text.
_AS_TEXT: Final = re.compile(r".*(INTERVAL|TIMESTAMP WITH TIME ZONE|TIMESTAMP_NS)")
#: Types that an array of numpy cannot hold without losing part of the value.
_AS_TEXT_IN_ARRAYS: Final = re.compile(r"(INTERVAL|U?HUGEINT|DECIMAL\(\d+,\d+\)|BIGNUM|TIME|TIME WITH TIME ZONE)$")


class Database:
    """The tables of one source. One query at a time; `cancel` may be called from another thread."""

    def __init__(self, source: Source, scratch: Path | None = None, memory: str = MEMORY) -> None:
        """`scratch` is a folder for what does not fit into memory; without one such a query fails."""
        self._source, self._scratch, self._memory = source, scratch, memory
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._names: frozenset[str] = frozenset()  # the tables and short views that the connection has
        self._loaded: frozenset[str] = frozenset()  # the tables whose records it has
        self._timed = False  # whether the tables have cluster time
        self._converts = False  # whether it has the functions `TO_CLUSTER`
        self._cancelled = threading.Event()

    def close(self) -> None:
        """Release the tables."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cancel(self) -> None:
        """Cancel the running query, or the next one: it raises QueryCancelled."""
        self._cancelled.set()

    def query(self, sql: str, *, limit: int | None = ROW_LIMIT, deadline_s: float = DEADLINE_S) -> ResultSet:
        """Return the result in memory, of at most `limit` rows. Raises QueryError, and what the source raises."""
        began = time.monotonic()
        columns, batches = self.stream(sql, deadline_s=deadline_s)
        rows: Rows = []
        for batch in batches:
            rows += batch
            if limit is not None and len(rows) > limit:
                break
        batches.close()
        kept = rows if limit is None else rows[:limit]
        return ResultSet(columns, kept, len(kept) < len(rows), time.monotonic() - began)

    def stream(
        self, sql: str, *, deadline_s: float = DEADLINE_S
    ) -> tuple[tuple[ResultColumn, ...], Generator[Rows, None, None]]:
        """Return the columns of the result and its rows as they come. Raises QueryError, and what the source raises."""
        connection, columns, watchdog = self._executed(sql, deadline_s, _AS_TEXT)
        return columns, self._batches(connection, watchdog)

    def arrays(
        self, sql: str, *, deadline_s: float = DEADLINE_S
    ) -> tuple[tuple[ResultColumn, ...], list[np.ndarray[Any, Any]]]:
        """Return the columns of the result and their values, masked where null. Raises QueryError, as the source.

        Values of `_AS_TEXT_IN_ARRAYS` are text; the type of their column is the one before.
        """
        connection, columns, watchdog = self._executed(sql, deadline_s, _AS_TEXT_IN_ARRAYS)
        try:
            with watchdog:
                values = list(connection.fetchnumpy().values())
        except (duckdb.Error, MemoryError) as error:
            raise self._query_error(error, watchdog) from error
        return columns, values

    def _executed(
        self, sql: str, deadline_s: float, as_text: re.Pattern[str]
    ) -> tuple[duckdb.DuckDBPyConnection, tuple[ResultColumn, ...], QueryWatchdog]:
        """Execute a query, columns of the types `as_text` as text. Raises QueryError, and what the source raises."""
        sql = _described(sql)
        connection = self._connect(sql)
        validate(connection, sql)
        _only_read(connection)
        watchdog = QueryWatchdog(connection, deadline_s, self._cancelled)
        try:
            with watchdog:
                columns = _execute(connection, sql, as_text)
        except duckdb.CatalogException as error:
            if self._names >= _ALL_NAMES:
                raise self._query_error(error, watchdog) from error
            self._connect(sql, _ALL_NAMES)  # it lists tables, or misspells one: DuckDB suggests names that it has
            return self._executed(sql, deadline_s, as_text)
        except (duckdb.Error, MemoryError) as error:
            raise self._query_error(error, watchdog) from error
        return connection, columns, watchdog

    def write_parquet(
        self, sql: str, path: Path, *, limit: int | None = None, deadline_s: float = DEADLINE_S
    ) -> int:  # fmt: skip
        """Write the rows of a query, at most `limit`, into a file in the scratch folder; return their number.

        The deadline covers writing; memory stays bounded. Raises QueryError, and what the source raises.
        """
        sql = _described(sql)
        connection = self._connect(sql)
        validate(connection, sql)
        statement = connection.extract_statements(sql)[0]
        if statement.type.name != "SELECT":
            raise QueryError("the result of EXPLAIN is text, not a table; leave out --format parquet")
        inner = statement.query.strip().rstrip(";")
        rows = f"(\n{inner}\n)" if limit is None else f"(FROM (\n{inner}\n) LIMIT {limit})"
        watchdog = QueryWatchdog(connection, deadline_s, self._cancelled)
        try:
            with watchdog:
                columns = connection.execute(f"DESCRIBE {rows}").fetchall()
                names = [f"c{place}" for place in range(len(columns))]
                titles = _unique([str(column[0]) for column in columns])
                values = ", ".join(
                    f"{parquet_value(name, str(column[1]))} AS {quoted(title)}"
                    for name, title, column in zip(names, titles, columns, strict=True)
                )
                (count,) = connection.execute(
                    f"""COPY (SELECT {values} FROM {rows} AS result({", ".join(names)}))
                        TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"""
                ).fetchall()[0]
        except duckdb.CatalogException as error:
            if self._names >= _ALL_NAMES:
                raise self._query_error(error, watchdog) from error
            self._connect(sql, _ALL_NAMES)  # as for other formats: it lists tables, or misspells one
            return self.write_parquet(sql, path, limit=limit, deadline_s=deadline_s)
        except (duckdb.Error, MemoryError) as error:
            raise self._query_error(error, watchdog) from error
        return int(count)

    def _batches(self, connection: duckdb.DuckDBPyConnection, watchdog: QueryWatchdog) -> Generator[Rows, None, None]:
        try:
            with watchdog:
                while rows := connection.fetchmany(_BATCH_ROWS):
                    yield rows
        except (duckdb.Error, MemoryError) as error:
            raise self._query_error(error, watchdog) from error

    def _query_error(self, error: Exception, watchdog: QueryWatchdog) -> QueryError:
        if self._cancelled.is_set():
            self._cancelled.clear()
            return QueryCancelled("cancelled")
        if watchdog.is_over:
            return QueryError(f"no result within {watchdog.deadline_s:g} s; select less, or raise --timeout")
        text = str(error).split("\n\nLINE 1")[0].strip()
        if isinstance(error, duckdb.InvalidInputException) and "JSON transform error" in text:
            return QueryError(other_version(error))
        if "Out of Memory" in text or isinstance(error, MemoryError):
            return QueryError(f"the result needs more than {self._memory} of memory; select fewer columns or rows")
        if "read-only mode" in text:
            return QueryRefused("read-only: this statement would write")
        if "disabled by configuration" in text or "Permission Error" in text:
            return QueryRefused(f"only the records of this source can be read: {text.splitlines()[0]}")
        return QueryError(text)

    # -- names ---------------------------------------------------------------------------------------------------------

    def names(self) -> dict[str, tuple[str, ...]]:
        """Return every table and short view with its columns: for completion."""
        query = """SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns()
                   WHERE schema_name = 'main' GROUP BY ALL ORDER BY ALL"""
        return {name: tuple(columns) for name, columns in self._connect("", _ALL_NAMES).execute(query).fetchall()}

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connect(self, sql: str, names: frozenset[str] = frozenset()) -> duckdb.DuckDBPyConnection:
        """Return a connection that has these tables and views and those that the query names, and is locked.

        All of them take four times the CPU time of one, so a query gets all only if it may list them.
        """
        tables, timed = tables_for(sql)
        names |= _ALL_NAMES if _LISTS.search(sql) else views_named(sql) | tables
        wanted = (self._names | names, self._timed or timed, self._converts or has_to_cluster(sql))
        if (
            self._connection is None
            or wanted != (self._names, self._timed, self._converts)
            or not (tables <= self._loaded)
        ):
            self.close()
            self._loaded |= tables
            self._connection = self._open(*wanted)
            self._names, self._timed, self._converts = wanted
        return self._connection

    def _open(self, names: frozenset[str], timed: bool, converts: bool) -> duckdb.DuckDBPyConnection:
        try:
            tables = self._source.tables(self._loaded)
        except LoadCancelled as error:
            raise QueryCancelled("cancelled") from error
        connection = connect(self._memory)
        try:
            if self._scratch is not None:
                connection.execute("SET temp_directory = ?", [str(self._scratch / "spill")])
                connection.execute(f"SET max_temp_directory_size = '{SPILL}'")
            _define(connection, tables, names, timed, converts)
            self._lock(connection, tables)
        except (duckdb.Error, BadRecord, OverflowError) as error:
            connection.close()
            raise QueryError(f"cannot read its Parquet files: {str(error).splitlines()[0]}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _lock(self, connection: duckdb.DuckDBPyConnection, tables: SourceTables) -> None:
        paths = [str(path) for files in tables.files.values() for path in files]
        paths += [str(file.path) for file in tables.line_files.values()]
        connection.execute("SET allowed_paths = ?", [paths])
        if self._scratch is not None:
            connection.execute("SET allowed_directories = ?", [[str(self._scratch / OUTPUT)]])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")


def write_database(path: Path, tables: SourceTables) -> None:
    """Write a DuckDB file with every table and short view, as views over the Parquet files of `tables`.

    `path` must not exist. Any DuckDB opens it, as long as the Parquet files stay where they are. Raises QueryError.
    """
    try:
        with duckdb.connect(str(path), config={**CONFIG, "memory_limit": MEMORY}) as connection:
            _define(connection, tables, _ALL_NAMES, timed=True, converts=True)
    except (duckdb.Error, BadRecord, OverflowError) as error:
        raise QueryError(f"{path}: {str(error).splitlines()[0]}") from error


def _define(
    connection: duckdb.DuckDBPyConnection, tables: SourceTables, names: frozenset[str], timed: bool, converts: bool
) -> None:
    """Create these tables and views; `timed`: with cluster time, `converts`: with the functions `TO_CLUSTER`."""
    connection.execute("CREATE SCHEMA plain; CREATE SCHEMA source")
    present = [table for table in TABLES if table in names]
    for table in present:
        _make_table(connection, table, tables)
    clock_pieces = _make_clock_pieces(connection) if timed else ""
    for table in present:
        view = with_cluster_time(f"SELECT * FROM source.{table}", clock_pieces)
        connection.execute(f"CREATE VIEW {table} AS {view}")
    for short_view in SHORT_VIEWS:
        if short_view.name in names:
            connection.execute(f"CREATE VIEW {short_view.name} AS {short_view.sql}")
    if converts:
        connection.execute(to_cluster_macros(_make_real_pieces(connection)))
    if names >= _ALL_NAMES:
        _make_dictionary(connection)


def _make_table(connection: duckdb.DuckDBPyConnection, table: str, tables: SourceTables) -> None:
    """Create the records of one kind: its columns as this version defines them, whatever an older or newer file has."""
    columns = columns_of(table)
    defined = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    connection.execute(f"CREATE TABLE plain.{table} ({defined})")
    parts = [f"SELECT * FROM plain.{table}"]
    if table in tables.line_files:
        parts.append(read_lines(table, tables.line_files[table]))
    if table in tables.lines:
        register_lines(connection, "lines", tables.lines[table])
        connection.execute(f"INSERT INTO plain.{table} {parsed_lines(table, 'lines')}")
        connection.unregister("lines")
    if table in tables.history:
        parts.append(_history_rows(connection, table, tables.history[table]))
    names = {column.name for column in columns}
    for files in _by_columns(connection, tables.files.get(table, ())):
        read = f"read_parquet([{', '.join(map(literal, files))}], hive_partitioning = false)"
        present = connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
        kept = ", ".join(quoted(row[0]) for row in present if row[0] in names)
        parts.append(f"SELECT {kept} FROM {read}")
    connection.execute(f"CREATE VIEW source.{table} AS {' UNION ALL BY NAME '.join(parts)}")


def _history_rows(connection: duckdb.DuckDBPyConnection, table: str, history: HistoryRows) -> str:
    """Return the SQL of what a store keeps over time of one kind, as rows with the columns it has."""
    types = {column.name: column.type for column in columns_of(table)}
    register_lines(connection, "lines", history.heads)
    connection.execute(f"""CREATE TABLE plain.heads_{table} AS SELECT *, row_number() OVER () - 1 AS entity
                           FROM ({parsed_lines(table, "lines", is_complete=False)})""")
    connection.unregister("lines")
    connection.register(f"history_{table}", {"entity": history.entity, "t": history.t, **history.metrics})
    heads = [f"head.{quoted(name)}" for name in history.head_names]
    metrics = [
        f"TRY_CAST({'trunc' if types[name] == 'BIGINT' else ''}(CASE WHEN NOT isnan(past.{quoted(name)}) "
        f"THEN past.{quoted(name)} END) AS {types[name]}) AS {quoted(name)}"
        for name in history.metrics
    ]
    return f"""SELECT past.t, past.t AS rx, {", ".join([*heads, *metrics])}
               FROM history_{table} past JOIN plain.heads_{table} head USING (entity)"""


def _by_columns(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> list[list[str]]:
    """Return Parquet files in groups of those that have the same columns, so that one is opened after the other.

    `union_by_name` of DuckDB opens all files first and keeps their footers: 125 MB for a thousand files of 60 columns.
    """
    if not paths:
        return []
    listed = ", ".join(literal(str(path)) for path in paths)
    query = f"""SELECT list(file_name ORDER BY file_name) FROM (
                    SELECT file_name, list_sort(list(concat_ws(' ', name, type, repetition_type, num_children,
                                                               converted_type, logical_type::VARCHAR))) AS columns
                    FROM parquet_schema([{listed}]) GROUP BY file_name
                ) GROUP BY columns ORDER BY 1"""
    return [row[0] for row in connection.execute(query).fetchall()]


def _make_clock_pieces(connection: duckdb.DuckDBPyConnection) -> str:
    """Create the table of the nodes' lines to the common clock; return its name, "" where no node has one."""
    return _make_pieces(connection, "clock_pieces", Piece, pieces(_records_of(connection, ClockNode)))


def _make_real_pieces(connection: duckdb.DuckDBPyConnection) -> str:
    """Create the table that converts the nodes' CLOCK_REALTIME; return its name, "" where nothing is known."""
    lines, snapshots = _records_of(connection, ClockNode), _records_of(connection, ClockSnapshot)
    return _make_pieces(connection, "real_pieces", RealPiece, real_pieces([*lines, *snapshots]))


def _records_of(connection: duckdb.DuckDBPyConnection, kind: type[_Clock]) -> Iterator[_Clock]:
    table = SPECS[kind].name
    names = [column.name for column in columns_of(table)]
    query = formatted_lines(table, names, f"(FROM source.{table} ORDER BY rx, seq)")
    lines = connection.execute(query)
    while batch := lines.fetchmany(_BATCH_ROWS):
        for (line,) in batch:
            record = decode(line.encode())
            if isinstance(record, kind):
                yield record


def _make_pieces(
    connection: duckdb.DuckDBPyConnection, name: str, kind: type[msgspec.Struct], pieces: Iterable[msgspec.Struct]
) -> str:
    rows = [astuple(piece) for piece in pieces]
    if not rows:
        return ""
    kinds: dict[Any, Any] = {str: object, int: np.int64, float: np.float64}
    columns = zip(fields(kind), zip(*rows, strict=True), strict=True)
    _create(connection, name, {field.name: np.array(values, kinds[field.type]) for field, values in columns})
    return f"plain.{name}"


def _make_dictionary(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the tables that DESCRIBE reads."""
    rows = connection.execute(
        "SELECT table_name, column_name, data_type, column_index FROM duckdb_columns() WHERE schema_name = 'main'"
    ).fetchall()
    meanings = {(table, word.field): word.meaning for table in TABLES[:-1] for word in words_of(table)}
    facts = [
        (table, column, kind, place, unit_of(column), meanings.get((table, column), _CLUSTER_COLUMNS.get(column, "")))
        for table, column, kind, place in rows
    ]
    _create(connection, "dictionary", _arrays(("table", "column", "type", "place", "unit", "meaning"), facts))
    tables = [(table, "records", _first_sentence(meaning_of(table))) for table in TABLES[:-1]]
    tables += [("unknown", "records", "Records of kinds that a newer gconsole writes.")]
    tables += [(view.name, "view", view.meaning) for view in SHORT_VIEWS]
    _create(connection, "tables", _arrays(("name", "what", "meaning"), tables))


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(":")


_CLUSTER_COLUMNS: Final = {
    "t_cluster": "instant on the clock of the cluster, ns; null where no clock model reaches",
    "bound_ns": "error bound of t_cluster, ns",
}


def _arrays(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, np.ndarray[Any, Any]]:
    columns = zip(*rows, strict=True)
    return {name: np.array(values, object) for name, values in zip(names, columns, strict=True)}


def _create(connection: duckdb.DuckDBPyConnection, name: str, columns: dict[str, np.ndarray[Any, Any]]) -> None:
    connection.register("columns", columns)
    connection.execute(f"CREATE TABLE plain.{name} AS FROM columns")
    connection.unregister("columns")


# -- the query ---------------------------------------------------------------------------------------------------------


def _described(sql: str) -> str:
    """Return the query for DESCRIBE of one of our tables, with units and meanings; any other as it is."""
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
    """Forbid writing until the next query: a SELECT may contain an INSERT, which its statement type does not show."""
    with contextlib.suppress(duckdb.TransactionException):  # the first query ends no transaction
        connection.execute("ROLLBACK")
    connection.execute("BEGIN TRANSACTION READ ONLY")


def _execute(connection: duckdb.DuckDBPyConnection, sql: str, as_text: re.Pattern[str]) -> tuple[ResultColumn, ...]:
    """Execute a query; return its columns, each by a name of its own: JSON and Parquet would lose one of two."""
    described = [(str(item[0]), str(item[1])) for item in connection.execute(sql).description]
    if any(as_text.match(kind) for _, kind in described):
        names = [f"c{place}" for place in range(len(described))]
        values = [
            f"{name}::VARCHAR" if as_text.match(kind) else name
            for name, (_, kind) in zip(names, described, strict=True)
        ]
        inner = connection.extract_statements(sql)[0].query.strip().rstrip(";")
        connection.execute(f"SELECT {', '.join(values)} FROM (\n{inner}\n) AS result({', '.join(names)})")
    names = _unique([name for name, _ in described])
    return tuple(ResultColumn(name, kind) for name, (_, kind) in zip(names, described, strict=True))


def _unique(originals: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    names = []
    for original in originals:
        name, number = original, 1
        while name.lower() in taken:
            name, number = f"{original}_{number}", number + 1
        taken.add(name.lower())
        names.append(name)
    return names
