"""The headless program on recorded records: no SSH, the same report."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..hub import Hub
from ..recordfile import RecordFileError, play
from ..samples import SampleStream
from ..store import Store
from .output import close_stream, finish


def run_from_file(
    path: Path, *, output: str | None, quiet: bool, fail_on: tuple[str, ...], metrics: tuple[str, ...] = ()
) -> int:
    """Fold the records of a file and report; an exit code. Its findings are those that were recorded."""
    hub = Hub()
    store = Store()
    hub.subscribe(store.apply)
    stream = SampleStream(metrics, sys.stdout.fileno(), patient=True) if metrics else None
    if stream:
        hub.subscribe(stream)
    try:
        play(path, hub)
    except RecordFileError as error:
        raise click.UsageError(str(error)) from error
    finally:
        if stream:
            close_stream(stream)
    return finish(store, output, quiet, fail_on, stdout_is_taken=bool(metrics))
