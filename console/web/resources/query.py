"""`/query`: SQL over what the console knows now, or over a recorded session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...session.format.layout import NAME_PATTERN, SessionError, named
from ...session.format.redact import Redactor
from ...session.query.limits import QueryCancelled, QueryError
from ...session.query.output import ResultSet
from ...session.query.source_tables import SourceTables
from ...session.query.views import tables_for
from ...session.store_snapshot import snapshot_tables
from ..operation import OperationRequest, WebContext, operation
from ..problems import http_problem

Sql = Annotated[str, msgspec.Meta(min_length=1, max_length=65_536, description="one DuckDB statement that reads")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=100_000, description="rows at most")]
TimeoutS = Annotated[float, msgspec.Meta(ge=0.1, le=60.0, description="seconds")]
SessionName = Annotated[
    str, msgspec.Meta(pattern=f"^{NAME_PATTERN}$", description="query this session of the console's folder")
]


class SqlRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A query of the live records and history, or of a session."""

    sql: Sql
    limit: Limit = 1_000
    timeout_s: TimeoutS = 30.0
    session: SessionName | None = None


class QueryColumn(msgspec.Struct):
    """One column: its name, its type in DuckDB, and the unit that the name implies ("" without one)."""

    name: str
    type: str
    unit: str


class QueryRows(msgspec.Struct):
    """The result: a list per row, values in the order of the columns; unknown is null."""

    columns: list[QueryColumn]
    rows: list[list[Any]]
    truncated: bool  # there are more rows than `limit`
    damage: list[str]  # what could not be read; the result is without it
    took_s: float


@operation("POST", "/query", problems=(404,), scope="read")
async def run_query(context: WebContext, request: OperationRequest[SqlRequest]) -> QueryRows:
    """Run SQL over the records and the history of this console, or over a session. Read-only; secrets are hidden."""
    wanted = request.parameters
    async with context.querying:
        try:
            result = await _result(context, wanted)
        except QueryCancelled as error:
            raise http_problem(503, "closing", "the server is closing", Retry_After="1") from error
        except QueryError as error:
            raise http_problem(400, "query", str(error), "DESCRIBE lists tables and views") from error
    columns = [QueryColumn(column.name, column.type, column.unit) for column in result.columns]
    return QueryRows(columns, [list(row) for row in result.rows], result.truncated, list(result.damage), result.took_s)


async def _result(context: WebContext, wanted: SqlRequest) -> ResultSet:
    """Raises QueryError, HttpProblemError."""

    def run(source: Path | SourceTables) -> ResultSet:
        return context.queries.query(wanted.sql, source, limit=wanted.limit, deadline_s=wanted.timeout_s)

    if wanted.session is not None:
        session = named(wanted.session, context.sessions)
        try:
            session.read()
        except SessionError as error:
            raise http_problem(404, "no_such_session", str(error), "GET /profiling/sessions lists them") from error
        return await asyncio.to_thread(run, session.path)
    tables = tables_for(wanted.sql)[0]
    snapshot = snapshot_tables(context.store, tables)

    def run_live() -> ResultSet:
        redact = Redactor()
        records = {kind: [redact(record) for record in held] for kind, held in snapshot.records.items()}
        return run(msgspec.structs.replace(snapshot, records=records).tables(tables))

    return await asyncio.to_thread(run_live)
