"""What is wrong with the fleet's clocks and with who is late on them: two sources of findings, read from the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ..analysis.clock.findings import clock_findings as find_clocks
from ..analysis.finding import FindingDraft
from ..analysis.skew import skew_findings as find_late
from ..core.store import Store
from .skew import prepare_skew

if TYPE_CHECKING:
    from ..config.sections import ClockConfig, SkewConfig

#: From so many entries of collectives on a look is made in a thread.
MANY: Final = 2_000


class ClockFindings:
    """A source of findings (`Findings`): what the newest lines, windows and claims say is wrong with a clock."""

    name = "clocks"

    def __init__(self, store: Store, config: ClockConfig) -> None:
        self._book = store.clocks
        self.config = config  # may be replaced by a newer one

    async def found(self, *, is_last: bool) -> list[FindingDraft]:
        """What is wrong now."""
        book = self._book
        lines = [book.nodes[node][-1] for node in book.nodes]
        windows = [book.windows[key][-1] for key in book.windows]
        sources = {node: book.sources[node] for node in book.sources}
        return list(find_clocks(lines, windows, sources, round(self.config.max_bound_us * 1000)))


class SkewFindings:
    """A source of findings (`Findings`): who is late. It asks again when a capture, a step or a window has come.

    At the end it asks once more, and judges steps, too, of jobs whose collectives nobody recorded: of thousands of
    ranks that is too much work to do each second.
    """

    name = "skew"

    def __init__(self, store: Store, config: SkewConfig) -> None:
        self._store, self._config = store, config
        self._known = -1
        self._last: list[FindingDraft] = []

    def follow(self, config: SkewConfig) -> None:
        """A newer configuration: who is late is asked again."""
        if config != self._config:
            self._config, self._known = config, -1

    async def found(self, *, is_last: bool) -> list[FindingDraft]:
        """What is wrong now."""
        store = self._store
        if not len(store.captures) and not store.steps.changed_since(-1):
            return []
        tables = (store.captures.table, store.clocks.nodes)
        changed = any(table.changed_since(self._known) for table in (*tables, store.steps))
        if not changed and not is_last:
            return self._last
        self._known = store.version
        work = prepare_skew(store, steps=is_last)
        entries = sum(len(capture.collectives) for capture in store.captures.values())
        seen = work() if entries < MANY and not is_last else await asyncio.to_thread(work)
        self._last = list(find_late(seen.primary, seen.violations, seen.desyncs, self._config.max_ms, seen.gpus))
        return self._last
