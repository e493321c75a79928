"""Places and watched variables of the ranks, read by py-spy without stopping the ranks (`--nonblocking`).

One read serves both. A name with dots is an attribute, of a variable or of any object of a class: `self.step`,
`Trainer.state.global_step`. Of variables, only the values of configured names leave the node. The CPU cost is measured,
reported in `agent_cost` and limited.
"""

import math
import resource
import time
from collections import deque

from ..agent import commands
from ..agent.binaries import PY_SPY
from ..clocks import stamps
from ..proc.apart import as_fields, as_text
from ..proc.memory_readers import MemoryReaders
from ..proc.procfs import ProcFs, printable
from ..stacks import objects, py_spy
from ..stacks.readers import PARSERS, StackReader
from ..stacks.source_lines import is_library
from .base import Sampler
from .places import PlaceTracker, SamplingEffect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Iterable, Sequence

    from ..agent.agent import Agent
    from .base import Context, Fact, Fields, ProcessKey
    from .process_snapshot import RankRef

#: Share of the agent's CPU budget for reading variables.
SHARE = 0.5
#: Share of a round over which the reads of its ranks are spread, so that it ends before the next one begins.
SPREAD = 0.8
#: Seconds until a rank that could not be read is tried again.
RETRY_S = 60.0
#: Seconds over which the cost is averaged.
WINDOW_S = 60.0
#: Seconds. Timeout for one rank, and for a tick; the remaining ranks are read in the next tick.
PROCESS_S, TICK_S = 2.0, 2.0
MAX_NAMES = 16
#: Objects of one rank in which one attribute is looked up.
MAX_OBJECTS = 32
_MAX_TEXT = 40
_CELL = "<cell at 0x"
_INT64 = 1 << 63
#: Usual names of the step counter of a training loop, in order of preference; of an attribute, its last part.
STEPS = ("step", "global_step", "iteration", "iter_num", "it")


