"""`gconsole diagnose`: hang analysis of recordings and py-spy dumps."""

from __future__ import annotations

from pathlib import Path

import click

from .options import stack_format, wanted_stacks


@click.command()
@click.argument("source", metavar="SESSION|RECORDS|FOLDER", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", help="Write the report as JSON; - = stdout.")
@click.option("--quiet", is_flag=True, help="Suppress the summary.")
@click.option(
    "--model",
    "models",
    metavar="'CLASS FUNCTION [FILE]'",
    multiple=True,
    help="Frame model for your framework's calls, in the format of [hang] models; folders only. Repeatable.",
)
@stack_format
@click.option(
    "--fail-on",
    default="error",
    show_default=True,
    metavar="SEVERITY|ID,…",
    help="Exit with code 1 on findings at or above this severity, or with these ids.",
)
def diagnose(
    source: Path, output: str | None, quiet: bool, models: tuple[str, ...], fail_on: str, form: str | None,
    threads: str, granularity: str,
) -> int:  # fmt: skip
    """Find the blocking rank from a session, an NDJSON recording, or a folder of dumps.

    A folder contains `py-spy dump` output of each rank (text or JSON), one file per process; the rank is taken from the
    name of the file (rank3.txt, node2.rank-3.1.json) or of its folder. Several dumps of one rank, a few seconds apart,
    are required to prove a hang. PyTorch Flight Recorder dumps (nccl_trace_rank_3), NCCL RAS output, and logs of NCCL
    or NCCL Inspector in the folder are shown and included in the verdict.

    \b
    gconsole diagnose evening-run
    gconsole diagnose night.ndjson
    gconsole diagnose dumps/
    gconsole diagnose dumps/ --format speedscope > stacks.speedscope.json
    gconsole diagnose dumps/ --format dot | dot -Tsvg > stacks.svg
    """
    from .offline import run_from_file, run_from_folder, session_of

    wanted = tuple(word.strip() for word in fail_on.split(",") if word.strip())
    stacks = wanted_stacks(form, threads, granularity, output)
    if session_of(source) is None and source.is_dir():
        return run_from_folder(source, models, output=output, quiet=quiet, fail_on=wanted, stacks=stacks)
    if models:
        raise click.UsageError("--model applies to folders only; recordings contain their models")
    return run_from_file(source, output=output, quiet=quiet, fail_on=wanted, diagnose=True, stacks=stacks)
