"""The agent's own cost (CPU, memory, bytes), and the sampling interval that keeps it within its CPU budget."""

import gc
import os
import resource
import time

from ..proc.starvation import HungCalls
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from ..agent.agent import Agent
    from .base import Context, Fact

#: Seconds over which the CPU budget is evaluated; the first window, which includes start-up, is not.
WINDOW_S = 10.0
#: Share of the budget below which the cost must stay with half the interval, where that is halved.
RECOVERY = 0.85
#: Upper limit of the interval, in multiples of the configured one.
MAX_SLOWDOWN = 8


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


class CostSampler(Sampler):
    """The agent's own cost, from its process times and /proc/self/statm. Its first record ends the first full tick."""

    name = "cost"

    def __init__(self, context: "Context", agent: "Agent") -> None:
        super(CostSampler, self).__init__(context)
        self.agent = agent
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._last: tuple[float, float, int] | None = None
        self._window: tuple[float, float] | None = None
        self._has_started = False  # whether the first window is over
        self._calls = HungCalls()
        self._were_hung: list[str] = []

    def start(self) -> None:
        """Wait up to 10 s for the first tick of every sampler."""
        deadline = time.monotonic() + 10.0
        for run in self.agent.runs:
            run.ready.wait(max(0.0, deadline - time.monotonic()))
        if hasattr(gc, "freeze"):  # Python 3.7
            gc.freeze()  # what is there now stays: collections need not visit it again and again

    def tick(self, now: float) -> "Iterator[Fact]":
        """One `agent_cost` record."""
        probing_s, probing_bytes = self.context.shared.get("probing", (0.0, 0))  # reported as `clock_cost`
        gpu_s, gpu_rss = self.context.shared.get("gpu_process", (0.0, 0))
        used = _cpu_s(resource.RUSAGE_SELF) + _cpu_s(resource.RUSAGE_CHILDREN) + gpu_s - probing_s
        sent = self.agent.outbox.posted_bytes - probing_bytes
        cpu_pct = tx = None
        if self._last:
            elapsed = now - self._last[0]
            cpu_pct = max(0.0, 100.0 * (used - self._last[1]) / elapsed)
            tx = (sent - self._last[2]) / elapsed
        self._last = (now, used, sent)
        self._adjust_interval(now, used)
        self._report_unreported()
        yield (
            "agent_cost",
            {
                "cpu_pct": cpu_pct,
                "rss_bytes": self._rss() + gpu_rss,
                "tx_bytes_s": tx,
                "sample_interval_ms": int(self.context.interval_s * 1000),
                "hung": self._hung(now),
                "watch_cpu_pct": self.context.shared.get("watch_cpu_pct"),
            },
        )

    def _hung(self, now: float) -> "list[str]":
        """Names of the hung samplers; the start and end of each hang is logged once."""
        calls = self._calls.check(self.agent.runs, now, self.interval_s)
        hung = [run.sampler.name for run, _ in calls]
        if self.context.shared.get("gpu_hung") and "gpu" not in hung:
            hung.append("gpu")  # in its own process
        for name in sorted(set(hung) - set(self._were_hung)):
            text = "sampler %s hangs: its source does not respond; its metrics are stale" % name
            self.agent.log("warning", text)
        for name in sorted(set(self._were_hung) - set(hung)):
            self.agent.log("info", "sampler %s runs again" % name)
        self._were_hung = hung
        return hung

    def _report_unreported(self) -> None:
        """Log how many failures could not be logged when they happened: records are missing without a trace."""
        count = self.agent.unreported
        if count:
            text = "records are missing: %d failures of the agent could not be logged, as it had no memory" % count
            self.agent.log("warning", text, "free memory on the node, or raise the limit of the login (ulimit -v)")
            self.agent.unreported -= count

    def _rss(self) -> int:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * self._page

    def _adjust_interval(self, now: float, used: float) -> None:
        """Double the interval while over budget; halve it where the cost would stay clearly below that.

        What light stack samples cost does not depend on the interval, and they keep to a share of their own.
        """
        if self._window is None:
            self._window = (now, used)
            return
        elapsed = now - self._window[0]
        if elapsed < max(WINDOW_S, 4 * self.context.interval_s):
            return
        pct = 100.0 * (used - self._window[1]) / elapsed
        self._window = (now, used)
        if not self._has_started:
            self._has_started = True
            return
        budget = self.agent.config.get("cpu_budget_pct", 2)
        interval = self.context.interval_s
        if pct > budget and interval < self.context.configured_s * MAX_SLOWDOWN:
            self.context.interval_s = interval * 2
            self.agent.log(
                "warning",
                "the agent used %.1f %% of a core, its budget is %g %%: sampling interval raised to %g s"
                % (pct, budget, interval * 2),
                "raise [agent] cpu_budget_pct or sample_interval_ms",
            )
        elif 2.0 * pct - self._fixed_pct(pct) < RECOVERY * budget and interval > self.context.configured_s:
            self.context.interval_s = max(self.context.configured_s, interval / 2)

    def _fixed_pct(self, pct: float) -> float:
        """The part of the cost that does not change with the interval."""
        return min(pct, self.context.shared.get("watch_cpu_pct") or 0.0)
