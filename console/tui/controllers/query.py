"""A part of the app: what becomes of a question that the Query view posts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..query_client import Asking
from ..views.query.view import AnswerCancelled, NamesWanted, Query, QuestionAsked


class QueryActions:
    """The app answers; the view only shows."""

    asking: Asking
    run_worker: Callable[..., Any]

    def on_question_asked(self, event: QuestionAsked) -> None:
        """Answer it in the background."""
        self.run_worker(self._answer_for(event.view, event.sql), name="query", group="query")

    def on_names_wanted(self, event: NamesWanted) -> None:
        """Find what there is to complete, in the background."""
        self.run_worker(self._find_names(event.view), name="names for completion", group="query")

    def on_answer_cancelled(self, event: AnswerCancelled) -> None:
        """Give it up."""
        self.asking.cancel()

    def on_unmount(self) -> None:
        """Nobody asks any more."""
        self.asking.close()

    async def _answer_for(self, view: Query, sql: str) -> None:
        answer = await self.asking.ask(sql)
        if view.is_attached:  # a replay that went to another time has views of its own
            view.answered(answer)

    async def _find_names(self, view: Query) -> None:
        view.take_names(await self.asking.names())
