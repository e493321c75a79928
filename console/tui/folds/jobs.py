"""When the jobs are folded anew.

At 4,096 ranks that is the heaviest thing the screen asks for, so it is asked for rarely.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

from ...core.store import Store
from ...text import format
from ..models.job_ranks import JobsSummary, fold_jobs
from ..snapshot import ScreenSnapshot, SnapshotBuilder

#: The jobs are folded at most this often, in seconds; more cannot be read.
EVERY_S = 0.5
#: From this many ranks on they are folded in a thread.
MANY_RANKS = 512
#: After a fold in a thread, so many times as long as it took nothing is folded: a tenth of a core at most.
PAUSE = 9.0


class JobFold:
    """When to fold the jobs anew, and from what; the fold itself is pure and may run in a thread."""

    def __init__(self, watch: SnapshotBuilder, store: Store) -> None:
        self._watch, self._store = watch, store
        self.is_busy = False  # a thread is at it
        self._seen = -1
        self._due = 0.0
        self._ages: dict[str, str] = {}
        self._states: tuple[str, ...] | None = None  # before the first fold

    def is_wanted(self, frame: ScreenSnapshot) -> bool:
        """Whether ranks or the nodes they are on changed, and the last fold is long enough ago."""
        at = time.monotonic()
        if at < self._due:
            return False
        ages = {node.name: format.age(node.age_ns) for node in frame.fleet.nodes if not node.fresh and node.age_ns}
        states = tuple(node.word for node in frame.fleet.nodes)
        if ages == self._ages and states == self._states and not self._store.ranks.changed_since(self._seen):
            return False
        self._due, self._ages, self._states = at + EVERY_S, ages, states
        return True

    def look(self, frame: ScreenSnapshot, in_background: Callable[[Coroutine[None, None, None]], object]) -> None:
        """Fold where it is wanted; many ranks by way of `in_background`, where a thread does it."""
        if self.is_busy or not self.is_wanted(frame):
            return
        fold = self.prepare(frame)
        if len(self._store.ranks) < MANY_RANKS:
            self.accept(fold())
            return

        async def in_thread() -> None:
            began = time.monotonic()
            try:
                self.accept(await asyncio.to_thread(fold))
            finally:
                ended = time.monotonic()
                self._due = max(self._due, ended + PAUSE * (ended - began))
                self.is_busy = False

        self.is_busy = True
        in_background(in_thread())

    def is_current(self, frame: ScreenSnapshot) -> bool:
        """Whether the frame's jobs are the last fold, and nothing changed since."""
        is_new = self._seen < 0 or self._store.ranks.changed_since(self._seen)
        return not self.is_busy and frame.jobs is self._watch.jobs and not is_new

    def prepare(self, frame: ScreenSnapshot) -> Callable[[], JobsSummary]:
        """The fold of what is known now, to be called in any thread: it works on a copy of the table."""
        self._seen = self._store.version
        ranks = self._store.ranks
        records = {key: (ranks[key].rank, ranks[key].stat) for key in ranks}
        nodes = [now.state for now in frame.nodes.values() if now.state is not None]
        ages = self._ages
        return lambda: fold_jobs(records, nodes, ages)

    def accept(self, jobs: JobsSummary) -> None:
        """From the next frame on these are the jobs."""
        self._watch.jobs = jobs
