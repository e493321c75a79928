"""Records in a file, a line of JSON each, as they passed the hub: written live, and published again from there."""

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

#: What was written is handed to the system at least this often.
FLUSH_S = 1.0


class RecordFileError(Exception):
    """A file that is no file of records; the text is one line, `file:line: what is wrong`."""


class RecordWriter:
    """A sink of the hub that writes every record; the first failure to write is kept in `failure`, and ends it."""

    def __init__(self, path: Path, redact: Callable[[Published], Published] = lambda record: record) -> None:
        """`redact` makes of each record the one that is written."""
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
        """Write what is buffered; a failure to do so is kept like any other."""
        try:
            self._file.close()
        except OSError as error:
            self.failure = self.failure or error


def read(path: Path) -> Iterator[Published]:
    """The records of a file. Raises RecordFileError; a last line cut short by a crash is not an error."""
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
    """Publish every record of a file, one batch each, as fast as they are read; how many there were."""
    count = 0
    for record in read(path):
        hub.publish([record])
        count += 1
    return count


#: Words of `--metrics`, and the kinds of record each selects: everything sampled of such an entity, so of a GPU its
#: links (every 10 s) and its digests (sampled more than once a second), too.
METRIC_FAMILIES: Final[dict[str, tuple[type[Record], ...]]] = {
    family: tuple(spec.struct for spec in SPECS.values() if spec.metric_family == family)
    for family in ("gpu", "nic", "host", "rank")
}
#: What a slow reader has not taken yet; beyond that samples are dropped and counted.
MAX_BUFFERED_BYTES: Final = 16 << 20
#: How long the last of them may take at the end.
LAST_S: Final = 5.0


class SampleStream:
    """A sink of the hub that writes samples to a file descriptor, a line each, from a thread of its own.

    With `patient` a full buffer makes the hub wait (a replay); without, samples are dropped and counted (a live fleet
    must not wait for a pipe). `is_closed` once the reader has gone, or `failure` says why nothing can be written.
    """

    def __init__(self, families: Sequence[str], fd: int, *, patient: bool = False) -> None:
        self.dropped = 0
        self.is_closed = False
        self.failure: OSError | None = None
        self._kinds = tuple(kind for family in families for kind in METRIC_FAMILIES[family])
        self._fd, self._patient = fd, patient
        self._is_terminal = os.isatty(fd)
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def __call__(self, records: Sequence[Published]) -> None:
        lines = [encode(record) + b"\n" for record in records if isinstance(record, self._kinds)]
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
        """Write what is left, as long as the reader takes it."""
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
                    if not isinstance(error, BrokenPipeError):  # that reader has seen enough, which is no failure
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
