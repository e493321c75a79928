"""Jobs that gconsole started: stream the output of the one on the screen, and stop one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ...config.model import Change
from ...core.control import Control
from ...core.job_protocol import NodeStop, is_away
from ...launch.format import stop_words
from ...launch.state import ACTIVE, JobStatus, PendingStops
from ...present.spans import GLYPHS, Status
from ...records import Failure
from ...text.cells import clean
from ...text.nodeset_fold import fold
from ..dialogs.dialog import LinesDialog
from ..dialogs.prompts import Confirm
from ..snapshot import ScreenSnapshot
from ..views.jobs.model import JobRow
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Seconds between SIGTERM and SIGKILL.
GRACE_S = 10.0


class JobController(Controller):
    """Streams the output of the job on the screen, and stops jobs of `cluster` after a confirmation."""

    def __init__(self, app: ConsoleApp, control: Control, cluster: str) -> None:
        self._app, self._control, self._cluster = app, control, cluster
        self._job: str | None = None  # whose output is streamed
        self._agents: dict[str, str] = {}  # node → the agent that streams it

    def stream_output(self, job: str | None, frame: ScreenSnapshot) -> None:
        """Stream the output of `job` only. A node that reconnected has a new agent, which gets a new request."""
        if job != self._job:
            if self._job is not None and self._agents:
                self._run(self._control.watch_job(self._job, list(self._agents), False))
            self._job, self._agents = job, {}
        view = next((view for view in frame.started if view.ordered.job == job), None) if job is not None else None
        if view is not None:
            self._request_output(view, frame)

    def _request_output(self, view: JobStatus, frame: ScreenSnapshot) -> None:
        nodes = []
        for line in view.lines:
            now = frame.nodes.get(line.node)
            is_connected = now is not None and now.state is not None and now.state.state == "ok"
            if line.now is None or not is_connected or now is None or now.node is None:
                continue
            previous = self._agents.get(line.node)
            if previous != now.node.agent:
                self._agents[line.node] = now.node.agent
                nodes.append(line.node)
                if previous is not None:
                    self._app.view.show_note(f"{clean(line.node)} reconnected: its last lines are repeated")
        if nodes:
            self._run(self._watch(view.ordered.job, nodes))

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        self._app.run_worker(work, name="output of a job")

    async def _watch(self, job: str, nodes: list[str]) -> None:
        for node, failure in (await self._control.watch_job(job, nodes, True)).items():
            self._app.view.show_note(f"{clean(node)} cannot send its output: {clean(failure.text)}")

    def stop(self, row: JobRow) -> None:
        """Stop the job on all of its nodes, after a confirmation."""
        view = row.started
        if view is None:
            return
        if self._control.refusal(Change.STOP_JOB) is not None:
            text = f"[console] read_only is true: stop the job with gconsole run stop HOSTS {clean(row.name)}"
            self._app.notify(text, severity="warning", timeout=8, markup=False)
            return
        nodes = [line.node for line in view.lines if line.now is None or line.now.state in ACTIVE]

        async def confirmed(yes: bool | None) -> None:
            if yes:
                dialog = LinesDialog(f"Stop {clean(row.name)}", [f"stopping it on {fold(nodes)} …"])
                self._app.push_screen(dialog)
                self._app.run_worker(self._stop(view, nodes, dialog), name="stop a job")

        text = f"Sends SIGTERM to all of its processes on {fold(nodes)}, and SIGKILL after {GRACE_S:g} s."
        self._app.push_screen(Confirm(f"Stop {clean(row.name)}?", text, "stop"), confirmed)

    async def _stop(self, view: JobStatus, nodes: list[str], dialog: LinesDialog) -> None:
        answers = await self._control.stop_job(view.ordered.job, nodes, GRACE_S)
        away = tuple(node for node in nodes if is_away(answers[node]))
        pending = [f"pending: the next gconsole run that reaches {fold(away)} stops it there"] if away else []
        dialog.show_lines([*(_stop_line(node, answers[node]) for node in nodes), *pending])
        PendingStops.of_cluster(self._cluster).set(view.ordered.job, away)


def _stop_line(node: str, answer: NodeStop | Failure) -> str:
    status: Status = "unknown" if isinstance(answer, Failure) else "failed" if answer.left else "ok"
    return f"{GLYPHS[status]} {node}  {stop_words(answer)}"
