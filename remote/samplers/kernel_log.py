"""Faults in the kernel log, those since boot first: a `log` record each, with the time at which the kernel wrote it."""

import time
from collections import deque

from ..clocks import stamps
from ..kernel.fold import FaultFold, newest
from ..kernel.log import KernelLog
from ..proc.procfs import printable
from .base import Sampler, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..kernel.faults import Fault
    from ..kernel.fold import Message
    from .base import Context, Fact, Fields

#: Messages of one class and device within `WINDOW_S`; further ones are counted.
MOST_SIMILAR, WINDOW_S = 5, 60.0
MAX_TEXT = 500


class KernelLogSampler(Sampler):
    """Reads /dev/kmsg from its oldest message on. XIDs are left to the GPU sampler from its start on."""

    name = "kernel_log"

    def __init__(self, context: "Context") -> None:
        super(KernelLogSampler, self).__init__(context)
        self._log: "KernelLog | None" = None
        self._is_earlier = True  # the first tick reads what was there before the agent
        self._recent: "dict[tuple[str, str], deque[float]]" = {}
        self._dropped: "dict[tuple[str, str], int]" = {}
        self._fold = FaultFold()

    def start(self) -> None:
        """Raises Unavailable where the log may not be read.

        Not read where the node is a part of its machine: it has a process filter, or simulated GPUs.
        """
        if self.context.simulate_gpus or self.context.process_filter:
            return
        self._log = KernelLog(self.context.kmsg, is_whole=True)
        if self._log.reason:
            raise Unavailable(self._log.reason, "read it as root (run_as), or set kernel.dmesg_restrict = 0")

    def tick(self, now: float) -> "Iterator[Fact]":
        """Yield a `log` record for each new fault."""
        if self._log is None:
            return
        began_ns, since_boot_s = stamps.realtime_ns(), time.clock_gettime(time.CLOCK_MONOTONIC)
        messages = list(self._fold.fold(self._log.all_messages()))
        messages += self._fold.links(None if self._is_earlier else since_boot_s)
        if self._is_earlier:
            messages = newest(sorted(messages, key=lambda message: message.at_s))
        for message in messages:
            if message.fault.name == "xid" and not self._is_earlier and self.context.shared.get("xids"):
                continue
            if self._is_earlier or message.fault.name == "link" or self._is_wanted(message.fault, now):
                at_ns = began_ns - int((since_boot_s - message.at_s) * 1e9)
                yield "log", self._fields(message, min(at_ns, began_ns))
        self._is_earlier = False
        if self._log.reason:
            yield "log", {"source": "agent", "severity": "warning", "try_": "reconnect to the node",
                          "text": "the kernel log can no longer be read: %s" % self._log.reason}  # fmt: skip
            self._log = None

    def stop(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def _fields(self, message: "Message", at_ns: int) -> "Fields":
        fault = message.fault
        dropped = self._dropped.pop((fault.name, fault.subject), 0)
        similar = " (and %d similar before it)" % dropped if dropped else ""
        return {
            "source": "kernel" if message.is_kernel else "kmsg",
            "severity": fault.severity if message.is_kernel else "info",
            "text": printable(message.text, MAX_TEXT) + similar, "try_": fault.try_ if message.is_kernel else "",
            "fault": fault.name, "subject": printable(fault.subject, 64) or None,
            "pid": fault.pid, "at": at_ns, "is_over": fault.is_over,
            "is_earlier": self._is_earlier,
        }  # fmt: skip

    def _is_wanted(self, fault: "Fault", now: float) -> bool:
        """Whether fewer than `MOST_SIMILAR` of its kind came within the window; others are counted."""
        key = (fault.name, fault.subject)
        if len(self._recent) > 1024:
            self._recent.clear()
        recent = self._recent.setdefault(key, deque())
        while recent and now - recent[0] > WINDOW_S:
            recent.popleft()
        if len(recent) >= MOST_SIMILAR:
            self._dropped[key] = self._dropped.get(key, 0) + 1
            return False
        recent.append(now)
        return True
