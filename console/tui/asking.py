"""Questions in SQL, answered beside the screen: a thread works while the picture goes on, and Escape gives it up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..session import live
from ..session.question import tables_named
from ..store import Store
from .models.answers import Answered, rows_of

if TYPE_CHECKING:
    from ..session.database import Database
    from ..session.sources import Source

#: Rows that a person scrolls through; a file takes more: `gconsole query`.
MOST_ROWS = 5_000
DEADLINE_S = 60.0


class Asking:
    """Asks the store of this console or, where a session is shown, that; one question at a time."""

    def __init__(self, store: Store, recorded: Path | None = None) -> None:
        self._store, self.recorded = store, recorded
        self._database: Database | None = None
        self._given_up = False
        self.is_busy = False

    async def ask(self, sql: str) -> Answered | None:
        """The answer, or what prevented it; None where it was given up, or another question is under way."""
        if self.is_busy:
            return None
        self.is_busy, self._given_up = True, False
        try:
            taken = live.snapshot(self._store, tables_named(sql)) if self.recorded is None else None
            return await asyncio.to_thread(self._answer, sql, taken)
        finally:
            self.is_busy = False

    def cancel(self) -> None:
        """Give up the question under way."""
        self._given_up = True
        if self._database is not None:
            self._database.cancel()

    async def names(self) -> Mapping[str, Sequence[str]]:
        """Every table and short view with its columns."""
        return await asyncio.to_thread(_names)

    def _answer(self, sql: str, taken: live.Snapshot | None) -> Answered | None:
        from ..session.sources import RecordedSource

        if taken is not None:
            return self._ask(sql, taken, None)
        assert self.recorded is not None
        with RecordedSource(self.recorded) as source:
            return self._ask(sql, source, source.scratch)

    def _ask(self, sql: str, source: Source, scratch: Path | None) -> Answered | None:
        from ..recordfile import RecordFileError
        from ..session.answers import rows_of as values_of
        from ..session.database import Database, QueryCancelled, QueryError
        from ..session.layout import SessionError

        database = self._database = Database(source, scratch)
        try:
            if self._given_up:
                return None
            found = database.ask(sql, limit=MOST_ROWS, deadline_s=DEADLINE_S)
            rows = rows_of([row for batch in found.rows.to_batches() for row in values_of(batch)])
            return Answered(sql, found.columns, found.units, rows, found.truncated, found.took_s)
        except QueryCancelled:
            return None
        except (QueryError, SessionError, RecordFileError, OSError) as error:
            return Answered(sql, error=str(error))
        finally:
            self._database = None
            database.close()


def _names() -> Mapping[str, Sequence[str]]:
    from ..session.database import Database

    database = Database(live.Snapshot({}, {}))
    try:
        return database.names()
    finally:
        database.close()


