"""The node's clocks against each other, often; and what its time service claims, now and then."""

from ..agent import commands
from ..clocks import services, stamps
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..agent.agent import Agent
    from .base import Context, Fact, Fields

#: CLOCK_REALTIME that moves further than this against MONOTONIC_RAW between two reads was stepped: a slew of 500 ppm,
#: the most that adjtime does, makes 50 us in 100 ms, so what a slew may do is allowed for on top.
STEP_NS = 20000
_SLEW = 600e-6
#: A record goes out so often: while probes run, and otherwise.
PROBING_NS, IDLE_NS = 1000000000, 10000000000
#: While nobody wants them read, whether somebody does is looked up this often.
_UNASKED_MS = 1000


class SnapshotSampler(Sampler):
    """Bracketed reads of all clocks; the tightest of each second (or ten) is told, and every step at once.

    How often they are read is `agent.snapshot_period_ms`, which the console may change; 0: not at all.
    """

    name = "clock"

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(SnapshotSampler, self).__init__(context)
        self._agent = agent
        self._last: Fields | None = None  # the previous read
        self._told: Fields | None = None  # the read of the previous record
        self._best: Fields | None = None  # the tightest read since then
        self._reads = self._step = 0
        self._namespace: Fields = {}

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        return (self._agent.snapshot_period_ms or _UNASKED_MS) / 1000.0

    def start(self) -> None:
        """Read the time namespace."""
        self._namespace = stamps.time_namespace()

    def tick(self, now: float) -> "Iterator[Fact]":
        """Read the clocks; a `clock_snapshot` when one is due or a step occurred."""
        if not self._agent.snapshot_period_ms:
            return
        read = stamps.snapshot()
        step = self._stepped(read)
        self._last = read
        self._reads += 1
        if abs(step) > abs(self._step):
            self._step = step
        if step or self._best is None or read["width_ns"] <= self._best["width_ns"]:
            self._best = read
        if step or self._told is None or read["raw"] - self._told["raw"] >= self._every_ns():
            yield "clock_snapshot", self._record()

    def _stepped(self, read: "Fields") -> int:
        """By how much CLOCK_REALTIME was stepped since the last read; 0 for not."""
        if self._last is None:
            return 0
        moved = _real_ahead(read) - _real_ahead(self._last)
        slewed = _SLEW * (read["raw"] - self._last["raw"])
        allowed = STEP_NS + slewed + read["width_ns"] + self._last["width_ns"]
        return moved if abs(moved) > allowed else 0

    def _every_ns(self) -> int:
        return PROBING_NS if self._agent.clocks is not None and self._agent.clocks.is_probing else IDLE_NS

    def _record(self) -> "Fields":
        best, previous = self._best, self._told
        assert best is not None
        slew = None
        if previous is not None and not self._step and best["raw"] > previous["raw"]:
            slew = round(1e6 * (_real_ahead(best) - _real_ahead(previous)) / (best["raw"] - previous["raw"]), 3)
        record: Fields = dict(best, reads=self._reads, step_ns=self._step, slew_ppm=slew, **self._namespace)
        self._told, self._best = best, None
        self._reads = self._step = 0
        return record


def _real_ahead(read: "Fields") -> int:
    return int(read["real"] - read["raw"])


class ServiceSampler(Sampler):
    """What chronyd, ntpd, timesyncd or ptp4l claims, every minute: finding it means a look at every process."""

    name = "clock_source"
    finest_s = 60.0

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(ServiceSampler, self).__init__(context)
        self._agent = agent

    def start(self) -> None:
        """Terminate a running query when the agent ends."""
        self._agent.on_end(commands.end_all)

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `clock_source` record."""
        if self._agent.snapshot_period_ms:
            yield "clock_source", services.read_clock_source(self.context.proc)
