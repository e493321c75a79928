"""`gconsole run`: start a job on the nodes, see how it goes, stop it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import click

from . import run_control, run_start
from .main import EXIT_FINDING, EXIT_OK
from .options import DurationType, target
from .run_options import job_options


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
    from ..launch import format
    from ..launch.plan import LaunchPlan

    found = asyncio.run(run_start.plan(target, overrides, options))
    in_words = format.plan_text(found) if isinstance(found, LaunchPlan) else format.refusal_text(found)
    click.echo(format.to_json(found) if as_json else in_words)
    return EXIT_OK if isinstance(found, LaunchPlan) else EXIT_FINDING


@run.command()
@target
@job_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--follow", is_flag=True, help="Show its output until it is over, and exit with its code.")
@_json
def start(target: str, overrides: tuple[str, ...], yes: bool, follow: bool, as_json: bool, **options: Any) -> int:
    """Plan, ask, and start the job on all of its nodes; if one of them cannot, on none.

    Exit codes: 0 it runs, 1 it could not start, 3 it could not, and it is unknown whether all is ended; with --follow
    the job's own.
    """
    if as_json and not yes:
        raise click.UsageError("--json asks nobody: it needs --yes")
    if as_json and follow:
        raise click.UsageError("--json and --follow both want stdout")
    return asyncio.run(run_start.start(target, overrides, options, yes, follow, as_json))


@run.command()
@target
@click.argument("job", metavar="[JOB]", required=False)
@_json
def status(target: str, overrides: tuple[str, ...], job: str | None, as_json: bool) -> int:
    """Every job that gconsole started, or one, node by node, as the nodes themselves keep it."""
    return asyncio.run(run_control.status(target, overrides, job, as_json))


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
    from .run_logs import Wanted

    wanted = Wanted(tail, _ranks(ranks), _pattern(pattern), fold)
    return asyncio.run(run_control.logs(target, overrides, job, wanted, follow, output))


@run.command()
@target
@_job
@click.option("--timeout", "timeout_s", type=DurationType(), help="Give up after this, with exit code 124.")
def wait(target: str, overrides: tuple[str, ...], job: str, timeout_s: float | None) -> int:
    """Wait until the job is over; exit with its code (that of the node that failed first, 128 + N for signal N)."""
    return asyncio.run(run_control.wait(target, overrides, job, timeout_s))


@run.command()
@target
@_job
@click.option(
    "--grace",
    "grace_s",
    type=DurationType(),
    default=10.0,
    show_default=True,
    metavar="DURATION",
    help="Between TERM and KILL.",
)
@click.option(
    "--wait",
    "wait_s",
    type=DurationType(),
    default=0.0,
    metavar="DURATION",
    help="So long for nodes that are away to come back.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def stop(target: str, overrides: tuple[str, ...], job: str, grace_s: float, wait_s: float, yes: bool) -> int:
    """End every process of the job on every node: TERM, and KILL after the grace. It says what is left.

    For nodes that are away the order is kept: your next `gconsole run` that sees them ends their part.
    Exit codes: 0 nothing is left, 1 something is, 3 nodes could not be asked.
    """
    return asyncio.run(run_control.stop(target, overrides, job, grace_s, wait_s, yes))


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
    return asyncio.run(run_control.fetch(target, overrides, job, path, only, output))


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
