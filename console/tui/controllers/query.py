"""Runs the SQL queries of the Query view in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.store import Store
from ...session import store_snapshot
from ...session.query.limits import QueryCancelled, QueryError
from ...session.query.views import tables_for
from ...session.query.worker import QueryWorkerClient
from ..views.query.model import QueryResult, rows_of
from ..views.query.view import QueryView
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Rows that the view shows; `gconsole query` writes more into a file.
MOST_ROWS = 5_000
DEADLINE_S = 60.0


class QueryController(Controller):
    """Queries the store or, where one is shown, the recorded session at the path `recorded`."""

    def __init__(self, app: ConsoleApp, store: Store, recorded: Path | None) -> None:
        self._app, self.recorded = app, recorded
        self.client = QueryClient(store, recorded)

    def use_store(self, store: Store) -> None:
        """Query this store from now on."""
        self.client.close()
        self.client = QueryClient(store, self.recorded)

    def run(self, view: QueryView, sql: str) -> None:
        """Run a query and show its result in `view`."""
        self._app.run_worker(self._run(view, sql), name="query", group="query")

    def complete_names(self, view: QueryView) -> None:
        """Give `view` the tables and columns that completion offers."""
        self._app.run_worker(self._complete_names(view), name="names for completion", group="query")

    async def _run(self, view: QueryView, sql: str) -> None:
        result = await self.client.run(sql)
        if view.is_attached:  # a replay that jumped has new views
            view.show_result(result)

    async def _complete_names(self, view: QueryView) -> None:
        view.set_completion_names(await self.client.names())


class QueryClient:
    """Queries the store or, where `recorded` is given, that session; one query at a time."""

    def __init__(self, store: Store, recorded: Path | None = None) -> None:
        self._store, self._recorded = store, recorded
        self._worker = QueryWorkerClient()
        self._lock = asyncio.Lock()
        self.is_busy = False

    async def run(self, sql: str) -> QueryResult | None:
        """The result, or the error; None if it was cancelled or another query is running."""
        if self.is_busy:
            return None
        self.is_busy = True
        self._worker.reset_cancel()
        try:
            tables = store_snapshot.snapshot_tables(self._store, tables_for(sql)[0]) if self._recorded is None else None
            async with self._lock:
                return await asyncio.to_thread(self._run, sql, tables)
        finally:
            self.is_busy = False

    def cancel(self) -> None:
        """Cancel the running query."""
        self._worker.cancel()

    def close(self) -> None:
        """Cancel the running query and end the worker process."""
        self._worker.cancel()
        self._worker.close()

    async def names(self) -> Mapping[str, Sequence[str]]:
        """Every table and view with its columns; empty if they cannot be read."""
        async with self._lock:
            return await asyncio.to_thread(self._names)

    def _run(self, sql: str, tables: store_snapshot.StoreSnapshot | None) -> QueryResult | None:
        try:
            source = self._recorded if tables is None else tables.tables(tables_for(sql)[0])
            assert source is not None
            result = self._worker.query(sql, source, limit=MOST_ROWS, deadline_s=DEADLINE_S)
            names, units = (tuple(getattr(column, name) for column in result.columns) for name in ("name", "unit"))
            rows = rows_of([list(row) for row in result.rows])
            return QueryResult(sql, names, units, rows, result.truncated, result.took_s, result.damage)
        except QueryCancelled:
            return None
        except (QueryError, OSError) as error:
            return QueryResult(sql, error=str(error))

    def _names(self) -> Mapping[str, Sequence[str]]:
        try:
            return self._worker.names()
        except (QueryError, OSError):  # completion is optional; running a query reports the error
            return {}
