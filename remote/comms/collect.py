"""Reads what communication libraries recorded, of each rank and of the node, as part of a capture.

A rank without worker server, dump or log, on a node without RAS, makes no record; it costs a read of its thread names
and environment.
"""

import functools
import os
import struct
import threading
import time

from ..clocks import stamps
from ..proc import limited
from ..proc.process_reader import ProcessReader, Request
from ..proc.procfs import GONE
from ..proc.threads import Thread
from ..proc.user_files import exists
from . import flight_recorder, flight_recorder_sources, nccl_log, nccl_ras
from .answers import check_dump, check_log, check_ras
from .values import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping

    from ..proc.procfs import ProcFs
    from ..samplers.process_snapshot import RankRef
    from .flight_recorder import FlightRecorderDump
    from .nccl_log import LogTail
    from .sockets import ListeningSocket

    Facts = list[tuple[str, dict[str, Any]]]  # (kind, fields) of records

#: Seconds. Time limit of one rank, and of RAS.
RANK_TIMEOUT_S = 3.0
#: Threads that read ranks: few, because the job needs the processors.
READERS = 2
#: Records per post.
_BATCH = 256
#: Earlier operations per capture and node, and at least per rank: what was recorded since the last capture.
MAX_EARLIER, MIN_EARLIER = 4096, 64
#: (pid, start, source): the last operation up to which all that were finished have been sent, by its number.
_sent: "dict[tuple[int, int, str], int]" = {}
_MAX_SENT = 4096
VARIABLES = flight_recorder_sources.VARIABLES + nccl_ras.VARIABLES + nccl_log.VARIABLES
#: Of a dump: the last operation that was sent, and how many earlier ones are sent at most.
_SINCE = struct.Struct("=qq")
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


class CollectivesRequest(object):
    """What to read besides stacks. `pipe`: make ranks write their dump, which affects the job; `logs` and `inspector`:
    globs of files on this node."""

    def __init__(self, args: "dict[str, Any]") -> None:
        self.pipe = args.get("pipe") is True
        self.logs = _patterns(args.get("nccl_logs"))
        self.inspector = _patterns(args.get("inspector"))


