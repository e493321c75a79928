"""`gconsole run` commands for started jobs: status, logs, wait, stop, fetch."""

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
from ..launch.state import PendingStops
from ..text.nodeset_fold import fold
from ..text.sanitize import printable
from .main import EXIT_FINDING, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import load_target

if TYPE_CHECKING:
    from ..launch.state import JobNodeStatus, JobStatus
    from ..records import Failure
    from .run_live import LiveFleet
    from .run_output import LineFilter


async def status(target: str, overrides: tuple[str, ...], job: str | None, as_json: bool) -> int:
    """Print the state of one job or all jobs; returns the coverage exit code."""
    from ..launch import format
    from ..launch.state import job_statuses
    from ..report import coverage_code
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        views = [await job_named(fleet, job)] if job else job_statuses(fleet.store)
        click.echo(format.status_json(views) if as_json else format.status_text(views))
        return coverage_code(fleet.store)


async def logs(
    target: str, overrides: tuple[str, ...], job: str, lines: LineFilter, follow: bool, output: Path | None
) -> int:
    """Print the output of a job or write it to a file; exit code 3 if some nodes could not be read."""
    from ..text import atomic_files
    from .run_live import live
    from .run_output import stream

    async with live(load_target(target, overrides)) as fleet:
        view = await job_named(fleet, job)
        if output is None:
            problems = await stream(fleet, view, lines, click.echo, follow=follow)
        else:
            with atomic_files.open_truncated(output) as file:
                problems = await stream(fleet, view, lines, lambda text: _append(file, text), follow=follow)
    for problem in problems:
        click.echo(printable(f"gconsole: {problem}"), err=True)
    return EXIT_PARTIAL if problems else EXIT_OK


def _append(file: Any, text: str) -> None:
    file.write(text.encode() + b"\n")
    file.flush()


async def wait(target: str, overrides: tuple[str, ...], job: str, timeout_s: float | None) -> int:
    """Wait until a job ends; returns its exit code, or 124 on timeout."""
    from ..launch.state import job_status
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        name = (await job_named(fleet, job)).ordered.job
        if not await fleet.until(lambda: (now := job_status(fleet.store, name)) is not None and now.is_over, timeout_s):
            click.echo(f"gconsole: timeout: {name} is still running", err=True)
            return 124  # as timeout(1)
        return report_end(await job_named(fleet, name))


def report_end(view: JobStatus) -> int:
    """Print the final state of a job to stderr; returns its exit code."""
    from ..launch import format

    click.echo(format.status_text([view]), err=True)
    return view.exit_code


async def stop(target: str, overrides: tuple[str, ...], job: str, grace_s: float, wait_s: float, yes: bool) -> int:
    """Stop a job after confirmation; nodes that stay unreachable are stopped by a later command."""
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
            click.echo(f"gconsole: {fold(away)} unreachable; the next `gconsole run` that connects stops it there",
                       err=True)  # fmt: skip
        return code


async def _stopped(
    fleet: LiveFleet, view: JobStatus, grace_s: float, wait_s: float
) -> AsyncIterator[tuple[JobNodeStatus, NodeStop | Failure | None]]:
    """Stop the job and yield the result per node; unreachable nodes are retried for `wait_s` seconds."""
    waiting = {line.node: line for line in view.lines}
    deadline = time.monotonic() + wait_s
    while waiting:
        linked = [node for node in waiting if node in fleet.fleet.links]
        answers = await fleet.fleet.stop_job(view.ordered.job, linked, grace_s)
        is_late = time.monotonic() >= deadline
        for node in [node for node in waiting if is_late or not is_away(answers.get(node))]:
            yield waiting.pop(node), answers.get(node)
        if waiting:
            await fleet.until(partial(_is_any_connected, fleet, tuple(waiting)), deadline - time.monotonic())


def _is_any_connected(fleet: LiveFleet, nodes: Sequence[str]) -> bool:
    return any(fleet.fleet.links[node].state == "ok" for node in nodes)


async def fetch(target: str, overrides: tuple[str, ...], job: str, path: str, only: str | None, output: Path) -> int:
    """Copy a path from the nodes of a job; exit code 3 if some nodes failed."""
    from .run_live import live
    from .run_output import fetch_from

    async with live(load_target(target, overrides)) as fleet:
        view = await job_named(fleet, job)
        nodes = [line.node for line in view.lines if only is None or line.node == only]
        if not nodes:
            raise click.UsageError(f"--node {only}: not a node of job {view.ordered.job}")
        problems = [p for node in nodes if (p := await fetch_from(fleet.fleet, view.ordered.job, node, path, output))]
    for problem in problems:
        click.echo(printable(f"gconsole: {problem}"), err=True)
    return EXIT_PARTIAL if problems else EXIT_OK


async def job_named(fleet: LiveFleet, name: str) -> JobStatus:
    """The job with that name or unique prefix. Raises UsageError if not found, Exit(4) if no node is reachable."""
    from ..launch.state import job_statuses
    from ..report import coverage_code

    views = job_statuses(fleet.store)
    matches = [view for view in views if view.ordered.job == name] or [
        view for view in views if view.ordered.job.startswith(name)
    ]
    if len(matches) == 1:
        return matches[0]
    if not matches and coverage_code(fleet.store) == EXIT_NOTHING:
        click.echo("gconsole: no node reachable", err=True)
        raise click.exceptions.Exit(EXIT_NOTHING)
    names = printable(", ".join(view.ordered.job for view in (matches or views)[:8])) or "none"
    raise click.UsageError(f'ambiguous job "{name}": {names}' if matches else f'no job "{name}"; jobs: {names}')
