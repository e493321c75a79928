"""Source line of the job's innermost own frame, where the node can read the file."""

import os
import re
import threading

from ..proc.procfs import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from ..proc.procfs import ProcFs
    from .py_spy import Frame

#: Bytes. Larger files are generated.
MAX_BYTES = 1 << 20
#: Seconds. Time limit of reading a file, whose file system may be the one that hangs; a timeout ends all reading.
READ_TIMEOUT_S = 0.2
_MAX_LINE = 160
#: Installed packages and the standard library, whose lines are not shown.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3?[.\d]*t?/|^<")


def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python, and not to the job."""
    return _LIBRARY.search(file) is not None


class SourceLines(object):
    """Source files of a capture, each read once."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._lines: "dict[str, list[str]]" = {}  # path → its lines, [] if unreadable
        self._timed_out = False

    def encode_frames(self, pid: int, frames: "Sequence[Frame]") -> "list[dict[str, Any]]":
        """The `frames` of a record, with the source line of the innermost frame of the job's own code."""
        own = [index for index, frame in enumerate(frames) if not frame[3] and frame[2] and not is_library(frame[1])]
        encoded = []
        for index, (function, file, line, native) in enumerate(frames):
            fields: "dict[str, Any]" = {"function": function, "file": file, "line": line}
            if native:
                fields["native"] = True
            if own and index == own[-1]:
                source = self._line(pid, file, line)
                if source:
                    fields["source"] = source
            encoded.append(fields)
        return encoded

    def _line(self, pid: int, file: str, line: int) -> "str | None":
        if not os.path.isabs(file):
            return None
        path = self._procfs.path(pid, "root") + file  # in its own root: it may be in a container
        if path not in self._lines:
            self._lines[path] = self._read(path)
        lines = self._lines[path]
        return printable(lines[line - 1].strip(), _MAX_LINE) if line <= len(lines) else None

    def _read(self, path: str) -> "list[str]":
        if self._timed_out:
            return []
        results: "list[list[str]]" = []
        reader = threading.Thread(target=lambda: results.append(_lines_of(path)), name="gconsole-source", daemon=True)
        reader.start()
        reader.join(READ_TIMEOUT_S)
        self._timed_out = not results
        return results[0] if results else []


def _lines_of(path: str) -> "list[str]":
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if os.fstat(fd).st_size > MAX_BYTES:
                return []
            return os.read(fd, MAX_BYTES).decode("utf-8", "replace").splitlines()
        finally:
            os.close(fd)
    except OSError:
        return []
