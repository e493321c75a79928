"""`gconsole diagnose`: who holds a job, told from what was written down before."""

from __future__ import annotations

from pathlib import Path

import click

from .options import stack_format, wanted_stacks


@click.command()
@click.argument("source", metavar="SESSION|RECORDS|FOLDER", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", help="Write the report as JSON; - is stdout.")
@click.option("--quiet", is_flag=True, help="No summary.")
@click.option(
    "--model",
    "models",
    metavar="'CLASS FUNCTION [FILE]'",
    multiple=True,
    help="What calls of your own framework mean, as [hang] models has it; for a folder. Repeatable.",
)
@stack_format
@click.option(
    "--fail-on",
    default="error",
    show_default=True,
    metavar="SEVERITY|ID,…",
    help="Findings that make the exit code 1: at or above a severity, or by id.",
)
def diagnose(
    source: Path, output: str | None, quiet: bool, models: tuple[str, ...], fail_on: str, form: str | None,
    threads: str, granularity: str,
) -> int:  # fmt: skip
    """Judge a hang from a recorded session, a file of records, or a folder of dumps that somebody sent.

    A folder holds what `py-spy dump` wrote of each rank, as text or JSON, one file a process; the rank is told by the
    name of its file (rank3.txt, node2.rank-3.1.json), or of its folder. Several dumps of one rank, some seconds apart,
    can prove a hang; one cannot. It may also hold dumps of PyTorch's Flight Recorder (nccl_trace_rank_3), answers of
    NCCL RAS, and logs of NCCL or its Inspector: what is told by them is shown, and weighed in the verdict.

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
        raise click.UsageError("--model is for a folder; records say themselves by which models they were read")
    return run_from_file(source, output=output, quiet=quiet, fail_on=wanted, diagnose=True, stacks=stacks)
