"""What the arguments of a system call point to: a path, the descriptors of poll and select, a time.

The bytes are read from the memory of the process, and parsed in a child if it is of another user; `PointedTo` checks
the values.
"""

import json
import os
import struct
import time

from ..proc import memory_readers
from ..proc.apart import as_fields, as_list, as_number, as_text
from ..proc.limited import Values
from ..proc.procfs import printable
from ..proc.user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence, Tuple

    from ..proc.limited import Parsers
    from ..proc.procfs import ProcFs

    Call = Tuple[str, "list[int]"]

PATHS = frozenset(("openat", "newfstatat"))  # whose second argument is a path
POLLS, SELECTS = frozenset(("poll", "ppoll")), frozenset(("select", "pselect6"))
EPOLLS = frozenset(("epoll_wait", "epoll_pwait", "epoll_pwait2"))
#: Calls that end after a time, and the argument that points to it: a timespec, for select a timeval (see their pages).
#: That of poll is a number.
_TIMED = {"nanosleep": 0, "clock_nanosleep": 2, "futex": 3, "select": 4, "pselect6": 4}
_TIMER_ABSTIME, _FUTEX_COMMAND, _FUTEX_REALTIME, _FUTEX_WAIT, _FUTEX_WAIT_BITSET = 1, 0x7F, 256, 0, 9
POLLIN, POLLOUT = 0x001, 0x004  # asm-generic/poll.h; the same in epoll
#: Descriptors of one wait, and characters of a path.
MAX_ENDS, MAX_PATH = 32, 256
_MAX_FDS = 1024  # FD_SETSIZE
#: Seconds for parsing what the calls of one process point to.
PARSE_S = 3.0
_MAX_FD = 1 << 31
_TIME = struct.Struct("=qq")


def is_read(call: str, args: "list[int]") -> bool:
    """Whether these arguments point to anything that is read."""
    if len(args) < 6:
        return False
    return call in PATHS or call in POLLS or call in SELECTS or (call in _TIMED and args[_TIMED[call]] != 0)


def places(call: str, args: "list[int]") -> "list[tuple[int, int]]":
    """(address, size) of what the arguments of a call point to."""
    pointers: "list[tuple[int, int]]" = []
    if call in PATHS:
        pointers.append((args[1], MAX_PATH))
    elif call in POLLS:
        pointers.append((args[0], 8 * min(args[1], _MAX_FDS)))
    elif call in SELECTS:
        size = (min(args[0], _MAX_FDS) + 7) // 8
        pointers += [(args[1], size), (args[2], size)]
    if call in _TIMED:
        pointers.append((args[_TIMED[call]], _TIME.size))
    return pointers


def read(procfs: "ProcFs", pid: int, calls: "Sequence[Call]", parsers: "Parsers") -> "list[PointedTo]":
    """What the arguments of calls of a process point to; `parsers` parse it, if it is of another user.

    Raises OSError and ValueError.
    """
    wanted = [place for call, args in calls for place in places(call, args)]
    user = RightsOf.of_process(procfs, pid) if os.geteuid() == 0 else None
    if user is None or not user.is_other:
        parsed = parse(message(calls, memory_readers.read_bytes(procfs, pid, wanted)), 0.0)
    else:
        sent = message(calls, memory_readers.read_bytes_apart(procfs, user.key, pid, wanted))
        parsed = parsers.parse(user.key, parse, Values, sent, time.monotonic() + PARSE_S)
    return [PointedTo(value) for value in as_fields(parsed.value(), len(calls))]


def message(calls: "Sequence[Call]", data: "Sequence[bytes]") -> bytes:
    """Calls, and the bytes at their `places`, for `parse`."""
    head = [[call for call, _ in calls], [len(part) for part in data]]
    return json.dumps(head).encode("ascii") + b"\n" + b"".join(data)


def parse(sent: bytes, _: float) -> "Values":
    """[path, [[descriptor, direction]], [seconds, fraction] or None] of each call, in a child: from the bytes that its
    arguments point to, behind a line of the agent. Raises ValueError."""
    head, data = sent.split(b"\n", 1)
    calls, sizes = json.loads(head.decode("ascii"))
    parts, start = [], 0
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    return Values([_pointed_to(call, parts) for call in calls])


def _pointed_to(call: str, parts: "list[bytes]") -> "list[Any]":
    """Takes the parts of one call."""
    path, ends, instant = "", [], None  # type: tuple[str, list[list[Any]], list[int] | None]
    if call in PATHS:
        path = printable(parts.pop(0).partition(b"\0")[0].decode("utf-8", "replace"), MAX_PATH)
    elif call in POLLS:
        ends = list(_polled(parts.pop(0)))[:MAX_ENDS]
    elif call in SELECTS:
        for direction in ("read", "write"):
            ends += [[number, direction] for number in _selected(parts.pop(0))]
        ends = ends[:MAX_ENDS]
    if call in _TIMED:
        data = parts.pop(0)
        instant = list(_TIME.unpack(data)) if len(data) == _TIME.size else None
    return [path, ends, instant]


class PointedTo(object):
    """The checked values of `read` for one call; None: of nothing. Raises ValueError."""

    def __init__(self, values: "Any") -> None:
        path, ends, instant = ["", [], None] if values is None else as_fields(values, 3)
        self.path = printable(as_text(path, MAX_PATH), MAX_PATH)
        self.ends: "list[tuple[int, str]]" = [
            (as_number(fd, _MAX_FD), "read" if direction == "read" else "write")
            for fd, direction in (as_fields(end, 2) for end in as_list(ends, MAX_ENDS))
        ]
        parts = [0, 0] if instant is None else as_fields(instant, 2)
        if any(type(part) is not int or not -(1 << 63) <= part < 1 << 63 for part in parts):
            raise ValueError("invalid answer")
        self._instant = None if instant is None else (parts[0], parts[1])

    def time_left_s(self, call: str, args: "list[int]") -> "float | None":
        """Seconds after which a sleep, or a wait for a lock, ends by itself at the latest; None: it has no limit."""
        if call == "poll" and len(args) > 2:
            timeout_ms = args[2] & 0xFFFFFFFF
            return timeout_ms / 1e3 if 0 < timeout_ms < 1 << 31 else None  # negative: without a limit
        if call not in _TIMED or len(args) < 6 or self._instant is None:
            return None
        clock, is_absolute = 1, False
        if call == "clock_nanosleep":
            clock, is_absolute = args[0], bool(args[1] & _TIMER_ABSTIME)
        elif call == "futex":
            operation = args[1] & _FUTEX_COMMAND
            if operation not in (_FUTEX_WAIT, _FUTEX_WAIT_BITSET):
                return None  # the argument is not a time
            clock, is_absolute = 0 if args[1] & _FUTEX_REALTIME else 1, operation == _FUTEX_WAIT_BITSET
        elif call in SELECTS and args[0]:
            return None  # it waits for descriptors
        if clock not in (0, 1):
            return None
        seconds: float = self._instant[0] + self._instant[1] / (1e6 if call == "select" else 1e9)
        return seconds - time.clock_gettime(clock) if is_absolute else seconds


def _polled(data: bytes) -> "Iterator[list[Any]]":
    for fd, events, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8]):
        if fd >= 0:
            yield [fd, "read" if events & POLLIN or not events & POLLOUT else "write"]


def _selected(data: bytes) -> "Iterator[int]":
    for index, byte in enumerate(bytearray(data)):
        for bit in range(8):
            if byte >> bit & 1:
                yield 8 * index + bit
