"""A capture: the stacks of all ranks of this node, and of the processes below them, at one instant.

Beside them, where it was asked for, what communication libraries recorded (`flight`), which is read meanwhile.

Nothing is stopped and nothing is attached to: /proc is read first, of all processes as close together as possible, then
py-spy (`engines`) reads each from outside, several at a time. A stopped (T) or uninterruptible (D) process is read like
any other, which blocking engines cannot do. What cannot be read is a record with the reason; a capture ends by its
deadline.
Only the native calls of processes that were named for it are read with these stopped, after all samples (`native`).
"""

import os
import threading
import time

from ..agent import commands
from ..agent.binaries import PY_SPY
from ..clocks import stamps
from ..comms.collect import CollectivesReader, CollectivesRequest
from ..proc.activity import end_of
from ..proc.proc_state import Look, state_of
from ..proc.procfs import GONE, ProcFs
from . import native, py_spy
from .readers import Engines
from .source_lines import Sources

#: How long one process may take to be read, seconds; one that took longer is not read again in the same capture.
PROCESS_S = 3.0
MOST_SAMPLES = 1000
#: An instant further ahead than this is a mistake, or a clock that was set meanwhile.
FARTHEST_S = 60.0
#: Of the processes below one rank so many are read; they are the oldest.
MOST_CHILDREN = 64
#: So many variables may be asked for, and so many processes for their native calls.
MOST_LOCALS, MOST_NATIVE = 32, 64


class BadPlan(ValueError):
    """The request makes no sense; the text says why."""


