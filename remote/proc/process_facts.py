"""What is worth knowing of one process: whether it is Python or a launcher, and which rank it claims to be."""

from .job_id import job_key, restart_family
from .launchers import claim_of, claim_of_argv
from .procfs import GONE
from .programs import COMMUNICATION_THREADS, NATIVE, is_python_guess, is_python_name, launcher_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .environ import EnvironReader, Live
    from .launchers import Claim
    from .procfs import ProcFs, Stat, Status


class Entry(object):
    """One process. `facts` is None for the thousands that are neither Python nor a launcher nor below a rank."""

    __slots__ = ("carries", "comm", "env_start", "facts", "launcher", "pid", "ppid", "python", "start_ticks")

    def __init__(self, pid: int, stat: "Stat") -> None:
        self.pid = pid
        self.start_ticks = stat.start_ticks
        self.carries: bool | None = (
            None  # whether its environment at exec matches the process filter; None: not looked yet
        )
        self.facts: Facts | None = None
        self.python = False
        self.launcher: str | None = None
        self.env_start = 0
        self.note(stat)

    @property
    def key(self) -> "tuple[int, int]":
        return (self.pid, self.start_ticks)

    @property
    def details(self) -> "Facts":
        """`facts` of a process that has them."""
        assert self.facts is not None
        return self.facts

    def note(self, stat: "Stat") -> None:
        """Take over what may change in a process's life."""
        self.comm = stat.comm
        self.ppid = stat.ppid
        self.env_start = stat.env_start or self.env_start  # 0 once its memory is gone

    def is_other_program(self, stat: "Stat") -> bool:
        """Whether the process has called exec since (or has given itself another name, which is cheap to mistake)."""
        return stat.comm != self.comm or bool(stat.env_start and stat.env_start != self.env_start)


class Facts(object):
    """Of a process worth a record. `denied` is the file whose reading was refused, None where none was."""

    __slots__ = (
        "argv",
        "at_exec",
        "claim",
        "communicates",
        "denied",
        "env",
        "job",
        "live",
        "live_denied",
        "ns_pid",
        "run",
        "uid",
    )

    def __init__(self, argv: "list[str]", status: "Status") -> None:
        self.argv = argv
        self.uid = status.uid
        self.ns_pid = status.ns_pid
        self.at_exec: dict[str, str] = {}  # the wanted variables as they were at exec
        self.env: dict[str, str] = {}  # and as they are now, as far as that may be read
        self.live: Live | None = None
        self.live_denied = False
        self.denied: str | None = None
        self.communicates = False  # a thread's name says so; only looked for where the environment is denied
        self.claim: Claim | None = None
        self.job: str | None = None
        self.run: tuple[Any, ...] | None = None  # what stays the same over the restarts of an elastic job


