"""What the node recorded before the agent started, and since, elsewhere than in /dev/kmsg, as `log` records.

Boots, core dumps, the journal and Slurm are read once, a step per tick, and then followed at a rate that their cost
permits. A source that cannot be read is a missing capability with its reason.
"""

import os
import re
import time

from ..clocks import stamps
from ..history import boots, core_dumps, journal, service_faults, slurm
from ..kernel.faults import fault_of
from ..kernel.fold import FaultFold, newest
from ..kernel.log import KernelLog
from ..proc.procfs import printable
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

    from ..agent.agent import Agent
    from ..history.journal import Entry
    from .base import Context, Fact, Fields

#: Seconds between two reads of the journal and of Slurm: at least, and so many times the CPU time of the last.
EVERY_S, PER_CPU_S, SLOWEST_S = 30.0, 300.0, 600.0
SLURM_EVERY_S = 120.0
#: Seconds. Older boots, core dumps and entries are not reported.
OLDEST_S = journal.OLDEST_S
MAX_TEXT = 500
#: Entries of the journal of the boot before that show whether it was shut down.
LAST_ENTRIES = 40
#: Seconds between the last fault of the kernel and the end of its boot, for it to be named with the boot.
CAUSE_S = 600.0
_CRASH_TRY = "see the console of the node and the event log of its board (ipmitool sel list)"
_JOB = re.compile(r"slurm-([0-9]{1,10})\b")
_SIGNALS = {"4": "SIGILL", "6": "SIGABRT", "7": "SIGBUS", "8": "SIGFPE", "11": "SIGSEGV"}


#: linux/time.h; Python has the name from 3.7 on.
CLOCK_BOOTTIME = 7