class WatchedSampler(Sampler):
    """Posts the `place` of each rank, and publishes variables, which the process sampler adds to `rank_stat`.

    Rounds that read variables begin at whole multiples of `watch_every_s` of the wall clock, the same on all nodes, so
    that the steps of ranks can be compared; the reads of rounds without them are spread. A round that exceeds its share
    of CPU delays the next one by whole multiples.

    `context.shared["watched"]` is {(pid, start_ticks): (instant, {name: value})}; the instant is CLOCK_REALTIME, ns.
    `context.shared["watch_cpu_pct"]` is the recent cost of reading, % of one core.
    """

    name = "watched"
    waits, offset_s = True, 0.01

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(WatchedSampler, self).__init__(context)
        self._agent = agent
        self._procfs = ProcFs(context.proc)
        self._names: "tuple[str, ...]" = ()
        self._memory = MemoryReaders(self._procfs, (read_values,))
        self._places: "PlaceTracker | None" = None  # None: places are not sampled
        self._effect = SamplingEffect()
        self._sampled: "dict[ProcessKey, float]" = {}  # time.monotonic() after the last read of each rank's stack
        self._ended = False  # sampling made a job slower
        self._settings: "tuple[tuple[str, ...], float, float] | None" = None
        self._every_s = 10.0  # between two rounds; of `_parts` rounds the first reads variables
        self._parts = 1
        self._reads_variables = False  # in this round
        self._round = (0.0, 1)  # time.monotonic() at which this one began, and its ranks
        self._values_by_rank: dict[ProcessKey, tuple[int, Fields]] = {}
        self._waiting: Deque[ProcessKey] = deque()  # keys of the ranks still to be read in this round
        self._retry: dict[ProcessKey, float] = {}  # key → time.monotonic() of the next attempt
        self._due = 0.0  # start of the next round; the first one is immediate
        self._round_cost_s = 0.0
        self._costs: Deque[tuple[float, float]] = deque()  # (when, CPU seconds) of the reads of the last `WINDOW_S`
        self._began = time.monotonic()
        self._logged: set[str] = set()  # statuses that were logged

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        return min(1.0, self._every_s)

    def start(self) -> None:
        """Terminate a running py-spy when the agent ends."""
        self._agent.on_end(commands.end_all)

    def tick(self, now: float) -> "Iterable[Fact]":
        """Read the ranks of the current round; a `place` of each."""
        self._follow_settings()
        facts: "list[Fact]" = []
        if not self._names and self._places is None:
            return facts
        ranks = self._ranks()
        for table in (self._values_by_rank, self._retry):
            for key in [key for key in table if key not in ranks]:
                del table[key]
        if ranks and self._is_py_spy_settled() and (self._waiting or self._round_begins()):
            self._read_round(ranks, facts)
        self._publish_cost(time.monotonic())
        if self._names:
            self.context.shared["watched"] = dict(self._values_by_rank)
        if self._places is not None:
            self._places.retain(ranks)
            self._measure(ranks, facts)
        return facts

    def _measure(self, ranks: "dict[ProcessKey, RankRef]", facts: "list[Fact]") -> None:
        """End sampling where it makes a job slower."""
        now = time.monotonic()
        self._sampled = {key: sampled for key, sampled in self._sampled.items() if key in ranks}
        self._sampled.update(
            ((fields["pid"], fields["start_ticks"]), now) for _, fields in facts if not fields["slept"]
        )
        for key, (read, waits) in self.context.shared["processes"].waits.items() if ranks else ():
            self._effect.add(key, read, waits, self._sampled.get(key))
        self._effect.retain(ranks)
        lost = self._effect.lost()
        if lost is not None:
            self._ended, self._settings = True, None
            text = "the stacks of ranks are no longer sampled: steps took %.1f %% longer with it" % (100 * lost)
            self._agent.log("warning", text, "set [watch] sample_stacks = false to switch it off from the start")

    def _follow_settings(self) -> None:
        """Use the current names and intervals, which the console may change while the agent runs."""
        config = self._agent.config
        names = tuple(config.get("watch_locals") or ())[:MAX_NAMES]
        every_s = float(config.get("watch_every_s", 10.0))
        place_s = 0.0 if self._ended else float(config.get("watch_place_s", 0.0))
        if (names, every_s, place_s) == self._settings:
            return
        if names != self._names:
            for table in (self._values_by_rank, self._retry, self._waiting, self._logged):
                table.clear()
        if not names:
            self.context.shared["watched"] = {}
            self.context.shared.pop("watch_cpu_pct", None)
        self._settings, self._names, self._due = (names, every_s, place_s), names, 0.0
        self._parts = max(1, math.ceil(every_s / place_s)) if names and place_s else 1
        self._every_s = every_s / self._parts if names else place_s or every_s
        if not place_s:
            self._places = None
        elif self._places is None:
            self._places = PlaceTracker(self._procfs)

    def _ranks(self) -> "dict[ProcessKey, RankRef]":
        snapshot = self.context.shared.get("processes")
        return {(rank.pid, rank.start_ticks): rank for rank in snapshot.ranks} if snapshot else {}

    def _is_py_spy_settled(self) -> bool:
        """Whether py-spy has arrived, or has failed to; the first read then reports the reason."""
        return bool(self._agent.blobs.path(PY_SPY) or self._agent.blobs.problem(PY_SPY))

    def _round_begins(self) -> bool:
        """Whether a round begins within this tick; waits for its start."""
        left = self._due - time.monotonic()
        if left > self.interval_s:
            return False
        time.sleep(max(0.0, left))
        return True

    def _read_round(self, ranks: "dict[ProcessKey, RankRef]", facts: "list[Fact]") -> None:
        now = time.monotonic()
        if not self._waiting:
            self._begin_round(ranks, now)
        self._memory = MemoryReaders(self._procfs, (read_values,), [pid for pid, _ in self._waiting])
        try:
            while self._waiting and time.monotonic() < now + TICK_S and self._is_next_due():
                key = self._waiting.popleft()
                if key in ranks:
                    self._read(key, ranks[key], facts)
        finally:
            self._memory.close()
        if not self._waiting:
            share = SHARE * self._agent.config.get("cpu_budget_pct", 2) / 100.0
            rounds = max(1.0, math.ceil(self._round_cost_s / share / self._every_s))
            began = self._round[0]
            wall = time.time() - (time.monotonic() - began)  # at the beginning of this round
            self._due = began + (wall // self._every_s + rounds) * self._every_s - wall

    def _begin_round(self, ranks: "dict[ProcessKey, RankRef]", now: float) -> None:
        is_first = self._parts == 1 or round(time.time() / self._every_s) % self._parts == 0
        self._reads_variables = bool(self._names) and (is_first or not self._values_by_rank)
        if self._reads_variables or self._places is not None:
            self._waiting.extend(key for key in sorted(ranks) if self._retry.get(key, 0.0) <= now)
        self._round = (now, max(1, len(self._waiting)))
        self._round_cost_s = 0.0

    def _is_next_due(self) -> bool:
        """Whether the next rank of this round is due: without variables, the reads are spread over the round."""
        began, count = self._round
        index = count - len(self._waiting)
        return self._reads_variables or time.monotonic() >= began + SPREAD * self._every_s * index / count

    def _read(self, key: "ProcessKey", rank: "RankRef", facts: "list[Fact]") -> None:
        before, began = _children_cpu_s(), time.monotonic()
        places = self._places
        if places is not None and not self._reads_variables and places.slept(key):
            facts.append(places.sample(rank, None, None))
            return
        switches = places.switches(key[0]) if places is not None else None
        try:
            threads = self._threads(key[0])
            values = self._values(key, rank, threads) if self._reads_variables else None
        except py_spy.StackError as error:
            self._values_by_rank.pop(key, None)
            self._retry[key] = began + RETRY_S
            if places is not None:
                places.forget(key)
            self._log_once(error, rank)
        else:
            if values is not None:
                self._values_by_rank[key] = (stamps.realtime_ns(), values)
            if places is not None:
                facts.append(places.sample(rank, threads, switches))
            self._retry.pop(key, None)
        ended = time.monotonic()
        # py-spy has one thread: CPU time beyond the elapsed time belongs to a concurrent capture
        cost_s = min(_children_cpu_s() - before, ended - began)
        self._costs.append((ended, cost_s))
        self._round_cost_s += cost_s

    def _threads(self, pid: int) -> "list[py_spy.PythonThread]":
        """The threads of one process, with the variables where this round reads them. Raises StackError."""
        blobs = self._agent.blobs
        reader = StackReader(blobs.path(PY_SPY), blobs.problem(PY_SPY), self._procfs, PARSERS)
        return reader.read(pid, PROCESS_S, frozenset(self._names if self._reads_variables else ()))[1]

    def _values(self, key: "ProcessKey", rank: "RankRef", read: "list[py_spy.PythonThread]") -> "Fields":
        """The variables of one process."""
        pid = key[0]
        threads = sorted(read, key=lambda thread: thread.os_thread_id != pid)  # the main thread first
        values: Fields = {}
        if any("." in name for name in self._names) or any(_has_cells(thread) for thread in threads):
            request = [list(self._names), py_spy.ThreadValues(threads).values]
            try:
                values, problem = checked(self._memory.read(pid, read_values, request), self._names)
                if problem:
                    self._log_once(py_spy.StackError("attributes", problem), rank)
            except (OSError, ValueError) as error:
                self._log_once(py_spy.StackError("attributes", "memory of the process: %s" % error), rank)
        for name in self._names:
            for thread in threads:
                value = value_in(thread, name) if name not in values else None
                if value is not None:
                    values[name] = value
        return values

    def _log_once(self, error: "py_spy.StackError", rank: "RankRef") -> None:
        """Log each status once, not once per rank."""
        if error.status not in self._logged and error.status != "gone":
            self._logged.add(error.status)
            what = "watched variables" if self._names else "the stack"
            text = "%s of rank %s cannot be read: %s" % (what, rank.rank, error.text)
            self._agent.log("warning", text, error.try_)

    def _publish_cost(self, now: float) -> None:
        while self._costs and self._costs[0][0] < now - WINDOW_S:
            self._costs.popleft()
        elapsed = min(WINDOW_S, now - self._began)
        spent = sum(cost for _, cost in self._costs)
        self.context.shared["watch_cpu_pct"] = round(100.0 * spent / elapsed, 2) if elapsed > 0 else 0.0


def read_values(procfs: "ProcFs", pid: int, request: "Any") -> "list[Any]":
    """[{name: value}, problem or None] of [names, threads]: attributes, and variables that nested functions use, too.

    In a child, if the process is of another user; `threads` are the values of `py_spy.ThreadValues`.
    """
    names, listed = request
    threads = py_spy.ThreadValues.restored(listed).threads()
    values: "Fields" = {}
    try:
        with objects.ObjectMemory(procfs, pid) as memory:
            for thread in threads:
                _open_cells(thread, memory)
            for name in names:
                if "." in name:
                    values[name] = attribute_in(threads, memory, name)
                else:
                    having = (value_in(thread, name) for thread in threads)
                    values[name] = next((value for value in having if value is not None), None)
    except objects.Unreadable as error:
        return [values, str(error)]
    return [values, None]


def checked(answer: "Any", names: "Sequence[str]") -> "tuple[Fields, str | None]":
    """The values and the problem in an answer of `read_values`, which a child may have made up. Raises ValueError."""
    values, problem = as_fields(answer, 2)
    if not isinstance(values, dict) or not set(names).issuperset(values):
        raise ValueError("invalid answer")
    fields = {name: _checked(value) for name, value in values.items() if value is not None}
    return fields, None if problem is None else printable(as_text(problem, 300), 300)


def _checked(value: "Any") -> "int | float | str":
    if (type(value) is int and -_INT64 <= value < _INT64) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return printable(as_text(value, _MAX_TEXT), _MAX_TEXT)


def value_in(thread: "py_spy.PythonThread", name: str) -> "int | float | str | None":
    """The value of a variable in one thread, of the innermost frame of the job's own code that has it; or None.

    If only library frames have it: of the outermost one, which is the loop of a trainer. Inner frames use the same name
    for something else.
    """
    having = [(frame, value) for frame, variable, value in thread.locals if variable == name]
    own = [value for frame, value in having if not is_library(thread.frames[frame][1])]
    if own:
        return value_of(own[-1])
    return value_of(having[0][1]) if having else None


def _has_cells(thread: "py_spy.PythonThread") -> bool:
    return any(value.startswith(_CELL) for _, _, value in thread.locals)


def _open_cells(thread: "py_spy.PythonThread", memory: "objects.ObjectMemory") -> None:
    """Replace variables that nested functions use, too, which are cells, by what these hold."""
    for index, (frame, name, text) in enumerate(thread.locals):
        inside = memory.contents(int(text[len(_CELL) : -1], 16)) if text.startswith(_CELL) else None
        if inside is not None:
            thread.locals[index] = (frame, name, memory.value(inside[1], []) or text)
    for index, (frame, name, kind, address) in enumerate(thread.objects):
        inside = memory.contents(address) if kind == "cell" else None
        if inside is not None:
            thread.objects[index] = (frame, name) + inside


def attribute_in(
    threads: "Sequence[py_spy.PythonThread]", memory: "objects.ObjectMemory", name: str
) -> "int | float | str | None":
    """The value of an attribute, of the first object that has it; or None.

    The first part of its name is a variable, else a class: of any variable, whose class may be derived from it.
    Objects are tried in the order of `value_in`. An object as the value counts only if no other has a plain one.
    """
    root, _, rest = name.partition(".")
    fallback = None
    for address in _candidates(threads, memory, root)[:MAX_OBJECTS]:
        text = memory.value(address, rest.split("."))
        if text is not None and not text.startswith("<"):
            return value_of(text)
        fallback = fallback or text
    return value_of(fallback) if fallback else None


def _candidates(threads: "Sequence[py_spy.PythonThread]", memory: "objects.ObjectMemory", root: str) -> "list[int]":
    """The addresses of the variables of this name; without any, of the objects of this class, then of derived ones."""
    ordered = [entry for thread in threads for entry in _in_order(thread)]
    addresses = [address for _, variable, _, address in ordered if variable == root]
    addresses = addresses or [address for _, _, kind, address in ordered if kind.rpartition(".")[2] == root]
    if addresses:
        return _distinct(addresses)
    if not root[:1].isupper():
        return []
    is_derived: "dict[str, bool]" = {}
    for _, _, kind, address in ordered:
        if kind not in is_derived:
            is_derived[kind] = memory.is_a(address, root)
    return _distinct([address for _, _, kind, address in ordered if is_derived[kind]])


def _in_order(thread: "py_spy.PythonThread") -> "list[py_spy.Object]":
    """The objects of a thread: of the job's own frames, innermost first, then of libraries, outermost first."""
    own = [entry for entry in thread.objects if not is_library(thread.frames[entry[0]][1])]
    return own + [entry for entry in reversed(thread.objects) if is_library(thread.frames[entry[0]][1])]


def _distinct(addresses: "list[int]") -> "list[int]":
    return [address for index, address in enumerate(addresses) if address not in addresses[:index]]


def value_of(text: str) -> "int | float | str":
    """py-spy's text as a 64-bit integer or finite float if it is one, else as a short text."""
    try:
        integer = int(text)
    except ValueError:
        pass
    else:
        return integer if -_INT64 <= integer < _INT64 else printable(text, _MAX_TEXT)
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return number if math.isfinite(number) else printable(text, _MAX_TEXT)
    if text.startswith("<") and " at 0x" in text:
        kind = text.partition(" at 0x")[0][1:]
        text = objects.TENSOR if objects.is_array(kind) else "<%s>" % kind  # an object: without its address
    return printable(text.strip("\"'"), _MAX_TEXT)


def step_of(values: "Fields") -> "int | None":
    """The step number among watched variables, by the usual names; None if none is an integer."""
    for step in STEPS:
        for name, value in values.items():
            if name.rpartition(".")[2] == step and isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
