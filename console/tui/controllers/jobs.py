"""What the screen does with jobs: has the output of the one that is looked at sent, and ends one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from textual.app import App

from ...config.read_only import Change
from ...core.control import Control
from ...core.job_protocol import NodeStop, is_away
from ...launch.format import stop_words
from ...launch.pending_stops import Owed
from ...launch.state import ACTIVE, JobView
from ...present.status import GLYPHS, Status
from ...records import Failure
from ...text.cells import clean
from ...text.nodeset_fold import fold
from ..dialogs.prompts import Confirm, LinesDialog
from ..snapshot import Frame
from ..views.jobs.model import JobRow

#: Between TERM and KILL.
GRACE_S = 10.0


class JobOutputs:
    """Has what one job writes sent for as long as somebody looks at it."""

    def __init__(self, control: Control, in_background: Callable[[Coroutine[Any, Any, None]], object],
                 tell: Callable[[str], None]) -> None:  # fmt: skip
        self._control, self._in_background, self._tell = control, in_background, tell
        self._job: str | None = None
        self._asked: dict[str, str] = {}  # node → the agent that was asked

    def look(self, job: str | None, frame: Frame) -> None:
        """`job` is looked at now. A node that is back has another agent, which is asked anew."""
        if job != self._job:
            if self._job is not None and self._asked:
                self._in_background(self._leave(self._job, list(self._asked)))
            self._job, self._asked = job, {}
        view = next((one for one in frame.started if one.ordered.job == job), None) if job is not None else None
        if view is not None:
            self._ask(view, frame)

    def _ask(self, view: JobView, frame: Frame) -> None:
        new = []
        for line in view.lines:
            now = frame.nodes.get(line.node)
            is_there = now is not None and now.node is not None and now.state is not None and now.state.state == "ok"
            if line.now is None or not is_there or now is None or now.node is None:
                continue
            before = self._asked.get(line.node)
            if before != now.node.agent:
                self._asked[line.node] = now.node.agent
                new.append(line.node)
                if before is not None:
                    self._tell(f"{clean(line.node)} is back: its last lines stand here again")
        if new:
            self._in_background(self._watch(view.ordered.job, new))

    async def _watch(self, job: str, nodes: list[str]) -> None:
        failures = await self._control.watch_job(job, nodes, True)
        for node, failure in failures.items():
            self._tell(f"{clean(node)} does not send what it has: {clean(failure.text)}")

    async def _leave(self, job: str, nodes: list[str]) -> None:
        await self._control.watch_job(job, nodes, False)


class JobStops:
    """Ends jobs, after a question, and says what became of it."""

    def __init__(self, app: App[Any], control: Control, cluster: str) -> None:
        self._app, self._control, self._cluster = app, control, cluster

    def stop(self, row: JobRow) -> None:
        """Ask, and end it."""
        view = row.started
        if view is None:
            return
        refused = self._control.refusal(Change.STOP_JOB)
        if refused is not None:
            words = f"read_only: this screen ends no job; gconsole run stop HOSTS {clean(row.name)} does, and asks"
            self._app.notify(words, severity="warning", timeout=8, markup=False)
            return
        nodes = [line.node for line in view.lines if line.now is None or line.now.state in ACTIVE]

        async def answered(yes: bool | None) -> None:
            if yes:
                dialog = LinesDialog(f"Stop {clean(row.name)}", [f"ending it on {fold(nodes)} …"])
                self._app.push_screen(dialog)
                self._app.run_worker(self._stop(view, nodes, dialog), name="stop a job")

        words = f"Every process of it ends on {fold(nodes)}: TERM, and after {GRACE_S:g} s KILL."
        self._app.push_screen(Confirm(f"Stop {clean(row.name)}?", words, "stops it"), answered)

    async def _stop(self, view: JobView, nodes: list[str], dialog: LinesDialog) -> None:
        answers = await self._control.stop_job(view.ordered.job, nodes, GRACE_S)
        away = tuple(node for node in nodes if is_away(answers[node]))
        kept = [f"the order is kept: your next gconsole run that sees {fold(away)} ends it there"] if away else []
        dialog.tell([*(_stop_line(node, answers[node]) for node in nodes), *kept])
        Owed.of_cluster(self._cluster).set(view.ordered.job, away)


def _stop_line(node: str, answer: NodeStop | Failure) -> str:
    status: Status = "unknown" if isinstance(answer, Failure) else "failed" if answer.left else "ok"
    return f"{GLYPHS[status]} {node}  {stop_words(answer)}"


class JobActions:
    """A part of the app: what the Jobs view asks for."""

    job_stops: JobStops

    def on_stop_requested(self, event: Any) -> None:
        self.job_stops.stop(event.row)
