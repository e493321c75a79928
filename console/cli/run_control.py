"""What `gconsole run` does with a job that was started: status, logs, wait, stop, fetch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.job_protocol import NodeStop, is_away
from ..launch.format import stop_words
from ..launch.pending_stops import PendingStops
from ..text.nodeset_fold import fold
from ..text.sanitize import printable
from .main import EXIT_FINDING, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import load_target

if TYPE_CHECKING:
    from ..launch.state import JobNodeStatus, JobStatus
    from ..records import Failure
    from .run_live import Live
    from .run_logs import Wanted


async def status(target: str, overrides: tuple[str, ...], job: str | None, as_json: bool) -> int:
    from ..launch import format
    from ..launch.state import job_statuses
    from ..report import coverage_code
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        views = [await job_named(fleet, job)] if job else job_statuses(fleet.store)
        click.echo(format.status_json(views) if as_json else format.status_text(views))
        return coverage_code(fleet.store)


async def logs(
    target: str, overrides: tuple[str, ...], job: str, wanted: Wanted, follow: bool, output: Path | None
) -> int:
    from ..text import atomic_files
    from .run_live import live
    from .run_logs import stream

    async with live(load_target(target, overrides)) as fleet:
        view = await job_named(fleet, job)
        if output is None:
            problems = await stream(fleet, view, wanted, click.echo, follow=follow)
        else:
            with atomic_files.open_new(output) as file:
                problems = await stream(fleet, view, wanted, lambda text: _append(file, text), follow=follow)
    for problem in problems:
        click.echo(printable(f"gconsole: {problem}"), err=True)
    return EXIT_PARTIAL if problems else EXIT_OK


def _append(file: Any, text: str) -> None:
    file.write(text.encode() + b"\n")
    file.flush()


async def wait(target: str, overrides: tuple[str, ...], job: str, timeout_s: float | None) -> int:
    from ..launch.state import job_status
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        name = (await job_named(fleet, job)).ordered.job
        if not await fleet.until(lambda: (now := job_status(fleet.store, name)) is not None and now.is_over, timeout_s):
            click.echo(f"gconsole: {name} is not over yet", err=True)
            return 124  # as timeout(1)
        return ended(await job_named(fleet, name))


def ended(view: JobStatus) -> int:
    from ..launch import format

    click.echo(format.status_text([view]), err=True)
    return view.exit_code


async def stop(target: str, overrides: tuple[str, ...], job: str, grace_s: float, wait_s: float, yes: bool) -> int:
    from .run_live import live

    async with live(load_target(target, overrides), allow_run=True) as fleet:
        view = await job_named(fleet, job)
        question = f"Stop {view.ordered.job} on {len(view.lines)} nodes?"
        if not (yes or await asyncio.to_thread(click.confirm, question, default=False, err=True)):
            return EXIT_FINDING
        code, away = EXIT_OK, []
        async for line, answer in _stopped(fleet, view, grace_s, wait_s):
            click.echo(printable(f"{line.node}  {stop_words(answer) if answer else 'unknown: ' + line.why}"))
            if isinstance(answer, NodeStop):
                code = EXIT_FINDING if answer.left else code
            else:
                code = code or EXIT_PARTIAL
                away += [line.node] if is_away(answer) else []
        PendingStops.of_cluster(fleet.config.cluster).set(view.ordered.job, tuple(away))
        if away:
            click.echo(f"gconsole: the order is kept; your next `gconsole run` that sees {fold(away)} ends it there",
                       err=True)  # fmt: skip
        return code


async def _stopped(
    fleet: Live, view: JobStatus, grace_s: float, wait_s: float
) -> AsyncIterator[tuple[JobNodeStatus, NodeStop | Failure | None]]:
    """What came of it, node by node; nodes that are away have so long to come back."""
    waiting = {line.node: line for line in view.lines}
    deadline = time.monotonic() + wait_s
    while waiting:
        known = [node for node in waiting if node in fleet.fleet.links]
        answers = await fleet.fleet.stop_job(view.ordered.job, known, grace_s)
        is_late = time.monotonic() >= deadline
        for node in [node for node in waiting if is_late or not is_away(answers.get(node))]:
            yield waiting.pop(node), answers.get(node)
        if waiting:
            await fleet.until(partial(_is_any_back, fleet, tuple(waiting)), deadline - time.monotonic())


def _is_any_back(fleet: Live, nodes: Sequence[str]) -> bool:
    return any(fleet.fleet.links[node].state == "ok" for node in nodes)


async def fetch(target: str, overrides: tuple[str, ...], job: str, path: str, only: str | None, output: Path) -> int:
    from .run_fetch import fetch_from
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        view = await job_named(fleet, job)
        nodes = [line.node for line in view.lines if only is None or line.node == only]
        if not nodes:
            raise click.UsageError(f"--node {only}: the job {view.ordered.job} is not there")
        problems = [p for node in nodes if (p := await fetch_from(fleet.fleet, view.ordered.job, node, path, output))]
    for problem in problems:
        click.echo(printable(f"gconsole: {problem}"), err=True)
    return EXIT_PARTIAL if problems else EXIT_OK


async def job_named(fleet: Live, name: str) -> JobStatus:
    """The job of that name, or the only one that begins so. Raises UsageError; ends where nothing is reachable."""
    from ..launch.state import job_statuses
    from ..report import coverage_code

    views = job_statuses(fleet.store)
    found = [view for view in views if view.ordered.job == name] or [v for v in views if v.ordered.job.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found and coverage_code(fleet.store) == EXIT_NOTHING:
        click.echo("gconsole: no node can be reached", err=True)
        raise click.exceptions.Exit(EXIT_NOTHING)
    known = printable(", ".join(view.ordered.job for view in (found or views)[:8])) or "none"
    raise click.UsageError(f"{name}: {'several jobs begin so' if found else 'no such job'}; there are {known}")