class Plan(object):
    """What was asked: `id`; `at` and `deadline`, CLOCK_REALTIME of this node in ns; `jobs`, None for all; how often.

    `only`: pids, None for all. `locals`: names of variables. `native`: pids whose native calls are to be read as well.
    `flight`: what to read besides stacks, or None.
    """

    def __init__(self, args):
        self.id = args.get("id")
        self.at = args.get("at")
        self.jobs = args.get("jobs")
        self.samples = args.get("samples", 1)
        every_ms = args.get("every_ms", 300)
        deadline = args.get("deadline")
        self.only = args.get("only")
        self.locals = _some(args, "locals", str, MOST_LOCALS)
        self.native = _some(args, "native", int, MOST_NATIVE)
        for name, value in (("at", self.at), ("samples", self.samples), ("every_ms", every_ms), ("deadline", deadline)):
            if not isinstance(value, int) or value < 0:
                raise BadPlan("%s is %r, not a number" % (name, value))
        if not isinstance(self.id, str) or not 1 <= self.samples <= MOST_SAMPLES:
            raise BadPlan("a capture has an id and 1 to %d samples" % MOST_SAMPLES)
        self.every_ns = max(1, every_ms) * 1000000
        flight = args.get("flight")
        self.flight = CollectivesRequest(flight) if isinstance(flight, dict) else None
        now, mono = stamps.realtime_ns(), time.monotonic()
        if self.at - now > FARTHEST_S * 1e9:
            raise BadPlan("it is to begin in %d s: have the clocks been set?" % ((self.at - now) / 1e9))
        self._offset = mono - now / 1e9  # from here on no step of the clock matters
        self.deadline = self.when(deadline)

    def when(self, realtime_ns):
        """An instant of CLOCK_REALTIME as time.monotonic()."""
        return realtime_ns / 1e9 + self._offset

    def next_slot(self, number):
        """The first instant of the grid, not before that of sample `number`, which is not over; all nodes share it."""
        at = self.at + number * self.every_ns
        late = (time.monotonic() - self._offset) * 1e9 - at
        if number and late > 0:
            at += int(late // self.every_ns + 1) * self.every_ns
        return at


class Target(object):
    """One process to be read."""

    def __init__(self, ref, role):
        self.fields = {
            "job": ref.job, "attempt": ref.attempt, "rank": ref.rank,
            "pid": ref.pid, "start_ticks": ref.start_ticks, "role": role,
        }  # fmt: skip
        self.pid, self.start_ticks = ref.pid, ref.start_ticks
        self.look = self.before = None
        self.given_up = None  # the NoStack that will not change within this capture


class Capture(object):
    """One capture on this node. `post` takes the records as they come; `run` gives the counts."""

    def __init__(self, plan, seen, blobs, post, procfs=None):
        self.plan = plan
        self.targets = _targets(seen, plan) if seen is not None else []
        self._ranks = sum(1 for target in self.targets if target.fields["role"] == "rank")
        self._blob = blobs.path(PY_SPY)
        self._post = post
        self._procfs = procfs or ProcFs()
        lacking = None if self._blob else (blobs.problem(PY_SPY) or "py-spy has not arrived yet")
        self._engines = Engines(self._blob, lacking, self._procfs)
        self._lock = threading.Lock()
        self._seen_ranks = [rank for rank in seen.ranks if plan.jobs is None or rank.job in plan.jobs] if seen else []
        self._paths = {}  # frames → their number; what has one has travelled
        self._counts = {}
        self._stopped_since = 0
        self._flight = None
        self._sources = Sources(self._procfs)

    def run(self):
        """Take all samples. Gives {"ranks", "processes", "samples", "statuses", "spread_ns", "stopped_since"}."""
        spreads = []
        for number in range(self.plan.samples):
            at = self.plan.next_slot(number)
            if self.plan.when(at) > self.plan.deadline:
                break
            _sleep_until(self.plan.when(at))
            self._look_at_all()
            looks = [target.look.looked for target in self.targets if target.look]
            spreads.append(max(looks) - min(looks) if looks else 0)
            if number == self.plan.samples - 1:
                self._begin_flight()
            self._read_all(number, at)
        self._read_native(len(spreads))
        if self._flight is not None:
            self._flight.join()
        return {
            "ranks": self._ranks,
            "processes": len(self.targets),
            "samples": len(spreads),
            "statuses": self._counts,
            "spread_ns": max(spreads) if spreads else None,
            "stopped_since": self._stopped_since,
        }

    def _begin_flight(self):
        """Beside the last sample, after its look, which must be at its instant: what it tells is the newest."""
        if self.plan.flight is not None:
            ranks, deadline = self._seen_ranks, self.plan.deadline
            self._flight = CollectivesReader(self.plan.flight, self.plan.id, ranks, self._procfs, self._post, deadline)
            self._flight.start()

    def _look_at_all(self):
        for target in self.targets:
            target.before, target.look = target.look, None
            if target.given_up and target.given_up.status == "gone":
                continue
            try:
                look = Look(self._procfs, target.pid)
            except GONE:
                target.given_up = py_spy.NoStack("gone", "it ended before it was read")
            except PermissionError:
                target.given_up = py_spy.NoStack(
                    "no_permission",
                    "not even its name may be read (hidepid)",
                    'run_as = "sudo", or join hidepid\'s group',
                )
            else:
                self._take(target, look)

    def _take(self, target, look):
        if look.stat.start_ticks != target.start_ticks:
            target.given_up = py_spy.NoStack("gone", "it has ended, and its pid is another's")
            return
        target.look = look
        if look.stat.dead:
            how = "its exit code may not be read" if look.denied else end_of(look.stat, True)
            target.given_up = py_spy.NoStack("gone", "ended, and nobody has taken note: %s" % how)
        elif look.denied:
            target.given_up = py_spy.NoStack(
                "no_permission", "the kernel does not let the agent read it", py_spy.remedy(look.status.uid)
            )

    def _read_all(self, number, at):
        """Read every process, as many at a time as there are processors; ranks come first."""
        waiting = list(reversed(self.targets))
        ready = threading.Lock()

        def work():
            while True:
                with ready:
                    if not waiting:
                        return
                    target = waiting.pop()
                self._read(target, number, at)

        count = min(len(waiting), len(os.sched_getaffinity(0)))
        workers = [threading.Thread(target=work, name="gconsole-capture", daemon=True) for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.1, self.plan.deadline - time.monotonic() + 1.0))

    def _read(self, target, number, at):
        read = dict(target.fields, capture=self.plan.id, sample=number, at=at)
        if target.look:
            read.update(target.look.fields(target.before))
        try:
            threads, facts = self._threads(target)
        except py_spy.NoStack as error:
            read.update(status=error.status, reason=error.text, try_=error.try_)
            self._say(error.status, [read])
            return
        read.update(facts, status="ok", mode=py_spy.MODE)
        self._say_threads(target, read, threads)

    def _say_threads(self, target, read, threads):
        with self._lock:  # the record that has the frames goes before those that refer to it
            self._say("ok", [dict(read, **self._thread_fields(target, thread)) for thread in threads])

    def _read_native(self, number):
        """Of what was read and is at rest, the native calls of those that were named, one after the other."""
        for target in self.targets:
            if target.pid not in self.plan.native or target.given_up or not target.look or not self._blob:
                continue
            look = Look(self._procfs, target.pid) if state_of(self._procfs, target.pid, target.start_ticks) else None
            if look is None or look.stat.state not in "SR" or look.status.tracer_pid:
                continue  # nobody attaches to what is stopped, uninterruptible or debugged: it would be stuck there
            read = dict(target.fields, capture=self.plan.id, sample=number, native=True, **look.fields(None))
            began = stamps.realtime_ns()
            try:
                threads = native.threads_of(self._blob, target.pid, self.plan.deadline - time.monotonic())
            except py_spy.NoStack as error:
                read.update(status=error.status, reason=error.text, try_=error.try_)
                self._say(error.status, [read])
                continue
            finally:
                native.let_go(self._procfs, target)
            times = {"began": began, "ended": stamps.realtime_ns()}
            read.update(times, status="ok", engine=py_spy.ENGINE, mode=native.MODE)
            self._say_threads(target, read, threads)

    def _threads(self, target):
        if target.given_up:
            raise target.given_up
        left = self.plan.deadline - time.monotonic()
        if left <= 0:
            raise py_spy.NoStack("timed_out", "its turn did not come before the capture's deadline")
        began = stamps.realtime_ns()
        try:
            engine, threads = self._engines.read(target.pid, min(PROCESS_S, left), self.plan.locals)
        except py_spy.NoStack as error:
            raise self._known_better(target, error)
        facts = {"began": began, "ended": stamps.realtime_ns(), "engine": engine}
        self._check(target)
        return threads, facts

    def _known_better(self, target, error):
        """What could not be read may have ended meanwhile, and the kernel knows more of what it refuses."""
        if state_of(self._procfs, target.pid, target.start_ticks) is None:
            error = py_spy.NoStack("gone", "it ended while it was read")
        elif error.status == "no_permission":
            error = py_spy.NoStack(error.status, error.text, py_spy.remedy(target.look.status.uid))
        if error.status != "unreadable":
            target.given_up = error
        return error

    def _check(self, target):
        """Whether what was read was that process; and nobody has stopped it: we have not."""
        after = state_of(self._procfs, target.pid, target.start_ticks)
        if after is None:
            target.given_up = py_spy.NoStack("gone", "it ended while it was read")
            raise target.given_up
        if after in "Tt" and target.look.stat.state not in "Tt":
            with self._lock:
                self._stopped_since += 1

    def _thread_fields(self, target, thread):
        path = self._paths.get(thread.frames)
        fields = {
            "thread_id": thread.thread_id, "os_thread_id": thread.os_thread_id, "thread_name": thread.name,
            "active": thread.active, "gil": thread.gil, "path": path,
        }  # fmt: skip
        if path is None:
            fields["path"] = self._paths[thread.frames] = len(self._paths)
            fields["frames"] = self._sources.frames(target.pid, thread.frames)
        if self.plan.locals:
            fields["locals"] = [{"frame": at, "name": name, "value": value} for at, name, value in thread.locals]
        return fields

    def _say(self, status, records):
        self._counts[status] = self._counts.get(status, 0) + 1
        self._post([("stack", fields) for fields in records])


