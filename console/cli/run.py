"""`gconsole run`: start, monitor and stop jobs."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.job_protocol import NodeStop, is_away, may_be_left
from ..launch.fetch import MAX_FETCH
from ..launch.state import PendingStops
from ..records import Failure
from ..text.documents import pretty
from ..text.nodeset_fold import fold
from ..text.sanitize import join_lines, printable
from .main import EXIT_FINDING, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import duration_option, json_option, load_target, require_confirmable, target
from .run_options import SizeType, job_options, request_of
from .terminal import print_text

if TYPE_CHECKING:
    from ..launch.plan import LaunchPlan, Refusal
    from ..launch.request import JobRequest
    from ..launch.state import JobNodeStatus, JobStatus
    from .run_live import LiveFleet


@click.group(no_args_is_help=True)
def run() -> None:
    """Start, monitor and stop jobs on shared nodes without a scheduler.

    \b
    gconsole run plan  hosts.toml --nodes 4 --gpus-per-node 8 -- train.py --lr 1
    gconsole run start hosts.toml --nodes 4 --follow -- python train.py
    gconsole run logs  hosts.toml train-3f9a1c --follow
    gconsole run stop  hosts.toml train-3f9a1c

    COMMAND: a script (train.py, started by torchrun), python SCRIPT or python -m MODULE (uses that Python's torch), or
    any program (started once per rank). Jobs keep running without the console; output is stored on the nodes.
    """


_job = click.argument("job", metavar="JOB")


def in_event_loop(command: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., int]:
    """Run a coroutine function as a command."""

    @functools.wraps(command)
    def run_command(**options: Any) -> int:
        return asyncio.run(command(**options))

    return run_command


@run.command()
@target
@job_options
@json_option
@in_event_loop
async def plan(target: str, overrides: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Dry run: print the nodes and the exact command for each.

    Exit codes: 0 can start, 1 cannot start.
    """
    from .run_live import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config) as fleet:
        outcome = await _make_plan(fleet, request)
    from ..launch import format
    from ..launch.plan import Refusal

    print_text(format.to_json(outcome) if as_json else format.outcome_text(outcome), is_document=as_json)
    return EXIT_FINDING if isinstance(outcome, Refusal) else EXIT_OK


