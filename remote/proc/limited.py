"""Parses input of users in child processes without rights and with limits of memory and CPU time.

`parse` starts one for large input; a `Parser` is one for all input of a user in a capture, however small.
"""

import json
import os
import resource
import select
import signal
import struct
import threading
import time

from .user_files import RightsOf, prepare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Sequence, TypeVar

    Parsed = TypeVar("Parsed")

#: Bytes of input that is parsed in the agent itself: its values take 32 MiB at most.
SMALL = 1 << 19
#: Bytes that a child may allocate beyond what the agent has, and the seconds of CPU time and of time that it may use.
MOST_MEMORY, MOST_CPU_S, MOST_S = 256 << 20, 5, 30
#: Bytes that a child may answer.
MOST_RESULT = 64 << 20
#: Seconds beyond its deadline that a child may take to notice it.
GRACE_S = 0.5
#: The user that a child becomes where the agent is root: one that no other process has, so that none can signal it, or
#: `nobody` in a user namespace without these. PIDs are below 2^22.
_UNUSED_UIDS, _OVERFLOW_UID = 0xFA000000, 65534
_EXCEEDED = "needs more than 256 MiB of memory or 5 s of CPU time"
#: (number of the function, deadline, bytes that follow), and bytes of the answer.
_REQUEST, _ANSWER = struct.Struct("=BdQ"), struct.Struct("=Q")


def parse(kind: "type[Parsed]", parser: "Callable[[bytes], Parsed]", data: bytes, is_foreign: bool = False) -> "Parsed":
    """What `parser` makes of data, an object of `kind` with attributes as JSON has them.

    Large data, and that of another user, in a child.

    The child has no rights, no files and no terminal. It is forked without an exec: the parser must not use locks of
    other threads. Raises ValueError as the parser, and for data that needs more than a child may use.
    """
    if len(data) <= SMALL and not is_foreign:
        return parser(data)
    return _restored(kind, _answer_to(lambda: vars(parser(data)), ()))


def call(function: "Callable[[], list[Any]]", kept: "Iterable[int]" = (), most_s: float = MOST_S) -> "list[Any]":
    """The list that a function returns, as JSON has it, run in such a child, which keeps these open descriptors.

    Whatever it read may have taken over the child: the caller checks every value. Raises ValueError.
    """
    values = _values(_answer_to(function, kept, most_s))
    if not isinstance(values, list):
        raise ValueError("invalid answer")
    return values


def _answer_to(function: "Callable[[], Any]", kept: "Iterable[int]", most_s: float = MOST_S) -> bytes:
    prepare()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run(function, writer, kept)
    os.close(writer)
    deadline, made, size = time.monotonic() + most_s, [], 0
    try:
        while size <= MOST_RESULT:
            _wait(reader, select.POLLIN, deadline)
            part = os.read(reader, 1 << 16)
            if not part:
                break
            made.append(part)
            size += len(part)
    except OSError:
        size = MOST_RESULT + 1  # it neither answers nor ends
    finally:
        os.close(reader)
    if _status_of(pid, 0.0 if size > MOST_RESULT else GRACE_S) != 0:
        raise ValueError(_EXCEEDED)
    return b"".join(made)


def _values(made: bytes) -> "Any":
    try:
        values = json.loads(made.decode("ascii"))
    except RecursionError:
        raise ValueError("invalid answer")
    if isinstance(values, str):
        raise ValueError(values)
    return values


def _restored(kind: "type[Parsed]", made: bytes) -> "Parsed":
    values = _values(made)
    if not isinstance(values, dict) or any(hasattr(kind, name) for name in values):
        raise ValueError("invalid answer")  # no attribute hides a method
    parsed = kind.__new__(kind)
    parsed.__dict__.update(values)
    return parsed


#: Children that were killed and did not end: the memory that they read may be that of a file system that hangs.
_dying: "set[int]" = set()


def _status_of(pid: int, most_s: float) -> "int | None":
    """How a child has ended, which is killed after that time; None if it did not end even then. Never waits longer."""
    for later in list(_dying):
        if _waited(later, 0.0) is not None:
            _dying.discard(later)
    status = _waited(pid, most_s) if most_s else None
    if status is None:
        os.kill(pid, signal.SIGKILL)
        status = _waited(pid, GRACE_S)
        if status is None:
            _dying.add(pid)
    return status


def _waited(pid: int, most_s: float) -> "int | None":
    deadline, pause_s = time.monotonic() + most_s, 0.0002
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return -1  # another thread has waited for it
        if ended:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause_s)
        pause_s = min(0.02, 2 * pause_s)


