"""When and how processes end that are not children of the agent, from pidfds: Linux 5.3.

A pidfd wakes its reader while the process is a zombie, before most parents collect its exit status.
"""

import fcntl
import os
import select
import struct
import threading
import time

from ..clocks import stamps
from .activity import exit_code_of
from .threads import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..samplers.base import ProcessKey
    from .procfs import ProcFs

#: Processes watched at a time, if the limit of open files allows it.
MOST = 1024
#: ns. Bound on the time between the end of a process and the wake-up, beyond the time that this thread waits for a CPU.
WAKE_NS = 50 * 1000 * 1000
#: Seconds of a pause after a failure.
PAUSE_S = 1.0
#: Number of the system call, the same on all architectures.
_PIDFD_OPEN = 434
#: struct pidfd_info of linux/pidfd.h: mask, control group, eleven ids, exit status; its ioctl; the mask of the last.
_INFO, _GET_INFO, _INFO_EXIT = struct.Struct("=QQ11Ii"), 0xC040FF0B, 8


class ProcessEnd(object):
    """The end of a process: between `lo_ns` and `hi_ns` (CLOCK_REALTIME); `exit_code` as in subprocess, or None."""

    __slots__ = ("exit_code", "hi_ns", "lo_ns")

    def __init__(self, lo_ns: int, hi_ns: int, exit_code: "int | None") -> None:
        self.lo_ns, self.hi_ns, self.exit_code = lo_ns, hi_ns, exit_code


class ExitWatch(object):
    """Waits for the ends of processes in a thread of its own. `ends` has those seen, until they are dropped."""

    def __init__(self, procfs: "ProcFs") -> None:
        self.ends: "dict[ProcessKey, ProcessEnd]" = {}
        self._procfs = procfs
        self._open: "Callable[[int], int] | None" = _opener() if procfs.root == "/proc" else None
        self._most = min(MOST, int(os.sysconf("SC_OPEN_MAX")) // 4)
        self._keys: "dict[int, tuple[ProcessKey, bool]]" = {}  # by pidfd, with whether its exit code is readable
        self._lock = threading.Lock()
        self._epoll: "select.epoll | None" = None

    def add(self, key: "ProcessKey", is_readable: bool) -> None:
        """Watch a process. `is_readable`: whether the agent may read its exit code."""
        if self._open is None or len(self._keys) >= self._most:
            return
        try:
            pidfd = self._open(key[0])
        except ProcessLookupError:
            return
        except OSError:
            self._open = None  # a kernel without them, or a filter of system calls
            return
        try:
            is_same = self._procfs.stat(key[0]).start_ticks == key[1]
        except (OSError, ValueError, IndexError):
            is_same = False
        if not is_same:
            os.close(pidfd)
            return
        with self._lock:
            if self._epoll is None:
                epoll = self._epoll = select.epoll()
                try:
                    Thread(target=self._run, args=(epoll,), name="gconsole-exits").start()
                except RuntimeError:
                    self._epoll = None  # tried again with the next process
                    epoll.close()
                    os.close(pidfd)
                    return
            self._keys[pidfd] = (key, is_readable)
            self._epoll.register(pidfd, select.EPOLLIN)

    def drop(self, key: "ProcessKey") -> None:
        """Forget the end of a process."""
        self.ends.pop(key, None)

    def _run(self, epoll: "select.epoll") -> None:
        while not epoll.closed:
            try:
                self._wait(epoll)
            except Exception:  # noqa: BLE001 - without memory; those that are still registered come again
                time.sleep(PAUSE_S)

    def _wait(self, epoll: "select.epoll") -> None:
        """Wait for the next ends, and note them."""
        waited = _waited_ns()
        ready = epoll.poll()
        hi_ns = stamps.realtime_ns()
        ended = []
        for pidfd, _ in ready:
            key, is_readable = self._keys[pidfd]
            code = self._exit_code(key, is_readable)
            ended.append((pidfd, key, _collected_code(pidfd) if code is None and is_readable else code))
        lo_ns = hi_ns - max(0, _waited_ns() - waited) - WAKE_NS
        for pidfd, key, code in ended:
            self.ends[key] = ProcessEnd(lo_ns, hi_ns, code)
            epoll.unregister(pidfd)
            with self._lock:
                del self._keys[pidfd]
            os.close(pidfd)

    def _exit_code(self, key: "ProcessKey", is_readable: bool) -> "int | None":
        try:
            stat = self._procfs.stat(key[0])
        except (OSError, ValueError, IndexError):
            return None  # its parent was faster
        return exit_code_of(stat.exit_code, is_readable) if stat.start_ticks == key[1] and stat.dead else None


def _opener() -> "Callable[[int], int]":
    """os.pidfd_open of Python 3.9, or the same by its system call; raises OSError where the kernel lacks it."""
    return getattr(os, "pidfd_open", None) or _pidfd_open


def _pidfd_open(pid: int) -> int:
    import ctypes  # imported late: it costs memory

    pidfd = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_OPEN, pid, 0))
    if pidfd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pidfd


def _collected_code(pidfd: int) -> "int | None":
    """Exit code of a process whose parent has collected it: Linux 6.15, else None."""
    try:
        info = _INFO.unpack(fcntl.ioctl(pidfd, _GET_INFO, _INFO.pack(*([_INFO_EXIT] + [0] * 13))))
    except OSError:
        return None
    return exit_code_of(info[-1], True) if info[0] & _INFO_EXIT else None


def _waited_ns() -> int:
    """ns that this thread has waited for a CPU so far."""
    try:
        with open("/proc/thread-self/schedstat") as f:
            return int(f.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
