"""Finding sources for clocks and for skew, read from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..analysis.clock.findings import clock_findings as find_clocks
from ..analysis.finding import FindingDraft
from ..analysis.skew import skew_findings as find_late
from ..analysis.skew.findings import NO_SKEW
from ..core.derived import Derived
from ..core.store import Store
from .skew import prepare_skew

if TYPE_CHECKING:
    from ..config.sections import ClockConfig, SkewConfig

#: Collective entries from which on skew is computed in a thread.
MANY: Final = 2_000


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
        return list(find_clocks(lines, windows, sources, round(self.config.max_bound_us * 1000)))


class SkewFindings:
    """Findings about late ranks, recomputed when a capture, a step or a clock window arrives.

    Steps of jobs without recorded collectives are analysed only at the last evaluation: for thousands of ranks that is
    too much work for every second.
    """

    name = "skew"

    def __init__(self, store: Store, config: SkewConfig) -> None:
        self._store, self._config = store, config
        self._with_steps = False
        sources = (store.captures.table.changed_since, store.clocks.nodes.changed_since, store.steps.changed_since)
        self._skew = Derived(
            store, sources, lambda: prepare_skew(store, steps=self._with_steps), NO_SKEW, size=self._size,
            thread_above=MANY,
        )  # fmt: skip

    def follow(self, config: SkewConfig) -> None:
        """Apply a changed configuration."""
        self._config = config

    async def evaluate(self, *, is_last: bool) -> list[FindingDraft]:
        """Findings about late ranks now."""
        if not len(self._store.captures) and not self._store.steps.changed_since(-1):
            return []
        if is_last:
            self._with_steps = True
            self._skew.invalidate()
        skew = await self._skew.update()
        return list(find_late(skew.primary, skew.violations, skew.desyncs, self._config.max_ms, skew.gpus))

    def _size(self) -> float:
        entries = sum(len(capture.collectives) for capture in self._store.captures.values())
        return MANY if self._with_steps else entries
