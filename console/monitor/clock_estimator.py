"""Live clock estimation: probe records in, clock windows and node lines published on the bus.

A replay does not run it: its windows and lines are the recorded ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ..analysis.clock.findings import clock_findings
from ..analysis.finding import FindingDraft
from ..config.clock_presets import PINGS_PER_WINDOW
from ..config.sections import ClockConfig
from ..core.bus import Hub, Published
from ..core.control import Control
from ..core.pacing import Pacer
from ..core.store import Store
from ..records import AgentCost, ClockBins, ClockNode, ClockSnapshot, ClockSource, ClockWindow, Log, NodeState
from ..text.format import plural
from ..text.logs import internal_error
from .clock_jsonl import ClockLines, new_file

if TYPE_CHECKING:
    from ..analysis.clock.windows import ClockFold

#: Seconds between folds; from `MANY` records of bins in a window on a fold runs in a thread (an edge takes some ms).
REFRESH_S: Final = 0.5
MANY: Final = 200
#: Seconds. Longest window, where windows that follow each other would take more of a core than `cpu_cap_pct`, or where
#: nodes are so many that fewer than `PINGS_PER_WINDOW` of each would be in a window.
LONGEST_S: Final = 60.0
#: Seconds between folds while no node sends bins: they only close the last window.
IDLE_S: Final = 2.0
#: Seconds by which bins arrive after their probes, and by which the first window waits for the last node.
TAIL_S: Final = 2.0
#: Seconds until the first bins: nodes open sockets and receive their peers. Time service claims arrive every 10 s.
BEGIN_S: Final = 15.0

_KINDS = frozenset({AgentCost, ClockBins, ClockSnapshot, ClockSource, NodeState})


class ClockEstimator:
    """Folds probe records from `start` to `stop` and publishes windows and lines as each window closes."""

    def __init__(self, hub: Hub, config: ClockConfig, cluster: str) -> None:
        self.config = config
        self._hub, self._cluster = hub, cluster
        self._lines: ClockLines | None = None
        self._pending: list[Published] = []
        self._fold: ClockFold | None = None
        self._cost_s = self._ping_every_s = 0.0  # CPU of the newest results; interval of pings over SSH
        self._closed_s = float("-inf")  # monotonic time of the newest results
        self._pause_s: float | None = None  # from these to the first bins after them; None: no bins yet
        self._task: asyncio.Task[None] | None = None
        self._failed = self._published_any = False
        self._has_bins = True  # nodes have sent some since the last fold
        self._busy = asyncio.Lock()
        self._pacer = Pacer()  # of the newest fold in a thread
        self._unsubscribe_lines: Callable[[], None] = lambda: None  # of the current output file
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start folding; results are also written to `[clock] output_dir`."""
        self._unsubscribe = self._hub.subscribe(self._append, _KINDS)
        self._open_lines()
        self._task = asyncio.create_task(self._run(), name="clock estimator")

    def follow(self, config: ClockConfig) -> None:
        """Apply a changed configuration from the current window on."""
        if config.output_dir != self.config.output_dir and self._task is not None:
            self._close_lines()
            self.config = config
            self._open_lines()
        self.config = config

    async def stop(self) -> None:
        """Fold the rest and stop; if no window ever closed, publish the open one as it is."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._pacer.is_off = True
        async with self._busy:  # a fold in a thread goes on when its task is cancelled, and must not meet the last one
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._unsubscribe()
        await self.refresh(is_last=True)
        self._close_lines()

    async def refresh(self, *, is_last: bool = False) -> None:
        """Fold the records so far and publish the windows they close."""
        async with self._busy:
            records, self._pending = self._pending, []
            try:
                if self._open_bins(records) < MANY:
                    results = self._folded(records, is_last)
                else:
                    self._pacer = Pacer()
                    self._pacer.is_off = is_last
                    results = await asyncio.to_thread(self._folded, records, is_last, self._pacer)
            except Exception as error:  # noqa: BLE001 - published as an error
                self._publish_failure(error)
                return
            if results:
                self._hub.publish_own(*results)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S if self._has_bins else IDLE_S)
            self._has_bins = any(isinstance(record, ClockBins) for record in self._pending)
            await self.refresh()

    def _open_bins(self, records: Sequence[Published]) -> int:
        """Records of bins in the window under way, which any of these records may close."""
        held = self._fold.held if self._fold is not None else 0
        return held + sum(isinstance(record, ClockBins) for record in records)

    def _append(self, records: Sequence[Published]) -> None:
        self._pending += records

    def _folded(
        self, records: Sequence[Published], is_last: bool, pace: Pacer | None = None
    ) -> list[ClockWindow | ClockNode]:
        if self._fold is None:
            if not any(isinstance(record, ClockBins | ClockSnapshot) for record in records):
                return []
            from ..analysis.clock.windows import ClockFold, ClockLimits  # numpy takes 190 ms to import

            self._fold = ClockFold(ClockLimits())
        config = self.config
        self._fold.limits = replace(
            self._fold.limits, window_ns=round(self._window_s(records) * 1_000_000_000),
            max_bound_ns=int(config.max_bound_us * 1000), method=config.method,
        )  # fmt: skip
        self._fold.pace = pace or (lambda: None)
        began_s = time.thread_time()
        results = self._fold.add(records)
        if results:
            self._cost_s, self._closed_s, self._pause_s = time.thread_time() - began_s, time.monotonic(), None
        for record in records:
            if isinstance(record, NodeState) and record.state == "removed":
                self._fold.forget(record.node)
        if is_last and not results and not self._published_any:
            results = self._fold.finish()
        self._published_any = self._published_any or any(isinstance(record, ClockWindow) for record in results)
        return results

    def _window_s(self, records: Sequence[Published]) -> float:
        """Length of the window under way, seconds."""
        for record in records:
            if isinstance(record, ClockBins):
                if self._pause_s is None:
                    self._pause_s = time.monotonic() - self._closed_s
                if record.method == "ssh":
                    self._ping_every_s = record.cadence_us / 1e6
        by_cost_s = 100 * self._cost_s / self.config.cpu_cap_pct - (self._pause_s or 0.0)
        needed_s = max(by_cost_s, PINGS_PER_WINDOW * self._ping_every_s)
        return max(self.config.probe_window_s, min(LONGEST_S, needed_s))

    def _open_lines(self) -> None:
        if not self.config.output_dir:
            return
        try:
            self._lines = new_file(self.config.output_dir, self._cluster)
        except OSError as error:
            text = f"clock.output_dir: {self.config.output_dir}: {error.strerror or error}"
            self._hub.publish_own(Log(source="console", severity="error", text=text))
            return
        self._unsubscribe_lines = self._hub.subscribe(self._lines)

    def _close_lines(self) -> None:
        lines, self._lines = self._lines, None
        if lines is None:
            return
        self._unsubscribe_lines()
        lines.close()
        if lines.failure is not None:
            text = f"clock.output_dir: {lines.failure.strerror}; lines after that are missing"
            self._hub.publish_own(Log(source="console", severity="error", text=text))

    def _publish_failure(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            text = f"the clocks of the fleet could not be computed: {internal_error(error, 'the clock estimation')}"
            self._hub.publish_own(Log(source="console", severity="error", text=text))


async def measure(
    hub: Hub, control: Control, config: ClockConfig, for_s: float, progress: Callable[[str], None]
) -> None:
    """Probe continuously for `for_s` seconds and at least one window; `progress` receives a line of text.

    Without probes (one node, or `[clock]` forbids them) it lasts until time service claims have arrived.
    """
    probed = _ProbedEdges()
    unsubscribe = hub.subscribe(probed)
    control.request_clock_probes("measure", True)
    try:
        began = time.monotonic()
        while True:
            limit_s = max(for_s, float(config.probe_window_s), PINGS_PER_WINDOW * probed.ping_every_s) + TAIL_S
            elapsed_s = time.monotonic() - (began if probed.first_s is None else probed.first_s)
            if elapsed_s >= (BEGIN_S if probed.first_s is None else limit_s):
                return
            progress(f"clocks: {plural(len(probed.edges), 'edge')} probed")
            await asyncio.sleep(0.1)
    finally:
        control.request_clock_probes("measure", False)
        unsubscribe()


class _ProbedEdges:
    """Edges with bins so far, the arrival of the first one (monotonic seconds), and the interval of pings over SSH."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.ping_every_s = 0.0
        self.edges: set[frozenset[str]] = set()  # both ends: a later plan may probe an edge from its other one

    def __call__(self, records: Sequence[Published]) -> None:
        for record in records:
            if isinstance(record, ClockBins):
                self.first_s = self.first_s or time.monotonic()
                self.edges.add(frozenset((record.node, record.dst)))
                if record.method == "ssh":
                    self.ping_every_s = record.cadence_us / 1e6


class ClockFindings:
    """Findings from the newest clock lines, windows and time service claims."""

    name = "clocks"

    def __init__(self, store: Store, config: ClockConfig) -> None:
        self._book = store.clocks
        self.config = config  # may be replaced by a newer one

    async def evaluate(self, *, is_last: bool) -> list[FindingDraft]:
        """Clock findings now."""
        book = self._book
        lines = [book.nodes[node][-1] for node in book.nodes]
        windows = [book.windows[key][-1] for key in book.windows]
        sources = {node: book.sources[node] for node in book.sources}
        limits_ns = round(self.config.max_bound_us * 1000), round(self.config.max_offset_ms * 1_000_000)
        return list(clock_findings(lines, windows, sources, *limits_ns))