@run.command()
@target
@job_options
@click.option("--yes", is_flag=True, help="Skip confirmation.")
@click.option("--follow", is_flag=True, help="Follow output until the job ends, and exit with its exit code.")
@click.option(
    "--after",
    metavar="JOB",
    multiple=True,
    help="Wait until this job has completed, then plan and start; not started if it fails. Repeatable.",
)
@json_option
@in_event_loop
async def start(
    target: str, overrides: tuple[str, ...], yes: bool, follow: bool, after: tuple[str, ...], as_json: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Plan a job, ask for confirmation, and start it on all nodes or none.

    With --after this command waits: it must keep running until the job has started.
    Exit codes: 0 started, 1 not started, 3 not started and cleanup unconfirmed; with --follow, the job's exit code.
    """
    if as_json and not yes:
        raise click.UsageError("--json requires --yes")
    if as_json and follow:
        raise click.UsageError("--json and --follow are mutually exclusive")
    require_confirmable(yes, "start the job")
    from .run_live import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config, allow_run=True) as fleet:
        from ..launch import format  # loaded while the agents started
        from ..launch.plan import Refusal

        if not await _have_completed(fleet, [(await _job_named(fleet, name)).ordered.job for name in after]):
            return EXIT_FINDING
        plan = await _make_plan(fleet, request)
        if not as_json or isinstance(plan, Refusal):
            print_text(format.to_json(plan) if as_json else format.outcome_text(plan), is_document=as_json)
        if isinstance(plan, Refusal) or not (
            yes or await asyncio.to_thread(click.confirm, "Start this job?", default=False, err=True)
        ):
            return EXIT_FINDING
        if request.sync is not None and not await _sync_folder(fleet, request, list(plan.orders)):
            if as_json:
                print_text(format.to_json(plan, started=False), is_document=True)
            return EXIT_FINDING
        failures = await fleet.fleet.start_job(plan.orders)
        if as_json:
            print_text(format.to_json(plan, not failures, failures), is_document=True)
        if failures:
            return _report_failed_start(plan, failures)
        if not as_json:
            print_text(
                printable(f"{plan.job} started. Follow output: gconsole run logs {target} {plan.job} --follow"),
                err=True,
            )
        return await _follow(fleet, plan.job) if follow else EXIT_OK


async def _have_completed(fleet: LiveFleet, jobs: Sequence[str]) -> bool:
    """Wait until these jobs have ended; whether all completed. Prints the first that did not."""
    from ..launch.state import job_status

    for job in jobs:
        print_text(printable(f"waiting for {job} to complete"), err=True)
        await fleet.until(lambda job=job: (now := job_status(fleet.store, job)) is None or now.is_over)  # type: ignore[misc]
        view = job_status(fleet.store, job)
        if view is None or view.state != "completed":
            print_text(printable(f"not started: {job} {view.state if view else 'is gone'}"), err=True)
            return False
    return True


def _report_failed_start(plan: LaunchPlan, failures: Mapping[str, Failure]) -> int:
    """Print why a job did not start; returns the exit code."""
    from ..launch import format

    print_text(join_lines(format.failed_start_lines(plan.job, failures)), err=True)
    return EXIT_PARTIAL if may_be_left(failures.values()) else EXIT_FINDING


@run.command()
@target
@click.argument("job", metavar="[JOB]", required=False)
@json_option
@in_event_loop
async def status(target: str, overrides: tuple[str, ...], job: str | None, as_json: bool) -> int:
    """Show the state of jobs started by gconsole, per node."""
    from ..launch import format
    from ..launch.state import job_statuses
    from ..report import coverage_code
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        views = [await _job_named(fleet, job)] if job else job_statuses(fleet.store)
        outputs = fleet.store.endings.outputs.values()
        text = format.status_json(views, outputs) if as_json else format.status_text(views, outputs)
        print_text(text, is_document=as_json)
        return coverage_code(fleet.store)


@run.command()
@target
@_job
@click.option("--rank", "ranks", metavar="0-3,7", help="Only these ranks.")
@click.option("--grep", "pattern", metavar="REGEX", help="Only matching lines.")
@click.option("--tail", type=click.IntRange(1), help="Only the last N lines of all ranks together.")
@click.option("--times", is_flag=True, help="Print when each line was written, by the clock of its node.")
@click.option("--fold/--no-fold", default=True, show_default=True, help="Merge identical lines of several ranks.")
@click.option("--follow", is_flag=True, help="Follow output until the job ends.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Output file; - = stdout.  [default: stdout]")
@click.option("--json", "as_json", is_flag=True, help="Print an object for each line (NDJSON).")
@in_event_loop
async def logs(
    target: str, overrides: tuple[str, ...], job: str, ranks: str | None, pattern: str | None, tail: int | None,
    times: bool, fold: bool, follow: bool, output: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Print the output of all ranks in the order written: `[0-63] loss 2.31`, `[5 stderr] UserWarning: …`.

    Exit codes: 0 complete, 3 lines of some nodes are missing.
    """
    from .run_live import LineFilter

    lines = LineFilter(tail, _ranks(ranks), _pattern(pattern), fold, times, as_json)
    from ..text import atomic_files
    from .run_live import live, stream

    async with live(load_target(target, overrides)) as fleet:
        view = await _job_named(fleet, job)
        if output is None or str(output) == "-":
            show = partial(print_text, is_document=as_json)
            is_whole = await stream(fleet, view, lines, show, follow=follow)
        else:
            with atomic_files.open_truncated(output) as file:
                is_whole = await stream(fleet, view, lines, lambda text: _append(file, text), follow=follow)
    return EXIT_OK if is_whole else EXIT_PARTIAL


@run.command()
@target
@_job
@duration_option("--timeout", "timeout_s", help="Exit with code 124 after this long.")
@json_option
@in_event_loop
async def wait(target: str, overrides: tuple[str, ...], job: str, timeout_s: float | None, as_json: bool) -> int:
    """Wait until the job ends; exit with the code of the first failed node (128 + N for signal N)."""
    from ..launch.state import job_status
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        name = (await _job_named(fleet, job)).ordered.job
        if not await fleet.until(lambda: (now := job_status(fleet.store, name)) is not None and now.is_over, timeout_s):
            print_text(printable(f"gconsole: timeout: {name} is still running"), err=True)
            return 124  # as timeout(1)
        return _report_end(await _job_named(fleet, name), as_json)


@run.command()
@target
@_job
@duration_option("--grace", "grace_s", default="10s", help="Time between SIGTERM and SIGKILL.")
@duration_option("--wait", "wait_s", default="0s", help="Wait this long for unreachable nodes.")
@click.option("--yes", is_flag=True, help="Skip confirmation.")
@json_option
@in_event_loop
async def stop(
    target: str, overrides: tuple[str, ...], job: str, grace_s: float, wait_s: float, yes: bool, as_json: bool
) -> int:
    """Stop all processes of the job: SIGTERM, then SIGKILL after the grace period. Reports remaining processes.

    Unreachable nodes are stopped by your next `gconsole run` that reaches them.
    Exit codes: 0 all processes ended, 1 processes remain, 3 some nodes unreachable.
    """
    require_confirmable(yes, f"stop {printable(job)}")
    from ..launch.format import stop_json, stop_words
    from .run_live import live

    async with live(load_target(target, overrides), allow_run=True) as fleet:
        view = await _job_named(fleet, job)
        prompt = f"Stop {view.ordered.job} on {len(view.lines)} nodes?"
        if not (yes or await asyncio.to_thread(click.confirm, prompt, default=False, err=True)):
            return EXIT_FINDING
        code, away = EXIT_OK, []
        answers: dict[str, NodeStop | Failure | None] = {}
        async for line, answer in _stopped(fleet, view, grace_s, wait_s):
            answers[line.node] = answer
            if not as_json:
                print_text(printable(f"{line.node}  {stop_words(answer) if answer else 'unknown: ' + line.why}"))
            if isinstance(answer, NodeStop):
                code = EXIT_FINDING if answer.left else code
            else:
                code = code or EXIT_PARTIAL
                away += [line.node] if is_away(answer) else []
        PendingStops.of_cluster(fleet.config.cluster).set(view.ordered.job, tuple(away))
        if as_json:
            print_text(stop_json(view.ordered.job, answers, away), is_document=True)
        if away:
            later = "the next `gconsole run` that connects stops it there"
            print_text(printable(f"gconsole: {fold(away)} unreachable; {later}"), err=True)
        return code


@run.command()
@target
@_job
@click.argument("path", metavar="PATH")
@click.option("--node", "only", metavar="NODE", help="Only this node.  [default: all nodes of the job]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path(), help="Destination folder; files go to NODE/…"
)
@click.option(
    "--max-size",
    type=SizeType(),
    default=MAX_FETCH,
    show_default=True,
    help="Max size of all files of all nodes.",
)
@json_option
@in_event_loop
async def fetch(
    target: str, overrides: tuple[str, ...], job: str, path: str, only: str | None, output: Path, max_size: int,
    as_json: bool,
) -> int:  # fmt: skip
    """Copy a file or folder of the job from each node into a folder named after the node.

    PATH is relative to the working directory of the job, or absolute. Exit codes: 0 all nodes, 3 some nodes failed.
    """
    from ..launch.fetch import FetchBudget, fetch_from
    from .run_live import live

    async with live(load_target(target, overrides)) as fleet:
        view = await _job_named(fleet, job)
        nodes = [line.node for line in view.lines if only is None or line.node == only]
        if not nodes:
            nodes = [line.node for line in view.lines]
            raise click.UsageError(f"--node {only}: not a node of job {view.ordered.job}; its nodes: {fold(nodes)}")
        budget = FetchBudget(max_size)
        paths: list[Path] = []
        copied = view.ordered.job, path, output, budget, paths.append if as_json else _print_path
        problems = [problem for node in nodes if (problem := await fetch_from(fleet.fleet, node, *copied))]
    if as_json:
        fetched = {"files": list(map(str, paths)), "bytes": max_size - budget.left, "problems": problems}
        print_text(pretty({"schema": "gconsole.fetch/1", "job": view.ordered.job, **fetched}), is_document=True)
    for problem in problems:
        print_text(printable(f"gconsole: {problem}"), err=True)
    return EXIT_PARTIAL if problems else EXIT_OK


def _print_path(path: Path) -> None:
    print_text(printable(str(path)))


def _ranks(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if match is None:
            raise click.BadParameter(f"{text!r} is not a rank set; use 0-3,7", param_hint="--rank")
        ranks |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(ranks)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--grep") from error


def _append(file: Any, text: str) -> None:
    file.write(text.encode() + b"\n")
    file.flush()


def _report_end(view: JobStatus, as_json: bool = False) -> int:
    """Print the final state of a job, as text to stderr; returns its exit code."""
    from ..launch import format

    print_text(format.status_json([view]) if as_json else format.status_text([view]), err=not as_json,
               is_document=as_json)  # fmt: skip
    return view.exit_code


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


async def _job_named(fleet: LiveFleet, name: str) -> JobStatus:
    """The job with that name or unique prefix. Raises UsageError if not found, Exit(4) if no node is reachable."""
    from ..launch.state import job_statuses

    views = job_statuses(fleet.store)
    matches = [view for view in views if view.ordered.job == name] or [
        view for view in views if view.ordered.job.startswith(name)
    ]
    if len(matches) == 1:
        return matches[0]
    from ..report import coverage_code  # which loads the analyses

    if not matches and coverage_code(fleet.store) == EXIT_NOTHING:
        print_text(printable("gconsole: no node reachable"), err=True)
        raise click.exceptions.Exit(EXIT_NOTHING)
    names = printable(", ".join(view.ordered.job for view in (matches or views)[:8])) or "none"
    raise click.UsageError(f'ambiguous job "{name}": {names}' if matches else f'no job "{name}"; jobs: {names}')


async def _make_plan(fleet: LiveFleet, request: JobRequest) -> LaunchPlan | Refusal:
    from ..launch.node_capacity import node_facts
    from ..launch.plan import make_plan
    from ..launch.request import new_job

    job = new_job(request.command)
    return await make_plan(fleet.fleet, node_facts(fleet.store, fleet.config.nodes), request, job)


async def _sync_folder(fleet: LiveFleet, request: JobRequest, nodes: list[str]) -> bool:
    """Copy the folder to the nodes; False if any node failed."""
    from ..launch import format

    assert request.sync is not None and request.workdir is not None
    answers = await fleet.fleet.sync_folder(nodes, request.sync, request.workdir)
    print_text(join_lines(format.sync_lines(request.sync, answers)), err=True)
    has_failed = any(isinstance(answer, Failure) for answer in answers.values())
    if has_failed:
        print_text(printable(f"not started: copying {request.sync.local} failed on some nodes"), err=True)
    return not has_failed


async def _follow(fleet: LiveFleet, job: str) -> int:
    from ..launch.state import job_status
    from .run_live import LineFilter, stream

    await fleet.until(lambda: (view := job_status(fleet.store, job)) is not None and not view.unseen, 15.0)
    view = await _job_named(fleet, job)
    await stream(fleet, view, LineFilter(), print_text, follow=True)
    return _report_end(await _job_named(fleet, job))
