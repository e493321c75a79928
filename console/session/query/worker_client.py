"""Questions answered by a process of their own: whatever one takes of memory and time, the console goes on.

The process stays for the next question. Where one is given up, or takes more than it may, the process is ended, and the
next question gets a new one; nothing that it unpacked is left behind.
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
from typing import IO, TYPE_CHECKING, Final

import msgspec

from .worker import ANSWER, Question, Told, put

if TYPE_CHECKING:
    from .engine import Answer
    from .sources import Tables

#: How often it is looked whether a question was given up, s.
_LOOK_S: Final = 0.05


class Apart:
    """One question at a time; `cancel` and `close` may be called from another thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._given_up = threading.Event()

    def ask(self, sql: str, source: Path | Tables, *, limit: int | None, deadline_s: float) -> Answer:
        """The answer, of a session's folder, a file of records, or of tables. Raises QueryError, OSError."""
        import pyarrow as pa

        from .engine import Answer
        from .output import unit_of_column

        with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
            folder = Path(scratch)
            if not isinstance(source, Path):
                for table, rows in source.columns.items():
                    put(table, rows, folder)
            session = str(source) if isinstance(source, Path) else None
            told = self._told(Question(folder=scratch, sql=sql, session=session, limit=limit, deadline_s=deadline_s))
            with pa.OSFile(str(folder / ANSWER)) as file:
                rows = pa.ipc.open_file(file).read_all()
        units = tuple(map(unit_of_column, rows.schema))
        return Answer(tuple(rows.schema.names), units, rows, told.truncated, told.took_s, told.damage)

    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Every table and short view with its columns. Raises QueryError, OSError."""
        with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
            return self._told(Question(folder=scratch)).names or {}

    def cancel(self) -> None:
        """Give up the question under way, or about to be: it ends with QueryCancelled."""
        self._given_up.set()

    def forget_cancel(self) -> None:
        """What was given up was another question."""
        self._given_up.clear()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    _open(pipe).close()

    def _told(self, question: Question) -> Told:
        """Raises QueryError, QueryRefused, QueryCancelled, OSError."""
        from .validate import QueryError, QueryRefused

        process = self._running()
        try:
            _open(process.stdin).write(msgspec.json.encode(question) + b"\n")
            _open(process.stdin).flush()
            line = self._line(process)
        except BaseException:
            self.close()
            raise
        if not line:
            self.close()
            raise QueryError("it took more memory than there is; ask for fewer columns or rows")
        told = msgspec.json.decode(line, type=Told)
        if told.trouble:
            raise (QueryRefused if told.kind == "refused" else QueryError)(told.trouble)
        return told

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """What the process says, which knows when time is up; nothing where it ended. Raises QueryCancelled."""
        from .validate import QueryCancelled

        out = _open(process.stdout)
        while not select.select([out], [], [], _LOOK_S)[0]:
            if self._given_up.is_set():
                raise QueryCancelled("cancelled")
        return out.readline()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            # without the folder where it runs: what lies there must not be taken for a module
            argv = [sys.executable, "-P", "-m", "gconsole.session.query.worker"]
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
        return self._process


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
