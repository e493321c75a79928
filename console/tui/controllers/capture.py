"""Captures and diagnoses that a person asks for: one at a time, with how far it is, and a way to give it up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from ...core.control import CaptureDone, CaptureOrder, Control, new_capture
from ...core.store import Store
from ...monitor.diagnose import Diagnosis, diagnose
from ...records.kinds import is_gone
from ...text.nodeset_fold import fold

_NO_RANK = "there is no rank whose stack could be read; the Ranks view says what was found"


@dataclass(frozen=True)
class UnderWay:
    """How far a capture is; `ranks` is None where nobody knows how many there are."""

    verb: str
    read: int
    ranks: int | None
    elapsed_s: float


class Capturing:
    """Captures through `control`. `tell(text, is_trouble)` says what came of it."""

    def __init__(self, store: Store, control: Control, tell: Callable[[str, bool], None]) -> None:
        self._store, self._control, self._tell = store, control, tell
        self._task: asyncio.Task[None] | None = None
        self._order: CaptureOrder | None = None
        self._verb = ""
        self._began = 0.0
        self.is_diagnosis = False  # whether the newest was taken until a verdict stands

    @property
    def under_way(self) -> UnderWay | None:
        """The one under way; None while there is none."""
        if self._task is None or self._order is None:
            return None
        now = self._store.captures.get(self._order.id)
        ranks = self._order.only and len(self._order.only)
        return UnderWay(
            self._verb, len(now.ranks) if now else 0, ranks or self._living() or None, time.monotonic() - self._began
        )

    def capture(self, samples: int, names: tuple[str, ...] = ()) -> None:
        """Read the stacks of all ranks, so many times, with the variables of these names."""
        self._start("captured", self._capture(samples, names))

    def diagnose(self) -> None:
        """Capture until the verdict stands."""
        self._start("judging: captured", self._diagnose(), is_diagnosis=True)

    def cancel(self) -> None:
        """Give it up; what has come stays."""
        if self._task is not None:
            self._task.cancel()

    def _living(self) -> int:
        return sum(not is_gone(now.rank) for now in self._store.ranks.values())

    def _start(self, verb: str, work: Coroutine[None, None, None], *, is_diagnosis: bool = False) -> None:
        if self._task is not None:
            work.close()
            self._tell("a capture is under way; Esc in the Hang view cancels it", True)
            return
        self._verb, self._began, self.is_diagnosis = verb, time.monotonic(), is_diagnosis
        self._task = asyncio.create_task(self._run(work), name="capture")

    async def _run(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            self._tell("given up; what was read stays", False)
        finally:
            self._task = self._order = None

    async def _capture(self, samples: int, names: tuple[str, ...]) -> None:
        order = CaptureOrder(new_capture(), samples=samples, locals=names)
        self._order = order
        self._told(await self._control.capture(order))

    async def _diagnose(self) -> None:
        if not await diagnose(self._store, self._control, Diagnosis(), self._take):
            self._tell(_NO_RANK, True)

    def _take(self, order: CaptureOrder) -> None:
        self._order = order

    def _told(self, done: CaptureDone) -> None:
        """Only what went wrong; what was read is on the screen."""
        if not done.failures and not any(counts.ranks for counts in done.nodes.values()):
            self._tell(_NO_RANK, True)
        elif done.failures:
            reasons = sorted({failure.text for failure in done.failures.values()})
            self._tell(f"not read: {fold(list(done.failures))}: {reasons[0]}", True)