class CollectivesReader(object):
    """Reads the sources of this node once, on its own threads; `post` queues the records."""

    def __init__(
        self,
        request: "CollectivesRequest",
        capture: str,
        ranks: "Iterable[RankRef]",
        procfs: "ProcFs",
        post: "Callable[[Facts], object]",
        deadline: float,
    ) -> None:
        self._request, self._capture = request, capture
        self._ranks = list(ranks)
        self._procfs, self._post, self._deadline = procfs, post, deadline
        self._processes = ProcessReader(procfs, VARIABLES, nccl_ras.LIBRARIES, always=True)
        self._hostname = os.uname().nodename
        self._lock = threading.Lock()
        self._ras: "dict[str, ListeningSocket]" = {}  # by job
        self._thread: "threading.Thread | None" = None
        self._logged: "list[tuple[RankRef, Mapping[str, str]]]" = []  # ranks whose environment names logs

    def start(self) -> None:
        """Start reading in the background."""
        self._thread = Thread(target=self._run, name="gconsole-comms")
        self._thread.start()

    def join(self) -> None:
        """Wait until everything is read, or until the deadline of the capture."""
        if self._thread is not None:
            self._thread.join(max(0.1, self._deadline - time.monotonic() + 1.0))

    def _run(self) -> None:
        queue = list(reversed(self._ranks))
        self._processes.prefetch(filter(None, map(self._request_of, self._ranks)))
        workers = [
            Thread(target=self._work, args=(queue,), name="gconsole-comms") for _ in range(min(READERS, len(queue)))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.1, self._deadline - time.monotonic() + 0.5))
        self._read_ras()
        self._read_logs()

    def _work(self, queue: "list[RankRef]") -> None:
        while True:
            with self._lock:
                if not queue:
                    return
                rank = queue.pop()
            try:
                request = self._request_of(rank)
                reading = self._processes.get(request) if request is not None else None
            except (OSError, ValueError):
                continue
            try:
                if reading is not None and reading.env is not None and reading.live is not None:
                    live = reading.live.values
                    self._read_rank(rank, reading.env if live is None else live, reading.is_mapped)
            except Exception as error:  # noqa: BLE001 - the other ranks are read
                text = "the agent failed: %s: %s" % (type(error).__name__, error)
                self._post_failure(rank, "fr_dump", SourceError("unreadable", text))

    def _request_of(self, rank: "RankRef") -> "Request | None":
        try:
            stat = self._procfs.stat(rank.pid)
        except (OSError, ValueError, IndexError):
            return None
        return Request(rank.pid, stat.ppid, stat.env_start)

    # -- a rank ------------------------------------------------------------------------------------------------------

    def _read_rank(self, rank: "RankRef", env: "Mapping[str, str]", may_use_nccl: bool) -> None:
        deadline = min(self._deadline, time.monotonic() + RANK_TIMEOUT_S)
        if not self._read_worker_server(rank, deadline):
            self._read_dump(rank, env, deadline)
        try:
            listener = nccl_ras.find_socket(self._procfs, rank.pid, env) if may_use_nccl else None
        except SourceError as error:
            self._post_failure(rank, "ras", error)
        else:
            if listener is not None and _queries_ras(rank, self._ranks):
                with self._lock:
                    self._ras.setdefault(rank.job, listener)
        if nccl_log.nccl_log_of(env, rank.pid, self._hostname) or nccl_log.inspector_folder_of(env):
            with self._lock:
                self._logged.append((rank, env))

    def _read_worker_server(self, rank: "RankRef", deadline: float) -> bool:
        """Whether the rank's worker server returned a non-empty Flight Recorder dump."""
        began = stamps.realtime_ns()
        try:
            threads = flight_recorder_sources.server_threads(self._procfs, rank.pid)
            if not threads:
                return False
            if self._procfs.stat(rank.pid).state in "Tt":
                raise SourceError("timed_out", "the rank is stopped, so its worker server cannot respond")
            listeners = flight_recorder_sources.find_sockets(self._procfs, rank.pid, threads)
            data = flight_recorder_sources.read_dumps(self._procfs, listeners, deadline)
            dumps = [(self._parse(rank, "worker_server", dump, deadline), len(dump)) for dump in data]
        except GONE + (PermissionError,):
            return False
        except SourceError as error:
            self._post_failure(rank, "worker_server", error)
            return False
        except ValueError as error:
            self._post_failure(rank, "worker_server", SourceError("unreadable", "its worker server: %s" % error))
            return False
        dumps = [(dump, size) for dump, size in dumps if dump.held or dump.groups]
        for dump, size in dumps:
            self._post_dump(rank, "worker_server", dump, began, stamps.realtime_ns() - began, size)
        if not dumps:
            remedy = "start the job with TORCH_FR_BUFFER_SIZE=2000"
            off = SourceError("refused", "its worker server has no operations", remedy)
            self._post_failure(rank, "worker_server", off)
        return bool(dumps)

    def _read_dump(self, rank: "RankRef", env: "Mapping[str, str]", deadline: float) -> None:
        number = rank.rank
        if number is None:
            return
        began = time.monotonic()
        try:
            uid = self._procfs.status(rank.pid).uid
            dump = None
            if self._request.pipe and env.get(flight_recorder_sources.PIPE):
                dump = flight_recorder_sources.request_dump(self._procfs, rank.pid, uid, number, env, deadline)
            started = self._started_ns(rank)
            for path in flight_recorder_sources.paths(env, number):
                dump = dump or flight_recorder_sources.read_file(self._procfs, rank.pid, uid, path, started)
            if dump is not None:
                parsed = self._parse(rank, "fr_dump", dump.data, deadline)
                took = int((time.monotonic() - began) * 1e9)
                self._post_dump(rank, "fr_dump", parsed, dump.written, took, len(dump.data))
        except GONE:
            return
        except SourceError as error:
            if error.status != "stale":  # of a previous job
                self._post_failure(rank, "fr_dump", error)
        except ValueError as error:
            self._post_failure(rank, "fr_dump", SourceError("unreadable", "its dump: %s" % error))

    def _parse(self, rank: "RankRef", source: str, data: bytes, deadline: float) -> "FlightRecorderDump":
        """A dump, of whose earlier operations only those that will be sent. Raises ValueError."""
        last = _sent.get((rank.pid, rank.start_ticks, source), -1)
        data = _SINCE.pack(last, self._most_earlier) + data
        uid = self._uid(rank.pid)
        return check_dump(_PARSERS.parse(uid, _with_unsent, flight_recorder.FlightRecorderDump, data, deadline))

    @property
    def _most_earlier(self) -> int:
        """Earlier operations that are sent of one rank."""
        return max(MIN_EARLIER, MAX_EARLIER // max(1, len(self._ranks)))

    def _uid(self, pid: "int | None") -> "int | None":
        """The user whose child parses what a process wrote."""
        try:
            return None if pid is None else self._procfs.status(pid).uid
        except (OSError, ValueError):
            return None

    def _started_ns(self, rank: "RankRef") -> "int | None":
        """CLOCK_REALTIME of the rank's start, ns; None if the uptime cannot be read."""
        up_s = self._procfs.uptime_s()
        return None if up_s is None else stamps.realtime_ns() - int(up_s * 1e9) + rank.start_ticks * _TICK_NS

    # -- the node ----------------------------------------------------------------------------------------------------

    def _read_ras(self) -> None:
        for job, listener in sorted(self._ras.items(), key=lambda item: item[0]):
            ranks = [rank for rank in self._ranks if rank.job == job]
            pids = {rank.ns_pid or rank.pid for rank in ranks}
            began = stamps.realtime_ns()
            deadline = min(self._deadline, time.monotonic() + RANK_TIMEOUT_S)
            try:
                parser = functools.partial(self._parse_ras, self._uid(listener.pid))
                status, size = nccl_ras.query_status(self._procfs, listener, deadline, pids, parser)
            except SourceError as error:
                self._post_failure(ranks[0], "ras", error)
                continue
            about = {
                "capture": self._capture, "source": "ras", "job": job, "attempt": ranks[0].attempt, "rank": None,
                "version": status.version, "read_at": began, "took_ns": stamps.realtime_ns() - began,
                "size_bytes": size, "reason": "; ".join(status.problems)[:500] or None,
            }  # fmt: skip
            self._post_batches([("pg_status", dict(about, **group)) for group in status.groups])

    def _parse_ras(self, uid: "int | None", data: bytes) -> "nccl_ras.RasStatus":
        return check_ras(_PARSERS.parse(uid, _status_of_ras, nccl_ras.RasStatus, data, self._deadline))

    def _read_logs(self) -> None:
        by_pid: "dict[int, RankRef]" = {}
        for rank in self._ranks:
            by_pid[rank.pid] = by_pid[rank.ns_pid or rank.pid] = rank
        for pid, path, source, uid in self._log_paths():
            if time.monotonic() > self._deadline:
                return
            try:
                file = nccl_log.read_tail(path) if pid is None else nccl_log.read_log_of(self._procfs, pid, path, uid)
                function = _entries_of_inspector if source == "inspector" else _entries_of_log
                text = file.text_for(source)
                log = _PARSERS.parse(self._uid(pid), function, nccl_log.LogEntries, text, self._deadline)
                self._post_tail(nccl_log.LogTail(source, check_log(log), file), by_pid)
            except ValueError as error:
                problem = SourceError("unreadable", "%s: %s" % (path, error))
                if self._ranks:
                    self._post_failure(self._ranks[0], source, problem)
            except SourceError as error:
                if self._ranks:
                    self._post_failure(self._ranks[0], source, error)

    def _log_paths(self) -> "list[tuple[int | None, str, str, int | None]]":
        """(pid of the rank that names it or None, path, source, required owner or None) of every log."""
        logs: "dict[tuple[int | None, str], tuple[str, int | None]]" = {}
        for rank, env in self._logged:
            try:
                uid = self._procfs.status(rank.pid).uid
            except (OSError, ValueError):
                continue
            inner = rank.ns_pid or rank.pid
            log, folder = nccl_log.nccl_log_of(env, inner, self._hostname), nccl_log.inspector_folder_of(env)
            if log and exists(self._procfs, rank.pid, log):
                logs.setdefault((rank.pid, log), ("nccl_log", uid))
            for path in nccl_log.inspector_logs(self._procfs, rank.pid, inner, folder) if folder else ():
                logs.setdefault((rank.pid, path), ("inspector", uid))
        for source, patterns in (("nccl_log", self._request.logs), ("inspector", self._request.inspector)):
            for pattern in patterns:
                for path in nccl_log.matches(pattern):
                    logs.setdefault((None, path), (source, None))
        most = 2 * nccl_log.MAX_FILES
        return [(pid, path, source, uid) for (pid, path), (source, uid) in list(logs.items())[:most]]

    def _post_tail(self, tail: "LogTail", by_pid: "dict[int, RankRef]") -> None:
        """Post the operations of this node's ranks; other nodes read their own from a shared file."""
        facts: "Facts" = []
        for entry in tail.entries:
            fields = dict(entry)
            host, rank = fields.pop("host"), by_pid.get(fields.pop("pid"))
            if rank is None or (host and host.partition(".")[0] != self._hostname.partition(".")[0]):
                continue
            facts.append(("collective", dict(fields, **self._head(rank, tail.source, tail.written))))
        self._post_batches(facts)
        if tail.problem and self._ranks:
            about = self._head(self._ranks[0], tail.source, tail.written)
            self._post_batches([("pg_status", dict(about, reason=tail.problem, size_bytes=tail.size))])

    # -- records -----------------------------------------------------------------------------------------------------

    def _head(self, rank: "RankRef", source: str, read_at: "int | None") -> "dict[str, Any]":
        return {
            "capture": self._capture, "source": source, "job": rank.job, "attempt": rank.attempt, "rank": rank.rank,
            "pid": rank.pid, "start_ticks": rank.start_ticks, "read_at": read_at,
        }  # fmt: skip

    def _post_dump(
        self, rank: "RankRef", source: str, dump: "FlightRecorderDump", read_at: int, took_ns: int, size: int
    ) -> None:
        head = dict(self._head(rank, source, read_at), version=dump.version)
        earlier = self._unsent(rank, source, dump)
        about = {
            "took_ns": took_ns,
            "size_bytes": size,
            "entries_sent": len(dump.entries) + len(earlier),
            "reason": "; ".join(dump.problems)[:500] or None,
        }
        groups = dump.groups or [{"entries": dump.held}]
        self._post_batches([("pg_status", dict(group, **dict(head, **about))) for group in groups])
        self._post_batches([("collective", dict(entry, **head)) for entry in dump.entries])
        head.update(frames=None, is_earlier=True)
        self._post_batches([("collective", dict(entry, **head)) for entry in earlier])

    def _unsent(self, rank: "RankRef", source: str, dump: "FlightRecorderDump") -> "list[dict[str, Any]]":
        """The newest earlier operations that no capture has sent as finished ones."""
        key = (rank.pid, rank.start_ticks, source)
        last, most = _sent.get(key, -1), self._most_earlier
        unsent = _after(dump.earlier, last)
        numbers = [entry["record_id"] for entry in dump.entries if entry["record_id"] is not None]
        pending = [
            entry["record_id"] for entry in dump.entries if entry["record_id"] is not None and not entry["retired"]
        ]
        if numbers:
            if len(_sent) >= _MAX_SENT:
                _sent.clear()
            _sent[key] = min(pending) - 1 if pending else max(numbers)
        return unsent[-most:]

    def _post_failure(self, rank: "RankRef", source: str, error: "SourceError") -> None:
        about = {"status": error.status, "reason": error.text, "try_": error.try_}
        self._post_batches([("pg_status", dict(self._head(rank, source, None), **about))])

    def _post_batches(self, facts: "Facts") -> None:
        for start in range(0, len(facts), _BATCH):
            self._post(facts[start : start + _BATCH])


def _queries_ras(rank: "RankRef", ranks: "Iterable[RankRef]") -> bool:
    """Whether this node queries RAS, which has the whole job anywhere: the node of rank 0 does, and, should it have
    failed, the nodes whose number is a power of two."""
    local = sorted(other.rank for other in ranks if other.job == rank.job and other.rank is not None)
    if not local:
        return True
    number = local[0] // len(local)
    return number & (number - 1) == 0


def _patterns(value: "Any") -> "list[str]":
    return [item for item in value if isinstance(item, str)][:16] if isinstance(value, (list, tuple)) else []


# -- in children -------------------------------------------------------------------------------------------------------


def _with_unsent(data: bytes, deadline: float) -> "FlightRecorderDump":
    """The dump behind two numbers: the last operation that was sent, and how many earlier ones are sent at most."""
    last, most = _SINCE.unpack_from(data)
    dump = flight_recorder.parse(data[_SINCE.size :], deadline)
    dump.earlier = [dict(entry, frames=None) for entry in _after(dump.earlier, last)[-most:]]
    return dump


def _after(entries: "list[dict[str, Any]]", last: int) -> "list[dict[str, Any]]":
    return [entry for entry in entries if entry["record_id"] is not None and entry["record_id"] > last]


def _status_of_ras(data: bytes, _: float) -> "nccl_ras.RasStatus":
    return nccl_ras.parse(data)


def _entries_of_log(data: bytes, _: float) -> "nccl_log.LogEntries":
    return nccl_log.parse_log(data)


def _entries_of_inspector(data: bytes, _: float) -> "nccl_log.LogEntries":
    return nccl_log.parse_inspector(data)


#: Of input of each user.
_PARSERS = limited.Parsers((_with_unsent, _status_of_ras, _entries_of_log, _entries_of_inspector))
