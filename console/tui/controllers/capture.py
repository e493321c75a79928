"""Stack captures and diagnoses: run one at a time, report its progress, cancel it, and fold what was captured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

import msgspec

from ...analysis.stacks.fold import Shape
from ...analysis.stacks.profiles import compare
from ...analysis.stalls import Suspicion
from ...core.control import CaptureRequest, CaptureResult, Control, new_capture
from ...core.store import Store
from ...monitor.crash import Crash, crash_fold, crashes_of, is_outdated, is_settled
from ...monitor.finding_tracker import FindingTracker
from ...monitor.hang import Diagnosis, diagnose, verdict_finding
from ...monitor.stall_watch import StallWatch
from ...monitor.why import FOR_S, sample_ranks, sides_of
from ...present.why import NO_STRAGGLER, why_text
from ...records.kinds import is_gone
from ...text.nodeset_fold import fold
from ...text.sanitize import printable
from ..derived import DiagnosisFold, JobDiagnosis
from ..dialogs.dialog import LinesDialog
from ..dialogs.prompts import Prompt
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

_DIED = "no rank lives; the verdict shows why the job died"
_NO_RANK = "no rank with a readable stack; see the Ranks view"
_THREADS = {"main": "main", "blocking": "main, or the thread it waits for", "all": "all"}
_GRANULARITIES = {
    "function": "function", "line": "line of every call", "locals": "captured variables (S captures them)",
}  # fmt: skip
#: More samples than anybody reads; a recording serves that purpose.
MOST_SAMPLES = 100
#: Views that show captures: Skew measures lateness from them.
_CAPTURE_VIEWS = ("hang", "skew")


class CaptureProgress(msgspec.Struct, frozen=True):
    """Progress of the running capture; `ranks` is None while their number is unknown."""

    verb: str
    read: int
    ranks: int | None
    elapsed_s: float


class CaptureRunner:
    """Runs one capture or diagnosis at a time; `report(text, is_problem)` shows its outcome."""

    def __init__(self, store: Store, control: Control, report: Callable[[str, bool], None]) -> None:
        self._store, self._control, self._report = store, control, report
        self._task: asyncio.Task[None] | None = None
        self._order: CaptureRequest | None = None
        self._verb = ""
        self._began = 0.0
        self.is_diagnosis = False  # whether the newest one is a diagnosis

    @property
    def is_busy(self) -> bool:
        """Whether a capture or diagnosis runs."""
        return self._task is not None

    @property
    def progress(self) -> CaptureProgress | None:
        """Progress of the running capture; None while none runs."""
        if self._task is None or self._order is None:
            return None
        capture = self._store.captures.get(self._order.id)
        living = sum(not is_gone(now.rank) for now in self._store.ranks.values())
        ranks = (self._order.only and len(self._order.only)) or living or None
        return CaptureProgress(self._verb, len(capture.ranks) if capture else 0, ranks, time.monotonic() - self._began)

    def capture(self, samples: int, names: tuple[str, ...] = ()) -> None:
        """Read the stacks of all ranks `samples` times, with the values of the variables in `names`."""
        self._start("captured", self._capture(samples, names))

    def diagnose(self, suspected: tuple[str, ...] | None = None) -> None:
        """Capture until the verdict is final: of all jobs, or, automatically, of the `suspected` ones."""
        self._start("diagnosing: captured", self._diagnose(suspected), is_diagnosis=suspected is None)

    def cancel(self) -> None:
        """Cancel the running capture; what was read is kept."""
        if self._task is not None:
            self._task.cancel()

    def _start(self, verb: str, work: Coroutine[None, None, None], *, is_diagnosis: bool = False) -> None:
        if self._task is not None:
            work.close()
            self._report("a capture is already running; Esc in the Hang view cancels it", True)
            return
        self._verb, self._began, self.is_diagnosis = verb, time.monotonic(), is_diagnosis
        self._task = asyncio.create_task(self._run(work), name="capture")

    async def _run(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            self._report("cancelled; partial results kept", False)
        finally:
            self._task = self._order = None

    async def _capture(self, samples: int, names: tuple[str, ...]) -> None:
        order = CaptureRequest(new_capture(), samples=samples, locals=names)
        self._set_order(order)
        self._report_failures(await self._control.capture(order))

    async def _diagnose(self, suspected: tuple[str, ...] | None) -> None:
        options = Diagnosis(jobs=suspected, is_automatic=suspected is not None)
        if not await diagnose(self._store, self._control, options, self._set_order) and suspected is None:
            has_died = bool(crashes_of(self._store))
            self._report(_DIED if has_died else _NO_RANK, not has_died)

    def _set_order(self, order: CaptureRequest) -> None:
        self._order = order

    def _report_failures(self, done: CaptureResult) -> None:
        if not done.failures and not any(counts.ranks for counts in done.nodes.values()):
            self._report(_NO_RANK, True)
        elif done.failures:
            reasons = sorted({failure.text for failure in done.failures.values()})
            self._report(f"not captured: {fold(list(done.failures))}: {reasons[0]}", True)


class CaptureController(Controller):
    """Captures and their verdicts, published as `findings` unless None. A replay (`live` false) captures nothing."""

    def __init__(
        self, app: ConsoleApp, store: Store, control: Control, findings: FindingTracker | None, *, live: bool,
        stalls: StallWatch | None = None,
    ) -> None:  # fmt: skip
        self._app, self._control, self._findings, self._live = app, control, findings, live
        self._stalls = stalls
        self._suspected: tuple[Suspicion, ...] = ()  # jobs of the automatic diagnosis that runs
        self.use_store(store)

    def use_store(self, store: Store) -> None:
        """Show the captures of this store from now on."""
        self._store = store
        self._published: tuple[JobDiagnosis, ...] = ()
        self._shown_crashes: tuple[Crash, ...] = ()
        self._diagnoses = DiagnosisFold(store)
        self._crashes = crash_fold(store)
        self.runner = CaptureRunner(store, self._control, self._report)

    @property
    def diagnoses(self) -> tuple[JobDiagnosis, ...]:
        """Every job as its captures show it."""
        return self._diagnoses.value

    @property
    def crashes(self) -> tuple[Crash, ...]:
        """The jobs that died, as soon as the reports about their end have arrived."""
        now_rx, crashes = self._store.newest_rx, self._crashes.value
        shown = tuple(
            crash for crash in crashes if not self._live or (
                is_settled(crash.course, now_rx) and not is_outdated(crash.course, now_rx)
            )
        )  # fmt: skip
        if shown != self._shown_crashes:  # else the same object, so that views do not draw again
            self._shown_crashes = shown
        return self._shown_crashes

    @property
    def shape(self) -> Shape:
        """How captures are folded."""
        return self._diagnoses.shape

    @property
    def is_current(self) -> bool:
        """Whether every capture is folded and has a verdict."""
        return self._diagnoses.is_current

    def update(self, in_background: Callable[[Coroutine[None, None, None]], object]) -> None:
        """Fold new captures; publish their verdicts as findings."""
        if self.runner.progress is None:
            self._diagnoses.refresh(in_background)
        self._crashes.refresh(in_background)
        if self._findings is not None and self.diagnoses is not self._published:
            self._published = self.diagnoses
            verdicts = [job.judgement.verdict for job in self.diagnoses]
            if not self.runner.is_diagnosis:  # an undecided single capture is not a finding
                verdicts = [verdict for verdict in verdicts if verdict.state != "undecided" or verdict.stalled]
            self._findings.report("verdict", filter(None, map(verdict_finding, verdicts)))
        self._watch_stalls()

    def _watch_stalls(self) -> None:
        """Diagnose jobs that appear to stand still, and report what was found."""
        if self._stalls is None or self._findings is None or self.runner.is_busy:
            return
        if self._suspected:
            if self.is_current:
                suspected, self._suspected = self._suspected, ()
                self._findings.report("verdict", self._stalls.diagnosed(suspected))
            return
        self._suspected = self._stalls.due()
        if self._suspected:
            self.runner.diagnose(tuple(suspicion.job[0] for suspicion in self._suspected))

    def next_threads(self) -> None:
        """Fold the next of: main threads, those they wait for, all."""
        self._diagnoses.next_threads()
        self._report(f"threads: {_THREADS[self.shape.threads]}", False)

    def next_granularity(self) -> None:
        """Group ranks by the next of: function, line, variables."""
        self._diagnoses.next_granularity()
        self._report(f"ranks grouped by {_GRANULARITIES[self.shape.granularity]}", False)

    def choose(self, by: int) -> None:
        """Show the capture `by` places before (negative) or after the present one."""
        self._diagnoses.choose(by)

    async def action_capture(self) -> None:
        """Capture the stacks of all ranks once."""
        await self._show_captures()
        self.runner.capture(1)

    async def action_capture_many(self) -> None:
        """Prompt for the number of samples and variables, and capture."""
        await self._show_captures()
        text = (
            f"Number of samples, 0.3 s apart: 1 to {MOST_SAMPLES}. Threads that do not move between samples are marked."
            " Optional: variables to capture with them, as in 3 step,loss"
        )
        prompt = Prompt("Capture stacks of all ranks", text, enter="capture", hint="3")
        self._app.push_screen(prompt, self._capture_samples)

    def _capture_samples(self, text: str | None) -> None:
        if text is None:
            return
        typed, *names = (text.strip() or "3").replace(",", " ").split()
        if not typed.isdecimal() or not 1 <= int(typed) <= MOST_SAMPLES:
            self._report(f"{typed[:20]!r} is not a number from 1 to {MOST_SAMPLES}; nothing was captured", True)
            return
        self.runner.capture(int(typed), tuple(names))

    async def action_diagnose(self) -> None:
        """Capture until the verdict is final; in a replay show the verdict of what is recorded."""
        await self._app.views.action_show("hang")
        if self._live:
            self.runner.diagnose()
        elif not len(self._store.captures):
            self._app.notify("no capture recorded up to this time; ] goes to the next event", timeout=5, markup=False)

    def explain(self) -> None:
        """Sample all ranks for some seconds, and show what the slow one does and its peers do not."""
        if not self._live:
            self._report("not available in replay: this is a recording", True)
            return
        dialog = LinesDialog("Why", [f"sampling the stacks of all ranks for {FOR_S:g} s …"])
        self._app.push_screen(dialog)
        self._app.run_worker(self._explain(dialog), name="why", exclusive=True)

    async def _explain(self, dialog: LinesDialog) -> None:
        profiles, problems = await sample_ranks(self._control, self._store)
        lines: list[str] = [printable(problem) for problem in problems]
        for job in dict.fromkeys(profile.job for profile in profiles):
            of_job = [profile for profile in profiles if profile.job == job]
            sides = await asyncio.to_thread(sides_of, of_job)
            lines += ["", printable(job)]
            if sides is None:
                lines.append(f"  {NO_STRAGGLER}")
                continue
            names, (subject, peers) = tuple(sides), sides.values()
            comparison = await asyncio.to_thread(compare, subject, peers, (names[0], names[1]))
            lines += why_text(comparison).splitlines()
        dialog.show_lines(lines or ["no rank was sampled"])

    async def _show_captures(self) -> None:
        if self._app.views.current not in _CAPTURE_VIEWS:
            await self._app.views.action_show("hang")

    def _report(self, text: str, is_problem: bool) -> None:
        if self._app.is_running:
            self._app.notify(text, severity="warning" if is_problem else "information", timeout=5, markup=False)
