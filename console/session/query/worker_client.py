"""Queries in a process of their own: whatever memory and time one takes, the console stays responsive.

The process is kept for the next query. After a query that was cancelled or exceeded its limits it is ended, and a new
one is started for the next; temporary files are removed.
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from .limits import POLL_S, QueryCancelled, QueryError, QueryRefused
from .worker import RESULT, QueryReply, QueryRequest

if TYPE_CHECKING:
    from .engine import ResultSet
    from .sources import SourceTables


class QueryWorkerClient:
    """Runs one query at a time; `cancel` and `close` may be called from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = threading.Event()

    def query(self, sql: str, source: Path | SourceTables, *, limit: int | None, deadline_s: float) -> ResultSet:
        """Return the result, of a session's folder, a file of records, or of tables. Raises QueryError, OSError."""
        from .engine import ResultSet
        from .output import ResultColumn

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
        return ResultSet(columns, rows, reply.truncated, reply.took_s, reply.damage)

    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Return every table and short view with its columns. Raises QueryError, OSError."""
        with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
            return self._send(QueryRequest(folder=scratch)).names or {}

    def cancel(self) -> None:
        """Cancel the running query, or the next one: it raises QueryCancelled."""
        self._cancelled.set()

    def reset_cancel(self) -> None:
        """Forget a cancellation that was meant for an earlier query."""
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
            self.close()
            raise QueryError("the query ran out of memory; select fewer columns or rows")
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


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
