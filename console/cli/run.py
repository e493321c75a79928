"""`gconsole run`: start, monitor and stop jobs."""

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
    """Start, monitor and stop jobs on shared nodes without a scheduler.

    \b
    gconsole run plan  hosts.toml --nodes 4 --gpus-per-node 8 -- train.py --lr 1
    gconsole run start hosts.toml --nodes 4 --follow -- python train.py
    gconsole run logs  hosts.toml train-3f9a1c --follow
    gconsole run stop  hosts.toml train-3f9a1c

    COMMAND: a script (train.py, started by torchrun), python SCRIPT or python -m MODULE (uses that Python's torch), or
    any program (started once per rank). Jobs keep running without the console; output is stored on the nodes.
    """


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_job = click.argument("job", metavar="JOB")
_rank_set = click.option("--rank", "ranks", metavar="0-3,7", help="Only these ranks.")


@run.command()
@target
@job_options
@_json
def plan(target: str, overrides: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Dry run: print the nodes and the exact command for each.

    Exit codes: 0 can start, 1 cannot start.
    """
    from ..launch import format
    from ..launch.plan import LaunchPlan

    result = asyncio.run(run_start.plan(target, overrides, options))
    text = format.plan_text(result) if isinstance(result, LaunchPlan) else format.refusal_text(result)
    click.echo(format.to_json(result) if as_json else text)
    return EXIT_OK if isinstance(result, LaunchPlan) else EXIT_FINDING


@run.command()
@target
@job_options
@click.option("--yes", is_flag=True, help="Skip confirmation.")
@click.option("--follow", is_flag=True, help="Follow output until the job ends, and exit with its exit code.")
@_json
def start(target: str, overrides: tuple[str, ...], yes: bool, follow: bool, as_json: bool, **options: Any) -> int:
    """Plan a job, ask for confirmation, and start it on all nodes or none.

    Exit codes: 0 started, 1 not started, 3 not started and cleanup unconfirmed; with --follow, the job's exit code.
    """
    if as_json and not yes:
        raise click.UsageError("--json requires --yes")
    if as_json and follow:
        raise click.UsageError("--json and --follow are mutually exclusive")
    return asyncio.run(run_start.start(target, overrides, options, yes, follow, as_json))


@run.command()
@target
@click.argument("job", metavar="[JOB]", required=False)
@_json
def status(target: str, overrides: tuple[str, ...], job: str | None, as_json: bool) -> int:
    """Show the state of jobs started by gconsole, per node."""
    return asyncio.run(run_control.status(target, overrides, job, as_json))


@run.command()
@target
@_job
@_rank_set
@click.option("--grep", "pattern", metavar="REGEX", help="Only matching lines.")
@click.option("--tail", type=click.IntRange(1), help="Only the last N lines of each rank.")
@click.option("--fold/--no-fold", default=True, show_default=True, help="Merge identical lines of several ranks.")
@click.option("--follow", is_flag=True, help="Follow output until the job ends.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Output file.  [default: stdout]")
def logs(
    target: str, overrides: tuple[str, ...], job: str, ranks: str | None, pattern: str | None, tail: int | None,
    fold: bool, follow: bool, output: Path | None,
) -> int:  # fmt: skip
    """Print the output of all ranks as one stream: `[0-63] loss 2.31`.

    Exit codes: 0 complete, 3 some nodes could not be read.
    """
    from .run_output import LineFilter

    lines = LineFilter(tail, _ranks(ranks), _pattern(pattern), fold)
    return asyncio.run(run_control.logs(target, overrides, job, lines, follow, output))


@run.command()
@target
@_job
@click.option("--timeout", "timeout_s", type=DurationType(), help="Exit with code 124 after this long.")
def wait(target: str, overrides: tuple[str, ...], job: str, timeout_s: float | None) -> int:
    """Wait until the job ends; exit with the code of the first failed node (128 + N for signal N)."""
    return asyncio.run(run_control.wait(target, overrides, job, timeout_s))


@run.command()
@target
@_job
@click.option(
    "--grace",
    "grace_s",
    type=DurationType(),
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="Time between SIGTERM and SIGKILL.",
)
@click.option(
    "--wait",
    "wait_s",
    type=DurationType(),
    default="0s",
    show_default=True,
    metavar="DURATION",
    help="Wait this long for unreachable nodes.",
)
@click.option("--yes", is_flag=True, help="Skip confirmation.")
def stop(target: str, overrides: tuple[str, ...], job: str, grace_s: float, wait_s: float, yes: bool) -> int:
    """Stop all processes of the job: SIGTERM, then SIGKILL after the grace period. Reports remaining processes.

    Unreachable nodes are stopped by your next `gconsole run` that reaches them.
    Exit codes: 0 all processes ended, 1 processes remain, 3 some nodes unreachable.
    """
    return asyncio.run(run_control.stop(target, overrides, job, grace_s, wait_s, yes))


@run.command()
@target
@_job
@click.argument("path", metavar="PATH")
@click.option("--node", "only", metavar="NODE", help="Only this node.  [default: all nodes of the job]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path(), help="Destination folder; files go to NODE/…"
)
def fetch(target: str, overrides: tuple[str, ...], job: str, path: str, only: str | None, output: Path) -> int:
    """Copy a file or folder of the job from each node into a folder named after the node.

    PATH is relative to the working directory of the job, or absolute. Exit codes: 0 all nodes, 3 some nodes failed.
    """
    return asyncio.run(run_control.fetch(target, overrides, job, path, only, output))


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