class Parser(object):
    """A child that parses the input of one user, one after the other; another one after a failure.

    `functions` take bytes and a deadline in time.monotonic(); they are called by their number. `hold` opens the files
    that a child keeps, when it is started. To be closed.
    """

    def __init__(
        self, functions: "Sequence[Callable[[bytes, float], Any]]", hold: "Callable[[], Sequence[int]]" = tuple
    ) -> None:
        self._functions, self._hold = functions, hold
        self._lock = threading.Lock()
        self._is_closed = False
        self._pid = 0
        self._to = self._from = -1

    def parse(self, number: int, kind: "type[Parsed]", data: bytes, deadline: float) -> "Parsed":
        """What a function makes of data, as `parse` does. Raises ValueError."""
        with self._lock:
            if self._is_closed:
                raise ValueError("its capture has ended")  # a late reader starts no child, which would never be ended
            if not self._pid:
                self._start()
            try:
                _write(self._to, _REQUEST.pack(number, deadline, len(data)) + data, deadline)
                size = _ANSWER.unpack(_read(self._from, _ANSWER.size, deadline))[0]
                made = _read(self._from, size, deadline) if size <= MOST_RESULT else b""
            except (OSError, struct.error):
                made = b""
            if not made:
                self._end()
                raise ValueError(_EXCEEDED)
        return _restored(kind, made)

    def close(self) -> None:
        """End the child, for good."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        if self._pid:
            os.close(self._to)
            os.close(self._from)
            _status_of(self._pid, 0.0)
            self._pid = 0

    def _start(self) -> None:
        prepare()
        requests, self._to = os.pipe()
        self._from, answers = os.pipe()
        held = self._hold()
        self._pid = os.fork()
        if self._pid == 0:
            self._serve(requests, answers, held)
        for fd in (requests, answers, *held):
            os.close(fd)
        for end in (self._to, self._from):
            os.set_blocking(end, False)

    def _serve(self, requests: int, answers: int, held: "Sequence[int]") -> None:
        """In the child: a timer of the kernel ends it when a request takes too long."""
        try:
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
            _confine(requests, answers, *held)
            while True:
                number, deadline, size = _REQUEST.unpack(_read(requests, _REQUEST.size, None))
                data = _read(requests, size, None)
                signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
                answer = _answer_of(lambda: vars(self._functions[number](data, deadline))).encode("ascii")  # noqa: B023
                _write(answers, _ANSWER.pack(len(answer)) + answer, None)
        finally:
            os._exit(0)


class Parsers(object):
    """Parsers of the input of several users, each with children of its own; `most` of these at a time. To be closed."""

    def __init__(self, functions: "Sequence[Callable[[bytes, float], Any]]", most: int = 1) -> None:
        self._functions, self._most = functions, most
        self._lock = threading.Lock()
        self._slots: "dict[Any, threading.Semaphore]" = {}
        self._free: "dict[Any, list[Parser]]" = {}
        self._all: "list[Parser]" = []
        self._is_closed = False

    def parse(self, user: "Any", number: int, kind: "type[Parsed]", data: bytes, deadline: float) -> "Parsed":
        """As `Parser.parse`, of input of a user, by whichever of his children is free. Raises ValueError."""
        with self._lock:
            slots = self._slots.setdefault(user, threading.Semaphore(self._most))
        with slots:
            with self._lock:
                free = self._free.setdefault(user, [])
                if self._is_closed:
                    raise ValueError("its capture has ended")
                parser = free.pop() if free else Parser(self._functions)
                if parser not in self._all:
                    self._all.append(parser)
            try:
                return parser.parse(number, kind, data, deadline)
            finally:
                with self._lock:
                    free.append(parser)

    def close(self) -> None:
        """End all children, for good."""
        with self._lock:
            self._is_closed = True
            parsers = list(self._all)
        for parser in parsers:
            parser.close()


def _read(fd: int, size: int, deadline: "float | None") -> bytes:
    """Exactly that many bytes. Raises OSError at the end of the pipe, and at the deadline."""
    parts, left = [], size
    while left:
        if deadline is not None:
            _wait(fd, select.POLLIN, deadline)
        part = os.read(fd, min(left, 1 << 20))
        if not part:
            raise OSError("the other end is closed")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _write(fd: int, data: bytes, deadline: "float | None") -> None:
    """Everything. Raises OSError if the other end is closed, and at the deadline."""
    view = memoryview(data)
    while view:
        if deadline is not None:
            _wait(fd, select.POLLOUT, deadline)
        view = view[os.write(fd, view[: 1 << 16]) :]


def _wait(fd: int, event: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(fd, event)
    if not poller.poll(max(0.0, 1000 * (deadline + GRACE_S - time.monotonic()))):
        raise OSError("no answer")


def _run(function: "Callable[[], Any]", writer: int, kept: "Iterable[int]") -> None:
    """In the child: nothing of the agent may run here, no handlers and no buffers of its output."""
    code = 1
    try:
        _confine(writer, *kept)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        signal.alarm(MOST_S)
        with os.fdopen(writer, "w") as pipe:
            pipe.write(_answer_of(function))
        code = 0
    finally:
        os._exit(code)


def _answer_of(function: "Callable[[], Any]") -> str:
    try:
        made = function()
    except ValueError as error:
        made = str(error)
    return json.dumps(made)


def _become_nobody() -> None:
    try:
        RightsOf(_UNUSED_UIDS + os.getpid(), _OVERFLOW_UID).drop()
    except OSError:
        RightsOf(_OVERFLOW_UID).drop()


def _confine(*kept: int) -> None:
    """Keep these descriptors, and no way to get another or to reach anything; limit memory."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    os.setsid()
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the list
    _become_nobody()
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY,) * 2)
