"""The processes of this machine, kept current at low cost: a listing, and a full examination only of new ones.

Every 2 s the names in /proc are listed, unless no task has started or ended since. A new process is examined at once,
repeatedly while it is young (it may exec, or set its rank at run time), and then once a minute in slices: a pid may be
reused, an old shell may exec.
"""

import os

from .process_facts import ProcessEntry, ProcessExaminer, ProcessFacts, full_request, may_be_replaced
from .procfs import GONE, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

    from .process_reader import ProcessReader, Request
    from .procfs import ProcFs, Stat

LISTING_S = 2.0
UNLISTED_S = 10.0  # a listing is skipped for at most this long
SLICE_S = 10.0  # a slice of the round is examined this often: each starts a child for every other user
ROUND_S = 60.0  # every process is examined again within this time
YOUNG_S = 10.0  # a process of this age may still be about to exec
YOUNG_PYTHON_S = 120.0  # a Python process of this age may still be importing torch, and set its rank after that
MOST_FAILED = 64  # processes whose failed examination is reported
DEEPEST = 64  # longest chain of parents


class ProcessTable(object):
    """All processes by pid. `scan` updates it; `dirty` is set if a process of interest changed."""

    def __init__(
        self,
        procfs: "ProcFs",
        reader: "ProcessReader",
        process_filter: "tuple[str, str] | None" = None,
        boot_id: str = "",
    ) -> None:
        self.procfs = procfs
        self.examiner = ProcessExaminer(procfs, reader, process_filter, boot_id)
        self.own_pid = os.getpid() if procfs.root == "/proc" else None
        self.entries: dict[int, ProcessEntry] = {}
        self.noted: dict[int, ProcessEntry] = {}  # those with facts
        self.hidden: set[int] = set()  # pids of which not even the name is readable (hidepid)
        self.watched: frozenset[int] = frozenset()  # pids whose new children, and whose end, matter
        self.dirty = True
        self._names: set[str] = set()
        self._young: dict[int, float] = {}  # pid: until when (time.monotonic)
        self._round: list[int] = []  # pids still to examine in this round
        self._unexamined_s = 0.0  # since the last slice of it
        self._scanned: float | None = None
        self._listed: float | None = None
        self._tasks: str | None = None  # the task fields of /proc/loadavg at the last listing
        self._ticks_s = float(os.sysconf("SC_CLK_TCK"))
        self._failed: set[tuple[int, int]] = set()  # processes whose examination failed
        self.failures: list[str] = []  # texts about those, not reported yet

    @property
    def boot_id(self) -> str:
        """The random id of this boot, or the host name."""
        return self.examiner.boot_id

    @property
    def total(self) -> int:
        """Number of processes that /proc lists."""
        return len(self.entries) + len(self.hidden)

    def scan(self, now: float) -> None:
        """List the processes if due, and examine those that are new, young, or next in the round."""
        if self._scanned is not None and now - self._scanned < LISTING_S - 0.05:
            return
        elapsed = now - self._scanned if self._scanned is not None else 0.0
        self._scanned = now
        self._again(self._due_young(now) + self._due_round(elapsed))
        tasks = self._task_count()
        if tasks is None or tasks != self._tasks or self._listed is None or now - self._listed >= UNLISTED_S:
            self._tasks, self._listed = tasks, now
            self._list(now)

    def _list(self, now: float) -> None:
        names = self.procfs.names()
        for name in self._names - names:
            if name.isdigit():
                self.forget(int(name))
        fresh = [int(name) for name in names - self._names if name.isdigit()]
        self._names = names
        uptime = self.procfs.uptime_s() or 0.0
        added = [entry for entry in (self._add(pid) for pid in sorted(fresh)) if entry is not None]
        self._prefetch([full_request(entry, self.entries.get(entry.ppid)) for entry in added])
        for entry in added:
            self._examine(entry)
            age = max(0.0, uptime - entry.start_ticks / self._ticks_s)
            youth = YOUNG_PYTHON_S if entry.python else YOUNG_S
            if age < youth:
                self._young[entry.pid] = now + youth - age

    def prefetch(self, entries: "Iterable[ProcessEntry]") -> None:
        """Read what `describe` needs of these processes, where it was not read before."""
        self._prefetch([full_request(entry, None) for entry in entries if entry.facts is None])

    def _prefetch(self, requests: "list[Request]") -> None:
        if requests:
            self.examiner.reader.prefetch(requests)

    def forget(self, pid: int) -> None:
        """Remove a process that is gone."""
        self.hidden.discard(pid)
        self._young.pop(pid, None)
        self.noted.pop(pid, None)
        entry = self.entries.pop(pid, None)
        if entry is not None and (entry.facts or pid in self.watched):
            self.dirty = True

    def lose(self, pid: int) -> None:
        """Remove a process that ended since the last listing; if its pid is reused, that is a new process."""
        self.forget(pid)
        self._names.discard(str(pid))
        self._tasks = None  # so that it is listed again in any case
        self.dirty = True

    def lineage(self, entry: "ProcessEntry") -> "Iterator[ProcessEntry]":
        """The ancestors of a process, its parent first."""
        for _ in range(DEEPEST):
            parent = self.entries.get(entry.ppid)
            if parent is None or parent.start_ticks > entry.start_ticks:
                return  # a parent is never younger: that pid has been used again
            yield parent
            entry = parent

    def children(self) -> "dict[int, list[ProcessEntry]]":
        """{pid: its children}, of all processes."""
        children: dict[int, list[ProcessEntry]] = {}
        for entry in self.entries.values():
            children.setdefault(entry.ppid, []).append(entry)
        return children

    def belongs(self, entry: "ProcessEntry") -> bool:
        """Whether the process filter admits a process: it, or one above it, carries the variable."""
        if self.examiner.process_filter is None:
            return True
        carries = self.examiner.carries
        return carries(entry) or any(carries(parent) for parent in self.lineage(entry))

    def describe(self, entry: "ProcessEntry") -> "ProcessFacts | None":
        """The facts of a process, read now if they were not needed before; None if it is gone."""
        if entry.facts is None:
            try:
                entry.facts = self.examiner.describe(entry)
            except (OSError, ValueError):
                return None
            self.noted[entry.pid] = entry
        return entry.facts

    def _add(self, pid: int) -> "ProcessEntry | None":
        """A new process, if it is to be examined."""
        try:
            stat = self.procfs.stat(pid)
        except GONE:
            self._names.discard(str(pid))  # so that its next user is new
            return None
        except PermissionError:
            self.hidden.add(pid)
            return None
        entry = self.entries[pid] = ProcessEntry(pid, stat)
        if stat.ppid in self.watched:
            self.dirty = True
        return None if stat.kernel or stat.dead else entry

    def _examine(self, entry: "ProcessEntry") -> None:
        was = entry.facts
        try:
            self.examiner.examine(entry, self.entries.get(entry.ppid))
        except Exception:  # noqa: BLE001 - its user chose what is parsed: it must not hide the other processes
            self._fail(entry)
        if entry.facts:
            self.noted[entry.pid] = entry
        else:
            self.noted.pop(entry.pid, None)
        if was or entry.facts:
            self.dirty = True

    def _fail(self, entry: "ProcessEntry") -> None:
        entry.facts, entry.python, entry.launcher = None, False, None
        self.noted.pop(entry.pid, None)
        self.dirty = True
        entry.comm = ""  # as of another program: it is examined again in the next round
        if entry.key not in self._failed and len(self._failed) < MOST_FAILED:
            self._failed.add(entry.key)
            import traceback  # only after a failure: 0.2 MB

            self.failures.append("process %d: %s" % (entry.pid, traceback.format_exc(limit=-2)[-500:]))

    def _due_young(self, now: float) -> "list[int]":
        due = list(self._young)
        for pid in [pid for pid, until in self._young.items() if now >= until]:
            del self._young[pid]
        return due

    def _due_round(self, elapsed: float) -> "list[int]":
        """The next slice of the round, as large as the time since the last one demands."""
        self._unexamined_s += elapsed
        if self._unexamined_s < SLICE_S:
            return []
        elapsed, self._unexamined_s = self._unexamined_s, 0.0
        if not self._round:
            self._round = list(self.entries)
        count = int(len(self.entries) * elapsed / ROUND_S) + 1 if self.entries else 0
        due = [pid for pid in self._round[-count:] if pid not in self._young]
        del self._round[-count:]
        return due

    def _again(self, pids: "list[int]") -> None:
        """Examine processes again: one may have called exec, set its rank, or be another one with the same pid."""
        changed: "list[ProcessEntry]" = []
        same: "list[ProcessEntry]" = []
        requests: "list[Request]" = []
        for pid in pids:
            entry = self.entries.get(pid)
            stat = self._stat_again(entry) if entry is not None else None
            if entry is None or stat is None:
                continue
            if entry.facts and stat.ppid != entry.ppid:
                self.dirty = True
            parent = self.entries.get(stat.ppid)
            is_other = entry.is_other_program(stat) or (entry.facts is None and may_be_replaced(parent))
            entry.note(stat)
            if is_other:
                changed.append(entry)
                requests.append(full_request(entry, parent))
            elif entry.python and entry.facts:
                same.append(entry)
                request = self.examiner.request(entry, parent, pid in self._young)
                requests.extend([request] if request is not None else [])
        self._prefetch(requests)
        for entry in changed:
            self._examine(entry)
            if entry.python:
                self._young[entry.pid] = (self._scanned or 0.0) + YOUNG_PYTHON_S  # as good as new
        for entry in same:
            try:
                parent = self.entries.get(entry.ppid)
                self.dirty |= self.examiner.refresh(entry, parent, entry.pid in self._young)
            except Exception:  # noqa: BLE001 - as in _examine
                self._fail(entry)

    def _stat_again(self, entry: "ProcessEntry") -> "Stat | None":
        """The state of a process; None if it is dead, gone or another one, which is then new."""
        try:
            stat = self.procfs.stat(entry.pid)
        except OSError:
            return None  # the next listing removes it
        if stat.start_ticks != entry.start_ticks:
            self.lose(entry.pid)
            return None
        return None if stat.kernel or stat.dead else stat

    def _task_count(self) -> "str | None":
        """Number of tasks and newest pid, as text; if both are unchanged, no task started or ended."""
        return (read_text(self.procfs.root + "/loadavg") or "").partition("/")[2] or None
