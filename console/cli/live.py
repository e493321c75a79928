"""Puts the parts together for a live run: hub, store, fleet, and either a screen or a report."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from .. import __version__, batch
from ..analysis.models import BadModel, parse_model
from ..config import Config, ConfigError
from ..config.follow import HostsFile
from ..diagnose import Diagnosis
from ..findings import Findings
from ..fleet.fleet import Fleet
from ..hub import CaptureOrder, Hub
from ..recordfile import RecordWriter
from ..records import Console
from ..samples import SampleStream
from ..store import Store
from .main import EXIT_INTERRUPTED
from .output import AS_SUMMARY, StackOutput, close_stream, finish


def run_tui(config: Config, read: Callable[[], Config] | None = None, *, remember: bool = True) -> int:
    """Watch a fleet in the terminal until the person quits; an exit code. Raises UsageError without a terminal.

    `read` reads the configuration again, when its file has been saved. `remember`: what is arranged, for the next time.
    """
    if not os.environ.get("TEXTUAL_DRIVER"):  # else it draws elsewhere: in a browser, for `gconsole serve`
        refuse_a_terminal_that_cannot_draw("gconsole batch TARGET")
        _ask_the_terminal_for_its_size()
    from ..tui.app import ConsoleApp
    from ..tui.guide import every_action
    from ..tui.keyfile import keyfile_of_this_user, read_keys
    from ..tui.memory import Memory
    from ..tui.theme_shelf import ThemeShelf

    hub = Hub()
    store = Store(config.console.history_bytes)
    hub.subscribe(store.apply)
    hub.say(_console(config))
    hosts = HostsFile(config.path, read) if config.path and read else None

    async def ask(who: str, prompt: str) -> str | None:
        return await app.ask(who, prompt)

    fleet = Fleet(config, hub, ask)
    app = ConsoleApp(
        store, fleet, cluster=config.cluster, expected_nodes=[node.name for node in config.nodes],
        staging=lambda: (fleet.staging.staged, fleet.staging.expected), on_start=fleet.start, on_stop=fleet.stop,
        themes=ThemeShelf.of_this_user(), hosts=hosts, say=hub.say,
        keys=read_keys(keyfile_of_this_user(), every_action()),
        memory=Memory.of_cluster(config.cluster) if remember else None, clipboard=config.console.clipboard,
        findings=Findings(hub, config.health),
    )
    app.run()
    return app.return_code or 0


def refuse_a_terminal_that_cannot_draw(instead: str) -> None:
    """Raises UsageError where there is no terminal, or one on which nothing can be placed; `instead` works there."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # Textual reads the one and draws on the other
        raise click.UsageError(f"the console needs a terminal; without one, use: {instead}")
    term = os.environ.get("TERM")
    if term in ("dumb", "unknown"):
        raise click.UsageError(
            f"this terminal (TERM={term}) cannot place a cursor, so nothing can be drawn on it; use: {instead}"
        )


def _ask_the_terminal_for_its_size() -> None:
    """Some programs (whatever uses readline, watch, Emacs) hand down the size that a terminal once had, as variables.

    Python believes those before the terminal, and the screen would never follow it.
    """
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


def run_batch(
    config: Config, *, for_s: float = 0.0, output: str | None = None, quiet: bool = False,
    records: Path | None = None, fail_on: tuple[str, ...] = ("error",),
    order: CaptureOrder | Diagnosis | None = None, before: Callable[[], Awaitable[None]] | None = None,
    metrics: tuple[str, ...] = (), stacks: StackOutput = AS_SUMMARY,
) -> int:
    """Watch a fleet without a screen, capture or diagnose where that is ordered, report; an exit code.

    `before` is awaited when every node has been seen, before anything is captured. With `metrics` the samples of these
    families go to stdout as they come, and the summary to stderr.
    """
    store, interrupted = asyncio.run(_watch(config, for_s, records, quiet, order, before, metrics))
    status = finish(store, output, quiet, fail_on, stdout_is_taken=bool(metrics), stacks=stacks)
    return EXIT_INTERRUPTED if interrupted else status


def observe(config: Config) -> Store:
    """Look at a fleet once, until every node has sampled or failed."""
    store, interrupted = asyncio.run(_watch(config, 0.0, None, quiet=False))
    if interrupted:
        raise KeyboardInterrupt
    return store


async def _watch(
    config: Config, for_s: float, records: Path | None, quiet: bool, order: CaptureOrder | Diagnosis | None = None,
    before: Callable[[], Awaitable[None]] | None = None, metrics: tuple[str, ...] = (),
) -> tuple[Store, bool]:  # fmt: skip
    hub = Hub()
    store = Store()
    hub.subscribe(store.apply)
    writer = _writer(records)
    if writer:
        hub.subscribe(writer)
    stream = SampleStream(metrics, sys.stdout.fileno()) if metrics else None
    if stream:
        hub.subscribe(stream)
    findings = Findings(hub, config.health)
    hub.say(_console(config))
    fleet = Fleet(config, hub)
    interrupted = _on_signals()
    await fleet.start()
    progress = batch.Progress(store, None if quiet else _progress)
    watching = asyncio.create_task(
        batch.watch(
            store, hub, fleet, for_s, progress, order, before, findings,
            lambda: stream is not None and stream.is_closed,
        )
    )  # fmt: skip
    await asyncio.wait({watching, interrupted}, return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    try:
        await watching
    except asyncio.CancelledError:
        if not interrupted.done():
            raise
    if not quiet:
        click.echo("", err=True)
        for line in batch.warnings(store):
            click.echo(f"gconsole: {line}", err=True)
    if stream:
        close_stream(stream)
    if writer:
        writer.close()
        if writer.failure:
            click.echo(f"gconsole: {records}: {writer.failure.strerror}; records after that are missing", err=True)
    return store, interrupted.done()


def _console(config: Config) -> Console:
    """Who watches, and by which models. Raises ConfigError for a model that is none."""
    for text in config.hang.models:
        try:
            parse_model(text)
        except BadModel as error:
            raise ConfigError("", "hang.models", str(error)) from error
    return Console(cluster=config.cluster, version=__version__, hang_models=config.hang.models,
                   min_frozen_s=config.hang.min_frozen_s)  # fmt: skip


def _writer(path: Path | None) -> RecordWriter | None:
    if path is None:
        return None
    try:
        return RecordWriter(path)
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error


def _on_signals() -> asyncio.Future[None]:
    """Done once SIGINT or SIGTERM has come."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[None] = loop.create_future()

    def interrupt() -> None:
        if not interrupted.done():
            interrupted.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    return interrupted


def _progress(line: str) -> None:
    """On a terminal the line replaces itself; in a log each is a line of its own."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{line}", err=True, nl=False)
    else:
        click.echo(line, err=True)
