"""Properties of one process: whether it is Python or a launcher, and the rank it claims."""

import os

from .environ import LiveEnviron
from .job_id import RENDEZVOUS, job_key, restart_family
from .process_reader import Request
from .procfs import GONE
from .programs import COMMUNICATION_THREADS, NATIVE, STARTS_PYTHON, is_python_guess, is_python_name, launcher_of
from .rank_variables import claim_of, claim_of_argv, rendezvous_of_argv

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .process_reader import ProcessReader, Reading
    from .procfs import ProcFs, Stat, Status
    from .rank_variables import Claim


#: Seconds after which a program without children below a launcher is no wrapper that has just begun.
LEAST_AGE_S = 5.0
TICKS_S = float(os.sysconf("SC_CLK_TCK"))


class ProcessEntry(object):
    """One process. `facts` is None unless it is Python, a launcher, or below a rank."""

    __slots__ = ("carries", "comm", "env_start", "facts", "launcher", "pid", "ppid", "python", "start_ticks")

    def __init__(self, pid: int, stat: "Stat") -> None:
        self.pid = pid
        self.start_ticks = stat.start_ticks
        self.carries: bool | None = None  # whether its environment at exec matches the process filter; None: unknown
        self.facts: ProcessFacts | None = None
        self.python = False
        self.launcher: str | None = None
        self.env_start = 0
        self.note(stat)

    @property
    def key(self) -> "tuple[int, int]":
        """(pid, start_ticks): the identity of the process."""
        return (self.pid, self.start_ticks)

    @property
    def details(self) -> "ProcessFacts":
        """`facts` of a process that has them."""
        assert self.facts is not None
        return self.facts

    def note(self, stat: "Stat") -> None:
        """Update what may change during a process's life."""
        self.comm = stat.comm
        self.ppid = stat.ppid
        self.env_start = stat.env_start or self.env_start  # 0 once its memory is gone

    def is_other_program(self, stat: "Stat") -> bool:
        """Whether the process has called exec since (or changed its name, which cannot be distinguished)."""
        return stat.comm != self.comm or bool(stat.env_start and stat.env_start != self.env_start)


class ProcessFacts(object):
    """Properties of a process that gets a record. `denied` is the file that could not be read, or None."""

    __slots__ = (
        "argv", "at_exec", "claim", "communicates", "denied", "env", "job", "live", "ns_pid", "run", "uid",
    )  # fmt: skip

    def __init__(self, argv: "list[str]", status: "Status") -> None:
        self.argv = argv
        self.uid = status.uid
        self.ns_pid = status.ns_pid
        self.at_exec: dict[str, str] = {}  # the wanted variables as they were at exec
        self.env: dict[str, str] = {}  # and now, if readable
        self.live: LiveEnviron | None = None
        self.denied: str | None = None
        self.communicates = False  # by thread names; only checked if the environment is denied
        self.claim: Claim | None = None
        self.job: str | None = None
        self.run: tuple[Any, ...] | None = None  # what stays the same over the restarts of an elastic job


