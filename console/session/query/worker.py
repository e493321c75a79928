"""The process that runs queries for a console with a screen: `python -m gconsole.session.query.worker`.

A line of JSON on stdin is a request, one on stdout the reply; rows of a result are a file in the folder that the
request names. The process ends when its stdin closes.
"""

from __future__ import annotations

import os
import sys
import threading
from datetime import date, datetime, time, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ...text import format

if TYPE_CHECKING:
    from collections.abc import Collection

    from .engine import Database
    from .sources import SourceTables

#: Bytes of a result as JSON: the console holds it, too.
MAX_RESULT_BYTES: Final = 64 << 20
RESULT: Final = "result.json"
_TOO_LARGE: Final = "the result needs"
_SELECT_LESS: Final = "select fewer columns or rows"
_encoder: Final = msgspec.json.Encoder(enc_hook=str)


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A query of a session, or of tables saved in `folder` (`SourceTables.save`); without SQL, of all names."""

    folder: str
    sql: str | None = None
    session: str | None = None
    limit: int | None = None
    deadline_s: float = 60.0


class QueryReply(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a query: an error, names, or columns whose rows are in the file `RESULT`."""

    trouble: str = ""
    kind: Literal["", "refused", "error"] = ""
    columns: tuple[tuple[str, str], ...] = ()  # name, SQL type
    truncated: bool = False
    took_s: float = 0.0
    damage: tuple[str, ...] = ()
    names: dict[str, tuple[str, ...]] | None = None


def main() -> None:
    """Run queries until stdin ends."""
    from ..format.duckdb_connection import bounded_memory

    requests: SimpleQueue[QueryRequest] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    with bounded_memory():
        while True:
            reply = run(requests.get())
            sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
            sys.stdout.buffer.flush()


def _read(requests: SimpleQueue[QueryRequest]) -> None:
    for line in sys.stdin.buffer:
        requests.put(msgspec.json.decode(line, type=QueryRequest))
    os._exit(0)  # the console is gone, whatever is running


def run(request: QueryRequest) -> QueryReply:
    """Run one query; its rows are in the folder then."""
    from ..format.layout import SessionError
    from .engine import Database
    from .limits import QueryError, QueryRefused
    from .sources import RecordedSource

    folder = Path(request.folder)
    try:
        if request.session is None:
            return _run(request, Database(_SavedTables(folder)))
        with RecordedSource(Path(request.session), folder) as source:
            reply = _run(request, Database(source, source.scratch))
            return msgspec.structs.replace(reply, damage=tuple(map(str, source.damage)))
    except QueryRefused as error:
        return QueryReply(trouble=str(error), kind="refused")
    except MemoryError:
        return QueryReply(trouble=f"{_TOO_LARGE} more memory than is allowed; {_SELECT_LESS}", kind="error")
    except (QueryError, SessionError, OSError) as error:
        return QueryReply(trouble=str(error), kind="error")


def _run(request: QueryRequest, database: Database) -> QueryReply:
    """Raises QueryError, and what the source raises."""
    from .output import json_rows

    try:
        if request.sql is None:
            return QueryReply(names=database.names())
        result = database.query(request.sql, limit=request.limit, deadline_s=request.deadline_s)
        size = 0
        with (Path(request.folder) / RESULT).open("wb") as out:
            for row in json_rows(result.rows):
                line = _encoder.encode([_as_text(value) for value in row]) + b"\n"
                size += len(line)
                if size > MAX_RESULT_BYTES:
                    text = f"{_TOO_LARGE} more than {format.size(MAX_RESULT_BYTES)}; {_SELECT_LESS}, or write a file"
                    return QueryReply(trouble=f"{text}: gconsole query", kind="error")
                out.write(line)
        columns = tuple((column.name, column.type) for column in result.columns)
        return QueryReply(columns=columns, truncated=result.truncated, took_s=result.took_s)
    finally:
        database.close()


def _as_text(value: Any) -> Any:
    """Return what JSON has no type for as people read it."""
    return str(value) if isinstance(value, (date, datetime, time, timedelta)) else value


class _SavedTables:
    """Tables that a console has saved into a folder: a source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tables(self, wanted: Collection[str]) -> SourceTables:
        from .sources import SourceTables

        return SourceTables.load(self._folder, wanted)


if __name__ == "__main__":
    main()
