"""Turns what probes found into the fleet's clock, live: records in, windows and lines of nodes back on the hub.

On a replay nobody runs this: there the windows and lines are those that were recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ..config.sections import ClockConfig
from ..core.bus import Hub, Published
from ..core.control import Control
from ..records import AgentCost, ClockBins, ClockNode, ClockSnapshot, ClockSource, ClockWindow, Log, NodeState
from .clock_jsonl import ClockLines, new_file

if TYPE_CHECKING:
    from ..analysis.clock.windows import ClockFold, ClockLimits

#: What has come is folded this often; from so many bins on in a thread (an edge's window takes some ms).
LOOK_S: Final = 0.5
MANY: Final = 200
#: Bins arrive so long after what is in them; and the first triple waits for the last node to be told.
TAIL_S: Final = 2.0
#: Nodes have to listen, to be told of each other, and to be waited for until the first bins come. What they claim
#: themselves makes a line every 10 s.
BEGIN_S: Final = 15.0

_KINDS = (AgentCost, ClockBins, ClockSnapshot, ClockSource, NodeState)


class ClockEstimator:
    """Once it is started it listens on the hub, and says windows and lines through it as soon as a window is over."""

    def __init__(self, hub: Hub, config: ClockConfig, cluster: str) -> None:
        self.config = config
        self._hub, self._cluster = hub, cluster
        self._lines: ClockLines | None = None
        self._pending: list[Published] = []
        self._fold: ClockFold | None = None
        self._task: asyncio.Task[None] | None = None
        self._failed = self._said_any = False
        self._busy = asyncio.Lock()
        self._let_go: Callable[[], None] = lambda: None  # of the lines under way
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Fold from now on, until `stop`; what comes of it is written to `output_dir`, too."""
        self._unsubscribe = self._hub.subscribe(self._take)  # not before: what comes would be kept, and never folded
        self._open_lines()
        self._task = asyncio.create_task(self._run(), name="clockwork")

    def follow(self, config: ClockConfig) -> None:
        """A newer configuration: the window under way is the first that goes by it."""
        if config.output_dir != self.config.output_dir and self._task is not None:
            self._close_lines()
            self.config = config
            self._open_lines()
        self.config = config

    async def stop(self) -> None:
        """Fold what has come; where no window was ever whole, the one under way is said as far as it goes."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._unsubscribe()
        await self.look(is_last=True)
        self._close_lines()

    async def look(self, *, is_last: bool = False) -> None:
        """Fold all that has come so far, and say what that closed."""
        async with self._busy:
            records, self._pending = self._pending, []
            try:
                if sum(isinstance(record, ClockBins) for record in records) < MANY:
                    said = self._folded(records, is_last)
                else:
                    said = await asyncio.to_thread(self._folded, records, is_last)
            except Exception:  # noqa: BLE001 - a fault of ours must be seen, and must not end the watch
                self._say_failure(traceback.format_exc(limit=-3))
                return
            if said:
                self._hub.say(*said)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    def _take(self, records: Sequence[Published]) -> None:
        self._pending += [record for record in records if isinstance(record, _KINDS)]

    def _folded(self, records: Sequence[Published], is_last: bool) -> list[ClockWindow | ClockNode]:
        if self._fold is None:
            if not any(isinstance(record, ClockBins | ClockSnapshot) for record in records):
                return []
            self._fold = self._new_fold()
        self._fold.limits = self._limits
        said = self._fold.add(records)
        for record in records:
            if isinstance(record, NodeState) and record.state == "removed":
                self._fold.forget(record.node)
        if is_last and not said and not self._said_any:
            said = self._fold.finish()
        self._said_any = self._said_any or any(isinstance(one, ClockWindow) for one in said)
        return said

    def _new_fold(self) -> ClockFold:
        from ..analysis.clock.windows import ClockFold  # numpy takes 190 ms to import

        return ClockFold(self._limits)

    @property
    def _limits(self) -> ClockLimits:
        from ..analysis.clock.windows import ClockLimits

        config = self.config
        return ClockLimits(config.probe_window_s * 1_000_000_000, int(config.max_bound_us * 1000), config.method)

    def _open_lines(self) -> None:
        if not self.config.output_dir:
            return
        try:
            self._lines = new_file(self.config.output_dir, self._cluster)
        except OSError as error:
            text = f"clock.output_dir: {self.config.output_dir}: {error.strerror or error}"
            self._hub.say(Log(source="console", severity="error", text=text))
            return
        self._let_go = self._hub.subscribe(self._lines)

    def _close_lines(self) -> None:
        lines, self._lines = self._lines, None
        if lines is None:
            return
        self._let_go()
        lines.close()
        if lines.failure is not None:
            text = f"clock.output_dir: {lines.failure.strerror}; lines after that are missing"
            self._hub.say(Log(source="console", severity="error", text=text))

    def _say_failure(self, story: str) -> None:
        if not self._failed:
            self._failed = True
            text = f"the clocks of the fleet could not be computed: {story[-1500:]}"
            self._hub.say(Log(source="console", severity="error", text=text))


async def measure(hub: Hub, control: Control, config: ClockConfig, for_s: float, tell: Callable[[str], None]) -> None:
    """Probe without pause for `for_s` seconds, and for one whole window at least; `tell` hears how far that is.

    Where no probes come (one node, or `[clock]` forbids them) it takes as long as the nodes' own claims need.
    """
    came = _Came()
    unsubscribe = hub.subscribe(came)
    control.want_clocks("measure", True)
    try:
        began = time.monotonic()
        long_s = max(for_s, float(config.probe_window_s)) + TAIL_S
        while True:
            gone_s = time.monotonic() - (began if came.first_s is None else came.first_s)
            if gone_s >= (BEGIN_S if came.first_s is None else long_s):
                return
            tell(f"clocks: {len(came.edges)} edges probed")
            await asyncio.sleep(0.1)
    finally:
        control.want_clocks("measure", False)
        unsubscribe()


class _Came:
    """Which edges have had bins, and when the first came."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.edges: set[tuple[str, str]] = set()

    def __call__(self, records: Sequence[Published]) -> None:
        for record in records:
            if isinstance(record, ClockBins):
                self.first_s = self.first_s or time.monotonic()
                self.edges.add((record.node, record.dst))
