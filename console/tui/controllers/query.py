"""A part of the app: what becomes of a question that the Query view posts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..query_client import Asking
from ..views.query.view import NamesRequested, QueryCancelled, QueryRequested, QueryView


class QueryActions:
    """The app answers; the view only shows."""

    asking: Asking
    run_worker: Callable[..., Any]

    def on_query_requested(self, event: QueryRequested) -> None:
        """Answer it in the background."""
        self.run_worker(self._answer_for(event.view, event.sql), name="query", group="query")

    def on_names_requested(self, event: NamesRequested) -> None:
        """Find what there is to complete, in the background."""
        self.run_worker(self._find_names(event.view), name="names for completion", group="query")

    def on_query_cancelled(self, event: QueryCancelled) -> None:
        """Give it up."""
        self.asking.cancel()

    def on_unmount(self) -> None:
        """Nobody asks any more."""
        self.asking.close()

    async def _answer_for(self, view: QueryView, sql: str) -> None:
        answer = await self.asking.ask(sql)
        if view.is_attached:  # a replay that went to another time has views of its own
            view.show_result(answer)

    async def _find_names(self, view: QueryView) -> None:
        view.set_completion_names(await self.asking.names())
