"""Parses input of users in child processes without rights and with limits of memory and CPU time.

`parse` starts one for large input; `Parsers` keep one for each user while more input of that user comes, however small
it is.
"""

import json
import os
import resource
import select
import signal
import struct
import threading
import time

from .starvation import run_delay_s
from .threads import Thread
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
#: Seconds between two looks at whether a child got a CPU, and those that each of them counts at least: the agent waits
#: for five times as long as a child may run at most.
_SLICE_S, _LEAST_S = 0.25, 0.05
#: Seconds beyond its deadline that a child may take to notice it.
GRACE_S = 0.5
#: Upper bound on that, in multiples, for a child that waits for a CPU.
_WAITS = 10
#: Seconds without input after which a child of `Parsers` ends, and of its life, after which another one takes over.
IDLE_S, MOST_AGE_S = 5.0, 60.0
#: Children of a user, and of all users: one person may have 65,536 uids. Another child of a user is started when none
#: has become idle after `BUSY_S`.
MOST_OF_USER, MOST_CHILDREN, BUSY_S = 4, 32, 0.05
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


class TimeLimit(object):
    """Seconds that children have for their answers, without those in which they got no CPU, or the machine stood still.

    Else a healthy process on a busy node would be reported as one that cannot be read.
    """

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s
        self._pid, self._delayed_s = 0, 0.0  # the child, and how long it has waited for a CPU so far

    def wait(self, pid: int, fd: int) -> None:
        """Wait until more of the answer of a child can be read. Raises OSError when the time is over."""
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        if pid != self._pid:
            self._pid, self._delayed_s = pid, 0.0
        while True:
            slice_s = min(_SLICE_S, self.left_s)
            began = time.monotonic()
            if poller.poll(1000 * slice_s):
                self._spend(min(slice_s, time.monotonic() - began))  # else an answer could come byte by byte for ever
                return
            if not self.left_s:
                raise OSError("no answer")
            before_s, self._delayed_s = self._delayed_s, run_delay_s("/proc/%d" % pid)
            self._spend(max(_LEAST_S, slice_s - (self._delayed_s - before_s)))

    def _spend(self, seconds: float) -> None:
        self.left_s = max(0.0, self.left_s - seconds)


def call(
    function: "Callable[[], list[Any]]", kept: "Iterable[int]" = (), limit: "TimeLimit | None" = None
) -> "list[Any]":
    """The list that a function returns, as JSON has it, run in such a child, which keeps these open descriptors.

    Whatever it read may have taken over the child: the caller checks every value. Raises ValueError.
    """
    values = _values(_answer_to(function, kept, limit))
    if not isinstance(values, list):
        raise ValueError("invalid answer")
    return values


def _answer_to(function: "Callable[[], Any]", kept: "Iterable[int]", limit: "TimeLimit | None" = None) -> bytes:
    prepare()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run(function, writer, kept)
    os.close(writer)
    limit, made, size = limit or TimeLimit(MOST_S), [], 0
    try:
        while size <= MOST_RESULT:
            limit.wait(pid, reader)
            part = os.read(reader, 1 << 16)
            if not part:
                break
            made.append(part)
            size += len(part)
    except OSError:
        size = MOST_RESULT + 1  # it neither answers nor ends
    finally:
        os.close(reader)
    is_too_long = size > MOST_RESULT
    if _status_of(pid, 0.0 if is_too_long else GRACE_S) != 0 or is_too_long:
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
    """How a child has ended, which is killed after that time; None if it did not end even then.

    Time in which it got no CPU does not count, up to `_WAITS` times as much.
    """
    for later in list(_dying):
        if _waited(later, 0.0) is not None:
            _dying.discard(later)
    status = _waited(pid, most_s, _WAITS * most_s) if most_s else None
    if status is None:
        os.kill(pid, signal.SIGKILL)
        status = _waited(pid, GRACE_S)
        if status is None:
            _dying.add(pid)
    return status