class HistorySampler(Sampler):
    """One step per tick: boot, core dumps, kernel messages older than the kernel log, services, Slurm."""

    name = "history"
    waits = True

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(HistorySampler, self).__init__(context)
        self._agent = agent
        self._journal = journal.Journal()
        self._steps: "list[Callable[[], Iterator[Fact]]]" = []
        self._started_ns = stamps.realtime_ns()
        self._kernel = journal.JournalFollower(journal.KERNEL_MATCHES, _is_kernel_fault)
        self._service = journal.JournalFollower(
            journal.service_matches(), lambda it: self._service_fact(it) is not None
        )
        self._follows_kernel = False
        self._fold = FaultFold()  # of the present boot
        self._due: "dict[str, float]" = {}
        self._seen_dumps: "set[tuple[int | None, int]]" = set()
        self._slurm_states: "dict[str, str]" = {}
        self._missed: "set[str]" = set()
        self._last_fault: "tuple[float, str] | None" = None  # of an earlier boot: time in s, text

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks: short until everything was read once."""
        return 0.25 if self._steps else 5.0

    def start(self) -> None:
        """Plan the steps; none where the node is a part of its machine."""
        if self.context.simulate_gpus or self.context.process_filter:
            return
        self._steps = [self._core_dumps]
        obstacle = journal.obstacle()
        if obstacle is None:
            self._steps += [self._older_kernel_messages, self._services]
        elif obstacle:
            self._agent.miss(
                "journal", obstacle, 'log in as a member of systemd-journal or adm, or set run_as = "sudo"'
            )
        self._steps.append(self._boot)
        if slurm.is_present():
            self._steps.append(self._slurm)

    def tick(self, now: float) -> "Iterator[Fact]":
        """Yield the records of the next step, or of the sources that are due."""
        if self._steps:
            step = self._steps.pop(0)
            for fact in step():
                yield fact
            return
        if "services" in self._due and now >= self._due["services"]:
            for fact in self._services():
                yield fact
        if "slurm" in self._due and now >= self._due["slurm"]:
            for fact in self._slurm():
                yield fact

    # -- boots and core dumps ----------------------------------------------------------------------------------------

    def _boot(self) -> "Iterator[Fact]":
        """The last boot, if it was within `OLDEST_S`."""
        since_boot_s = time.clock_gettime(CLOCK_BOOTTIME)
        booted_s = time.time() - since_boot_s
        if since_boot_s > OLDEST_S:
            return
        boot = self._last_boot(booted_s)
        text = "the node booted"
        if boot.was_orderly:
            text = "the node was shut down and booted"
        elif boot.was_orderly is False:
            text = "the node booted without a shutdown before: crash, loss of power, reset or forced reboot"
            if boot.last_s and 0 <= booted_s - boot.last_s < OLDEST_S:
                text += "; last sign of life %d s before" % (booted_s - boot.last_s)
            if self._last_fault and boot.last_s and abs(boot.last_s - self._last_fault[0]) < CAUSE_S:
                text += "; last fault: %s" % self._last_fault[1]
        release = os.uname().release
        if boot.kernel_before and boot.kernel_before != release:
            text += "; kernel %s instead of %s" % (release, boot.kernel_before)
        is_crash = boot.was_orderly is False
        severity, try_ = ("warning", _CRASH_TRY) if is_crash else ("info", "")
        yield self._log("boot", severity, text, booted_s * 1e9, "reboot", try_=try_)

    def _last_boot(self, booted_s: float) -> "boots.Boot":
        try:
            boot = boots.last_boot(boots.read_wtmp(), booted_s)
        except (OSError, ValueError):
            boot = boots.Boot()  # containers and minimal systems have none
        if boot.was_orderly is None and journal.obstacle() is None:
            try:
                entries = list(self._journal.entries([], ["--boot=-1"], most=LAST_ENTRIES))
            except OSError:
                entries = []
            earlier = boots.boot_of_journal([entry for entry in entries if entry.at_ns < booted_s * 1e9 + 6e10])
            earlier.kernel_before = boot.kernel_before
            return earlier
        return boot

    def _core_dumps(self) -> "Iterator[Fact]":
        """Core dumps of the last `OLDEST_S`, by their files."""
        refused: "list[str]" = []
        places = core_dumps.folders(core_dumps.core_pattern())
        since_s = time.time() - OLDEST_S
        dumps = sorted(
            core_dumps.find(places, since_s, lambda *why: refused.append("%s: %s" % why)), key=lambda it: it.at_s
        )
        for dump in dumps[-100:]:
            self._seen_dumps.add((dump.pid, int(dump.at_s)))
            yield self._core_dump(dump.comm, dump.pid, dump.signal, dump.path, dump.size, dump.at_s * 1e9)
        if refused:
            self._agent.miss("core_dumps", ", ".join(refused)[:300], "read them as root (run_as)")

    def _core_dump(
        self, comm: str, pid: "int | None", number: str, path: str, size: "int | None", at_ns: float
    ) -> "Fact":
        words = ["process %d" % pid] if pid is not None else []
        words += [_SIGNALS.get(number, "signal " + number)] if number else []
        words += ["%.1f MiB" % (size / 1048576.0)] if size is not None else []
        text = "core dump of %s (%s): %s" % (
            comm or "a process",
            ", ".join(words) or "unknown process",
            path or "not stored",
        )
        return self._log("core", "warning", text, at_ns, "core_dump", comm, pid, "coredumpctl info; read it with gdb")

    # -- the journal -------------------------------------------------------------------------------------------------

    def _older_kernel_messages(self) -> "Iterator[Fact]":
        """Kernel messages of earlier boots, and of this one those that /dev/kmsg does not hold or may not be read."""
        oldest_s = _oldest_of_kmsg(self.context.kmsg)
        self._follows_kernel = oldest_s is None
        until = []
        if oldest_s is not None:  # the bulk of it: what remains is compared by the kernel's own time
            until = ["--until=@%d" % (time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + oldest_s + 60)]
        for fact in self._kernel_facts(self._read(self._kernel, until), oldest_s):
            yield fact

    def _kernel_facts(self, entries: "list[Entry]", oldest_s: "float | None") -> "Iterator[Fact]":
        boot = self.context.boot_id.replace("-", "")
        folds = {boot: self._fold}
        for boot_id in dict.fromkeys(entry.boot_id for entry in entries):
            of_boot = [(entry, entry.since_boot_s()) for entry in entries if entry.boot_id == boot_id]
            timed = [(entry, at_s) for entry, at_s in of_boot if at_s is not None]
            if boot_id == boot and oldest_s is not None:
                timed = [(entry, at_s) for entry, at_s in timed if at_s < oldest_s]
            if not timed:
                continue
            zero_ns = timed[-1][0].at_ns - timed[-1][1] * 1e9
            fold = folds.get(boot_id) or FaultFold()
            messages = list(fold.fold((at_s, entry.text, True) for entry, at_s in timed))
            messages += fold.links(None)
            for message in newest(sorted(messages, key=lambda it: it.at_s)):
                fault, is_past = message.fault, boot_id != boot
                at_ns = zero_ns + message.at_s * 1e9
                if is_past and fault.severity == "error":
                    self._last_fault = (at_ns / 1e9, printable(message.text, 200))
                text = message.text + (" (before the last boot)" if is_past else "")
                yield self._log("kernel", fault.severity, text, at_ns, fault.name, fault.subject, fault.pid,
                                "" if is_past else fault.try_, fault.is_over or is_past)  # fmt: skip

    def _services(self) -> "Iterator[Fact]":
        """New entries of services, of core dumps, and of the kernel where it is followed here."""
        entries = self._read(self._service)
        cost_s = self._journal.cpu_s
        for entry in entries:
            fact = self._service_fact(entry)
            if fact is not None:
                yield fact
        if self._follows_kernel and "services" in self._due:
            messages = self._read(self._kernel)
            cost_s += self._journal.cpu_s
            for kernel_fact in self._kernel_facts(messages, None):
                yield kernel_fact
        self._due["services"] = time.monotonic() + min(SLOWEST_S, max(EVERY_S, PER_CPU_S * cost_s))

    def _service_fact(self, entry: "Entry") -> "Fact | None":
        if not entry.is_of_system:
            return None
        if entry.word("MESSAGE_ID") == journal.CORE_DUMP:
            return self._core_dump_entry(entry)
        if entry.number("_PID") == 1:
            fault = service_faults.unit_fault(entry.word("UNIT"), entry.text)
        else:
            fault = service_faults.service_fault(entry.word("_SYSTEMD_UNIT"), entry.text)
        if fault is None:
            return None
        origin = entry.word("UNIT") or entry.word("_SYSTEMD_UNIT")
        text = entry.text if entry.text.startswith(origin) else "%s: %s" % (origin, entry.text)
        return self._log("journal", fault.severity, text, entry.at_ns, fault.name, fault.subject, fault.pid, fault.try_,
                         fault.is_over)  # fmt: skip

    def _core_dump_entry(self, entry: "Entry") -> "Fact | None":
        if not entry.word("_SYSTEMD_UNIT").startswith("systemd-coredump@"):
            return None
        pid, micros = entry.number("COREDUMP_PID"), entry.number("COREDUMP_TIMESTAMP")
        at_ns = micros * 1000 if micros is not None else entry.at_ns
        if (pid, at_ns // 1000000000) in self._seen_dumps:
            return None
        return self._core_dump(entry.word("COREDUMP_COMM"), pid, entry.word("COREDUMP_SIGNAL"),
                               entry.word("COREDUMP_FILENAME"), None, at_ns)  # fmt: skip

    def _read(self, follower: "journal.JournalFollower", until: "tuple[str, ...] | list[str]" = ()) -> "list[Entry]":
        try:
            entries = follower.read(self._journal, list(until))
        except OSError as error:
            entries, self._journal.reason = [], "journalctl: %s" % (error.strerror or error)
        if self._journal.reason and not self._journal.parsed and "journal" not in self._missed:
            self._missed.add("journal")
            self._agent.miss("journal", self._journal.reason, "run journalctl -o json on the node to see its error")
        return entries

    # -- Slurm -------------------------------------------------------------------------------------------------------

    def _slurm(self) -> "Iterator[Fact]":
        """Changes of the state of the node, and of the jobs whose first rank is here: one question a job."""
        self._due["slurm"] = time.monotonic() + SLURM_EVERY_S
        name = os.uname().nodename.partition(".")[0]
        try:
            fields = slurm.node_state(name)
            text = fields["text"] if fields else ""
            if text != self._slurm_states.get("node", ""):
                self._slurm_states["node"] = text
                yield "log", fields or {
                    "source": "slurm", "severity": "info", "fault": "slurm_node", "subject": name, "is_over": True,
                    "text": "Slurm has this node in service again",
                }  # fmt: skip
            for job in self._jobs():
                state, fields = slurm.job_state(job)
                if self._slurm_states.get(job) != state:
                    self._slurm_states[job] = state
                    yield "log", fields
        except (OSError, ValueError) as error:
            if "slurm" not in self._missed:
                self._missed.add("slurm")
                self._agent.miss("slurm", str(error)[:300], "run scontrol show node on the node to see its error")

    def _jobs(self) -> "list[str]":
        snapshot = self.context.shared.get("processes")
        present = [_JOB.match(rank.job) for rank in (snapshot.ranks if snapshot else ()) if rank.rank == 0]
        seen = [key for key in self._slurm_states if key.isdigit()]
        return sorted({match.group(1) for match in present if match is not None}.union(seen))[:16]

    # ----------------------------------------------------------------------------------------------------------------

    def _log(
        self,
        source: str,
        severity: str,
        text: str,
        at_ns: float,
        fault: str,
        subject: str = "",
        pid: "int | None" = None,
        try_: str = "",
        is_over: bool = False,
    ) -> "Fact":
        at_ns = min(int(at_ns), stamps.realtime_ns())
        fields: "Fields" = {
            "source": source, "severity": "info" if is_over and source != "kernel" else severity,
            "text": printable(text, MAX_TEXT), "try_": try_, "fault": fault, "subject": printable(subject, 64) or None,
            "pid": pid, "at": at_ns, "is_over": is_over, "is_earlier": at_ns < self._started_ns,
        }  # fmt: skip
        return "log", fields


def _is_kernel_fault(entry: "Entry") -> bool:
    return entry.is_kernel and (entry.text.startswith("oom-kill:") or fault_of(entry.text) is not None)


def _oldest_of_kmsg(path: str) -> "float | None":
    """Time of the oldest message that the kernel log holds, s since boot; None if it may not be read."""
    log = KernelLog(path, is_whole=True)
    try:
        for at_s, _ in log.messages():
            return at_s
        return None if log.reason else time.clock_gettime(time.CLOCK_MONOTONIC)
    finally:
        log.close()
