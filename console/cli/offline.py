"""The headless program on what was written down: no SSH, the same report."""

from __future__ import annotations

from pathlib import Path

import click

from ..analysis.models import BadModel, parse_model
from ..batch import findings
from ..hub import Hub
from ..imports.collectives import import_folder
from ..imports.dumps import JOB, NoDumps, records_of, without_stacks
from ..plaintext import printable
from ..recordfile import RecordFileError, play
from ..store import Store
from .output import finish


def run_from_file(
    path: Path, *, output: str | None, quiet: bool, fail_on: tuple[str, ...], diagnose: bool = False
) -> int:
    """Fold the records of a file and report; with `diagnose` the verdicts are findings. An exit code."""
    hub = Hub()
    store = Store()
    hub.subscribe(store.apply)
    try:
        play(path, hub)
    except RecordFileError as error:
        raise click.UsageError(str(error)) from error
    if diagnose:
        store.apply(findings(store))
    return finish(store, output, quiet, fail_on)


def run_from_folder(
    path: Path, models: tuple[str, ...], *, output: str | None, quiet: bool, fail_on: tuple[str, ...]
) -> int:
    """Judge a folder of dumps, of stacks, collectives or both; an exit code. Raises UsageError where there is none."""
    store = Store()
    flight = import_folder(path, JOB)
    try:
        for text in models:
            parse_model(text)
        stacks = records_of(path, models)
    except BadModel as error:
        raise click.BadParameter(str(error), param_hint="--model") from error
    except NoDumps as error:
        if not flight.records:
            text = f"{error}, and nothing of a Flight Recorder, of NCCL RAS, or of NCCL's logs"
            raise click.UsageError(text) from error
        stacks = without_stacks(path, models)
    ours = {str(one.relative_to(path)) for one in flight.read}
    for name, problem in stacks.refused:
        if name not in ours:
            click.echo(f"gconsole: {name}: {problem}", err=True)
    for trouble in flight.problems:
        click.echo(f"gconsole: {printable(str(trouble))}", err=True)
    store.apply([*stacks.records, *flight.records])
    store.apply(findings(store))
    return finish(store, output, quiet, fail_on)
