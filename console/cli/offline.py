"""The headless program on recorded records: no SSH, the same report."""

from __future__ import annotations

from pathlib import Path

import click

from ..batch import findings
from ..hub import Hub
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
