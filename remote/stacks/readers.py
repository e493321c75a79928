"""Reads the stacks of a process by py-spy, or by the node's pystack if py-spy does not support its Python."""

import os
import time

from ..proc import limited, programs, user_files
from . import call_memory, py_spy, pystack, source_lines
from .py_spy import StackError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..proc.procfs import ProcFs
    from ..proc.programs import PythonVersion
    from .py_spy import PythonThread

#: The children that parse what is read of processes of other users for captures and samples of stacks.
PARSERS = limited.Parsers((py_spy.parse_output, call_memory.parse, source_lines.parse))
#: The newest Python that py-spy 0.4.3 supports; it supports no free-threaded one.
NEWEST = (3, 14)
#: Statuses that py-spy also returns for an unsupported Python.
_AMBIGUOUS = ("not_python", "unreadable")


class StackReader(object):
    """Reads stacks for one capture. `blob` is the path of py-spy, or None for the reason `lacking`.

    `parsers` parse what the tools write about processes of other users.
    """

    def __init__(self, blob: "str | None", lacking: "str | None", procfs: "ProcFs", parsers: "limited.Parsers") -> None:
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
