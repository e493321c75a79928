"""Variables of the ranks' own code, by the names that were asked for: read while the job runs, which stops nobody.

py-spy reads one rank after the other (`--nonblocking`), the values that were asked for leave the node and nothing else.
What that costs is measured and told in `agent_cost`; the pace follows from it, so that it stays within its share.
"""

import math
import resource
import time
from collections import deque

from ..agent import commands
from ..agent.binaries import PY_SPY
from ..clocks import stamps
from ..proc.procfs import ProcFs, printable
from ..stacks import py_spy
from ..stacks.readers import StackReader
from ..stacks.source_lines import is_library
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, Iterable

    from ..agent.agent import Agent
    from .base import Context, Fact, Fields, ProcessKey
    from .process_snapshot import RankRef

#: Of the agent's CPU budget so much may go into this; the rest is for everything else.
SHARE = 0.5
#: One that could not be read is left alone for so long, seconds.
REST_S = 60.0
#: What the cost is told over, seconds.
WINDOW_S = 60.0
#: Reading one rank may take so long, and a tick altogether; the other ranks come in the next one.
PROCESS_S, TICK_S = 2.0, 2.0
MOST_NAMES = 16
_MOST_TEXT = 40
_INT64 = 1 << 63
#: Names that training loops have for the number of the step, the usual ones first.
STEPS = ("step", "global_step", "iteration", "iter_num", "it")


