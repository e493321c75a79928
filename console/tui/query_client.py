"""Questions in SQL, answered beside the screen by a process of their own: the picture goes on, Escape gives it up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.store import Store
from ..session.query import live
from ..session.query.clock_columns import tables_for
from ..session.query.worker_client import Apart
from .views.query.model import QueryResult, rows_of

#: Rows that a person scrolls through; a file takes more: `gconsole query`.
MOST_ROWS = 5_000
DEADLINE_S = 60.0


class Asking:
    """Asks the store of this console or, where a session is shown, that; one question at a time."""

    def __init__(self, store: Store, recorded: Path | None = None) -> None:
        self._store, self.recorded = store, recorded
        self._apart = Apart()
        self._turn = asyncio.Lock()
        self.is_busy = False

    async def ask(self, sql: str) -> QueryResult | None:
        """The answer, or what prevented it; None where it was given up, or another question is under way."""
        if self.is_busy:
            return None
        self.is_busy = True
        self._apart.forget_cancel()
        try:
            taken = live.snapshot(self._store, tables_for(sql)[0]) if self.recorded is None else None
            async with self._turn:
                return await asyncio.to_thread(self._answer, sql, taken)
        finally:
            self.is_busy = False

    def cancel(self) -> None:
        """Give up the question under way."""
        self._apart.cancel()

    def close(self) -> None:
        """Nobody asks any more."""
        self._apart.cancel()
        self._apart.close()

    async def names(self) -> Mapping[str, Sequence[str]]:
        """Every table and short view with its columns; nothing where nobody can tell."""
        async with self._turn:
            return await asyncio.to_thread(self._names)

    def _answer(self, sql: str, taken: live.Snapshot | None) -> QueryResult | None:
        from ..session.query.output import rows_of as values_of
        from ..session.query.validate import QueryCancelled, QueryError

        try:
            source = self.recorded if taken is None else taken.tables(tables_for(sql)[0])
            assert source is not None
            found = self._apart.ask(sql, source, limit=MOST_ROWS, deadline_s=DEADLINE_S)
            rows = rows_of([row for batch in found.rows.to_batches() for row in values_of(batch)])
            return QueryResult(sql, found.columns, found.units, rows, found.truncated, found.took_s, found.damage)
        except QueryCancelled:
            return None
        except (QueryError, OSError) as error:
            return QueryResult(sql, error=str(error))

    def _names(self) -> Mapping[str, Sequence[str]]:
        from ..session.query.validate import QueryError

        try:
            return self._apart.names()
        except (QueryError, OSError):  # completion is a comfort; a question would say what is wrong
            return {}