def _waited(pid: int, most_s: float, longest_s: float = 0.0) -> "int | None":
    """How a child has ended; None after `most_s` without those in which it got no CPU, at most `longest_s` in all."""
    began, delayed_s, pause_s = time.monotonic(), run_delay_s("/proc/%d" % pid), 0.0002
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return -1  # another thread has waited for it
        if ended:
            return status
        waited_s = time.monotonic() - began
        if waited_s >= most_s and waited_s >= min(longest_s, most_s + run_delay_s("/proc/%d" % pid) - delayed_s):
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
    """Children that parse the input of users, each that of one user. They end when they have been idle for a while.

    A fork costs more than most parsing: each page that the agent or the child writes afterwards is copied.
    `functions` take bytes and a deadline in time.monotonic().
    """

    def __init__(self, functions: "Sequence[Callable[[bytes, float], Any]]", idle_s: float = IDLE_S) -> None:
        self._functions, self._idle_s = tuple(functions), idle_s
        self._changed = threading.Condition()
        self._idle: "dict[Any, list[tuple[float, Parser]]]" = {}  # by user: (since when, child)
        self._counts: "dict[Any, int]" = {}  # children by user, also the busy ones
        self._born: "dict[Parser, float]" = {}
        self._ender: "threading.Thread | None" = None

    def parse(
        self,
        user: "Any",
        function: "Callable[[bytes, float], Any]",
        kind: "type[Parsed]",
        data: bytes,
        deadline: float,
    ) -> "Parsed":
        """What a function makes of input of a user, as `limited.parse`, in a child that is idle. Raises ValueError."""
        number = self._functions.index(function)
        parser = self._take(user, deadline)
        try:
            return parser.parse(number, kind, data, deadline)
        finally:
            self._give_back(user, parser)

    def close(self) -> None:
        """End the children that are idle."""
        self._end(float("inf"))

    def _take(self, user: "Any", deadline: float) -> "Parser":
        patient_until = time.monotonic() + BUSY_S
        while True:
            with self._changed:
                idle = self._idle.get(user)
                if idle:
                    return idle.pop()[1]
                now, count = time.monotonic(), self._counts.get(user, 0)
                is_allowed = not count or (now >= patient_until and count < MOST_OF_USER)
                if is_allowed and len(self._born) < MOST_CHILDREN:
                    self._counts[user] = count + 1
                    parser = Parser(self._functions)
                    self._born[parser] = now
                    return parser
                others = [since for entries in self._idle.values() for since, _ in entries] if is_allowed else []
                if not others:
                    if now > deadline:
                        raise ValueError("other input of this user took too long")
                    latest = patient_until if now < patient_until else deadline
                    self._changed.wait(min(latest, deadline) - now + 0.001)
            if others:
                self._end(min(others))

    def _give_back(self, user: "Any", parser: "Parser") -> None:
        now = time.monotonic()
        is_old = now - self._born[parser] > MOST_AGE_S
        if is_old:
            parser.close()
        with self._changed:
            if is_old:
                self._forget(user, parser)
            else:
                self._idle.setdefault(user, []).append((now, parser))
                if self._ender is None:
                    self._start_ender()
            self._changed.notify_all()

    def _start_ender(self) -> None:
        ender = Thread(target=self._end_idle, name="gconsole-parsers")
        try:
            ender.start()
            self._ender = ender
        except RuntimeError:
            pass  # no memory or threads: tried again when the next child becomes idle

    def _forget(self, user: "Any", parser: "Parser") -> None:
        del self._born[parser]
        self._counts[user] -= 1
        if not self._counts[user]:
            del self._counts[user]

    def _end_idle(self) -> None:
        while True:
            time.sleep(self._idle_s / 4)
            try:
                self._end(time.monotonic() - self._idle_s)
                with self._changed:
                    if not self._counts:
                        self._ender = None
                        return
            except Exception:  # noqa: BLE001, S112 - without memory: tried again
                continue

    def _end(self, until: float) -> None:
        """End the children that have been idle since then or before."""
        ended: "list[Parser]" = []
        with self._changed:
            for user, entries in list(self._idle.items()):
                old = [parser for since, parser in entries if since <= until]
                for parser in old:
                    self._forget(user, parser)
                ended += old
                self._idle[user] = [entry for entry in entries if entry[0] > until]
                if not self._idle[user]:
                    del self._idle[user]
            self._changed.notify_all()
        for parser in ended:
            parser.close()


class Values(object):
    """An answer that is any value as JSON has it."""

    def __init__(self, values: "Any") -> None:
        self.values = values

    def value(self) -> "Any":
        """None in the answer of a child that was taken over and left it out."""
        return vars(self).get("values")


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
