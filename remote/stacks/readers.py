"""Reads the stacks of a process by py-spy, or by the node's pystack if py-spy does not support its Python."""

import os
import re
import threading
import time

from ..proc import apart, limited, programs, user_files
from ..proc.procfs import printable
from . import py_spy, pystack
from .poll_loops import poll_loop
from .py_spy import StackError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from ..proc.procfs import ProcFs
    from ..proc.programs import PythonVersion
    from .py_spy import Frame, PythonThread

#: The newest Python that py-spy 0.4.3 supports; it supports no free-threaded one.
NEWEST = (3, 14)
#: Statuses that py-spy also returns for an unsupported Python.
_AMBIGUOUS = ("not_python", "unreadable")


class StackReader(object):
    """Reads stacks for one capture. `blob` is the path of py-spy, or None for the reason `lacking`.

    `parsers` parse what the tools write about processes of other users.
    """

    def __init__(
        self,
        blob: "str | None",
        lacking: "str | None",
        procfs: "ProcFs",
        parsers: "limited.Parsers | None" = None,
    ) -> None:
        self._blob, self._lacking, self._procfs, self._parsers = blob, lacking, procfs, parsers
        self._pystacks: "dict[int, str]" = {}  # pid → pystack program

    def read(self, pid: int, timeout_s: float, names: "frozenset[str]") -> "tuple[str, list[PythonThread]]":
        """(engine, threads) of a process, without stopping it. Raises StackError."""
        deadline = time.monotonic() + timeout_s
        if pid not in self._pystacks:
            try:
                return py_spy.ENGINE, self._by_py_spy(pid, timeout_s, names)
            except StackError as error:
                problem = self._refine(pid, error)
            if problem.status not in ("unsupported_python", "tool_missing"):
                raise problem
            program = pystack.find_program(self._procfs, pid)
            if program is None:
                raise problem
            self._pystacks[pid] = program
        threads = pystack.read_threads(
            self._pystacks[pid], pid, max(0.0, deadline - time.monotonic()), names, self._parsers
        )
        for thread in threads:
            thread.active = self._is_running(pid, thread.os_thread_id)
        return pystack.ENGINE, threads

    def _by_py_spy(self, pid: int, timeout_s: float, names: "frozenset[str]") -> "list[PythonThread]":
        if not self._blob:
            remedy = "gconsole doctor shows details; gconsole bundle prepares py-spy"
            raise StackError("tool_missing", self._lacking or "no py-spy", remedy)
        return py_spy.read_threads(self._blob, pid, timeout_s, names, parsers=self._parsers)

    def _refine(self, pid: int, error: "StackError") -> "StackError":
        """The same error, or that the Python is unsupported, which py-spy often reports as something else."""
        version = programs.version_of(self._procfs, pid) if error.status != "tool_missing" else None
        if error.status in _AMBIGUOUS and version and (version.free_threaded or version.number > NEWEST):
            error = StackError("unsupported_python", "py-spy does not support %s: %s" % (version, error.text))
        if error.status == "unsupported_python":
            error.try_ = _install_pystack(self._procfs, pid, version)
        return error

    def _is_running(self, pid: int, tid: "int | None") -> bool:
        """Whether the kernel lists a thread as running; pystack has no such field."""
        if tid is None:
            return False
        try:
            data = self._procfs.read_at_once(pid, "task/%d/stat" % tid)
        except OSError:
            return False
        return data.rpartition(b")")[2].split()[:1] == [b"R"]


def _install_pystack(procfs: "ProcFs", pid: int, version: "PythonVersion | None") -> str:
    """Remedy for a Python that py-spy does not support."""
    folder = next(
        (folder for folder in programs.folders_of(procfs, pid) if user_files.exists(procfs, pid, folder)), None
    )
    python = os.path.join(folder, "python") if folder else "that Python's"
    supported = " (py-spy supports up to %d.%d, none free-threaded)" % NEWEST if version else ""
    return "install pystack in the environment of the job: %s -m pip install pystack%s" % (python, supported)


#: Bytes. Larger files are generated.
MAX_BYTES = 1 << 20
#: Seconds. Time limit of reading a file, whose file system may be the one that hangs; a timeout ends all reading.
READ_TIMEOUT_S = 0.5
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
    """Source files of a capture, each read once."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._lines: "dict[tuple[int, str], list[str]]" = {}  # (pid, path) → its lines, [] if unreadable
        self._files: "dict[Any, list[str]]" = {}  # the same by the identity of the file
        self._loops: "dict[tuple[int, str, int], str | None]" = {}  # (pid, path, line) → the head of the loop around it
        self._timed_out = False

    def encode_frames(self, pid: int, frames: "Sequence[Frame]") -> "list[dict[str, Any]]":
        """The `frames` of a record, with the source line of the innermost frame of the job's own code.

        Also with the loops around the lines of frames of its own code, and of the innermost frame, if these loops wait
        for a condition.
        """
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
            is_inner = index == len(frames) - 1 and not is_standard(file)  # else a worker of Python's that is idle
            if line and (index in own[-_MAX_LOOPS:] or (is_inner and not native)):
                loop = self._loop_around(pid, file, line)
                if loop:
                    fields["loop"] = printable(loop, _MAX_LINE)
            encoded.append(fields)
        return encoded

    def _loop_around(self, pid: int, file: str, line: int) -> "str | None":
        key = (pid, file, line)
        if key not in self._loops:
            self._loops[key] = poll_loop(self._lines_of_file(pid, file), line)
        return self._loops[key]

    def _lines_of_file(self, pid: int, file: str) -> "list[str]":
        if not os.path.isabs(file):
            return []
        key = (pid, file)  # in its own root: it may be in a container
        if key not in self._lines:
            self._lines[key] = self._read(pid, file)
        return self._lines[key]

    def _line(self, pid: int, file: str, line: int) -> "str | None":
        lines = self._lines_of_file(pid, file)
        return printable(lines[line - 1].strip(), _MAX_LINE) if line <= len(lines) else None

    def _read(self, pid: int, file: str) -> "list[str]":
        if self._timed_out:
            return []
        results: "list[list[str]]" = []
        reader = threading.Thread(
            target=lambda: results.append(self._lines_of(pid, file)), name="gconsole-source", daemon=True
        )
        reader.start()
        reader.join(READ_TIMEOUT_S)
        self._timed_out = not results
        return results[0] if results else []

    def _lines_of(self, pid: int, file: str) -> "list[str]":
        """The lines of a file that the process names as its source: what its own user may read, if it is a regular
        file."""
        try:
            user = user_files.RightsOf.of_process(self._procfs, pid)
            with user:
                fd = user_files.open_regular(self._procfs, pid, file)
            try:
                info = os.fstat(fd)
                if info.st_size > MAX_BYTES:
                    return []
                key = (user.key, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
                if key not in self._files:
                    lines = limited.call(lambda: _lines(fd), (fd,)) if user.is_other else _lines(fd)
                    self._files[key] = apart.as_texts(lines, MAX_BYTES, _MAX_INDENTED)
                return self._files[key]
            finally:
                os.close(fd)
        except (OSError, KeyError, ValueError):
            return []


def _lines(fd: int) -> "list[str]":
    lines = os.read(fd, MAX_BYTES).decode("utf-8", "replace").splitlines()
    return [printable(line.rstrip().expandtabs(), _MAX_INDENTED) for line in lines]
