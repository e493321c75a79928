"""Limits of a query: only one reading statement, a deadline, cancellation; and the errors that a query raises."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Final

from ... import GconsoleError

if TYPE_CHECKING:
    import duckdb

#: Memory and spill space of DuckDB for one query.
MEMORY: Final = "1GB"
SPILL: Final = "4GB"
DEADLINE_S: Final = 60.0
#: Default upper bound of the rows of a result.
ROW_LIMIT: Final = 10_000
#: Seconds between two checks for cancellation and the deadline.
POLL_S: Final = 0.05


class QueryError(GconsoleError):
    """The query failed; the text states the cause and the remedy."""


class QueryRefused(QueryError):
    """The statement does something else than read records."""


class QueryCancelled(QueryError):
    """The query was cancelled."""


def validate(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raises QueryRefused for anything but one reading statement, QueryError for a syntax error."""
    statements = _statements(connection, sql)
    if len(statements) != 1:
        raise QueryRefused("one statement at a time" if statements else "no statement; type a query")
    kind = statements[0].type.name
    if kind == "EXPLAIN":
        inner = re.sub(r"^\s*EXPLAIN(\s+ANALYZE)?(\s*\([^)]*\))?", "", sql, count=1, flags=re.IGNORECASE)
        kinds = {statement.type.name for statement in _statements(connection, inner)}
        if kinds != {"SELECT"}:
            raise QueryRefused("EXPLAIN works only for SELECT")
    if kind == "MULTI":
        raise QueryRefused("this statement runs as several; write SELECT * FROM (PIVOT …)")
    if kind not in ("SELECT", "EXPLAIN"):
        raise QueryRefused(f"read-only: use SELECT, FROM, WITH, DESCRIBE or SUMMARIZE, not {kind}")


def _statements(connection: duckdb.DuckDBPyConnection, sql: str) -> list[duckdb.Statement]:
    import duckdb  # takes 0.1 s; the caller has a connection, but importers of the errors may not

    try:
        return connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(str(error).strip()) from error


class QueryWatchdog:
    """Interrupts a query that is cancelled or exceeds its deadline; only time within `with` is checked."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, deadline_s: float, cancelled: threading.Event) -> None:
        self.deadline_s, self.is_over = deadline_s, False
        self._connection, self._cancelled = connection, cancelled
        self._end = time.monotonic() + deadline_s

    def __enter__(self) -> None:
        self._done = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _wait(self) -> None:
        """Interrupt repeatedly: an interrupt before execution begins has no effect."""
        while not self._done.wait(POLL_S):
            self.is_over = time.monotonic() >= self._end
            if self.is_over or self._cancelled.is_set():
                self._connection.interrupt()
