"""State of a process from /proc: activity of a rank since its last sample, and state at one instant for captures."""

import os
import signal
import time

from ..clocks import stamps
from .procfs import GONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Fields
    from .procfs import ProcFs, Stat


_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

#: Process states that need one sample; R, S and I need two.
LETTERS = {"T": "stopped", "t": "stopped", "D": "uninterruptible", "Z": "zombie", "X": "zombie", "x": "zombie"}


#: Processes below one that are listed.
MAX_BELOW = 256
#: Threads of one process whose children are listed, the oldest ones: the main thread starts most.
MAX_FORKING = 64


class ProcessGone(Exception):
    """The process is gone and its exit status unknown."""


class ActivityTracker(object):
    """Samples one process and keeps the previous values."""

    __slots__ = ("_cpu_ticks", "_switches", "pid", "sampled", "start_ticks", "waits")

    def __init__(self, pid: int, start_ticks: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.sampled: float | None = None  # time.monotonic() of the last sample
        self.waits: int | None = None  # voluntary context switches of the main thread until then
        self._cpu_ticks = 0
        self._switches: int | None = None

    def sample(self, procfs: "ProcFs") -> "tuple[Fields, Stat]":
        """(fields of a `rank_stat`, stat). Raises ProcessGone.

        CPU time is of all threads, context switches of the main thread; each costs one read.
        """
        try:
            stat = procfs.stat(self.pid)
            status = procfs.status(self.pid)
        except GONE:
            raise ProcessGone()
        if stat.start_ticks != self.start_ticks:
            raise ProcessGone()
        now, switches = time.monotonic(), status.switches
        elapsed = now - self.sampled if self.sampled is not None else 0.0
        worked = stat.cpu_ticks - self._cpu_ticks if elapsed else None
        switched = None
        if elapsed and switches is not None and self._switches is not None:
            switched = switches - self._switches
        self.sampled, self.waits = now, status.waits
        self._cpu_ticks, self._switches = stat.cpu_ticks, switches
        figures = {
            "pid": self.pid,
            "start_ticks": self.start_ticks,
            "state": _state(stat, worked, switched),
            "proc_state": stat.state,
            "cpu_pct": round(100.0 * worked * _TICK_S / elapsed, 2) if worked is not None else None,
            "rss_bytes": None if stat.dead else stat.rss * _PAGE,
            "threads": stat.threads,
            "ctx_switches_s": round(switched / elapsed, 2) if switched is not None else None,
            "wchan": procfs.wchan(self.pid) if stat.state != "R" else None,
        }
        return figures, stat


def _state(stat: "Stat", worked: "int | None", switched: "int | None") -> str:
    if stat.state in LETTERS and (stat.dead or stat.state not in "ZXx"):
        return LETTERS[stat.state]
    if worked is None and switched is None:
        return "unknown"
    return "moving" if worked or switched else "idle"


def exit_code_of(status: int, readable: bool) -> "int | None":
    """An exit status as in subprocess: the exit code, or minus the signal; None if not readable."""
    if not readable and status == 0:
        return None
    return -(status & 0x7F) or status >> 8 & 0xFF


def describe_exit(stat: "Stat", readable: bool) -> str:
    """How a zombie ended, as text. `readable`: whether the agent may read its exit code."""
    if not readable and stat.exit_code == 0:
        return "ended; no permission to read its exit code"
    code = exit_code_of(stat.exit_code, True)
    assert code is not None
    return describe_code(code) + (", core dumped" if stat.exit_code & 0x80 else "")


def describe_code(code: int) -> str:
    """How a process ended, as text, from an exit code as in subprocess."""
    if code >= 0:
        return "exit code %d" % code
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "real-time"
    return "killed by signal %d (%s)" % (-code, name)


#: Names of the system calls that ranks are found waiting in (asm/unistd.h); the others stay numbers.
_SYSCALLS: "dict[str, dict[int, str]]" = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select",
        34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom",
        46: "sendmsg", 47: "recvmsg", 56: "clone", 58: "vfork", 61: "wait4", 65: "semop", 69: "msgsnd", 70: "msgrcv",
        72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend",
        202: "futex", 208: "io_getevents", 220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait",
        242: "mq_timedsend", 243: "mq_timedreceive", 247: "waitid", 257: "openat", 262: "newfstatat", 270: "pselect6",
        271: "ppoll", 281: "epoll_pwait", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg",
        326: "copy_file_range", 332: "statx", 426: "io_uring_enter", 435: "clone3", 441: "epoll_pwait2",
    },
    "aarch64": {
        4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 63: "read", 64: "write",
        65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile",
        72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex",
        101: "nanosleep", 115: "clock_nanosleep", 133: "rt_sigsuspend", 137: "rt_sigtimedwait", 182: "mq_timedsend",
        183: "mq_timedreceive", 188: "msgrcv", 189: "msgsnd", 192: "semtimedop", 193: "semop", 202: "accept",
        203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 220: "clone", 242: "accept4",
        243: "recvmmsg", 260: "wait4", 285: "copy_file_range", 291: "statx", 426: "io_uring_enter", 435: "clone3",
        441: "epoll_pwait2",
    },
}  # fmt: skip


