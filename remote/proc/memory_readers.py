"""Children that read and parse the memory of processes of other users, for many requests: privilege separation.

An agent that is root opens the memory; children without rights (`limited`), each for processes of one user, read and
parse it, and answer with values as JSON has them, which the caller checks. Memory of processes of the agent's own user
is read in the agent itself.

Bytes at known addresses the agent reads itself, without looking at them. Memory may be mapped from a file system of its
user that never answers: that of another user is read on a thread that the agent leaves behind then.
"""

import json
import os
import threading
import time

from . import apart, limited
from .threads import Thread
from .user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Sequence

    from .procfs import ProcFs

    Function = Callable[[ProcFs, int, Any], Any]

#: Files of a process that a child has open: maps, for the version of its Python, beside its memory.
NAMES = ("maps", "mem")
#: Processes per child, and seconds of one request, after which the process is not read again.
BATCH, REQUEST_S = 32, 3.0
#: Seconds until a thread that reads bytes is left behind, and how many of these there are at most.
READ_S, MOST_LEFT = 1.0, 8

_left: "dict[threading.Thread, Any]" = {}  # thread → the user whose memory it reads
_lock = threading.Lock()


class MemoryReaders(object):
    """Reads the memory of some processes for a capture, or a round of reads. To be closed.

    `functions` take /proc, a pid and a request, both as JSON has them; `pids` are those that will probably be read.
    """

    def __init__(
        self, procfs: "ProcFs", functions: "Sequence[Function]", pids: "Iterable[int]" = (), most_s: float = REQUEST_S
    ) -> None:
        self._procfs, self._functions, self._pids, self._most_s = procfs, tuple(functions), list(pids), most_s
        self._lock = threading.Lock()
        self._users: "dict[int, Any] | None" = None  # by pid, when the first one of another user was read
        self._children: "dict[tuple[Any, int], _Child]" = {}
        self._failed: "set[int]" = set()
        self._is_closed = False

    def read(self, pid: int, function: "Function", request: "Any" = None, deadline: "float | None" = None) -> "Any":
        """What a function returns for a process, not to be trusted. Raises OSError and ValueError.

        `deadline` is time.monotonic().
        """
        user = self._user_of(pid) if os.geteuid() == 0 else None
        if user is None or not user.is_other:
            return function(self._procfs, pid, request)
        if pid in self._failed:
            raise ValueError("its memory could not be read before")
        latest = time.monotonic() + self._most_s
        try:
            child = self._child_of(pid, user.key)
            answer = child.read(pid, self._functions.index(function), request, min(latest, deadline or latest))
        except ValueError:
            self._failed.add(pid)
            raise
        value = apart.value_of(answer)
        if isinstance(value, Exception):
            raise value
        return value

    def close(self) -> None:
        """End all children, for good."""
        with self._lock:
            self._is_closed = True
            children = set(self._children.values())
        for child in children:
            child.close()

    def _child_of(self, pid: int, key: "Any") -> "_Child":
        with self._lock:
            if self._is_closed:
                raise ValueError("its capture has ended")
            child = self._children.get((key, pid))
            if child is None:
                if self._users is None:
                    self._users = {other: self._key_of(other) for other in self._pids}
                others = [
                    other for other, user in self._users.items()
                    if user == key and other != pid and (key, other) not in self._children
                ]  # fmt: skip
                pids = [pid] + others[: BATCH - 1]
                child = _Child(self._procfs, self._functions, pids, lambda pid: self._key_of(pid) == key)
                self._children.update(((key, other), child) for other in pids)
            return child

    def _key_of(self, pid: int) -> "Any":
        try:
            return self._user_of(pid).key
        except (OSError, ValueError):
            return None

    def _user_of(self, pid: int) -> "RightsOf":
        try:
            return RightsOf.of_process(self._procfs, pid)
        except KeyError:
            raise ValueError("the user is not known")


class _Child(object):
    """One child, with open files of processes of one user."""

    def __init__(
        self, procfs: "ProcFs", functions: "Sequence[Function]", pids: "list[int]", is_of_user: "Callable[[int], bool]"
    ) -> None:
        self._procfs, self._functions, self._pids, self._is_of_user = procfs, functions, pids, is_of_user
        self._files = apart.OpenedFiles(procfs)
        self._parser = limited.Parser([self._answering(function) for function in functions], self._hold)

    def read(self, pid: int, number: int, request: "Any", deadline: float) -> "Any":
        data = json.dumps([pid, request]).encode("ascii")
        return getattr(self._parser.parse(number, _Answer, data, deadline), "values", None)

    def close(self) -> None:
        self._parser.close()

    def _hold(self) -> "list[int]":
        self._files = apart.OpenedFiles(self._procfs)
        for pid in self._pids:
            if self._is_of_user(pid):
                self._files.hold(pid, NAMES)
        return self._files.descriptors

    def _answering(self, function: "Function") -> "Callable[[bytes, float], _Answer]":
        """The same function for the child: of bytes."""

        def answer(data: bytes, _: float) -> "_Answer":
            pid, request = json.loads(data.decode("ascii"))
            return _Answer(apart.answer_of(lambda files, pid: function(files, pid, request), self._files, pid))

        return answer


class _Answer(object):
    """[error number or 0, value]."""

    def __init__(self, values: "list[Any]") -> None:
        self.values: "Any" = values


def read_bytes(procfs: "ProcFs", pid: int, places: "Sequence[tuple[int, int]]") -> "list[bytes]":
    """Of each (address, size) as many bytes as can be read; none at 0. Raises OSError if it cannot be opened."""
    fd = procfs.open(pid, "mem")
    try:
        return [_bytes(fd, address, size) for address, size in places]
    finally:
        procfs.release(fd)


def read_bytes_apart(procfs: "ProcFs", user: "Any", pid: int, places: "Sequence[tuple[int, int]]") -> "list[bytes]":
    """The same of a process of another user. Raises OSError, also if its memory, or that of another process of the
    user, does not answer."""
    with _lock:
        for thread in [thread for thread in _left if not thread.is_alive()]:
            del _left[thread]
        if user in _left.values() or len(_left) >= MOST_LEFT:
            raise OSError("memory does not answer")
    results: "list[list[bytes]]" = []
    errors: "list[OSError]" = []

    def run() -> None:
        try:
            results.append(read_bytes(procfs, pid, places))
        except OSError as error:
            errors.append(error)

    thread = Thread(target=run, name="gconsole-memory")
    thread.start()
    thread.join(READ_S)
    if errors:
        raise errors[0]
    if not results:
        with _lock:
            _left[thread] = user
        raise OSError("memory does not answer")
    return results[0]


def _bytes(fd: int, address: int, size: int) -> bytes:
    try:
        return os.pread(fd, size, address) if address and size > 0 else b""
    except (OSError, OverflowError):
        return b""
