"""`gconsole run`: start a job on the nodes, see how it goes, stop it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..plaintext import printable
from .main import EXIT_FINDING, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import Duration, load_target, target
from .runoptions import job_options, request_of

if TYPE_CHECKING:
    from ..jobs.state import JobView
    from .runlive import Live
    from .runlogs import Wanted


@click.group(no_args_is_help=True)
def run() -> None:
    """Start a job on nodes that people share by agreement, watch it, stop it. Not a scheduler.

    \b
    gconsole run plan  hosts.toml --nodes 4 --gpus-per-node 8 -- train.py --lr 1
    gconsole run start hosts.toml --nodes 4 --follow -- python train.py
    gconsole run logs  hosts.toml train-3f9a1c --follow
    gconsole run stop  hosts.toml train-3f9a1c

    COMMAND is a script (train.py, started by torchrun), python SCRIPT or python -m MODULE (by that Python's torch), or
    any program (once a rank). The job runs on without the console; its output stays in files on the nodes.
    """


_json = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
_job = click.argument("job", metavar="JOB")
_rank_set = click.option("--rank", "ranks", metavar="0-3,7", help="Only these ranks.")


@run.command()
@target
@job_options
@_json
def plan(target: str, overrides: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Which nodes would take the job, and the exact command on each; nothing is started.

    Exit codes: 0 it could start, 1 it could not.
    """
    from ..jobs import show
    from ..jobs.plan import Plan

    found = asyncio.run(_plan(target, overrides, options))
    in_words = show.plan_text(found) if isinstance(found, Plan) else show.refusal_text(found)
    click.echo(show.to_json(found) if as_json else in_words)
    return EXIT_OK if isinstance(found, Plan) else EXIT_FINDING


@run.command()
@target
@job_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--follow", is_flag=True, help="Show its output until it is over, and exit with its code.")
@_json
def start(
    target: str, overrides: tuple[str, ...], yes: bool, follow: bool, as_json: bool, **options: Any
) -> int:
    """Plan, ask, and start the job on all of its nodes; if one of them cannot, on none.

    Exit codes: 0 it runs, 1 it could not start, 3 it could not, and it is unknown whether all is ended; with --follow
    the job's own.
    """
    if as_json and not yes:
        raise click.UsageError("--json asks nobody: it needs --yes")
    if as_json and follow:
        raise click.UsageError("--json and --follow both want stdout")
    return asyncio.run(_start(target, overrides, options, yes, follow, as_json))


@run.command()
@target
@click.argument("job", metavar="[JOB]", required=False)
@_json
def status(target: str, overrides: tuple[str, ...], job: str | None, as_json: bool) -> int:
    """Every job that gconsole started, or one, node by node, as the nodes themselves keep it."""
    return asyncio.run(_status(target, overrides, job, as_json))


@run.command()
@target
@_job
@_rank_set
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines with a match.")
@click.option("--tail", type=click.IntRange(1), help="Only the last lines of each rank.")
@click.option("--fold/--no-fold", default=True, show_default=True, help="Equal lines of several ranks once.")
@click.option("--follow", is_flag=True, help="Until the job is over.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write there instead of to stdout.")
def logs(
    target: str, overrides: tuple[str, ...], job: str, ranks: str | None, pattern: str | None, tail: int | None,
    fold: bool, follow: bool, output: Path | None,
) -> int:  # fmt: skip
    """What all ranks wrote, in one stream: `[0-63] loss 2.31`.

    Exit codes: 0 all of it, 3 some nodes could not be read.
    """
    from .runlogs import Wanted

    wanted = Wanted(tail, _ranks(ranks), _pattern(pattern), fold)
    return asyncio.run(_logs(target, overrides, job, wanted, follow, output))


@run.command()
@target
@_job
@click.option("--timeout", "timeout_s", type=Duration(), help="Give up after this, with exit code 124.")
def wait(target: str, overrides: tuple[str, ...], job: str, timeout_s: float | None) -> int:
    """Wait until the job is over; exit with its code (that of the node that failed first, 128 + N for signal N)."""
    return asyncio.run(_wait(target, overrides, job, timeout_s))


@run.command()
@target
@_job
@click.option("--grace", "grace_s", type=Duration(), default=10.0, show_default=True, metavar="DURATION",
              help="Between TERM and KILL.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def stop(target: str, overrides: tuple[str, ...], job: str, grace_s: float, yes: bool) -> int:
    """End every process of the job on every node: TERM, and KILL after the grace. It says what is left.

    Exit codes: 0 nothing is left, 1 something is, 3 nodes could not be asked (run it again when they are back).
    """
    return asyncio.run(_stop(target, overrides, job, grace_s, yes))


@run.command()
@target
@_job
@click.argument("path", metavar="PATH")
@click.option("--node", "only", metavar="NODE", help="Only from this node.  [default: all of the job]")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path(), help="Folder to put NODE/… in.")
def fetch(target: str, overrides: tuple[str, ...], job: str, path: str, only: str | None, output: Path) -> int:
    """Bring a file or a folder of the job back, from each node into a folder of its name.

    PATH is below the folder the job works in, or absolute. Exit codes: 0 from all nodes, 3 not from all.
    """
    return asyncio.run(_fetch(target, overrides, job, path, only, output))


# -- what they do ------------------------------------------------------------------------------------------------------


async def _plan(target: str, overrides: tuple[str, ...], options: dict[str, Any]) -> Any:
    from ..jobs.request import new_job
    from .runlive import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config) as fleet:
        return await _planned(fleet, request, new_job(request.command))


