"""The headless program on what was written down: no SSH, the same report."""

from __future__ import annotations

from pathlib import Path

import click

from ..analysis.models import BadModel, parse_model
from ..batch import findings
from ..hub import Hub
from ..imports.dumps import NoDumps, records_of
from ..recordfile import RecordFileError, play
from ..store import Store
from .output import finish


def run_from_file(
    path: Path, *, output: str | None, quiet: bool, fail_on: tuple[str, ...], diagnose: bool = False
) -> int:
    """Fold the records of a file and report; with `diagnose` the verdicts are findings. An exit code."""
    store = folded(path)
    if diagnose:
        store.apply(findings(store))
    return finish(store, output, quiet, fail_on)


def folded(path: Path) -> Store:
    """What the records of a file come to. Raises UsageError."""
    hub = Hub()
    store = Store()
    hub.subscribe(store.apply)
    try:
        play(path, hub)
    except RecordFileError as error:
        raise click.UsageError(str(error)) from error
    return store


def run_from_folder(
    path: Path, models: tuple[str, ...], *, output: str | None, quiet: bool, fail_on: tuple[str, ...]
) -> int:
    """Judge a folder of dumps; an exit code. Raises UsageError where there is none in it."""
    store = Store()
    try:
        for text in models:
            parse_model(text)
        imported = records_of(path, models)
    except BadModel as error:
        raise click.BadParameter(str(error), param_hint="--model") from error
    except NoDumps as error:
        raise click.UsageError(str(error)) from error
    for name, problem in imported.refused:
        click.echo(f"gconsole: {name}: {problem}", err=True)
    store.apply(imported.records)
    store.apply(findings(store))
    return finish(store, output, quiet, fail_on)
