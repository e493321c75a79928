"""Records as NDJSON: a file of all records, written and read, and a stream of samples to a pipe."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ..core.bus import Hub, Published
from ..records import BadRecord, Record, decode, encode
from ..records.kinds import SPECS
from ..text.atomic_files import open_truncated
from ..text.sanitize import printable_utf8
from .format.layout import SessionError
from .format.redact import Redactor

#: Seconds between two flushes.
FLUSH_S = 1.0


class RecordFileError(SessionError):
    """A record file cannot be read; the text is one line, `file:line: reason`."""


class RecordWriter:
    """Sink of the bus that writes every record; ends at the first write error, kept in `failure`."""

    def __init__(self, path: Path, redact: Callable[[Published], Published] = lambda record: record) -> None:
        """`redact` returns the record to write."""
        self.path, self._redact = path, redact
        self.failure: OSError | None = None
        self._file = open_truncated(path)
        self._flushed = time.monotonic()

    def __call__(self, records: Sequence[Published]) -> None:
        if self.failure is not None:
            return
        try:
            for record in records:
                self._file.write(encode(self._redact(record)) + b"\n")
            if time.monotonic() - self._flushed > FLUSH_S:
                self._file.flush()
                self._flushed = time.monotonic()
        except OSError as error:
            self.failure = error

    def close(self) -> None:
        """Flush and close; an error is kept in `failure`."""
        try:
            self._file.close()
        except OSError as error:
            self.failure = self.failure or error


def read(path: Path) -> Iterator[Published]:
    """Yield the records of a file. Raises RecordFileError; an incomplete last line, left by a crash, is ignored."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise RecordFileError(f"{path}: {error.strerror}") from error
    with file:
        for number, line in enumerate(file, 1):
            try:
                record = decode(line.rstrip(b"\n"))
            except BadRecord as error:
                if not line.endswith(b"\n"):
                    return
                raise RecordFileError(f"{path}:{number}: not a record: {error}") from error
            yield record


def play(path: Path, hub: Hub) -> int:
    """Publish every record of a file, one batch each; return their number."""
    count = 0
    for record in read(path):
        hub.publish([record])
        count += 1
    return count


#: Families of `--metrics` → record kinds: everything sampled of such an entity, for a GPU its links and digests, too.
METRIC_FAMILIES: Final[dict[str, tuple[type[Record], ...]]] = {
    family: tuple(spec.struct for spec in SPECS.values() if spec.metric_family == family)
    for family in ("gpu", "nic", "host", "rank")
}
#: Bytes buffered for a slow reader; beyond that samples are dropped and counted.
MAX_BUFFERED_BYTES: Final = 16 << 20
#: Seconds. Upper bound on writing the buffer at the end.
LAST_S: Final = 5.0


class SampleStream:
    """Sink of the bus that writes samples to a file descriptor as NDJSON in its own thread.

    If `patient`, a full buffer blocks the bus (replay); else samples are dropped and counted, so that a live fleet
    never waits for a pipe. `is_closed` once the reader has closed the pipe; `failure` holds any other error.
    """

    def __init__(self, families: Sequence[str], fd: int, *, patient: bool = False) -> None:
        self.dropped = 0
        self.is_closed = False
        self.failure: OSError | None = None
        self._kinds = tuple(kind for family in families for kind in METRIC_FAMILIES[family])
        self._fd, self._patient = fd, patient
        self._is_terminal = os.isatty(fd)
        self._redact = Redactor()
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def __call__(self, records: Sequence[Published]) -> None:
        lines = [encode(self._redact(record)) + b"\n" for record in records if isinstance(record, self._kinds)]
        if not lines or self.is_closed:
            return
        chunk = b"".join(lines)
        if self._is_terminal:
            chunk = printable_utf8(chunk)
        with self._changed:
            while self._patient and self._bytes > MAX_BUFFERED_BYTES and not self.is_closed:
                self._changed.wait()
            if self._bytes > MAX_BUFFERED_BYTES:
                self.dropped += len(lines)
                return
            self._chunks.append(chunk)
            self._bytes += len(chunk)
            self._changed.notify_all()

    def close(self) -> None:
        """Write the buffer, for at most `LAST_S`."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join(LAST_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._chunks and not self._ending:
                    self._changed.wait()
                if not self._chunks:
                    return
                chunk = self._chunks[0]
            try:
                self._write(chunk)
            except OSError as error:
                with self._changed:
                    self.is_closed = True
                    if not isinstance(error, BrokenPipeError):  # the reader closed the pipe, which is not an error
                        self.failure = error
                    self._chunks.clear()
                    self._changed.notify_all()
                return
            with self._changed:
                self._chunks.popleft()
                self._bytes -= len(chunk)
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
