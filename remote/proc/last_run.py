"""For how long a thread has not run: one look proves that it slept, without waiting for a second one.

/proc/PID/task/TID/sched has `se.exec_start`, the clock of the processor's run queue when the thread last ran on it, in
ms (kernel/sched/debug.c). These clocks differ between processors, so it is compared with the same processor's clock,
which the agent reads from a thread of its own that has moved there. A kernel without CONFIG_SCHED_DEBUG lacks the file.
The field is 0 while a thread that woke up waits for another processor than its last one (migrate_task_rq_fair).
"""

import os
import time

from .threads import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .procfs import ProcFs

_FIELD = b"se.exec_start"
#: s. The clock of an idle processor, and that of a running thread, are up to one tick old.
RESOLUTION_S = 0.01


class LastRuns(object):
    """Seconds since threads last ran; reads the clock of each processor once."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._offsets: "dict[int, float | None]" = {}  # processor → monotonic time minus its clock, s

    def slept_s(self, pid: int, tid: int, processor: int) -> "float | None":
        """Seconds since a thread last ran, on this processor, rounded down; None where the kernel does not tell."""
        try:
            ran = self._exec_start_s("%d/task/%d" % (pid, tid))
        except (OSError, ValueError, IndexError):
            return None
        if not ran:  # 0: it has moved and not run since, which is no time of sleep
            return None
        offset = self._offset(processor)
        if offset is None:
            return None
        return max(0.0, time.monotonic() - offset - ran - RESOLUTION_S)

    def _exec_start_s(self, process: str) -> "float | None":
        for line in self._procfs.read_at_once(process, "sched").split(b"\n"):
            if line.startswith(_FIELD):
                return float(line.partition(b":")[2]) / 1000.0
        return None

    def _offset(self, processor: int) -> "float | None":
        if processor not in self._offsets:
            offsets: "list[float]" = []
            # a thread of its own: a changed affinity ends with it
            thread = Thread(target=self._measure, args=(processor, offsets), name="gconsole-clock")
            thread.start()
            thread.join(1.0)
            self._offsets[processor] = offsets[0] if offsets else None
        return self._offsets[processor]

    def _measure(self, processor: int, offsets: "list[float]") -> None:
        try:
            os.sched_setaffinity(0, [processor])  # of this thread only
            time.sleep(0)
            clock_s = self._exec_start_s("thread-self")
        except (OSError, ValueError):
            return  # outside of this agent's cpuset
        if clock_s is not None:
            offsets.append(time.monotonic() - clock_s)
