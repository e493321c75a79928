"""The processes of this machine, kept current for little: a listing, and a closer look only where something is new.

Every 2 s the names in /proc are listed. A new process is looked at once, again while it is young (it may still exec, or
set its rank at run time), and then once a minute in slices: a pid may be used again, an old shell may exec at last.
"""

import os

from .jobkey import job_key, restart_family
from .launchers import claim_of, claim_of_argv
from .procfs import GONE
from .programs import COMMUNICATION_THREADS, NATIVE, is_python_guess, is_python_name, launcher_of

LISTING_S = 2.0
ROUND_S = 60.0  # every process is looked at again within this time
YOUNG_S = 10.0  # a process of this age may still be about to exec
YOUNG_PYTHON_S = 120.0  # a Python process of this age may still be importing torch, and set its rank after that
DEEPEST = 64  # no chain of parents is followed further


class Entry(object):
    """One process. `facts` is None for the thousands that are neither Python nor a launcher nor below a rank."""

    __slots__ = ("carries", "comm", "env_start", "facts", "launcher", "pid", "ppid", "python", "start_ticks")

    def __init__(self, pid, stat):
        self.pid = pid
        self.start_ticks = stat.start_ticks
        self.carries = None  # whether its environment at exec matches the process filter; None: not looked yet
        self.facts = None
        self.python = False
        self.launcher = None
        self.env_start = 0
        self.note(stat)

    @property
    def key(self):
        return (self.pid, self.start_ticks)

    def note(self, stat):
        self.comm = stat.comm
        self.ppid = stat.ppid
        self.env_start = stat.env_start or self.env_start  # 0 once its memory is gone


class Facts(object):
    """What is known of a process worth a record. `denied` is the file whose reading was refused, None where none was."""

    __slots__ = ("argv", "at_exec", "claim", "communicates", "denied", "env", "job", "live", "live_denied", "ns_pid", "run", "uid")

    def __init__(self, argv, status):
        self.argv = argv
        self.uid = status.uid
        self.ns_pid = status.ns_pid
        self.env = self.at_exec = {}
        self.live = None
        self.denied = None
        self.live_denied = False
        self.communicates = False  # a thread's name says so; only looked for where the environment is denied
        self.claim = None
        self.job = None
        self.run = None  # what stays the same over the restarts of an elastic job