class WatchedSampler(Sampler):
    """Posts nothing itself: what it read goes into `context.shared["watched"]` and from there into `rank_stat`.

    Rounds begin at whole multiples of `every_s` of the wall clock, on all nodes alike, so that the steps of ranks can
    be compared; a round that costs more than its share makes the next one later by whole multiples.

    `context.shared["watched"]` is {(pid, start_ticks): (instant, {name: value})}; the instant is CLOCK_REALTIME, ns.
    `context.shared["watch_cpu_pct"]` is what reading cost lately, in % of one core.
    """

    name = "watched"

    def __init__(self, context: "Context", agent: "Agent", names: "Iterable[str]", every_s: float) -> None:
        super(WatchedSampler, self).__init__(context)
        self._agent = agent
        self._procfs = ProcFs(context.proc)
        self._names = tuple(names)[:MOST_NAMES]
        self._every_s = every_s
        self._known: dict[ProcessKey, tuple[int, Fields]] = {}
        self._waiting: Deque[ProcessKey] = deque()  # keys of the ranks that this round has still to read
        self._resting: dict[ProcessKey, float] = {}  # key → until when it is left alone
        self._due = 0.0  # when the next round begins; the first one at once: somebody has just opened the console
        self._round_cost_s = 0.0
        self._costs: Deque[tuple[float, float]] = deque()  # (when, CPU seconds) of the reads of the last `WINDOW_S`
        self._began = time.monotonic()
        self._told: set[str] = set()  # statuses that were logged

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        return min(1.0, self._every_s)

    def start(self) -> None:
        """Terminate a running py-spy when the agent ends."""
        self._agent.on_end(commands.end_all)
        self._tell_cost(time.monotonic())

    def tick(self, now: float) -> "Iterable[Fact]":
        """Read the ranks of the current round; yields no records."""
        ranks = self._ranks()
        for kept in (self._known, self._resting):
            for key in [key for key in kept if key not in ranks]:
                del kept[key]
        if ranks and self._has_come() and (self._waiting or self._begins()):
            self._read_round(ranks)
        self._tell_cost(time.monotonic())
        self.context.shared["watched"] = dict(self._known)
        return iter(())

    def _ranks(self) -> "dict[ProcessKey, RankRef]":
        seen = self.context.shared.get("processes")
        return {(rank.pid, rank.start_ticks): rank for rank in seen.ranks} if seen else {}

    def _has_come(self) -> bool:
        """Whether py-spy is here, or known not to come: then the first read says why."""
        return bool(self._agent.blobs.path(PY_SPY) or self._agent.blobs.problem(PY_SPY))

    def _begins(self) -> bool:
        """Whether a round begins within this tick; then it waits for that instant."""
        left = self._due - time.monotonic()
        if left > self.interval_s:
            return False
        time.sleep(max(0.0, left))
        return True

    def _read_round(self, ranks: "dict[ProcessKey, RankRef]") -> None:
        began = time.monotonic()
        if not self._waiting:
            self._waiting.extend(key for key in sorted(ranks) if self._resting.get(key, 0.0) <= began)
            self._round_cost_s = 0.0
        while self._waiting and time.monotonic() < began + TICK_S:
            key = self._waiting.popleft()
            if key in ranks:
                self._read(key, ranks[key])
        if not self._waiting:
            share = SHARE * self._agent.config.get("cpu_budget_pct", 2) / 100.0
            rounds = max(1.0, math.ceil(self._round_cost_s / share / self._every_s))
            wall = time.time()
            self._due = time.monotonic() + (wall // self._every_s + rounds) * self._every_s - wall

    def _read(self, key: "ProcessKey", rank: "RankRef") -> None:
        before, began = _children_cpu_s(), time.monotonic()
        try:
            values = self._values(key[0])
        except py_spy.StackError as error:
            self._known.pop(key, None)
            self._resting[key] = began + REST_S
            self._tell(error, rank)
        else:
            self._known[key] = (stamps.realtime_ns(), values)
            self._resting.pop(key, None)
        ended = time.monotonic()
        # py-spy has one thread: what is more than the time it took belongs to a capture beside it
        cost_s = min(_children_cpu_s() - before, ended - began)
        self._costs.append((ended, cost_s))
        self._round_cost_s += cost_s

    def _values(self, pid: int) -> "Fields":
        """The variables of one process. Raises StackError."""
        blobs = self._agent.blobs
        reader = StackReader(blobs.path(PY_SPY), blobs.problem(PY_SPY), self._procfs)
        _, threads = reader.read(pid, PROCESS_S, frozenset(self._names))
        threads.sort(key=lambda thread: thread.os_thread_id != pid)  # the main one tells, where it knows
        values: Fields = {}
        for thread in threads:
            for name in self._names:
                if name not in values:
                    value = value_in(thread, name)
                    if value is not None:
                        values[name] = value
        return values

    def _tell(self, error: "py_spy.StackError", rank: "RankRef") -> None:
        """Once a kind of trouble, not once a rank."""
        if error.status not in self._told and error.status != "gone":
            self._told.add(error.status)
            text = "watched variables of rank %s cannot be read: %s" % (rank.rank, error.text)
            self._agent.log("warning", text, error.try_)

    def _tell_cost(self, now: float) -> None:
        while self._costs and self._costs[0][0] < now - WINDOW_S:
            self._costs.popleft()
        elapsed = min(WINDOW_S, now - self._began)
        spent = sum(cost for _, cost in self._costs)
        self.context.shared["watch_cpu_pct"] = round(100.0 * spent / elapsed, 2) if elapsed > 0 else 0.0


def value_in(thread: "py_spy.PythonThread", name: str) -> "int | float | str | None":
    """The value of a variable in one thread, or None: of the job's own innermost call that has it.

    Where no call of the job's own has it, of the outermost of a library's: that is the loop of a trainer, and what is
    called further inside means something else by the same name.
    """
    having = [(frame, value) for frame, variable, value in thread.locals if variable == name]
    own = [value for frame, value in having if not is_library(thread.frames[frame][1])]
    if own:
        return value_of(own[-1])
    return value_of(having[0][1]) if having else None


def value_of(text: str) -> "int | float | str":
    """What py-spy shows, as a number where it is one: 64 bits, or finite; else as a short text."""
    try:
        integer = int(text)
    except ValueError:
        pass
    else:
        return integer if -_INT64 <= integer < _INT64 else printable(text, _MOST_TEXT)
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return number if math.isfinite(number) else printable(text, _MOST_TEXT)
    if text.startswith("<") and " at 0x" in text:
        text = text.partition(" at 0x")[0] + ">"  # an object: its address tells nothing
    return printable(text.strip("\"'"), _MOST_TEXT)


def step_of(values: "Fields") -> "int | None":
    """The number of the step among watched variables, by the usual names; None where none is a whole number."""
    for name in STEPS:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
