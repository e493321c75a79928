"""What reads the stack of a process: py-spy, and where that does not know its Python, the pystack that is there."""

import os
import time

from ..proc import interpreter
from . import py_spy, pystack
from .py_spy import NoStack

#: The newest Python whose insides py-spy 0.4.3 knows; and it knows no free-threaded one.
NEWEST = (3, 14)
#: What py-spy may mean by these is that it does not know this Python.
_DOUBTFUL = ("not_python", "unreadable")


class Engines(object):
    """Of one capture. `blob` is the path of py-spy, or None, and `lacking` then says why."""

    def __init__(self, blob, lacking, procfs):
        self._blob, self._lacking, self._procfs = blob, lacking, procfs
        self._others = {}  # pid → the pystack that reads it

    def read(self, pid, timeout_s, wanted):
        """(name of the engine, threads) of a process, without stopping it. Raises NoStack."""
        deadline = time.monotonic() + timeout_s
        if pid not in self._others:
            try:
                return py_spy.ENGINE, self._by_pyspy(pid, timeout_s, wanted)
            except NoStack as error:
                problem = self._known_better(pid, error)
            if problem.status not in ("unsupported_python", "tool_missing"):
                raise problem
            command = pystack.command_for(self._procfs, pid)
            if command is None:
                raise problem
            self._others[pid] = command
        threads = pystack.threads_of(self._others[pid], pid, max(0.0, deadline - time.monotonic()), wanted)
        for thread in threads:
            thread.active = self._runs(pid, thread.os_thread_id)
        return pystack.ENGINE, threads

    def _by_pyspy(self, pid, timeout_s, wanted):
        if not self._blob:
            raise NoStack("tool_missing", self._lacking, "gconsole doctor says more; here: gconsole bundle")
        return py_spy.threads_of(self._blob, pid, timeout_s, wanted)

    def _known_better(self, pid, error):
        """What py-spy says of a Python that it does not know is mostly something else."""
        version = interpreter.version_of(self._procfs, pid) if error.status != "tool_missing" else None
        if error.status in _DOUBTFUL and version and (version.free_threaded or version.number > NEWEST):
            error = NoStack("unsupported_python", "py-spy does not know %s: %s" % (version, error.text))
        if error.status == "unsupported_python":
            error.try_ = remedy(self._procfs, pid, version)
        return error

    def _runs(self, pid, tid):
        """Whether a thread has a processor, as the kernel says: pystack does not tell."""
        try:
            data = self._procfs.read_at_once(pid, "task/%d/stat" % tid)
        except (OSError, TypeError):
            return False
        return data.rpartition(b")")[2].split()[:1] == [b"R"]


def remedy(procfs, pid, version):
    """What lets a Python be read that py-spy does not know."""
    beside = next((folder for folder in interpreter.folders_of(procfs, pid) if os.path.isdir(folder)), None)
    python = os.path.join(beside, "python") if beside else "that Python's"
    known = " (py-spy knows up to %d.%d, none free-threaded)" % NEWEST if version else ""
    return "install pystack where the job runs, it is found there: %s -m pip install pystack%s" % (python, known)