class ProcessTable(object):
    """All processes by pid. `scan` brings it up to date; `dirty` says that something of interest has changed."""

    def __init__(self, procfs, environ, process_filter=None, boot_id=""):
        self.procfs = procfs
        self.environ = environ
        self.process_filter = process_filter
        self.boot_id = boot_id
        self.own_pid = os.getpid() if procfs.root == "/proc" else None
        self.entries = {}
        self.hidden = set()  # pids of which not even the name may be read (hidepid)
        self.watched = frozenset()  # pids whose new children, and whose end, matter
        self.dirty = True
        self.total = 0
        self._names = set()
        self._young = {}  # pid: until when (time.monotonic)
        self._round = []  # pids not yet looked at again in this round
        self._scanned = None
        self._ticks_s = float(os.sysconf("SC_CLK_TCK"))

    def scan(self, now):
        """List the processes where that is due, and look at what is new, young, or next in the round."""
        if self._scanned is not None and now - self._scanned < LISTING_S - 0.05:
            return
        elapsed = now - self._scanned if self._scanned is not None else 0.0
        self._scanned = now
        names = self.procfs.names()
        for name in self._names - names:
            if name.isdigit():
                self.forget(int(name))
                self.hidden.discard(int(name))
        fresh = [int(name) for name in names - self._names if name.isdigit()]
        self._names = names
        uptime = self._uptime()
        for pid in fresh:
            self._meet(pid, now, uptime)
        self.total = len(self.entries) + len(self.hidden)
        self._again_young(now, set(fresh))
        self._again_round(elapsed)

    def forget(self, pid):
        """A process is gone."""
        self._young.pop(pid, None)
        entry = self.entries.pop(pid, None)
        if entry is not None and (entry.facts or pid in self.watched):
            self.dirty = True

    def lose(self, pid):
        """A process is gone, and the listing has not said so yet; should its pid be used again, that is somebody new."""
        self.forget(pid)
        self._names.discard(str(pid))
        self.dirty = True

    def lineage(self, entry):
        """The ancestors of a process, its parent first."""
        for _ in range(DEEPEST):
            parent = self.entries.get(entry.ppid)
            if parent is None or parent.start_ticks > entry.start_ticks:
                return  # a parent is never younger: that pid has been used again
            yield parent
            entry = parent

    def belongs(self, entry):
        """Whether the process filter admits a process: it, or one above it, carries the variable."""
        if self.process_filter is None:
            return True
        return self._carries(entry) or any(self._carries(parent) for parent in self.lineage(entry))

    def describe(self, entry):
        """The facts of a process that got none so far because nobody asked; None if it is gone."""
        if entry.facts is None:
            try:
                entry.facts = Facts(self.procfs.argv(entry.pid), self.procfs.status(entry.pid))
            except OSError:
                return None
        return entry.facts

    # -- looking at one process --------------------------------------------------------------------------------------

    def _meet(self, pid, now, uptime):
        try:
            stat = self.procfs.stat(pid)
        except GONE:
            self._names.discard(str(pid))  # so that its next user is new
            return
        except PermissionError:
            self.hidden.add(pid)
            return
        entry = self.entries[pid] = Entry(pid, stat)
        if stat.ppid in self.watched:
            self.dirty = True
        if stat.kernel or stat.dead:
            return
        self._look(entry)
        age = uptime - stat.start_ticks / self._ticks_s
        youth = YOUNG_PYTHON_S if entry.python else YOUNG_S
        if age < youth:
            self._young[pid] = now + youth - max(0.0, age)

    def _look(self, entry):
        """Find out what a process is. Whatever it was before is forgotten."""
        was = entry.facts
        entry.facts = None
        entry.carries = None
        try:
            argv = self._recognise(entry)
            if entry.python or entry.launcher:
                entry.facts = Facts(argv, self.procfs.status(entry.pid))
                self._read_environ(entry)
        except GONE:
            entry.python = False
            entry.launcher = None
        if was or entry.facts:
            self.dirty = True

    def _recognise(self, entry):
        """Set `python` and `launcher`; gives the arguments where they were needed for that."""
        argv = []
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
        return argv

    def _embeds_python(self, entry):
        """Whether a program of another name is a rank in Python (frozen, embedded): it carries a rank and libpython."""
        try:
            env, _ = self.environ.static(entry.pid)
            if self.process_filter:
                entry.carries = env.get(self.process_filter[0]) == self.process_filter[1]
            return claim_of(env, "") is not None and b"libpython" in self.procfs.read(entry.pid, "maps", 16 << 20)
        except PermissionError:
            return False

    def _read_environ(self, entry):
        facts = entry.facts
        try:
            facts.at_exec, _ = self.environ.static(entry.pid)
            facts.env = facts.at_exec
        except PermissionError:
            facts.denied = "environ"
            if entry.python:
                self._listen(entry)
            return
        if entry.python:
            self._locate_live(entry)
            facts.env = self._live(entry) or facts.at_exec
        self._claim(entry)

    def _locate_live(self, entry):
        facts = entry.facts
        parent = self.entries.get(entry.ppid)
        known = parent.facts.live if parent is not None and parent.facts is not None else None
        if known is not None and known.address and entry.env_start and parent.env_start == entry.env_start:
            facts.live = type(known)(known.address)  # a fork keeps its parent's memory map; saves reading maps
            return
        try:
            facts.live = self.environ.locate(entry.pid)
        except PermissionError:
            facts.live = None
            facts.live_denied = True

    def _live(self, entry):
        live = entry.facts.live
        return self.environ.live(entry.pid, live, entry.env_start) if live is not None else None

    def _claim(self, entry):
        facts = entry.facts
        facts.claim = facts.job = None
        if entry.launcher:
            return
        then, now = claim_of(facts.at_exec, "environ"), claim_of(facts.env, "environ (live)")
        if now is not None and then is not None and _numbers(now) == _numbers(then):
            now.source = "environ"
        facts.claim = now or claim_of_argv(facts.argv, facts.env)
        if facts.claim is not None:
            facts.job = job_key(facts.env, facts.claim, facts.uid, lambda: self.machine(entry.pid))
            facts.run = restart_family(facts.env, facts.uid)

    def machine(self, pid):
        """Text for this machine and the network a process sees."""
        try:
            return "%s %s" % (self.boot_id, self.procfs.link(pid, "ns/net"))
        except OSError:
            return self.boot_id

    def _listen(self, entry):
        """Look for threads that only a rank has, in a process whose environment is denied."""
        names = self.procfs.thread_names(entry.pid)
        entry.facts.communicates = any(name.startswith(COMMUNICATION_THREADS) for name in names)

    # -- looking again -----------------------------------------------------------------------------------------------

    def _again_young(self, now, fresh):
        for pid, until in list(self._young.items()):
            if pid not in fresh:
                self._again(pid)
            if now >= until:
                self._young.pop(pid, None)

    def _again_round(self, elapsed):
        """The next slice of the round, as large as the time since the last one demands."""
        if not self._round:
            self._round = list(self.entries)
        count = int(len(self.entries) * elapsed / ROUND_S) + 1
        for pid in self._round[-count:]:
            if pid not in self._young:
                self._again(pid)
        del self._round[-count:]

    def _again(self, pid):
        """Look again: is it the same process, the same program, and has it given itself a rank since?"""
        entry = self.entries.get(pid)
        if entry is None:
            return
        try:
            stat = self.procfs.stat(pid)
        except OSError:
            return  # the next listing knows
        if stat.start_ticks != entry.start_ticks:
            self.forget(pid)
            self._names.discard(str(pid))  # the next listing meets its new user
            return
        if stat.kernel or stat.dead:
            return
        other = stat.comm != entry.comm or (stat.env_start and stat.env_start != entry.env_start)
        if entry.facts and stat.ppid != entry.ppid:
            self.dirty = True
        entry.note(stat)
        if other:
            self._look(entry)
        elif entry.python and entry.facts:
            self._refresh(entry)

    def _refresh(self, entry):
        facts = entry.facts
        if facts.denied:
            if not facts.communicates:
                self._listen(entry)
                self.dirty |= facts.communicates
            return
        if facts.live is not None and facts.live.address is None and entry.pid in self._young:
            self._locate_live(entry)  # it may have been caught between exec and the start of its libc
        env = self._live(entry)
        if env is not None and env != facts.env:
            facts.env = env
            self._claim(entry)
            self.dirty = True

    def _carries(self, entry):
        name, value = self.process_filter
        if entry.facts is not None and entry.facts.env.get(name) == value:
            return True
        if entry.carries is None:
            try:
                env, _ = self.environ.static(entry.pid)
                entry.carries = env.get(name) == value
            except OSError:
                entry.carries = False
        return entry.carries

    def _uptime(self):
        try:
            with open(self.procfs.root + "/uptime") as f:
                return float(f.read().split()[0])
        except (OSError, ValueError, IndexError):
            return 0.0


def _numbers(claim):
    return (claim.rank, claim.world_size, claim.local_rank, claim.launcher)