class Examiner(object):
    """Looks at single processes. `process_filter` is (name, value) of a variable, or None."""

    def __init__(
        self, procfs: "ProcFs", environ: "EnvironReader", process_filter: "tuple[str, str] | None", boot_id: str
    ) -> None:
        self.procfs = procfs
        self.environ = environ
        self.process_filter = process_filter
        self.boot_id = boot_id

    def examine(self, entry: "Entry", parent: "Entry | None") -> None:
        """Find out what a process is; whatever was known of it is forgotten."""
        entry.facts = None
        entry.carries = None
        try:
            argv = self._recognise(entry)
            if entry.python or entry.launcher:
                entry.facts = Facts(argv, self.procfs.status(entry.pid))
                self._read_environ(entry, parent)
        except GONE:
            entry.python = False
            entry.launcher = None

    def refresh(self, entry: "Entry", parent: "Entry | None", young: bool) -> bool:
        """Look whether a Python process has given itself a rank, or shows one, since. True where anything changed."""
        facts = entry.details
        if facts.denied:
            return not facts.communicates and self._listen(entry)
        if facts.live is not None and facts.live.address is None and young:
            self._locate_live(entry, parent)  # it may have been caught between exec and the start of its libc
        env = self._live(entry)
        if env is None or env == facts.env:
            return False
        facts.env = env
        self._claim(entry)
        return True

    def carries(self, entry: "Entry") -> bool:
        """Whether the process carries the filter's variable, now or at exec."""
        assert self.process_filter is not None
        name, value = self.process_filter
        if entry.facts is not None and entry.facts.env.get(name) == value:
            return True
        if entry.carries is None:
            try:
                entry.carries = self.environ.static(entry.pid)[0].get(name) == value
            except OSError:
                entry.carries = False
        return entry.carries

    def machine(self, pid: int) -> str:
        """Text for this machine and the network that a process sees."""
        try:
            return "%s %s" % (self.boot_id, self.procfs.link(pid, "ns/net"))
        except OSError:
            return self.boot_id

    def _recognise(self, entry: "Entry") -> "list[str]":
        """Set `python` and `launcher`; gives the arguments where they were needed for that."""
        argv: list[str] = []
        try:
            name = self.procfs.link(entry.pid, "exe").partition(" (deleted)")[0].rpartition("/")[2]
        except PermissionError:
            argv = self.procfs.argv(entry.pid)
            entry.python = is_python_guess(entry.comm, argv)
        else:
            entry.python = is_python_name(name) or self._embeds_python(entry)
        if entry.python or entry.comm in NATIVE:
            argv = argv or self.procfs.argv(entry.pid)
            entry.launcher = launcher_of(argv, entry.comm)
        else:
            entry.launcher = None
        return argv

    def _embeds_python(self, entry: "Entry") -> bool:
        """Whether a program of another name is a rank in Python (frozen, embedded): it carries a rank and libpython."""
        try:
            env = self.environ.static(entry.pid)[0]
            if self.process_filter:
                entry.carries = env.get(self.process_filter[0]) == self.process_filter[1]
            return claim_of(env, "") is not None and b"libpython" in self.procfs.read(entry.pid, "maps", 16 << 20)
        except PermissionError:
            return False

    def _read_environ(self, entry: "Entry", parent: "Entry | None") -> None:
        facts = entry.details
        try:
            facts.at_exec = facts.env = self.environ.static(entry.pid)[0]
        except PermissionError:
            facts.denied = "environ"
            if entry.python:
                self._listen(entry)
            return
        if entry.python:
            self._locate_live(entry, parent)
            facts.env = self._live(entry) or facts.at_exec
        self._claim(entry)

    def _locate_live(self, entry: "Entry", parent: "Entry | None") -> None:
        facts = entry.details
        if parent is not None and parent.facts is not None and entry.env_start == parent.env_start != 0:
            inherited = parent.facts.live
            if inherited is not None and inherited.address:
                facts.live = type(inherited)(inherited.address)  # a fork keeps its parent's memory map
                return
        try:
            facts.live = self.environ.locate(entry.pid)
        except PermissionError:
            facts.live = None
            facts.live_denied = True

    def _live(self, entry: "Entry") -> "dict[str, str] | None":
        live = entry.details.live
        return self.environ.live(entry.pid, live, entry.env_start) if live is not None else None

    def _claim(self, entry: "Entry") -> None:
        facts = entry.details
        facts.claim = facts.job = facts.run = None
        if entry.launcher:
            return
        then, now = claim_of(facts.at_exec, "environ"), claim_of(facts.env, "environ (live)")
        if now is not None and then is not None and _numbers(now) == _numbers(then):
            now.source = "environ"
        facts.claim = now or claim_of_argv(facts.argv, facts.env)
        if facts.claim is not None:
            facts.job = job_key(facts.env, facts.claim, facts.uid, lambda: self.machine(entry.pid))
            facts.run = restart_family(facts.env, facts.uid)

    def _listen(self, entry: "Entry") -> bool:
        """Look for threads that only a rank has, in a process whose environment is denied."""
        names = self.procfs.thread_names(entry.pid)
        entry.details.communicates = any(name.startswith(COMMUNICATION_THREADS) for name in names)
        return entry.details.communicates


def _numbers(claim: "Claim") -> "tuple[Any, ...]":
    return (claim.rank, claim.world_size, claim.local_rank, claim.launcher)
