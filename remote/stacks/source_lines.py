"""Lines of the sources of a job that its frames stand at, and the loops around them."""

import json
import os
import re
import time

from ..proc.apart import as_fields, as_text
from ..proc.limited import Values
from ..proc.procfs import printable
from ..proc.threads import Thread
from ..proc.user_files import RightsOf, open_regular
from .poll_loops import MAX_ABOVE, MAX_BELOW, poll_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    from ..proc.limited import Parsers
    from ..proc.procfs import ProcFs
    from .py_spy import Frame

    Place = tuple[str | None, str | None]  # (source line, head of the loop around it)

#: Bytes. Larger files are generated; of all files of a capture.
MAX_BYTES, MAX_ALL_BYTES = 1 << 20, 32 << 20
#: Seconds. Time limit of reading a file, whose file system may be the one that hangs; a timeout ends all reading.
READ_TIMEOUT_S = 0.5
#: Seconds for parsing one.
PARSE_S = 3.0
#: Calls of a job's own code, from the innermost, of which the loops around their lines are read.
_MAX_LOOPS = 8
#: Characters of a line that is sent, and of one that is kept with its indentation, which tells the loop around it.
_MAX_LINE, _MAX_INDENTED = 160, 240
#: Installed packages and the standard library, whose lines are not shown.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3?[.\d]*t?/|^<")


def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python, and not to the job."""
    return _LIBRARY.search(file) is not None


def is_standard(file: str) -> bool:
    """Whether a file belongs to Python itself: not to the job, and not to an installed package."""
    return is_library(file) and "-packages/" not in file


class SourceLines(object):
    """Source files of a capture, each read once; `parsers` parse those of other users."""

    def __init__(self, procfs: "ProcFs", parsers: "Parsers") -> None:
        self._procfs, self._parsers = procfs, parsers
        self._files: "dict[tuple[int, str], tuple[RightsOf, bytes] | None]" = {}  # (pid, path) → None if unreadable
        self._contents: "dict[Any, bytes]" = {}  # the same by the identity of the file
        self._size = 0  # bytes of these
        self._places: "dict[tuple[int, str, int], Place]" = {}  # by pid, path and line
        self._timed_out = False

    def encode_frames(self, pid: int, frames: "Sequence[Frame]") -> "list[dict[str, Any]]":
        """The `frames` of a record, with the source line of the innermost frame of the job's own code.

        Also with the loops around the lines of frames of its own code, and of the innermost frame, if these loops wait
        for a condition.
        """
        own = [index for index, frame in enumerate(frames) if not frame[3] and frame[2] and not is_library(frame[1])]
        looped = set(own[-_MAX_LOOPS:])
        if frames and not frames[-1][3] and not is_standard(frames[-1][1]):  # else a worker of Python's that is idle
            looped.add(len(frames) - 1)
        self._read_places(pid, [frames[index] for index in sorted(looped) if frames[index][2]])
        encoded = []
        for index, (function, file, line, native) in enumerate(frames):
            fields: "dict[str, Any]" = {"function": function, "file": file, "line": line}
            if native:
                fields["native"] = True
            if index in looped:
                source, loop = self._places.get((pid, file, line), (None, None))
                if source and own and index == own[-1]:
                    fields["source"] = source
                if loop:
                    fields["loop"] = loop
            encoded.append(fields)
        return encoded

    def _read_places(self, pid: int, frames: "Iterable[Frame]") -> None:
        """Look at the lines of these frames that were not looked at before, file by file."""
        lines: "dict[str, list[int]]" = {}
        for _, file, line, _ in frames:
            if os.path.isabs(file) and (pid, file, line) not in self._places:
                lines.setdefault(file, []).append(line)
        for file, wanted in lines.items():
            content = self._content(pid, file)
            places: "list[Place]" = [(None, None)] * len(wanted)
            if content is not None:
                try:
                    places = self._parsed(content[0], wanted, content[1])
                except ValueError:
                    pass  # a child that failed
            self._places.update(((pid, file, line), place) for line, place in zip(wanted, places))  # noqa: B905

    def _parsed(self, user: "RightsOf", wanted: "list[int]", content: bytes) -> "list[Place]":
        """The places at these lines of a file of a user. Raises ValueError."""
        message = json.dumps(wanted).encode("ascii") + b"\n" + content
        if user.is_other:
            values = self._parsers.parse(user.key, parse, Values, message, time.monotonic() + PARSE_S).value()
        else:
            values = parse(message, 0.0).value()
        return [checked(place) for place in as_fields(values, len(wanted))]

    def _content(self, pid: int, file: str) -> "tuple[RightsOf, bytes] | None":
        key = (pid, file)  # in its own root: it may be in a container
        if key not in self._files:
            self._files[key] = self._read(pid, file)
        return self._files[key]

    def _read(self, pid: int, file: str) -> "tuple[RightsOf, bytes] | None":
        if self._timed_out:
            return None
        results: "list[tuple[RightsOf, bytes] | None]" = []
        reader = Thread(target=lambda: results.append(self._content_of(pid, file)), name="gconsole-source")
        reader.start()
        reader.join(READ_TIMEOUT_S)
        self._timed_out = not results
        return results[0] if results else None

    def _content_of(self, pid: int, file: str) -> "tuple[RightsOf, bytes] | None":
        """(user, content) of a file that the process names as its source: what its own user may read, if it is a
        regular file."""
        try:
            user = RightsOf.of_process(self._procfs, pid)
            with user:
                fd = open_regular(self._procfs, pid, file)
            try:
                info = os.fstat(fd)
                if info.st_size > MAX_BYTES:
                    return None
                key = (user.key, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
                if key not in self._contents:
                    if self._size + info.st_size > MAX_ALL_BYTES:
                        return None
                    self._contents[key] = os.read(fd, MAX_BYTES)
                    self._size += len(self._contents[key])
                return user, self._contents[key]
            finally:
                os.close(fd)
        except (OSError, KeyError, ValueError):
            return None


def parse(message: bytes, _: float) -> "Values":
    """[source line, head of the loop around it] of each of the wanted lines of a file, which lies behind a line of the
    agent. In a child, if it is of another user. Raises ValueError."""
    head, content = message.split(b"\n", 1)
    lines = content.decode("utf-8", "replace").splitlines()
    places: "list[list[str | None]]" = []
    for number in json.loads(head.decode("ascii")):
        first = max(0, number - 1 - MAX_ABOVE)
        nearby = [printable(line.rstrip().expandtabs(), _MAX_INDENTED) for line in lines[first : number + MAX_BELOW]]
        index = number - 1 - first
        if not 0 <= index < len(nearby):
            places.append([None, None])
            continue
        loop = poll_loop(nearby, index + 1)
        places.append([printable(nearby[index].strip(), _MAX_LINE), loop and printable(loop, _MAX_LINE)])
    return Values(places)


def checked(values: "Any") -> "Place":
    """A place of `parse`, which a child may have made up. Raises ValueError."""
    source, loop = (
        None if text is None else printable(as_text(text, _MAX_LINE), _MAX_LINE) for text in as_fields(values, 2)
    )
    return source, loop
