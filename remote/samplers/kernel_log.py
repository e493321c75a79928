"""Faults in the kernel log, those since boot first: a `log` record each, with the time at which the kernel wrote it."""

import time
from collections import deque

from ..clocks import stamps
from ..kernel.faults import fault_of, oom_cgroup
from ..kernel.link_flaps import LinkFlaps
from ..kernel.log import KernelLog
from ..proc.procfs import printable
from .base import Sampler, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..kernel.faults import Fault
    from ..kernel.link_flaps import Run
    from .base import Context, Fact, Fields

#: Messages from before the agent started: the newest of each class.
MOST_EARLIER = 100
#: Messages of one class and device within `WINDOW_S`; further ones are counted.
MOST_SIMILAR, WINDOW_S = 5, 60.0
MAX_TEXT = 500


OOM_KILLS = ("oom_kill", "oom_kill_in_cgroup")
#: What follows the text of a message that another program than the kernel wrote.
FOREIGN = " (written to the kernel log by a program)"


class Message(object):
    """One fault: its text, time in s since boot, and whether the kernel itself wrote it."""

    __slots__ = ("at_s", "fault", "is_kernel", "text")

    def __init__(self, fault: "Fault", text: str, at_s: float, is_kernel: bool) -> None:
        self.fault, self.text, self.at_s, self.is_kernel = fault, text, at_s, is_kernel


class KernelLogSampler(Sampler):
    """Reads /dev/kmsg from its oldest message on. XIDs are left to the GPU sampler from its start on."""

    name = "kernel_log"

    def __init__(self, context: "Context") -> None:
        super(KernelLogSampler, self).__init__(context)
        self._log: "KernelLog | None" = None
        self._is_earlier = True  # the first tick reads what was there before the agent
        self._recent: "dict[tuple[str, str], deque[float]]" = {}
        self._dropped: "dict[tuple[str, str], int]" = {}
        self._open: "set[tuple[str, str]]" = set()  # faults whose end would be news
        self._cgroups: "dict[int, str]" = {}  # memory cgroups of processes about to be reported as killed
        self._links = LinkFlaps()

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
        messages = list(self._faults(self._log))
        runs = list(self._links.due(None if self._is_earlier else since_boot_s))
        messages += [_link_message(run) for run in runs]
        if self._is_earlier:
            messages = _newest(sorted(messages, key=lambda message: message.at_s))
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

    def _faults(self, log: KernelLog) -> "Iterator[Message]":
        """New faults; changes of links are collected, and an end is left out if its fault was never reported."""
        for at_s, text, is_kernel in log.all_messages():
            fault = fault_of(text)
            if fault is None:
                cgroup = oom_cgroup(text)
                if cgroup is not None and len(self._cgroups) < MOST_EARLIER:
                    self._cgroups[cgroup[0]] = cgroup[1]
                continue
            if not is_kernel:
                yield Message(fault, text + FOREIGN, at_s, False)
            elif fault.name == "link":
                ended = self._links.change(fault.subject, fault.is_over, at_s, (fault, text))
                if ended is not None and not ended.is_configured:
                    yield _link_message(ended)
            elif not fault.is_over:
                self._open.add((fault.name, fault.subject))
                cgroup_path = self._cgroups.pop(fault.pid, None) if fault.pid and fault.name in OOM_KILLS else None
                yield Message(fault, text + (" in %s" % cgroup_path if cgroup_path else ""), at_s, True)
            elif (fault.name, fault.subject) in self._open:
                self._open.discard((fault.name, fault.subject))
                yield Message(fault, text, at_s, True)
        if len(self._open) > 1024:
            self._open.clear()

    def _fields(self, message: Message, at_ns: int) -> "Fields":
        fault = message.fault
        dropped = self._dropped.pop((fault.name, fault.subject), 0)
        similar = " (and %d similar before it)" % dropped if dropped else ""
        return {
            "source": "kernel" if message.is_kernel else "kmsg",
            "severity": fault.severity if message.is_kernel else "info",
            "text": printable(message.text, MAX_TEXT) + similar, "try_": fault.try_ if message.is_kernel else "",
            "fault": fault.name, "subject": printable(fault.subject, 64) or None,
            "pid": fault.pid, "at": at_ns, "is_over": fault.is_over,
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


def _link_message(run: "Run") -> Message:
    """A run of changes as one fault: of class `link_flap` from the third time on."""
    fault, text = run.payload
    name = "link_flap" if run.is_flap else "link"
    severity = "info" if run.at_boot and not run.is_flap else fault.severity
    renamed = type(fault)(name, severity, fault.try_, fault.subject, is_over=run.is_up and not run.is_flap)
    return Message(renamed, text + run.suffix(), run.last_s if run.downs > 1 or run.is_up else run.first_s, True)


def _newest(messages: "list[Message]") -> "list[Message]":
    """The newest `MOST_EARLIER` of each class, in order."""
    counts: "dict[str, int]" = {}
    chosen = []
    for message in reversed(messages):
        name = message.fault.name
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= MOST_EARLIER:
            chosen.append(message)
    return chosen[::-1]