async def _planned(fleet: Live, request: Any, job: str) -> Any:
    from ..jobs.facts import facts_of
    from ..jobs.making import make_plan

    return await make_plan(fleet.fleet, facts_of(fleet.store, fleet.environments), request, job)


async def _start(
    target: str, overrides: tuple[str, ...], options: dict[str, Any], yes: bool, follow: bool, as_json: bool
) -> int:
    from ..jobs import show
    from ..jobs.plan import Refusal
    from ..jobs.request import new_job
    from .runlive import live

    config = load_target(target, overrides)
    request = request_of(options, config.run)
    async with live(config, allow_run=True) as fleet:
        found = await _planned(fleet, request, new_job(request.command))
        if isinstance(found, Refusal):
            click.echo(show.to_json(found) if as_json else show.refusal_text(found))
            return EXIT_FINDING
        click.echo(show.to_json(found) if as_json else show.plan_text(found))
        if not (yes or await asyncio.to_thread(click.confirm, "Start it?", default=False, err=True)):
            return EXIT_FINDING
        failures = await fleet.fleet.start_job(found.orders)
        if failures:
            for node, failure in failures.items():
                click.echo(printable(f"✖ {node}  {failure.name}: {failure.text}"), err=True)
                if failure.try_:
                    click.echo(printable(f"  try: {failure.try_}"), err=True)
            unknown = any(failure.name in ("left", "lost", "timeout") for failure in failures.values())
            click.echo(f"{found.job} was not started" + ("; look with: gconsole run status" if unknown else
                       "; nothing of it is left"), err=True)  # fmt: skip
            return EXIT_PARTIAL if unknown else EXIT_FINDING
        if not as_json:
            click.echo(f"{found.job} runs: gconsole run logs {target} {found.job} --follow", err=True)
        if not follow:
            return EXIT_OK
        return await _followed(fleet, found.job)


async def _followed(fleet: Live, job: str) -> int:
    from ..jobs.state import job_view
    from .runlogs import Wanted, stream

    await fleet.until(lambda: (view := job_view(fleet.store, job)) is not None and not view.unseen, 15.0)
    view = await _view(fleet, job)
    await stream(fleet, view, Wanted(), click.echo, follow=True)
    return _ended(await _view(fleet, job))


async def _status(target: str, overrides: tuple[str, ...], job: str | None, as_json: bool) -> int:
    from ..jobs import show
    from ..jobs.state import job_views
    from ..report import coverage_code
    from .runlive import live

    async with live(load_target(target, overrides)) as fleet:
        views = [await _view(fleet, job)] if job else job_views(fleet.store)
        click.echo(show.status_json(views) if as_json else show.status_text(views))
        return coverage_code(fleet.store)


