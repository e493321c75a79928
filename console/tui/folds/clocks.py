"""When clocks and lateness are folded anew for the screen: rarely, and in a thread where there is much of it.

Lateness is folded only while somebody looks at it: of thousands of ranks it is much work each second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from ...core.store import Store
from ...monitor.skew import NO_SKEW, SkewSnapshot, prepare_skew
from ..views.clocks.model import ClockSummary, clock_rows

#: At most this often, in seconds; more cannot be read.
CLOCKS_EVERY_S: Final = 1.0
SKEW_EVERY_S: Final = 2.0
#: From so many entries of collectives on lateness is folded in a thread.
MANY: Final = 2_000


@dataclass(frozen=True)
class ClockSkewState:
    """Clocks and lateness at one look; nothing in it changes any more."""

    clocks: ClockSummary
    skew: SkewSnapshot


#: Before the first look.
EMPTY_CLOCK_SKEW: Final = ClockSkewState(ClockSummary(), NO_SKEW)


class ClockSkewFold:
    """The newest look in `seen`."""

    def __init__(self, store: Store) -> None:
        self.seen = EMPTY_CLOCK_SKEW
        self.is_busy = False
        self._store = store
        self._clocks_at = self._skew_at = -1  # versions of the store up to which they are folded
        self._clocks_due = self._skew_due = 0.0

    def look(self, now: int, late: bool, in_background: Callable[[Coroutine[None, None, None]], object]) -> None:
        """Fold what changed; lateness only where `late` says that it is shown.

        `now` is the instant of the console's clock that ages are told from.
        """
        at = time.monotonic()
        if at >= self._clocks_due and self._clocks_changed(self._clocks_at):
            self._clocks_due, self._clocks_at = at + CLOCKS_EVERY_S, self._store.version
            self.seen = ClockSkewState(clock_rows(self._store, now), self.seen.skew)
        if late and not self.is_busy and at >= self._skew_due and self._is_late_news:
            self._skew_due, self._skew_at = at + SKEW_EVERY_S, self._store.version
            self._fold_skew(in_background)

    def is_current(self, late: bool) -> bool:
        """Whether nothing that is shown waits to be folded."""
        return not (self.is_busy or self._clocks_changed(self._clocks_at) or (late and self._is_late_news))

    def _clocks_changed(self, since: int) -> bool:
        book = self._store.clocks
        return bool(book.nodes.changed_since(since) or book.windows.changed_since(since)
                    or book.sources.changed_since(since) or book.costs.changed_since(since)
                    or book.gpus.changed_since(since))  # fmt: skip

    @property
    def _is_late_news(self) -> bool:
        store = self._store
        since = self._skew_at
        captured = store.captures.table.changed_since(since) or store.steps.changed_since(since)
        return bool(captured) or (len(store.captures) > 0 and bool(store.clocks.nodes.changed_since(since)))

    def _fold_skew(self, in_background: Callable[[Coroutine[None, None, None]], object]) -> None:
        work = prepare_skew(self._store)
        if sum(len(capture.collectives) for capture in self._store.captures.values()) < MANY:
            self.seen = ClockSkewState(self.seen.clocks, work())
            return

        async def in_thread() -> None:
            try:
                skew = await asyncio.to_thread(work)
                self.seen = ClockSkewState(self.seen.clocks, skew)
            finally:
                self.is_busy = False

        self.is_busy = True
        in_background(in_thread())
