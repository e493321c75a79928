"""The part of a capture that reads what communication libraries recorded: of each rank, and of the node.

Nothing is looked for that nobody has: a rank without a worker server, dump or log, on a node without RAS, makes no
record and costs a look at its threads and its environment.
"""

import os
import threading
import time

from ..clocks import stamps
from ..proc.environ import EnvironReader
from ..proc.procfs import GONE
from . import flight_recorder, flight_recorder_files, log_tail, nccl_ras_client, worker_server
from .errors import NoFlight

#: How long one rank, or RAS, may take to be read, seconds.
RANK_S = 3.0
#: So many are read at once: they cost processor time of the node, which the job needs.
READERS = 2
#: So many records are handed over at once.
_BATCH = 256
VARIABLES = flight_recorder_files.VARIABLES + nccl_ras_client.VARIABLES + log_tail.VARIABLES
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


class Wanted(object):
    """What a capture is asked to read besides stacks. `pipe`: ranks may be made to write their dump, which changes the
    job; `logs` and `inspector`: globs of files on this node."""

    def __init__(self, args):
        self.pipe = args.get("pipe") is True
        self.logs = _patterns(args.get("nccl_logs"))
        self.inspector = _patterns(args.get("inspector"))


class Flight(object):
    """One reading on this node, in threads of its own. `post` takes the records; `ranks` are the captured ones."""

    def __init__(self, wanted, capture, ranks, procfs, post, deadline):
        self._wanted, self._capture = wanted, capture
        self._ranks = list(ranks)
        self._procfs, self._post, self._deadline = procfs, post, deadline
        self._environ = EnvironReader(procfs, VARIABLES)
        self._hostname = os.uname().nodename
        self._lock = threading.Lock()
        self._ras = {}  # job → (Place, environment's rank) found so far
        self._threads = []
        self._logged = []  # (rank, environment) of ranks that name logs

    def start(self):
        """Begin; nothing waits for it but `join`."""
        thread = threading.Thread(target=self._run, name="gconsole-flight", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self):
        """Wait until all is read, or the capture's deadline is over."""
        for thread in self._threads:
            thread.join(max(0.1, self._deadline - time.monotonic() + 1.0))

    def _run(self):
        waiting = list(reversed(self._ranks))
        workers_ = [
            threading.Thread(target=self._work, args=(waiting,), name="gconsole-flight", daemon=True)
            for _ in range(min(READERS, len(waiting)))
        ]
        for worker in workers_:
            worker.start()
        for worker in workers_:
            worker.join(max(0.1, self._deadline - time.monotonic() + 0.5))
        self._read_ras()
        self._read_logs()

    def _work(self, waiting):
        while True:
            with self._lock:
                if not waiting:
                    return
                rank = waiting.pop()
            env = self._env(rank.pid)
            if env is not None:
                self._read_rank(rank, env)

    def _env(self, pid):
        """The variables of a rank, as it has them now; None where they may not be read: then nothing else may be."""
        try:
            at_exec, _ = self._environ.static(pid)
            live = self._environ.live(pid, self._environ.locate(pid), self._procfs.stat(pid).env_start)
        except (OSError, ValueError):
            return None
        return at_exec if live is None else live

    # -- a rank ------------------------------------------------------------------------------------------------------

    def _read_rank(self, rank, env):
        until = min(self._deadline, time.monotonic() + RANK_S)
        if not self._ask_worker(rank, until):
            self._read_dump(rank, env, until)
        try:
            place = nccl_ras_client.find(self._procfs, rank.pid, env)
        except NoFlight as error:
            self._say_failure(rank, "ras", error)
        else:
            if place is not None and _asks_ras(rank, self._ranks):
                with self._lock:
                    self._ras.setdefault(rank.job, place)
        if log_tail.nccl_log_of(env, rank.pid, self._hostname) or log_tail.inspector_folder_of(env):
            with self._lock:
                self._logged.append((rank, env))

    def _ask_worker(self, rank, until):
        """Whether the rank's worker server has given a Flight Recorder with something in it."""
        began = stamps.realtime_ns()
        try:
            threads = worker_server.threads(self._procfs, rank.pid)
            if not threads:
                return False
            if self._procfs.stat(rank.pid).state in "Tt":
                raise NoFlight("timed_out", "the rank is stopped, so its worker server cannot answer")
            place = worker_server.find(self._procfs, rank.pid, threads)
            read = [
                (data, flight_recorder.parse(data, until)) for data in worker_server.traces(self._procfs, place, until)
            ]
        except GONE + (PermissionError,):
            return False
        except NoFlight as error:
            self._say_failure(rank, "worker_server", error)
            return False
        except flight_recorder.BadTrace as error:
            self._say_failure(rank, "worker_server", NoFlight("unreadable", "its worker server: %s" % error))
            return False
        full = [one for one in read if one[1].held or one[1].groups]
        for data, said in full:
            self._say_trace(rank, "worker_server", said, began, stamps.realtime_ns() - began, len(data))
        if not full:
            off = NoFlight(
                "refused", "its worker server has no operations", "start the job with TORCH_FR_BUFFER_SIZE=2000"
            )
            self._say_failure(rank, "worker_server", off)
        return bool(full)

    def _read_dump(self, rank, env, until):
        number = rank.rank
        if number is None:
            return
        began = time.monotonic()
        try:
            uid = self._procfs.status(rank.pid).uid
            dump = None
            if self._wanted.pipe and env.get(flight_recorder_files.PIPE):
                dump = flight_recorder_files.dump_by_pipe(self._procfs, rank.pid, uid, number, env, until)
            started = self._started_ns(rank)
            for path in flight_recorder_files.paths(env, number):
                dump = dump or flight_recorder_files.read(self._procfs, rank.pid, uid, path, started)
            if dump is not None:
                said = flight_recorder.parse(dump.data, until)
                took = int((time.monotonic() - began) * 1e9)
                self._say_trace(rank, "fr_dump", said, dump.written, took, len(dump.data))
        except GONE:
            return
        except NoFlight as error:
            if error.status != "stale":  # of a job before, and of no interest
                self._say_failure(rank, "fr_dump", error)
        except flight_recorder.BadTrace as error:
            self._say_failure(rank, "fr_dump", NoFlight("unreadable", "its dump: %s" % error))

    def _started_ns(self, rank):
        """When a rank was started, CLOCK_REALTIME; None where /proc does not say how long the machine is up."""
        try:
            with open(self._procfs.root + "/uptime", "rb") as f:
                up_ns = int(float(f.read().split()[0]) * 1e9)
        except (OSError, ValueError, IndexError):
            return None
        return stamps.realtime_ns() - up_ns + rank.start_ticks * _TICK_NS

    # -- the node ----------------------------------------------------------------------------------------------------

    def _read_ras(self):
        for job, place in sorted(self._ras.items()):
            ranks = [rank for rank in self._ranks if rank.job == job]
            pids = {rank.ns_pid or rank.pid for rank in ranks}
            began = stamps.realtime_ns()
            try:
                said, size = nccl_ras_client.status(
                    self._procfs, place, min(self._deadline, time.monotonic() + RANK_S), pids
                )
            except NoFlight as error:
                self._say_failure(ranks[0], "ras", error)
                continue
            about = {
                "capture": self._capture, "source": "ras", "job": job, "attempt": ranks[0].attempt, "rank": None,
                "version": said.version, "read_at": began, "took_ns": stamps.realtime_ns() - began, "size_bytes": size,
                "reason": "; ".join(said.problems)[:500] or None,
            }  # fmt: skip
            self._say([("pg_status", dict(about, **group)) for group in said.groups])

    def _read_logs(self):
        by_pid = {}
        for rank in self._ranks:
            by_pid[rank.pid] = by_pid[rank.ns_pid or rank.pid] = rank
        for path, source, uid in self._log_paths():
            if time.monotonic() > self._deadline:
                return
            try:
                self._say_tail(log_tail.read(path, source, uid), by_pid)
            except NoFlight as error:
                if self._ranks:
                    self._say_failure(self._ranks[0], source, error)

    def _log_paths(self):
        """(path, source, uid it must be of or None) of every log there is, each once."""
        found = {}
        for rank, env in self._logged:
            try:
                uid = self._procfs.status(rank.pid).uid
            except (OSError, ValueError):
                continue
            root, pid = self._procfs.path(rank.pid, "root"), rank.ns_pid or rank.pid
            log, folder = log_tail.nccl_log_of(env, pid, self._hostname), log_tail.inspector_folder_of(env)
            if log and os.path.exists(root + "/" + log):
                found.setdefault(root + "/" + log, ("nccl_log", uid))
            for path in log_tail.matches(root + "/" + os.path.join(folder, "*-pid%d.log" % pid)) if folder else ():
                found.setdefault(path, ("inspector", uid))
        for source, patterns in (("nccl_log", self._wanted.logs), ("inspector", self._wanted.inspector)):
            for pattern in patterns:
                for path in log_tail.matches(pattern):
                    found.setdefault(path, (source, None))
        return [(path, source, uid) for path, (source, uid) in list(found.items())[: 2 * log_tail.MOST_FILES]]

    def _say_tail(self, tail, by_pid):
        """The operations of the ranks here; of others in the same file their own nodes speak."""
        facts = []
        for entry in tail.entries:
            fields = dict(entry)
            host, rank = fields.pop("host"), by_pid.get(fields.pop("pid"))
            if rank is None or (host and host.partition(".")[0] != self._hostname.partition(".")[0]):
                continue
            facts.append(("collective", dict(fields, **self._head(rank, tail.source, tail.written))))
        self._say(facts)
        if tail.problem and self._ranks:
            about = self._head(self._ranks[0], tail.source, tail.written)
            self._say([("pg_status", dict(about, reason=tail.problem, size_bytes=tail.size))])

    # -- records -----------------------------------------------------------------------------------------------------

    def _head(self, rank, source, read_at):
        return {
            "capture": self._capture, "source": source, "job": rank.job, "attempt": rank.attempt, "rank": rank.rank,
            "pid": rank.pid, "start_ticks": rank.start_ticks, "read_at": read_at,
        }  # fmt: skip

    def _say_trace(self, rank, source, said, read_at, took_ns, size):
        head = dict(self._head(rank, source, read_at), version=said.version)
        about = {
            "took_ns": took_ns,
            "size_bytes": size,
            "entries_sent": len(said.entries),
            "reason": "; ".join(said.problems)[:500] or None,
        }
        groups = said.groups or [{"entries": said.held}]
        self._say([("pg_status", dict(head, **dict(group, **about))) for group in groups])
        self._say([("collective", dict(entry, **head)) for entry in said.entries])

    def _say_failure(self, rank, source, error):
        about = {"status": error.status, "reason": error.text, "try_": error.try_}
        self._say([("pg_status", dict(self._head(rank, source, None), **about))])

    def _say(self, facts):
        for at in range(0, len(facts), _BATCH):
            self._post(facts[at : at + _BATCH])


def _asks_ras(rank, ranks):
    """Whether this node asks: RAS anywhere knows the whole job, so a few ask, not all. The node of rank 0 does, and
    those whose number is a power of two, for a node that has died."""
    here = sorted(one.rank for one in ranks if one.job == rank.job and one.rank is not None)
    if not here:
        return True
    number = here[0] // len(here)
    return number & (number - 1) == 0


def _patterns(said):
    return [one for one in said if isinstance(one, str)][:16] if isinstance(said, (list, tuple)) else []
