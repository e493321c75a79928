"""Starting a job, copying a folder to the nodes of one, and fetching its files: each asks, and shows its progress."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...config.model import Change, ReadOnly
from ...core.control import Control
from ...core.job_protocol import SyncFolder
from ...core.store import Store
from ...launch.code_folder import BadFolder, read_folder
from ...launch.fetch import MAX_FETCH, FetchBudget, fetch_from
from ...launch.format import failed_start_lines, outcome_text, sync_lines
from ...launch.node_capacity import ProcessFilter, node_facts
from ...launch.plan import LaunchPlan, Refusal, make_plan
from ...launch.request import JobRequest, RequestReader, new_job
from ...launch.state import JobStatus
from ...records import Failure
from ...text.cells import clean
from ...text.format import parse_size, plural, size
from ...text.nodeset_fold import fold
from ..dialogs.prompts import Prompt
from ..dialogs.task import TaskDialog
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Seconds between two displays of the progress of a copy.
_PROGRESS_S = 0.5
_IN_A_BROWSER = "not in a browser: it reads and writes files of the console's machine; use gconsole run in a terminal"
_IN_A_REPLAY = "not available in replay: this is a recording"
_START_HINT = "--nodes 2 --sync . -- train.py --lr 1"


class JobSource(msgspec.Struct, frozen=True):
    """What starting a job needs beyond `Control`."""

    read_request: RequestReader
    nodes: Callable[[], Sequence[ProcessFilter]]  # as configured now


class JobTaskController(Controller):
    """Starts jobs, copies folders to their nodes and fetches their files. Without `source` only explains why not."""

    def __init__(
        self, app: ConsoleApp, store: Store, control: Control, source: JobSource | None, *, live: bool
    ) -> None:
        self._app, self._store, self._control, self._source, self._live = app, store, control, source, live
        self._typed = ""  # in the prompt for a job, offered again

    def _refuses(self, change: Change | None, instead: str) -> bool:
        """Whether the task is not available here, for a reason that is shown; None changes nothing on the nodes."""
        reason = ""
        if not self._live:
            reason = _IN_A_REPLAY
        elif self._source is None:
            reason = _IN_A_BROWSER
        elif change is not None and self._app.frame.header.simulated:
            reason = "not on nodes with simulated data (SIM)"
        elif change is not None and self._control.refusal(change) is not None:
            reason = f"[console] read_only is true: set it to false, or use {instead}"
        if reason:
            self._app.notify(reason, severity="warning", timeout=8, markup=False)
        return bool(reason)

    def _run(self, title: str, first_line: str, work: Callable[[TaskDialog], Awaitable[Sequence[str]]]) -> None:
        async def run(dialog: TaskDialog) -> Sequence[str]:
            try:
                return await work(dialog)
            except ReadOnly as error:  # hosts.toml has changed meanwhile
                return [str(error)]

        self._app.push_screen(TaskDialog(title, [first_line], run))

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Prompt for a job, plan it, and start it after a confirmation."""
        if self._refuses(Change.START_JOB, "gconsole run start HOSTS -- COMMAND"):
            return
        text = (
            "Options, -- and the command, as after gconsole run start HOSTS. The plan is shown before anything starts."
        )
        prompt = Prompt("Start a job", text, enter="plan", hint=_START_HINT, typed=self._typed)
        self._app.push_screen(prompt, self._plan)

    def _plan(self, typed: str | None) -> None:
        if typed is not None and typed.strip():
            self._typed = typed
            self._run("Start a job", "planning …", partial(self._start, typed))

    async def _start(self, typed: str, dialog: TaskDialog) -> Sequence[str]:
        assert self._source is not None
        try:
            request = await asyncio.to_thread(self._source.read_request, typed)
        except ValueError as error:
            return [f"✖ {error}"]
        facts = node_facts(self._store, self._source.nodes())
        plan = await make_plan(self._control, facts, request, new_job(request.command))
        lines = outcome_text(plan).splitlines()
        if isinstance(plan, Refusal):
            return lines
        dialog.show_lines(lines)
        await dialog.confirm("start")
        return await self._start_planned(plan, request, dialog)

    async def _start_planned(self, plan: LaunchPlan, request: JobRequest, dialog: TaskDialog) -> Sequence[str]:
        nodes = list(plan.orders)
        copied: list[str] = []
        if request.sync is not None and request.workdir is not None:
            is_complete, copied = await self._copy(request.sync, request.workdir, nodes, dialog)
            if not is_complete:
                return [*copied, f"{plan.job} was not started"]
        dialog.if_cancelled = f"cancelled; what had started of {plan.job} was stopped"
        dialog.show_lines([*copied, f"starting {plan.job} on {fold(nodes)} …"])
        failures = await self._control.start_job(plan.orders)
        if failures:
            return [*copied, *failed_start_lines(plan.job, failures)]
        return [*copied, f"{plan.job} started on {fold(nodes)}"]

    # -- copies --------------------------------------------------------------------------------------------------------

    def sync(self, view: JobStatus) -> None:
        """Prompt for a folder, and copy it to the nodes of a job after a confirmation."""
        if self._refuses(Change.START_JOB, "gconsole run start HOSTS --sync DIR"):
            return
        text = f"A folder here, copied to the working directory of the job on {fold(view.ordered.nodes)}."
        prompt = Prompt(f"Copy a folder to {clean(view.ordered.job)}", text, enter="continue", hint="./code")

        def answered(typed: str | None) -> None:
            if typed is not None and typed.strip():
                self._run(f"Copy {clean(typed.strip())}", "reading …", partial(self._sync, view, typed.strip()))

        self._app.push_screen(prompt, answered)

    async def _sync(self, view: JobStatus, name: str, dialog: TaskDialog) -> Sequence[str]:
        try:
            folder = await asyncio.to_thread(read_folder, Path(name))
        except BadFolder as error:
            return [f"✖ {error}"]
        nodes = list(view.ordered.nodes)
        workdir = view.ordered.workdir or f"~/gconsole-sync/{Path(folder.local).name}"
        amount = f"{plural(len(folder.files), 'file')}, {size(folder.bytes)}"
        dialog.show_lines([
            f"{amount} of {folder.local}; only changed files are sent", f"to {workdir} on {fold(nodes)}",
            "Files of the same names there are replaced, also while the job runs.",
        ])  # fmt: skip
        await dialog.confirm("copy")
        return (await self._copy(folder, workdir, nodes, dialog))[1]

    async def _copy(
        self, folder: SyncFolder, workdir: str, nodes: Sequence[str], dialog: TaskDialog
    ) -> tuple[bool, list[str]]:
        """Copy a folder to nodes; whether it is complete everywhere, and the result in words."""
        dialog.if_cancelled = f"cancelled; some files of {folder.local} may have been copied"
        dialog.show_lines([f"copying {folder.local} to {fold(nodes)} …"])
        answers = await self._control.sync_folder(nodes, folder, workdir)
        is_complete = not any(isinstance(answer, Failure) for answer in answers.values())
        return is_complete, list(sync_lines(folder, answers))

    def fetch(self, view: JobStatus) -> None:
        """Prompt for a path, and copy it from the nodes of a job into a folder here."""
        job = clean(view.ordered.job)
        if self._refuses(None, ""):
            return
        where = clean(view.ordered.workdir or "the home directory")
        text = (
            f"A file or folder of the job, absolute or in {where}; then the folder here, ./{job} by default."
            " Files of a node go to FOLDER/NODE."
        )

        def answered(typed: str | None) -> None:
            try:
                words = shlex.split(typed or "")
            except ValueError as error:
                self._app.notify(f"{error}; nothing was fetched", severity="warning", timeout=8, markup=False)
                return
            if len(words) > 2:
                text = "a path and a folder, please; quote names with spaces"
                self._app.notify(text, severity="warning", timeout=8, markup=False)
            elif words:
                path, folder = words[0], Path(words[1] if len(words) > 1 else view.ordered.job).expanduser()
                work = partial(self._fetch, view, path, folder)
                self._run(f"Fetch {clean(path)}", f"from {fold(view.ordered.nodes)} …", work)

        self._app.push_screen(
            Prompt(f"Fetch files of {job}", text, enter="fetch", hint="checkpoints results"), answered
        )

    async def _fetch(self, view: JobStatus, path: str, folder: Path, dialog: TaskDialog) -> Sequence[str]:
        copied: list[Path] = []
        budget = FetchBudget(parse_size(MAX_FETCH))
        limit = budget.left

        async def copy() -> list[str]:
            problems: list[str] = []
            for node in view.ordered.nodes:
                arguments = node, view.ordered.job, path, folder, budget, copied.append
                problems += filter(None, [await fetch_from(self._control, *arguments)])
            return problems

        copying = asyncio.create_task(copy(), name="fetch")
        try:
            while not (await asyncio.wait({copying}, timeout=_PROGRESS_S))[0]:
                amount = f"{plural(len(copied), 'file')}, {size(limit - budget.left)}"
                dialog.if_cancelled = f"cancelled; {amount} copied to {folder}"
                dialog.show_lines([f"{amount} copied to {folder} …", *map(str, copied[-1:])])
        finally:
            copying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await copying
        problems = [f"✖ {problem}" for problem in copying.result()]
        return [*problems, f"{plural(len(copied), 'file')}, {size(limit - budget.left)} copied to {folder}"]
