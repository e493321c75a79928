"""Whether a question is one, told before it is asked: one statement that reads."""

from __future__ import annotations

import re
from typing import Final

import duckdb

_READS: Final = ("SELECT", "EXPLAIN")


class QueryError(Exception):
    """The question cannot be answered; the text says why, and what to try."""


class QueryRefused(QueryError):
    """It does something else than read the records."""


class QueryCancelled(QueryError):
    """Somebody gave it up."""


def check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raises QueryRefused for what is not one statement that reads, QueryError for what is no SQL."""
    statements = _statements(connection, sql)
    if len(statements) != 1:
        raise QueryRefused("one question at a time: one statement" if statements else "there is no question")
    kind = statements[0].type.name
    if kind == "EXPLAIN":
        inner = re.sub(r"^\s*EXPLAIN(\s+ANALYZE)?(\s*\([^)]*\))?", "", sql, count=1, flags=re.IGNORECASE)
        kinds = {statement.type.name for statement in _statements(connection, inner)}
        if kinds != {"SELECT"}:
            raise QueryRefused("only questions can be explained")
    if kind == "MULTI":
        raise QueryRefused("write it as a question of its own: SELECT * FROM (PIVOT …)")
    if kind not in _READS:
        raise QueryRefused(f"only questions: SELECT, FROM, WITH, DESCRIBE, SUMMARIZE; this is {kind}")


def _statements(connection: duckdb.DuckDBPyConnection, sql: str) -> list[duckdb.Statement]:
    try:
        return connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(str(error).strip()) from error
