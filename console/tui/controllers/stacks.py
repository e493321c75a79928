"""Actions on stacks: capture them, judge them, look at earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from textual.app import App

from ...analysis.stacks.fold import Shape
from ...core.control import Control
from ...core.store import Store
from ...monitor.finding_tracker import FindingTracker
from ...monitor.hang import verdict_finding
from ..dialogs.prompts import Prompt
from ..folds.verdicts import DiagnosisFold, JobDiagnosis
from ..views.base import CancelRequested, CaptureViewRequested
from .capture import Capturing, UnderWay

_THREADS = {
    "main": "main threads", "blocking": "the main threads, or those they wait for", "all": "every thread",
}  # fmt: skip
_GRANULARITIES = {
    "function": "by function", "line": "by the line of every call",
    "locals": "by the variables that were read, too (S asks for them)",
}  # fmt: skip
#: More samples than anybody watches; a recording is for that.
MOST_SAMPLES = 100


class Stacks:
    """What the app knows and does of captures; it has one. Without `findings` (a replay) verdicts are only shown."""

    def __init__(self, app: App[Any], store: Store, control: Control, findings: FindingTracker | None) -> None:
        self._app, self._findings = app, findings
        self._told: tuple[JobDiagnosis, ...] = ()
        self._judging = DiagnosisFold(store)
        self.capturing = Capturing(store, control, self._tell)

    @property
    def seen(self) -> tuple[JobDiagnosis, ...]:
        """Every job as its captures show it."""
        return self._judging.seen

    @property
    def shape(self) -> Shape:
        """How the captures are folded."""
        return self._judging.shape

    @property
    def under_way(self) -> UnderWay | None:
        return self.capturing.under_way

    @property
    def is_current(self) -> bool:
        """Whether every capture that has come is judged."""
        return self._judging.is_current

    def look(self, in_background: Callable[[Coroutine[None, None, None]], object]) -> None:
        """Judge what has come; a verdict is a finding, too."""
        self._judging.look(in_background, capturing=self.capturing.under_way is not None)
        if self._findings is not None and self.seen is not self._told:
            self._told = self.seen
            verdicts = [one.judged.verdict for one in self.seen]
            if not self.capturing.is_diagnosis:  # what one look leaves open is no finding: nobody asked for a verdict
                verdicts = [verdict for verdict in verdicts if verdict.state != "undecided"]
            self._findings.put("verdict", filter(None, map(verdict_finding, verdicts)))

    def ask_samples(self) -> None:
        """Ask how often every stack is to be read, and with which variables, and do it."""
        words = (
            f"So many samples, 0.3 s apart: 1 to {MOST_SAMPLES}. What stands still in all of them is told apart."
            " Behind the number, if you like, variables that are to be read with them: 3 step,loss"
        )
        prompt = Prompt("Read every rank's stack", words, enter="reads them", escape="leaves it", hint="3")
        self._app.push_screen(prompt, self._samples)

    def _samples(self, text: str | None) -> None:
        if text is None:
            return
        typed, *names = (text.strip() or "3").replace(",", " ").split()
        if not typed.isdecimal() or not 1 <= int(typed) <= MOST_SAMPLES:
            self._tell(f"{typed[:20]} is no number from 1 to {MOST_SAMPLES}; nothing was read", True)
            return
        self.capturing.capture(int(typed), tuple(names))

    def turn(self, wanted: CaptureViewRequested) -> None:
        """Look at another capture, or fold it in another way."""
        if wanted.turn_threads:
            self._judging.turn_threads()
            self._tell(f"folded: {_THREADS[self.shape.threads]}", False)
        if wanted.turn_granularity:
            self._judging.turn_granularity()
            self._tell(f"ranks are told apart {_GRANULARITIES[self.shape.granularity]}", False)
        if wanted.by:
            self._judging.choose(wanted.by)

    def _tell(self, text: str, is_trouble: bool) -> None:
        if self._app.is_running:
            self._app.notify(text, severity="warning" if is_trouble else "information", timeout=5, markup=False)


#: The views that say what a capture tells: of Skew's lateness, not only of who holds a job.
_OF_CAPTURES = ("hang", "skew")


class StackActions:
    """A part of the app: what its keys and its palette do with stacks."""

    stacks: Stacks
    action_show: Callable[[str], Coroutine[None, None, None]]
    _current: str  # the name of the view on the screen

    async def action_capture(self) -> None:
        """Read every rank's stack now."""
        await self._show_captures()
        self.stacks.capturing.capture(1)

    async def action_capture_many(self) -> None:
        """Ask how often, and read."""
        await self._show_captures()
        self.stacks.ask_samples()

    async def _show_captures(self) -> None:
        if self._current not in _OF_CAPTURES:
            await self.action_show("hang")

    async def action_diagnose(self) -> None:
        """Read stacks until the verdict stands."""
        await self.action_show("hang")
        self.stacks.capturing.diagnose()

    def on_capture_view_requested(self, event: CaptureViewRequested) -> None:
        self.stacks.turn(event)

    def on_cancel_requested(self, event: CancelRequested) -> None:
        self.stacks.capturing.cancel()
