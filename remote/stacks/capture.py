"""Captures: stacks of all ranks of this node and of the processes below them, at one instant.

No process is stopped or attached to: /proc is read first, of all processes as close together as possible, then each
stack from outside (`readers`), several at a time. This also works for stopped (T) and uninterruptible (D) processes.
A stack that cannot be read is a record with the reason; a capture ends by its deadline. On request, communication
libraries are read meanwhile (`comms.collect`), and native frames of named processes at the end, which stops these.
"""

import os
import threading
import time

from ..agent import commands
from ..agent.binaries import PY_SPY
from ..clocks import stamps
from ..comms.collect import CollectivesReader, CollectivesRequest
from ..proc.activity import ProcessState, describe_exit, state_of
from ..proc.apart import as_fields
from ..proc.memory_readers import MemoryReaders
from ..proc.procfs import GONE, ProcFs
from ..proc.threads import Thread
from . import py_spy, task_values
from .capture_targets import Target, new_children, peer_targets, targets_of
from .connections import BadEnds, connections, parse_ends
from .py_spy import StackError
from .readers import PARSERS, StackReader
from .source_lines import SourceLines
from .thread_waits import ThreadWaits, ancestors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from ..agent.agent import Agent
    from ..agent.binaries import BinaryStore
    from ..samplers.process_snapshot import ProcessSnapshot
    from .py_spy import Frame, PythonThread

    Fields = dict[str, Any]

#: Seconds. Time limit of one process; one that exceeds it is not read again in the same capture.
PROCESS_TIMEOUT_S = 3.0
MAX_SAMPLES = 1000
#: Seconds. A start further ahead is an error, or a stepped clock.
MAX_AHEAD_S = 60.0
#: Variables per request, and processes with native frames.
MAX_LOCALS, MAX_NATIVE = 32, 64
#: Processes outside of the job that ranks wait for, per request.
MAX_PEERS = 16
#: Variables to read where only the tasks of event loops are wanted.
_OF_LOOPS = frozenset(("self",))
#: Jobs of whose living ranks the end of the output is wanted, per request.
MAX_OUTPUTS = 256


class BadCaptureRequest(ValueError):
    """An invalid request; the text is the reason."""


