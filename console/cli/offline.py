"""Headless reports from recordings and dump folders, without SSH."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..analysis.stacks.frame_models import BadModel, parse_model
from ..core.bus import Hub, Sink
from ..core.store import Store
from ..headless.batch import verdict_findings
from ..session.format import reader
from ..session.format.layout import Session, SessionError, find, sessions_folder
from ..session.format.zstd_frames import Damage
from ..session.imports.collectives import import_folder
from ..session.imports.py_spy_dumps import JOB, NoDumps, records_of, without_stacks
from ..session.ndjson import RecordFileError, SampleStream, play
from ..text.sanitize import printable
from .output import AS_SUMMARY, StackOutput, close_stream, finish


def run_from_file(
    path: Path, *, output: str | None, quiet: bool, fail_on: tuple[str, ...], diagnose: bool = False,
    metrics: tuple[str, ...] = (), stacks: StackOutput = AS_SUMMARY,
) -> int:  # fmt: skip
    """Report on a recording, with its recorded findings; returns the exit code.

    `diagnose`: add verdicts to the findings. `metrics`: families to stream to stdout.
    """
    stream = SampleStream(metrics, sys.stdout.fileno(), patient=True) if metrics else None
    try:
        store = folded(path, *([stream] if stream else []))
    finally:
        if stream:
            close_stream(stream)
    if diagnose:
        store.apply(verdict_findings(store))
    return finish(store, output, quiet, fail_on, stdout_is_taken=bool(metrics), stacks=stacks)


def folded(path: Path, *sinks: Sink) -> Store:
    """The store after replaying a file or session; records also go to `sinks`. Raises UsageError."""
    hub = Hub()
    store = Store()
    for sink in (store.apply, *sinks):
        hub.subscribe(sink)
    session = session_of(path)
    try:
        if session is None:
            play(path, hub)
        else:
            for record in reader.lenient(session.path, _report_damage):
                hub.publish([record])
    except (RecordFileError, OSError) as error:
        raise click.UsageError(str(error)) from error
    return store


def session_of(path: Path) -> Session | None:
    """The session with that name or folder; None for a file or another folder. Raises UsageError if not found."""
    is_session = (path / "session.json").is_file()
    if path.exists() and not is_session:
        return None
    try:
        session = find(str(path), sessions_folder())
        session.read()
    except SessionError as error:
        raise click.UsageError(printable(str(error))) from error
    return session


def _report_damage(damage: Damage) -> None:
    click.echo(f"gconsole: {printable(str(damage))}; continuing with the rest", err=True)


def run_from_folder(
    path: Path, models: tuple[str, ...], *, output: str | None, quiet: bool, fail_on: tuple[str, ...],
    stacks: StackOutput = AS_SUMMARY,
) -> int:  # fmt: skip
    """Analyse a folder of stack and collective dumps; returns the exit code. Raises UsageError without any dump."""
    store = Store()
    flight = import_folder(path, JOB)
    try:
        for text in models:
            parse_model(text)
        read = records_of(path, models)
    except BadModel as error:
        raise click.BadParameter(str(error), param_hint="--model") from error
    except NoDumps as error:
        if not flight.records:
            text = f"{error}, and no Flight Recorder dumps, NCCL RAS output or NCCL logs"
            raise click.UsageError(text) from error
        read = without_stacks(path, models)
    imported = {str(file.relative_to(path)) for file in flight.read}
    for name, problem in read.refused:
        if name not in imported:
            click.echo(f"gconsole: {name}: {problem}", err=True)
    for trouble in flight.problems:
        click.echo(f"gconsole: {printable(str(trouble))}", err=True)
    store.apply([*read.records, *flight.records])
    store.apply(verdict_findings(store))
    return finish(store, output, quiet, fail_on, stacks=stacks)
