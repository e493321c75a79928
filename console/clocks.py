"""The common clock as it goes on: folds what the nodes say of their clocks, says each window's result, finds faults."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .analysis.clock.found import find
from .analysis.found import Found
from .hub import Hub, Published
from .records import ClockBins, ClockNode, ClockSnapshot, ClockSource, ClockWindow, NodeState

if TYPE_CHECKING:
    from .analysis.clock.windows import ClockFold
    from .config.model import ClockConfig

#: From so many records of bins on a look is made in a thread: an edge's window takes about a millisecond.
MANY: Final = 64


class Clocks:
    """Listens on the hub and says `clock_window` and `clock_node`; a source of findings (`Findings`).

    Not for a replay: there the windows are those that were recorded.
    """

    name = "clocks"

    def __init__(self, hub: Hub, config: ClockConfig) -> None:
        self._hub, self._config = hub, config
        self._max_bound_ns = round(config.max_bound_us * 1000)
        self._fold: ClockFold | None = None  # until the first record: numpy costs 190 ms to import
        self._pending: list[Published] = []
        self._lines: dict[str, ClockNode] = {}
        self._windows: dict[tuple[str, str], ClockWindow] = {}
        self._sources: dict[str, ClockSource] = {}
        hub.subscribe(self._take)

    def _take(self, records: Sequence[Published]) -> None:
        self._pending += [one for one in records if isinstance(one, _HEARD)]

    async def found(self, *, is_last: bool) -> list[Found]:
        """Fold what has come, say what that gave, and what is wrong now. The last time what is under way is closed."""
        records, self._pending = self._pending, []
        if sum(isinstance(one, ClockBins) for one in records) < MANY:
            said = self._folded(records, is_last)
        else:
            said = await asyncio.to_thread(self._folded, records, is_last)
        if said:
            self._hub.say(*said)
        return list(find(self._lines.values(), self._windows.values(), self._sources, self._max_bound_ns))

    def _folded(self, records: Sequence[Published], is_last: bool) -> list[ClockWindow | ClockNode]:
        for record in records:
            if isinstance(record, ClockSource):
                self._sources[record.node] = record
            elif isinstance(record, NodeState) and record.state == "removed":
                self._forget(record.node)
        if self._fold is None:
            if not any(isinstance(one, (ClockBins, ClockSnapshot)) for one in records):
                return []
            self._fold = self._new_fold()
        said = self._fold.add(records)
        if is_last:
            said += self._fold.finish()
        for one in said:
            if isinstance(one, ClockNode):
                self._lines[one.node] = one
            else:
                self._windows[one.node, one.dst] = one
        return said

    def _new_fold(self) -> ClockFold:
        from .analysis.clock.windows import ClockFold, Limits

        window_ns = self._config.probe_window_s * 1_000_000_000
        return ClockFold(Limits(window_ns, self._max_bound_ns, self._config.method))

    def _forget(self, node: str) -> None:
        if self._fold is not None:
            self._fold.forget(node)
        self._lines.pop(node, None)
        self._sources.pop(node, None)
        for key in [key for key in self._windows if node in key]:
            del self._windows[key]


_HEARD: Final = (ClockBins, ClockSnapshot, ClockSource, NodeState)
