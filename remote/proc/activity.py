"""Activity of a rank's process since the previous sample: moving, idle, stopped, uninterruptible or zombie."""

import os
import signal
import time

from .procfs import GONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Fields
    from .procfs import ProcFs, Stat

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

#: Process states that need one sample; R, S and I need two.
LETTERS = {"T": "stopped", "t": "stopped", "D": "uninterruptible", "Z": "zombie", "X": "zombie", "x": "zombie"}


class ProcessGone(Exception):
    """The process is gone and its exit status unknown."""


class ActivityTracker(object):
    """Samples one process and keeps the previous values."""

    __slots__ = ("_cpu_ticks", "_sampled", "_switches", "pid", "start_ticks")

    def __init__(self, pid: int, start_ticks: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self._sampled: float | None = None
        self._cpu_ticks = 0
        self._switches: int | None = None

    def sample(self, procfs: "ProcFs") -> "tuple[Fields, Stat]":
        """(fields of a `rank_stat`, stat). Raises ProcessGone.

        CPU time is of all threads, context switches of the main thread; each costs one read.
        """
        try:
            stat = procfs.stat(self.pid)
            switches = procfs.status(self.pid).switches
        except GONE:
            raise ProcessGone()
        if stat.start_ticks != self.start_ticks:
            raise ProcessGone()
        now = time.monotonic()
        elapsed = now - self._sampled if self._sampled is not None else 0.0
        worked = stat.cpu_ticks - self._cpu_ticks if elapsed else None
        switched = None
        if elapsed and switches is not None and self._switches is not None:
            switched = switches - self._switches
        self._sampled, self._cpu_ticks, self._switches = now, stat.cpu_ticks, switches
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


def exit_code_of(stat: "Stat", readable: bool) -> "int | None":
    """Exit status of a zombie as in subprocess: the exit code, or minus the signal; None if not readable."""
    if not readable and stat.exit_code == 0:
        return None
    return -(stat.exit_code & 0x7F) or stat.exit_code >> 8 & 0xFF


def describe_exit(stat: "Stat", readable: bool) -> str:
    """How a zombie ended, as text. `readable`: whether the agent may read its exit code."""
    if not readable and stat.exit_code == 0:
        return "ended; no permission to read its exit code"
    number = stat.exit_code & 0x7F
    if not number:
        return "exit code %d" % (stat.exit_code >> 8 & 0xFF)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "real-time"
    return "killed by signal %d (%s)%s" % (number, name, ", core dumped" if stat.exit_code & 0x80 else "")