def capture(agent, args):
    """The verb: the counts of `Capture.run`, and the number of the last record: so the console can wait for it."""
    agent.on_end(commands.end_all)
    done = Capture(Plan(args), agent.context.shared.get("processes"), agent.blobs, agent.outbox.post).run()
    return dict(done, last_seq=agent.outbox.last_seq)


def _some(args, name, kind, most):
    values = args.get(name, [])
    if not isinstance(values, list) or len(values) > most or not all(isinstance(one, kind) for one in values):
        raise BadPlan("%s is no list of at most %d" % (name, most))
    return frozenset(values)


def _targets(seen, plan):
    jobs = plan.jobs
    ranks = [rank for rank in seen.ranks if jobs is None or rank.job in jobs]
    targets = [Target(rank, "rank") for rank in sorted(ranks, key=lambda one: (one.job, one.rank or 0, one.pid))]
    counts = {}
    for child in sorted(seen.children, key=lambda one: one.start_ticks):
        place = (child.job, child.rank)
        counts[place] = counts.get(place, 0) + 1
        if (jobs is None or child.job in jobs) and counts[place] <= MOST_CHILDREN:
            targets.append(Target(child, child.role))
    return [target for target in targets if plan.only is None or target.pid in plan.only]


def _sleep_until(instant):
    while True:
        left = instant - time.monotonic()
        if left <= 0:
            return
        time.sleep(left)
