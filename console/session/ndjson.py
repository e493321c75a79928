"""Records in a file, a line of JSON each, as they passed the hub: written live, and published again from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..core.bus import Hub, Published
from ..records import BadRecord, decode, encode
from ..text.atomic_files import open_new

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
        self._file = open_new(path)
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
