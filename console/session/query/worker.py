"""Queries in a process of their own, so that the console stays responsive: its client, and the process itself.

The process is `python -m gconsole.session.query.worker`. A line of JSON on stdin is a request, one on stdout the reply;
rows of a result are a file in the folder that the request names. The process ends when its stdin closes. It is kept for
the next query; after a query that was cancelled or exceeded its limits it is ended, and a new one is started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import msgspec

from ...text import format
from .limits import POLL_S, QueryCancelled, QueryError, QueryRefused

if TYPE_CHECKING:
    from collections.abc import Collection

    from .engine import Database
    from .output import ResultSet
    from .source_tables import SourceTables

#: Bytes of a result as JSON: the console holds it, too.
MAX_RESULT_BYTES: Final = 64 << 20
RESULT: Final = "result.json"
_TOO_LARGE: Final = "the result needs"
_SELECT_LESS: Final = "select fewer columns or rows"
_encoder: Final = msgspec.json.Encoder(enc_hook=str)


#: Seconds within which a process that closed its stdout has ended, too.
_ENDING_S: Final = 5.0
#: Signals with which a process without memory ends: the kernel's, and that of an allocation that fails in C++.
_MEMORY_SIGNALS: Final = (signal.SIGKILL, signal.SIGABRT)


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
    lost: tuple[str, ...] = ()
    names: dict[str, tuple[str, ...]] | None = None


class QueryWorkerClient:
    """Runs one query at a time; `cancel` and `close` may be called from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = threading.Event()

    def query(self, sql: str, source: Path | SourceTables, *, limit: int | None, deadline_s: float) -> ResultSet:
        """Return the result, of a session's folder, a file of records, or of tables. Raises QueryError, OSError."""
        from .output import ResultColumn, ResultSet

        with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
            folder = Path(scratch)
            if not isinstance(source, Path):
                source.save(folder)
            session = str(source) if isinstance(source, Path) else None
            request = QueryRequest(folder=scratch, sql=sql, session=session, limit=limit, deadline_s=deadline_s)
            reply = self._send(request)
            with (folder / RESULT).open("rb") as file:
                rows = [tuple(msgspec.json.decode(line)) for line in file]
        columns = tuple(ResultColumn(name, kind) for name, kind in reply.columns)
        return ResultSet(columns, rows, reply.truncated, reply.took_s, reply.damage, reply.lost)

    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Return every table and short view with its columns. Raises QueryError, OSError."""
        with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
            return self._send(QueryRequest(folder=scratch)).names or {}

    def cancel(self) -> None:
        """Cancel the running query, or the next one: it raises QueryCancelled."""
        self._cancelled.set()

    def reset_cancel(self) -> None:
        """Clear a cancellation that was meant for an earlier query."""
        self._cancelled.clear()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    _open(pipe).close()

    def _send(self, request: QueryRequest) -> QueryReply:
        """Raises QueryError, QueryRefused, QueryCancelled, OSError."""
        process = self._running()
        try:
            _open(process.stdin).write(msgspec.json.encode(request) + b"\n")
            _open(process.stdin).flush()
            line = self._line(process)
        except BaseException:
            self.close()
            raise
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_S)
            code = process.poll()
            self.close()
            raise QueryError(_reason_of_exit(code))
        reply = msgspec.json.decode(line, type=QueryReply)
        if reply.trouble:
            raise (QueryRefused if reply.kind == "refused" else QueryError)(reply.trouble)
        return reply

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """Return the reply of the process, which enforces the deadline; empty where it ended. Raises QueryCancelled."""
        out = _open(process.stdout)
        while not select.select([out], [], [], POLL_S)[0]:
            if self._cancelled.is_set():
                raise QueryCancelled("cancelled")
        return out.readline()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            # -P: files in the working directory must not be imported as modules
            argv = [sys.executable, "-P", "-m", "gconsole.session.query.worker"]
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
        return self._process


def _reason_of_exit(code: int | None) -> str:
    """Why there is no reply of a process that ended with `code`, which is None where it is not known."""
    if code is not None and -code in _MEMORY_SIGNALS:
        return f"the query's process ended with {signal.Signals(-code).name}, perhaps out of memory; {_SELECT_LESS}"
    how = "" if code is None else f" with signal {-code}" if code < 0 else f" with exit code {code}"
    return f"the query's process ended{how} before it replied; run the query again"


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def main() -> None:
    """Run queries until stdin ends."""
    from ...text.memory_limit import limit_memory

    limit_memory()
    requests: SimpleQueue[QueryRequest] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        reply = run(requests.get())
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


def _read(requests: SimpleQueue[QueryRequest]) -> None:
    for line in sys.stdin.buffer:
        requests.put(msgspec.json.decode(line, type=QueryRequest))
    os._exit(0)  # the console has exited; a running query is abandoned


def run(request: QueryRequest) -> QueryReply:
    """Run one query; its rows are in the folder then."""
    from ..format.layout import SessionError
    from .engine import Database
    from .sources import RecordedSource

    folder = Path(request.folder)
    try:
        if request.sql is None:
            return QueryReply(names=_names(folder))
        if request.session is None:
            return _run(request, Database(_SavedTables(folder)))
        with RecordedSource(Path(request.session), folder) as source:
            reply = _run(request, Database(source, source.scratch))
            lost = tuple(str(damage) for damage in source.damage if damage.is_loss and damage.what != "torn")
            return msgspec.structs.replace(reply, damage=tuple(map(str, source.damage)), lost=lost)
    except QueryRefused as error:
        return QueryReply(trouble=str(error), kind="refused")
    except MemoryError:
        return QueryReply(trouble=f"{_TOO_LARGE} more memory than is allowed; {_SELECT_LESS}", kind="error")
    except (QueryError, SessionError, OSError) as error:
        return QueryReply(trouble=str(error), kind="error")


#: Set by the first request: the names are the same for every source, and listing them takes as long as a query.
_known_names: dict[str, tuple[str, ...]] = {}


def _names(folder: Path) -> dict[str, tuple[str, ...]]:
    from .engine import Database

    if not _known_names:
        database = Database(_SavedTables(folder))
        try:
            _known_names.update(database.names())
        finally:
            database.close()
    return _known_names


def _run(request: QueryRequest, database: Database) -> QueryReply:
    """Raises QueryError, and what the source raises."""
    from .output import json_rows

    assert request.sql is not None
    try:
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
        from .source_tables import SourceTables

        return SourceTables.load(self._folder, wanted)


if __name__ == "__main__":
    main()