def parse_syscall(data: bytes) -> "tuple[str, list[int]] | None":
    """(name or number, arguments) of /proc/PID/syscall; None while running, or if blocked outside any call."""
    words = data.split()
    if not words or not words[0].isdigit():
        return None  # "running", or -1
    number = int(words[0])
    return _SYSCALLS.get(os.uname().machine, {}).get(number, str(number)), [int(word, 16) for word in words[1:7]]


class ProcessState(object):
    """One process at one instant. `denied`: the kernel does not allow tracing it, so its stack is not readable."""

    __slots__ = ("denied", "io", "looked", "stat", "status", "syscall", "wchan")

    def __init__(self, procfs: "ProcFs", pid: int) -> None:
        """Raises FileNotFoundError or ProcessLookupError for a process that is gone, PermissionError (hidepid)."""
        self.stat = procfs.stat(pid)
        self.looked = stamps.realtime_ns()  # between the figures that matter most: state and system call
        self.denied = False
        self.syscall = self._syscall(procfs, pid)
        self.wchan = procfs.wchan(pid) if self.stat.state != "R" else None
        self.status = procfs.status(pid)
        self.io = procfs.io_bytes(pid)

    def _syscall(self, procfs: "ProcFs", pid: int) -> "str | None":
        try:
            call = parse_syscall(procfs.read_at_once(pid, "syscall"))
        except PermissionError:
            self.denied = not self.stat.dead
            return None
        except OSError:
            return None  # a kernel without it, or a process that has just gone
        return call[0] if call is not None else None

    def fields(self, before: "ProcessState | None") -> "Fields":
        """Fields of a `stack` record; `before` is the state at the previous sample, or None."""
        facts: Fields = {
            "looked": self.looked,
            "proc_state": self.stat.state,
            "wchan": self.wchan,
            "syscall": self.syscall,
            "cpu_s": round(self.stat.cpu_ticks * _TICK_S, 2),
            "cpu_delta_s": None,
            "ctx_switches": self.status.switches,
            "ctx_switches_delta": None,
            "written_bytes": self.io[1] if self.io else None,
            "tracer_pid": self.status.tracer_pid,
            "swapped_bytes": self.status.swapped_bytes,
        }
        if before is not None:
            facts["cpu_delta_s"] = round((self.stat.cpu_ticks - before.stat.cpu_ticks) * _TICK_S, 2)
            switches, switches_before = self.status.switches, before.status.switches
            if switches is not None and switches_before is not None:
                facts["ctx_switches_delta"] = max(0, switches - switches_before)
        return facts


def state_of(procfs: "ProcFs", pid: int, start_ticks: int) -> "str | None":
    """The kernel's letter for a process now; None if it is gone or its pid was reused."""
    try:
        stat = procfs.stat(pid)
    except GONE:
        return None
    return stat.state if stat.start_ticks == start_ticks and not stat.dead else None


def pids_below(procfs: "ProcFs", pid: int) -> "list[int]":
    """The processes below one, at most MAX_BELOW."""
    below: "list[int]" = []
    pending = [pid]
    while pending and len(below) < MAX_BELOW:
        parent = pending.pop()
        try:
            for task in sorted(os.listdir(procfs.path(parent, "task")), key=int)[:MAX_FORKING]:
                words = procfs.read(parent, "task/%s/children" % task).split()
                pending += [int(word) for word in words if word.isdigit()]
        except OSError:
            continue
        if parent != pid:
            below.append(parent)
    return below
