"""The output of a job on this node: its files, which rank wrote each, and reading on where one has stopped."""

import glob
import os
import re

from . import job_dir as files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..samplers.base import Fact, Fields
    from .job_dir import JobFolder

#: So much of one file is read at once; a job that writes faster is followed with a delay, not with the node's memory.
PIECE = 1 << 20
#: Of a file that grew by more than this while nobody read it, only the last lines are read.
BEHIND = 4 << 20
#: One record holds about so much.
CHUNK = 64 << 10
#: A line longer than this is cut: a progress bar that never ends its line must not be held back for ever.
LONGEST = 64 << 10
_RANK_FILE = re.compile(r"/attempt_(\d+)/(\d+)/[^/]+$")


def outputs(folder: "JobFolder", spec: "Fields") -> "list[tuple[str, int | None]]":
    """[(path, rank or None)]: of the launcher itself, and of each rank that has files of its own, by attempt."""
    found: list[tuple[str, int | None]] = [(folder.file(files.OUTPUT), None)]
    for path in sorted(glob.glob(folder.file("ranks/*/attempt_*/*/*.log")), key=_in_order):
        match = _RANK_FILE.search(path)
        if match:
            found.append((path, spec["index"] * spec["procs_per_node"] + int(match.group(2))))
    return [(path, rank) for path, rank in found if os.path.exists(path)]


def _in_order(path: str) -> "tuple[str, bool, str]":
    """By attempt and rank; what was said before what went wrong: of both files nobody knows how they interlace."""
    place, _, name = path.rpartition("/")
    return place, name != "stdout.log", name


def tail_offset(path: str, lines: int) -> int:
    """Where the last `lines` lines of a file begin; it looks back 8 MiB at most."""
    with open(path, "rb") as f:
        size = f.seek(0, os.SEEK_END)
        begin = max(0, size - (8 << 20))
        f.seek(begin)
        data = f.read(size - begin)
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return begin
    return begin + at + 1


class Reader(object):
    """Reads one file from an offset on, whole lines at a time."""

    def __init__(self, path: str, rank: "int | None", offset: int = 0) -> None:
        self.path, self.rank, self.offset = path, rank, offset

    def read(self, whole: bool) -> bytes:
        """The next lines as bytes, without the last newline; b"" for none. With `whole` also a line without its end."""
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                data = f.read(PIECE)
        except OSError:
            return b""
        end = data.rfind(b"\n") + 1
        if not end and (len(data) >= LONGEST or whole):
            end = len(data)
        elif whole and len(data) < PIECE:
            end = len(data)
        self.offset += end
        return data[:end].rstrip(b"\n") if end else b""


class Follower(object):
    """Everything a job writes on this node, from the beginning or from the last lines on."""

    def __init__(self, folder: "JobFolder", spec: "Fields", tail: "int | None" = None) -> None:
        self.folder, self.spec = folder, spec
        self._readers: dict[str, Reader] = {}
        self._add(tail)

    def catch_up(self, tail: int) -> None:
        """Leave out what is older than the last `tail` lines of each file that is far ahead of us."""
        for reader in self._readers.values():
            try:
                if os.path.getsize(reader.path) - reader.offset > BEHIND:
                    reader.offset = max(reader.offset, tail_offset(reader.path, tail))
            except OSError:
                pass  # it was removed; there is nothing to read

    def facts(self, whole: bool) -> "list[Fact]":
        """(kind, fields) of `log` records with what came since the last call; [] for nothing."""
        self._add(None)
        found: list[Fact] = []
        for reader in self._readers.values():
            data = reader.read(whole)
            for piece in _pieces(data):
                text = piece.decode("utf-8", "backslashreplace")
                fields = {"source": "job", "job": self.spec["job"], "rank": reader.rank, "text": text}
                found.append(("log", fields))
        return found

    def _add(self, tail: "int | None") -> None:
        for path, rank in outputs(self.folder, self.spec):
            if path not in self._readers:
                self._readers[path] = Reader(path, rank, tail_offset(path, tail) if tail is not None else 0)


def _pieces(data: bytes) -> "Iterator[bytes]":
    """`data` cut at line ends into pieces of about CHUNK."""
    while len(data) > CHUNK:
        end = data.rfind(b"\n", 0, CHUNK)
        end = end if end > 0 else CHUNK
        yield data[:end]
        data = data[end:].lstrip(b"\n") if data[end : end + 1] == b"\n" else data[end:]
    if data:
        yield data
