"""What the arguments of a system call point to: a path, the descriptors of poll and select, a time.

`read` takes it from the memory of a process, in a child if the process is of another user; `PointedTo` checks it.
"""

import os
import struct
import time

from ..proc.apart import as_fields, as_list, as_number, as_text
from ..proc.procfs import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..proc.procfs import ProcFs

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
_MAX_FD = 1 << 31
_TIME = struct.Struct("=qq")


def is_read(call: str, args: "list[int]") -> bool:
    """Whether these arguments point to anything that is read."""
    if len(args) < 6:
        return False
    return call in PATHS or call in POLLS or call in SELECTS or (call in _TIMED and args[_TIMED[call]] != 0)


def read(procfs: "ProcFs", pid: int, requests: "Any") -> "list[list[Any]]":
    """[path, [[descriptor, direction]], [seconds, fraction] or None] of each [call, arguments]. Raises OSError."""
    fd = procfs.open(pid, "mem")
    try:
        return [_read(fd, call, args) for call, args in requests]
    finally:
        procfs.release(fd)


def _read(fd: int, call: str, args: "list[int]") -> "list[Any]":
    path, ends, instant = "", [], None  # type: tuple[str, list[list[Any]], list[int] | None]
    if call in PATHS:
        data = _bytes(fd, args[1], MAX_PATH).partition(b"\0")[0]
        path = printable(data.decode("utf-8", "replace"), MAX_PATH)
    elif call in POLLS:
        ends = list(_polled(_bytes(fd, args[0], 8 * min(args[1], _MAX_FDS))))[:MAX_ENDS]
    elif call in SELECTS:
        for direction, address in (("read", args[1]), ("write", args[2])):
            data = _bytes(fd, address, (min(args[0], _MAX_FDS) + 7) // 8)
            ends += [[number, direction] for number in _selected(data)]
        ends = ends[:MAX_ENDS]
    if call in _TIMED:
        data = _bytes(fd, args[_TIMED[call]], _TIME.size)
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


def _bytes(fd: int, address: int, size: int) -> bytes:
    """As many bytes at an address as can be read; none at 0."""
    try:
        return os.pread(fd, size, address) if address and size > 0 else b""
    except (OSError, OverflowError):
        return b""


def _polled(data: bytes) -> "Iterator[list[Any]]":
    for fd, events, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8]):
        if fd >= 0:
            yield [fd, "read" if events & POLLIN or not events & POLLOUT else "write"]


def _selected(data: bytes) -> "Iterator[int]":
    for index, byte in enumerate(bytearray(data)):
        for bit in range(8):
            if byte >> bit & 1:
                yield 8 * index + bit