class ProcessExaminer(object):
    """Examines single processes. `process_filter` is (name, value) of a variable, or None."""

    def __init__(
        self, procfs: "ProcFs", reader: "ProcessReader", process_filter: "tuple[str, str] | None", boot_id: str
    ) -> None:
        self.procfs = procfs
        self.reader = reader
        self.process_filter = process_filter
        self.boot_id = boot_id
        self.spawned: "dict[tuple[int, int], Claim]" = {}  # of processes that no variable numbers, by key

    def request(self, entry: "ProcessEntry", parent: "ProcessEntry | None", is_young: bool) -> "Request | None":
        """What `refresh` reads of a process; None if there is nothing to read."""
        facts = entry.details
        if facts.denied or facts.live is None or (facts.live.address is None and not is_young):
            return None
        live = facts.live if facts.live.address is not None else _inherited(entry, parent)
        return Request(entry.pid, entry.ppid, entry.env_start, live, is_refresh=True)

    def examine(self, entry: "ProcessEntry", parent: "ProcessEntry | None") -> None:
        """Determine the properties of a process anew."""
        entry.facts = None
        entry.carries = None
        try:
            reading = self._reading(entry, parent)
            self._recognise(entry, parent, reading)
            if entry.python or entry.launcher:
                entry.facts = ProcessFacts(reading.argv or [], self.procfs.status(entry.pid))
                self._note_environ(entry, reading)
        except GONE:
            entry.python = False
            entry.launcher = None

    def describe(self, entry: "ProcessEntry") -> "ProcessFacts":
        """The facts of a process that is neither Python nor a launcher. Raises OSError."""
        return ProcessFacts(self._reading(entry, None).argv or [], self.procfs.status(entry.pid))

    def refresh(self, entry: "ProcessEntry", parent: "ProcessEntry | None", young: bool) -> bool:
        """Read the live environment again; True if the process has a rank that it had not before, or a changed one."""
        facts = entry.details
        if facts.denied:
            return not facts.communicates and self._check_threads(entry)
        request = self.request(entry, parent, young)
        if request is None:
            return False
        try:
            facts.live = self.reader.get(request).live
        except GONE:
            return False
        env = facts.live.values if facts.live is not None else None
        if env is None or env == facts.env:
            return False
        facts.env = env
        self._claim(entry)
        return True

    def number(self, entry: "ProcessEntry", claim: "Claim") -> bool:
        """Use a claim that was read from the stack of a process; True if it had none before."""
        self.spawned[entry.key] = claim
        if entry.facts is None or entry.facts.claim is not None:
            return False
        self._claim(entry)
        return True

    def carries(self, entry: "ProcessEntry") -> bool:
        """Whether the process carries the filter's variable, now or at exec."""
        assert self.process_filter is not None
        name, value = self.process_filter
        if entry.facts is not None and entry.facts.env.get(name) == value:
            return True
        if entry.carries is None:
            try:
                entry.carries = (self._reading(entry, None).env or {}).get(name) == value
            except OSError:
                entry.carries = False
        return entry.carries

    def machine(self, pid: int) -> str:
        """Text for this machine and the network that a process sees."""
        try:
            return "%s %s" % (self.boot_id, self.procfs.link(pid, "ns/net"))
        except OSError:
            return self.boot_id

    def _reading(self, entry: "ProcessEntry", parent: "ProcessEntry | None") -> "Reading":
        return self.reader.get(full_request(entry, parent))

    def _recognise(self, entry: "ProcessEntry", parent: "ProcessEntry | None", reading: "Reading") -> None:
        """Set `python` and `launcher`."""
        argv = reading.argv or []
        try:
            name = self.procfs.link(entry.pid, "exe").partition(" (deleted)")[0].rpartition("/")[2]
        except PermissionError:
            entry.python = is_python_guess(entry.comm, argv)
        else:
            entry.python = (
                is_python_name(name)
                or self._embeds_python(entry, reading)
                or self._was_replaced(entry, parent, reading)
            )
        entry.launcher = launcher_of(argv, entry.comm) if entry.python or entry.comm in NATIVE else None

    def _embeds_python(self, entry: "ProcessEntry", reading: "Reading") -> bool:
        """Whether a program of another name is a rank in Python (frozen, embedded): it carries a rank and libpython."""
        if reading.env is None:
            return False
        if self.process_filter:
            entry.carries = reading.env.get(self.process_filter[0]) == self.process_filter[1]
        return reading.is_mapped and claim_of(reading.env, "") is not None

    def _was_replaced(self, entry: "ProcessEntry", parent: "ProcessEntry | None", reading: "Reading") -> bool:
        """Whether a rank has called exec: another program, without children, below a launcher of Python programs.

        A wrapper that starts the rank has a child; one that has just begun may not have it yet.
        """
        if not may_be_replaced(parent) or reading.env is None or claim_of(reading.env, "") is None:
            return False
        age_s = (self.procfs.uptime_s() or 0.0) - entry.start_ticks / TICKS_S
        if age_s < LEAST_AGE_S:
            return False
        try:
            return not self.procfs.read(entry.pid, "task/%d/children" % entry.pid).split()
        except OSError:
            return False

    def _note_environ(self, entry: "ProcessEntry", reading: "Reading") -> None:
        facts = entry.details
        if reading.env is None:
            facts.denied = "environ"
            if entry.python:
                self._check_threads(entry)
            return
        facts.at_exec = facts.env = reading.env
        if entry.python:
            facts.live = reading.live
            facts.env = (facts.live.values if facts.live is not None else None) or facts.at_exec
        self._claim(entry)

    def _claim(self, entry: "ProcessEntry") -> None:
        facts = entry.details
        facts.claim = facts.job = facts.run = None
        if entry.launcher:
            return
        then, now = claim_of(facts.at_exec, "environ"), claim_of(facts.env, "environ (live)")
        env = facts.env
        if now is not None and then is not None and _numbers(now) == _numbers(then):
            now.source = "environ"
        if now is not None and then is not None and (now.rank, now.world_size) == (then.rank, then.world_size):
            # a rank that meets elsewhere, as for a second group, is still one of the job that its launcher started
            env = dict(env, **{name: facts.at_exec[name] for name in RENDEZVOUS if name in facts.at_exec})
        facts.claim = now or claim_of_argv(facts.argv, facts.env) or self.spawned.get(entry.key)
        if facts.claim is not None:
            if RENDEZVOUS[0] not in env:
                env = dict(env, **rendezvous_of_argv(facts.argv))
            facts.job = job_key(env, facts.claim, facts.uid, lambda: self.machine(entry.pid))
            facts.run = restart_family(facts.env, facts.uid)

    def _check_threads(self, entry: "ProcessEntry") -> bool:
        """Check a process whose environment is denied for threads that only a rank has."""
        names = self.procfs.thread_names(entry.pid)
        entry.details.communicates = any(name.startswith(COMMUNICATION_THREADS) for name in names)
        return entry.details.communicates


def full_request(entry: "ProcessEntry", parent: "ProcessEntry | None") -> "Request":
    """What `ProcessExaminer.examine` reads of a process."""
    return Request(entry.pid, entry.ppid, entry.env_start, _inherited(entry, parent))


def _inherited(entry: "ProcessEntry", parent: "ProcessEntry | None") -> "LiveEnviron | None":
    """Where the live environment is if it is that of the parent: a fork keeps its parent's memory map."""
    if parent is None or parent.facts is None or parent.facts.live is None or not parent.facts.live.address:
        return None
    is_fork = entry.env_start == parent.env_start != 0
    return LiveEnviron(parent.facts.live.address) if is_fork else None


def may_be_replaced(parent: "ProcessEntry | None") -> bool:
    """Whether a program may be what a rank became by exec, judging by its parent."""
    return parent is not None and parent.launcher in STARTS_PYTHON


def _numbers(claim: "Claim") -> "tuple[Any, ...]":
    return (claim.rank, claim.world_size, claim.local_rank, claim.launcher)