class CaptureRequest(object):
    """`start` is CLOCK_REALTIME of this node, ns; `deadline` time.monotonic(). `jobs` and `only` (pids): None for all.
    `locals`: names of variables. `native`: pids to read with native frames. `flight`: collectives to read, or None.
    `sockets`: TCP ends whose holders are wanted. `peers`: (pid, job, attempt) of further processes to read, for which
    ranks wait. `tasks`: whether the tasks of event loops are wanted."""

    def __init__(self, args: "Fields") -> None:
        get: "Any" = args.get
        self.id: str = get("id")
        self.start: int = get("at")
        self.jobs: "list[str] | None" = get("jobs")
        self.samples: int = get("samples", 1)
        every_ms: int = get("every_ms", 300)
        deadline: int = get("deadline")
        self.only: "list[int] | None" = get("only")
        self.locals: "frozenset[str]" = _set_of(args, "locals", str, MAX_LOCALS)
        self.native: "frozenset[int]" = _set_of(args, "native", int, MAX_NATIVE)
        numbers = (("at", self.start), ("samples", self.samples), ("every_ms", every_ms), ("deadline", deadline))
        for name, value in numbers:
            if not isinstance(value, int) or value < 0:
                raise BadCaptureRequest("%s is %r, not a number" % (name, value))
        if not isinstance(self.id, str) or not 1 <= self.samples <= MAX_SAMPLES:
            raise BadCaptureRequest("a capture needs an id and 1 to %d samples" % MAX_SAMPLES)
        self.every_ns = max(1, every_ms) * 1000000
        try:
            self.sockets = parse_ends(args.get("sockets", []))
        except BadEnds as error:
            raise BadCaptureRequest(str(error))
        self.peers = _peers_of(args.get("peers", []))
        self.tasks = args.get("tasks", False) is True
        flight = args.get("flight")
        self.flight = CollectivesRequest(flight) if isinstance(flight, dict) else None
        now, mono = stamps.realtime_ns(), time.monotonic()
        if self.start - now > MAX_AHEAD_S * 1e9:
            ahead_s = (self.start - now) / 1e9
            raise BadCaptureRequest("start is %d s ahead; check whether the clocks were stepped" % ahead_s)
        self._offset = mono - now / 1e9  # from here on clock steps have no effect
        self.deadline = self.to_monotonic(deadline)

    def to_monotonic(self, realtime_ns: int) -> float:
        """A CLOCK_REALTIME as time.monotonic()."""
        return realtime_ns / 1e9 + self._offset

    def next_slot(self, number: int) -> int:
        """CLOCK_REALTIME, ns, of sample `number`, or the next future point of the grid, which all nodes share."""
        slot = self.start + number * self.every_ns
        late = (time.monotonic() - self._offset) * 1e9 - slot
        if number and late > 0:
            slot += int(late // self.every_ns + 1) * self.every_ns
        return slot


class Capture(object):
    """One capture on this node; `post` queues its records."""

    def __init__(
        self,
        request: "CaptureRequest",
        seen: "ProcessSnapshot | None",
        blobs: "BinaryStore",
        post: "Callable[[list[tuple[str, Fields]]], object]",
        procfs: "ProcFs | None" = None,
    ) -> None:
        self.request = request
        self.targets = targets_of(seen, request) if seen is not None else []
        self._ranks = sum(1 for target in self.targets if target.fields["role"] == "rank")
        self._blob = blobs.path(PY_SPY)
        self._post = post
        self._procfs = procfs or ProcFs()
        lacking = None if self._blob else (blobs.problem(PY_SPY) or "py-spy is still being uploaded")
        self._lock = threading.Lock()
        jobs, ranks = request.jobs, seen.ranks if seen is not None else ()
        # processes that may hold the other end of a descriptor that a thread waits for
        pids = [ref.pid for ref in (seen.ranks + seen.children)] if seen is not None else []
        self._pids = pids + ancestors(self._procfs, pids)
        if request.only is None:
            self.targets += new_children(self._procfs, seen.ranks if seen is not None else (), self.targets, pids)
        self.targets += peer_targets(self._procfs, request, self.targets)
        self._stacks = StackReader(self._blob, lacking, self._procfs, PARSERS)
        self._memory = MemoryReaders(self._procfs, (task_values.read,), [target.pid for target in self.targets])
        self._waits: "ThreadWaits | None" = None
        self._captured_ranks = [rank for rank in ranks if jobs is None or rank.job in jobs]
        self._paths: "dict[tuple[Frame, ...], int]" = {}  # frames → number of the path, which has been sent
        self._counts: "dict[str, int]" = {}
        self._stopped_since = 0
        self._collectives: "CollectivesReader | None" = None
        self._sources = SourceLines(self._procfs, PARSERS)

    def run(self) -> "Fields":
        """Take all samples. Returns {"ranks", "processes", "samples", "statuses", "spread_ns", "stopped_since"}."""
        try:
            return self._run()
        finally:
            self._memory.close()

    def _run(self) -> "Fields":
        request = self.request
        spreads: "list[int]" = []
        for number in range(request.samples):
            slot = request.next_slot(number)
            if request.to_monotonic(slot) > request.deadline:
                break
            _sleep_until(request.to_monotonic(slot))
            self._read_states()
            times = [target.state.looked for target in self.targets if target.state]
            spreads.append(max(times) - min(times) if times else 0)
            is_last = number == request.samples - 1
            if is_last:
                self._start_collectives()
            # in the first and the last sample: progress is the difference
            self._waits = ThreadWaits(self._procfs, self._pids, PARSERS) if is_last or number == 0 else None
            self._read_all(number, slot)
        self._post_connections()
        self._read_native(len(spreads))
        if self._collectives is not None:
            self._collectives.join()
        return {
            "ranks": self._ranks,
            "processes": len(self.targets),
            "samples": len(spreads),
            "statuses": self._counts,
            "spread_ns": max(spreads) if spreads else None,
            "stopped_since": self._stopped_since,
        }

    def _start_collectives(self) -> None:
        """Read collectives during the last sample, so that they are recent, but after its states, which are timed."""
        request = self.request
        if request.flight is not None:
            ranks, procfs = self._captured_ranks, self._procfs
            self._collectives = CollectivesReader(
                request.flight, request.id, ranks, procfs, self._post, request.deadline
            )
            self._collectives.start()

    def _post_connections(self) -> None:
        ends = self.request.sockets
        if ends:
            waits = self._waits or ThreadWaits(self._procfs, self._pids, PARSERS)
            records = connections(ends, self._pids, self._procfs, waits.holders)
            self._post([("connection", dict(record, capture=self.request.id)) for record in records])

    def _read_states(self) -> None:
        for target in self.targets:
            target.previous, target.state = target.state, None
            if target.failure and target.failure.status == "gone":
                continue
            try:
                state = ProcessState(self._procfs, target.pid)
            except GONE:
                target.failure = StackError("gone", "ended before it was read")
            except PermissionError:
                remedy = 'set run_as = "sudo", or join the group of hidepid'
                target.failure = StackError("no_permission", "/proc is mounted with hidepid", remedy)
            else:
                self._accept(target, state)

    def _accept(self, target: "Target", state: "ProcessState") -> None:
        if state.stat.start_ticks != target.start_ticks:
            target.failure = StackError("gone", "ended, and its pid was reused")
            return
        target.state = state
        if state.stat.dead:
            how = "no permission to read its exit code" if state.denied else describe_exit(state.stat, True)
            target.failure = StackError("gone", "ended, not yet reaped by its parent: %s" % how)
        elif state.denied:
            remedy = py_spy.permission_remedy(state.status.uid)
            target.failure = StackError("no_permission", "permission denied by the kernel", remedy)

    def _read_all(self, number: int, slot: int) -> None:
        """Read every process, ranks first, as many at a time as there are processors."""
        queue = list(reversed(self.targets))
        queue_lock = threading.Lock()
        unread: "list[Target]" = []

        def work() -> None:
            while True:
                with queue_lock:
                    if not queue:
                        return
                    target = queue.pop()
                unread.append(target)
                self._read_or_report(target, number, slot)
                unread.remove(target)

        count = min(len(queue), len(os.sched_getaffinity(0)))
        workers = [Thread(target=work, name="gconsole-capture") for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.1, self.request.deadline - time.monotonic() + 1.0))
        if unread and not any(worker.is_alive() for worker in workers):
            raise MemoryError("%d processes could not be read" % (len(unread) + len(queue)))

    def _read_or_report(self, target: "Target", number: int, slot: int) -> None:
        """Read one process; a failure of the agent itself becomes the reason why there is no stack of it."""
        try:
            self._read(target, number, slot)
        except Exception as error:  # noqa: BLE001 - no rank is left out without a word
            record = dict(target.fields, capture=self.request.id, sample=number, at=slot)
            text = "the agent failed: %s: %s" % (type(error).__name__, error)
            self._post_failure(record, StackError("unreadable", text))

    def _read(self, target: "Target", number: int, slot: int) -> None:
        record = dict(target.fields, capture=self.request.id, sample=number, at=slot)
        if target.state:
            record.update(target.state.fields(target.previous))
        try:
            threads, facts = self._threads(target)
        except StackError as error:
            self._post_failure(record, error)
            return
        record.update(facts, status="ok", mode=py_spy.MODE)
        waits = self._waits
        if self._wants_tasks(target) and number == self.request.samples - 1:
            self._add_tasks(target, threads)
        if waits is not None:
            began = time.monotonic() - (stamps.realtime_ns() - facts["began"]) / 1e9
            record.update(waits.cgroups.fields(target.pid))
            if target.fields["role"] == "rank":
                record.update(waits.children(target.pid))
            tids = [thread.os_thread_id or 0 for thread in threads]
            extra = waits.fields(target.pid, tids, began)
            if extra and (number or self.request.samples == 1):
                main = next((index for index, thread in enumerate(threads) if thread.name == "MainThread"), 0)
                extra[main]["native_waits"] = waits.native_waits(target.pid, tids)
            self._post_threads(target, record, threads, extra)
        else:
            self._post_threads(target, record, threads)

    def _wants_tasks(self, target: "Target") -> bool:
        """Those of peers always: the event loop of a controller polls all ranks; its tasks show for which it waits."""
        return self.request.tasks or target.fields["role"] == "peer"

    def _add_tasks(self, target: "Target", threads: "list[PythonThread]") -> None:
        """Read the tasks of every thread that runs an event loop; none where the process cannot be read so."""
        looping = [thread for thread in threads if thread.loop]
        if not looping:
            return
        leads = [[list(lead) for lead in thread.loop] for thread in looping]
        try:
            answers = self._memory.read(target.pid, task_values.read, leads, self.request.deadline)
            for thread, values in zip(looping, as_fields(answers, len(looping)) if answers else ()):  # noqa: B905
                if values is not None:
                    with self._lock:  # of the files that were read so far
                        thread.tasks = task_values.to_fields(values, lambda frames: self._encode(target.pid, frames))
        except (OSError, ValueError):
            pass

    def _encode(self, pid: int, frames: "Sequence[Frame]") -> "list[Fields]":
        return self._sources.encode_frames(pid, frames)

    def _read_native(self, number: int) -> None:
        """Read native frames of the requested processes, one after the other, if they were read and are not stopped."""
        for target in self.targets:
            if target.pid not in self.request.native or target.failure or not target.state or not self._blob:
                continue
            state = (
                ProcessState(self._procfs, target.pid)
                if state_of(self._procfs, target.pid, target.start_ticks)
                else None
            )
            if state is None or state.stat.state not in "SR" or state.status.tracer_pid:
                continue  # attaching to a stopped, uninterruptible or traced process would block
            record = dict(target.fields, capture=self.request.id, sample=number, native=True, **state.fields(None))
            began = stamps.realtime_ns()
            try:
                threads = py_spy.read_native(self._blob, target.pid, self.request.deadline - time.monotonic(), PARSERS)
            except StackError as error:
                self._post_failure(record, error)
                continue
            finally:
                py_spy.resume(self._procfs, target.pid, target.start_ticks)
            times = {"began": began, "ended": stamps.realtime_ns()}
            record.update(times, status="ok", engine=py_spy.ENGINE, mode=py_spy.NATIVE_MODE)
            self._post_threads(target, record, threads)

    def _threads(self, target: "Target") -> "tuple[list[PythonThread], Fields]":
        if target.failure:
            raise target.failure
        left = self.request.deadline - time.monotonic()
        if left <= 0:
            raise StackError("timed_out", "not read before the capture's deadline")
        began = stamps.realtime_ns()
        try:
            names = self.request.locals or (_OF_LOOPS if self._wants_tasks(target) else frozenset())
            engine, threads = self._stacks.read(target.pid, min(PROCESS_TIMEOUT_S, left), names)
        except StackError as error:
            raise self._refine(target, error)
        facts: "Fields" = {"began": began, "ended": stamps.realtime_ns(), "engine": engine}
        self._check(target)
        return threads, facts

    def _refine(self, target: "Target", error: "StackError") -> "StackError":
        """The same error, or that the process has ended, or with the remedy for lacking permission."""
        if state_of(self._procfs, target.pid, target.start_ticks) is None:
            error = StackError("gone", "ended while it was read")
        elif error.status == "no_permission" and target.state:
            error = StackError(error.status, error.text, py_spy.permission_remedy(target.state.status.uid))
        if error.status != "unreadable":
            target.failure = error
        return error

    def _check(self, target: "Target") -> None:
        """Verify that the pid was not reused, and count processes that were stopped during the read."""
        after = state_of(self._procfs, target.pid, target.start_ticks)
        if after is None:
            target.failure = StackError("gone", "ended while it was read")
            raise target.failure
        if after in "Tt" and target.state and target.state.stat.state not in "Tt":
            with self._lock:
                self._stopped_since += 1

    def _thread_fields(self, target: "Target", thread: "PythonThread") -> "Fields":
        path = self._paths.get(thread.frames)
        fields: "Fields" = {
            "thread_id": thread.thread_id, "os_thread_id": thread.os_thread_id, "thread_name": thread.name,
            "active": thread.active, "gil": thread.gil, "path": path,
        }  # fmt: skip
        if path is None:
            fields["path"] = self._paths[thread.frames] = len(self._paths)
            fields["frames"] = self._sources.encode_frames(target.pid, thread.frames)
        if thread.tasks is not None:
            fields["tasks"] = thread.tasks
        if self.request.locals:
            fields["locals"] = [{"frame": index, "name": name, "value": value} for index, name, value in thread.locals]
        return fields

    def _post_threads(
        self, target: "Target", record: "Fields", threads: "list[PythonThread]", waits: "list[Fields] | None" = None
    ) -> None:
        with self._lock:  # a record with new frames goes before those that refer to them
            stacks = [dict(record, **self._thread_fields(target, thread)) for thread in threads]
            for index, fields in enumerate(waits or ()):
                stacks[index].update(fields)
            self._post_stacks("ok", stacks)

    def _post_failure(self, record: "Fields", error: "StackError") -> None:
        record.update(status=error.status, reason=error.text, try_=error.try_)
        self._post_stacks(error.status, [record])

    def _post_stacks(self, status: str, records: "list[Fields]") -> None:
        self._counts[status] = self._counts.get(status, 0) + 1
        self._post([("stack", fields) for fields in records])


