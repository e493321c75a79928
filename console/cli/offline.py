"""The headless program on recorded records: no SSH, the same report."""

from __future__ import annotations

from pathlib import Path

import click

from ..hub import Hub
from ..recordfile import RecordFileError, play
from ..store import Store
from .output import finish


def run_from_file(path: Path, *, output: str | None, quiet: bool, fail_on: tuple[str, ...]) -> int:
    """Fold the records of a file and report; an exit code."""
    return finish(folded(path), output, quiet, fail_on)


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
