"""The output of a job on this node: its files, the rank of each, and a reader that continues where it stopped."""

import glob
import os
import re

from . import job_dir
from .write_times import WriteTimesReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..samplers.base import Fact, Fields
    from .job_dir import JobFolder

#: Bytes read of one file at a time; the output of a job that writes faster is delayed instead of buffered.
READ_BYTES = 1 << 20
#: Bytes. Of a file that grew by more than this while it was not read, only the last lines are read.
BEHIND_BYTES = 4 << 20
#: Bytes. Approximate size of one record.
RECORD_BYTES = 64 << 10
#: Bytes. A longer line is split: a progress bar never ends its line.
MAX_LINE_BYTES = 64 << 10
#: Bytes from the end of a file in which `tail_offset` searches.
_TAIL_BYTES = 8 << 20
#: Files of a failed job of which the end is sent, the newest attempt last.
MOST_LAST = 1024
_RANK_FILE = re.compile(r"/attempt_(\d+)/(\d+)/[^/]+$")


def outputs(folder: "JobFolder", spec: "Fields") -> "list[tuple[str, int | None]]":
    """[(path, rank or None)] of the launcher's output and of each rank's files, by attempt."""
    files: list[tuple[str, int | None]] = [(folder.file(job_dir.OUTPUT), None)]
    for path in sorted(glob.glob(folder.file("ranks/*/attempt_*/*/*.log")), key=_in_order):
        match = _RANK_FILE.search(path)
        if match:
            files.append((path, spec["index"] * spec["procs_per_node"] + int(match.group(2))))
    return [(path, rank) for path, rank in files if os.path.exists(path)]


def _in_order(path: str) -> "tuple[str, bool, str]":
    """Sort key: attempt and rank, stdout before stderr; the order of lines between the two is unknown."""
    place, _, name = path.rpartition("/")
    return place, name != "stdout.log", name


def stream_of(path: str) -> "str | None":
    """stdout or stderr, for a file that has only one of them."""
    return {"stdout.log": "stdout", "stderr.log": "stderr"}.get(os.path.basename(path))


def tail_offset(path: str, lines: int) -> int:
    """The offset of the last `lines` lines of a file, within its last 8 MiB."""
    with open(path, "rb") as f:
        size = f.seek(0, os.SEEK_END)
        begin = max(0, size - _TAIL_BYTES)
        f.seek(begin)
        data = f.read(size - begin)
    start = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            return begin
    return begin + min(start + 1, len(data))


def last_outputs(folder: "JobFolder", spec: "Fields", process: "Fields") -> "Iterator[Fact]":
    """`output` records of a job that has failed: the ends of its files. `process` are those of its supervisor."""
    from ..proc.output_files import SHARED_TAIL_BYTES, TAIL_BYTES, OutputFile  # late: few jobs fail

    for path, rank in outputs(folder, spec)[-MOST_LAST:]:
        match = _RANK_FILE.search(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        file = OutputFile(fd, path)
        try:
            size, changed_ns = file.state()
            text = file.tail(size, TAIL_BYTES if match else SHARED_TAIL_BYTES)
        except OSError:
            continue
        finally:
            os.close(fd)
        yield "output", {
            "job": spec["job"], "attempt": int(match.group(1)) if match else 0, "rank": rank,
            "pid": process["pid"], "start_ticks": process["start_ticks"],
            "stream": (stream_of(path) or "stderr") if match else "file",
            "path": path, "status": "ok", "reason": None, "try_": "", "text": text, "size": size,
            "written_at": changed_ns,
        }  # fmt: skip


class LineReader(object):
    """Reads one file from an offset on, in whole lines."""

    def __init__(self, path: str, rank: "int | None", offset: int = 0) -> None:
        self.path, self.rank, self.offset = path, rank, offset

    def read(self, whole: bool) -> bytes:
        """The next lines as bytes, without the last newline; with `whole` also an incomplete last line."""
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                data = f.read(READ_BYTES)
        except OSError:
            return b""
        end = data.rfind(b"\n") + 1
        if not end and (len(data) >= MAX_LINE_BYTES or whole):
            end = len(data)
        elif whole and len(data) < READ_BYTES:
            end = len(data)
        self.offset += end
        return data[:end].rstrip(b"\n") if end else b""


class Follower(object):
    """Reads everything that a job writes on this node, from the beginning or from its last `tail` lines on."""

    def __init__(self, folder: "JobFolder", spec: "Fields", tail: "int | None" = None) -> None:
        self.folder, self.spec = folder, spec
        self._readers: dict[str, LineReader] = {}
        self._times = WriteTimesReader(folder.path)
        self._ends: dict[str, int] | None = None  # path: bytes of its file when the job had ended
        self._add(tail)

    def catch_up(self, tail: int) -> None:
        """Skip to the last `tail` lines of each file that is more than BEHIND_BYTES ahead."""
        for reader in self._readers.values():
            try:
                if os.path.getsize(reader.path) - reader.offset > BEHIND_BYTES:
                    reader.offset = max(reader.offset, tail_offset(reader.path, tail))
            except OSError:
                pass  # removed

    def facts(self, whole: bool) -> "list[Fact]":
        """`log` records with the output since the last call."""
        self._add(None)
        facts: list[Fact] = []
        for reader in self._readers.values():
            offset = reader.offset
            data = reader.read(whole)
            if data:
                self._times.read()  # after the output: its entries are written later
            for begin, piece in _pieces(data):
                runs = list(self._times.runs(reader.path, offset + begin, piece))
                text = piece.decode("utf-8", "backslashreplace")
                facts.append(("log", {
                    "source": "job", "job": self.spec["job"], "rank": reader.rank, "text": text,
                    "stream": stream_of(reader.path), "written_lines": [lines for lines, _ in runs],
                    "written_at": [at_ns for _, at_ns in runs],
                }))  # fmt: skip
        return facts

    def has_reached_end(self) -> bool:
        """Whether all was read that the files held at the first call, which is made once the job has ended.

        A process that outlives the job may write to them for ever.
        """
        if self._ends is None:
            self._ends = {reader.path: _size(reader.path) for reader in self._readers.values()}
        ends = self._ends
        return all(
            reader.offset >= min(ends.get(reader.path, 0), _size(reader.path)) for reader in self._readers.values()
        )

    def _add(self, tail: "int | None") -> None:
        for path, rank in outputs(self.folder, self.spec):
            if path not in self._readers:
                self._readers[path] = LineReader(path, rank, tail_offset(path, tail) if tail is not None else 0)


def _size(path: str) -> int:
    """Bytes of a file; 0 if it was removed."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _pieces(data: bytes) -> "Iterator[tuple[int, bytes]]":
    """(offset, piece): `data` split at line ends into pieces of about RECORD_BYTES."""
    begin = 0
    while len(data) - begin > RECORD_BYTES:
        end = data.rfind(b"\n", begin, begin + RECORD_BYTES)
        end = end if end > begin else begin + RECORD_BYTES
        yield begin, data[begin:end]
        begin = end
        while data[begin : begin + 1] == b"\n":
            begin += 1
    if begin < len(data):
        yield begin, data[begin:]
