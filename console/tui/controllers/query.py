"""Runs the SQL queries of the Query view in the background."""

from __future__ import annotations

from pathlib import Path

from ...core.store import Store
from ..query_client import QueryClient
from ..views.query.view import QueryView
from .controller import AppHost, Controller


class QueryController(Controller):
    """Queries the store or, where one is shown, the recorded session at the path `recorded`."""

    def __init__(self, app: AppHost, store: Store, recorded: Path | None) -> None:
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