def run_capture(agent: "Agent", args: "Fields") -> "Fields":
    """Serve a request: the counts of `Capture.run`, and the number of the last record, for which the console waits."""
    agent.on_end(commands.end_all)
    outputs = _set_of(args, "outputs", str, MAX_OUTPUTS)
    if outputs:
        agent.context.shared["outputs_wanted"] = outputs
    seen = agent.context.shared.get("processes")
    counts = Capture(CaptureRequest(args), seen, agent.blobs, agent.outbox.post).run()
    return dict(counts, last_seq=agent.outbox.last_seq)


def _set_of(args: "Fields", name: str, kind: type, limit: int) -> "frozenset[Any]":
    values = args.get(name, [])
    if not isinstance(values, list) or len(values) > limit or not all(isinstance(value, kind) for value in values):
        raise BadCaptureRequest("%s is not a list of at most %d" % (name, limit))
    return frozenset(values)


def _peers_of(values: "Any") -> "list[tuple[int, str, int]]":
    """Raises BadCaptureRequest."""
    try:
        peers = [(pid, job, attempt) for pid, job, attempt in values]
    except (TypeError, ValueError):
        raise BadCaptureRequest("peers is not a list of (pid, job, attempt)")
    is_valid = all(type(pid) is int and isinstance(job, str) and type(attempt) is int for pid, job, attempt in peers)
    if not is_valid or len(peers) > MAX_PEERS:
        raise BadCaptureRequest("peers is not a list of at most %d (pid, job, attempt)" % MAX_PEERS)
    return peers


def _sleep_until(instant: float) -> None:
    while True:
        left = instant - time.monotonic()
        if left <= 0:
            return
        time.sleep(left)