async def _logs(
    target: str, overrides: tuple[str, ...], job: str, wanted: Wanted, follow: bool, output: Path | None
) -> int:
    from .. import files
    from .runlive import live
    from .runlogs import stream

    async with live(load_target(target, overrides)) as fleet:
        view = await _view(fleet, job)
        if output is None:
            problems = await stream(fleet, view, wanted, click.echo, follow=follow)
        else:
            with files.open_new(output) as file:
                problems = await stream(fleet, view, wanted, lambda text: _append(file, text), follow=follow)
    for problem in problems:
        click.echo(printable(f"gconsole: {problem}"), err=True)
    return EXIT_PARTIAL if problems else EXIT_OK


def _append(file: Any, text: str) -> None:
    file.write(text.encode() + b"\n")
    file.flush()


async def _wait(target: str, overrides: tuple[str, ...], job: str, timeout_s: float | None) -> int:
    from ..jobs.state import job_view
    from .runlive import live

    async with live(load_target(target, overrides)) as fleet:
        name = (await _view(fleet, job)).ordered.job
        if not await fleet.until(lambda: (now := job_view(fleet.store, name)) is not None and now.is_over, timeout_s):
            click.echo(f"gconsole: {name} is not over yet", err=True)
            return 124  # as timeout(1)
        return _ended(await _view(fleet, name))


def _ended(view: JobView) -> int:
    from ..jobs import show

    click.echo(show.status_text([view]), err=True)
    return view.exit_code


async def _stop(target: str, overrides: tuple[str, ...], job: str, grace_s: float, yes: bool) -> int:
    from ..joborders import NodeStop
    from .runlive import live

    async with live(load_target(target, overrides), allow_run=True) as fleet:
        view = await _view(fleet, job)
        name = view.ordered.job
        question = f"Stop {name} on {len(view.lines)} nodes?"
        if not (yes or await asyncio.to_thread(click.confirm, question, default=False, err=True)):
            return EXIT_FINDING
        nodes = [line.node for line in view.lines if line.node in fleet.fleet.links]
        answers = await fleet.fleet.stop_job(name, nodes, grace_s)
        code = EXIT_OK
        for line in view.lines:
            answer = answers.get(line.node)
            if isinstance(answer, NodeStop):
                left = ", ".join(map(str, answer.left))
                rest = f"left: pid {left}" if left else "nothing left"
                click.echo(printable(f"{line.node}  {answer.state}: {answer.found} processes ended, {rest}"))
                code = EXIT_FINDING if left else code
            else:
                click.echo(printable(f"{line.node}  unknown: {answer.text if answer else line.why}"))
                code = code or EXIT_PARTIAL
        return code


async def _fetch(
    target: str, overrides: tuple[str, ...], job: str, path: str, only: str | None, output: Path
) -> int:
    from .runfetch import fetch_from
    from .runlive import live

    async with live(load_target(target, overrides)) as fleet:
        view = await _view(fleet, job)
        nodes = [line.node for line in view.lines if only is None or line.node == only]
        if not nodes:
            raise click.UsageError(f"--node {only}: the job {view.ordered.job} is not there")
        problems = [p for node in nodes if (p := await fetch_from(fleet.fleet, view.ordered.job, node, path, output))]
    for problem in problems:
        click.echo(printable(f"gconsole: {problem}"), err=True)
    return EXIT_PARTIAL if problems else EXIT_OK


async def _view(fleet: Live, name: str) -> JobView:
    """The job of that name, or the only one that begins so. Raises UsageError; ends where nothing is reachable."""
    from ..jobs.state import job_views
    from ..report import coverage_code

    views = job_views(fleet.store)
    found = [view for view in views if view.ordered.job == name] or [v for v in views if v.ordered.job.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found and coverage_code(fleet.store) == EXIT_NOTHING:
        click.echo("gconsole: no node can be reached", err=True)
        raise click.exceptions.Exit(EXIT_NOTHING)
    known = printable(", ".join(view.ordered.job for view in (found or views)[:8])) or "none"
    raise click.UsageError(f"{name}: {'several jobs begin so' if found else 'no such job'}; there are {known}")


def _ranks(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if match is None:
            raise click.BadParameter(f"{text!r} is no set of ranks; write 0-3,7", param_hint="--rank")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--grep") from error
