"""Live runs: the TUI, or headless with a report and a recording."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..analysis.checks.result import CheckResult
from ..config import Config
from ..config.diff import HostsFile
from ..core.bus import Hub
from ..core.control import ActiveRecording, CaptureRequest, CrashedRecording, Selection
from ..core.store import Store
from ..core.wants import DIGESTED, EVERY_SAMPLE, Want
from ..fleet.evaluation import FleetEvaluator
from ..fleet.fleet import Fleet
from ..monitor import headless
from ..monitor.capture_selection import CaptureSelection
from ..monitor.clock_estimator import ClockEstimator, measure
from ..monitor.clock_jsonl import ClockLines
from ..monitor.hang import Diagnosis
from ..records import Log
from ..runtime.console import Console, freeze_imported_modules, sessions_folder_of
from ..session.format.layout import Session, named
from ..session.format.pseudonyms import Pseudonyms, key_of_this_user
from ..session.ndjson import RecordWriter, SampleStream
from ..session.record import recovery
from ..session.record.recorder import Recorder
from ..text.format import plural, size
from ..text.sanitize import printable, printable_lines
from .main import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL
from .options import usage_errors
from .output import AS_SUMMARY, StackOutput, close_stream, finish
from .terminal import (
    clear_inherited_size,
    is_line_terminal,
    overwrite_line,
    print_text,
    require_terminal,
    shows_progress,
)

if TYPE_CHECKING:
    from ..tui.controllers.job_tasks import JobSource
    from ..tui.models.destination import Destination

#: A further cluster of the screen: its configuration, how to read it again, and how it was named.
OtherTarget = tuple[Config, Callable[[], Config], str]
#: Seconds. Shorter headless runs write no black box: they end before anybody could ask for it.
BLACK_BOX_S = 60.0


def run_tui(
    config: Config, read: Callable[[], Config] | None = None, *, remember: bool = True, target: str = "",
    place: Destination | None = None, linear: bool = False, others: Sequence[OtherTarget] = (),
) -> int:  # fmt: skip
    """Run the TUI until the user quits; returns the exit code. Raises UsageError without a terminal.

    `read` reloads the configuration after its file was saved. `remember`: persist the UI layout. `target` is what the
    links to the screen name, `place` where it begins. `linear`, and a terminal without cursor movement: statements and
    commands on lines of text take its place. `others` are further clusters.
    """
    if linear or is_line_terminal():
        from .linear.session import run_linear

        return run_linear([config, *(other for other, _, _ in others)])
    require_terminal("gconsole batch TARGET")
    clear_inherited_size()
    from ..tui.app import ConsoleApp
    from ..tui.controllers.clusters import ClusterSource
    from ..tui.keymap.file import keys_path, read_keys
    from ..tui.keymap.hints import bound_actions, every_action
    from ..tui.keymap.row_commands import commands_path, read_commands
    from ..tui.theme.catalog import ThemeCatalog
    from ..tui.ui_state import UiStateFile
    from ..tui.views.registry import VIEWS

    async def prompt(who: str, text: str) -> str | None:
        return await app.login_prompts.read_secret(who, text)

    consoles: list[Console] = []
    names: set[str] = set()

    def source(config: Config, read: Callable[[], Config] | None, target: str) -> ClusterSource:
        console = Console(config, prompt=prompt, own_checks=True)
        consoles.append(console)
        is_kept = remember and config.cluster not in names  # two of one name would overwrite each other's file
        names.add(config.cluster)
        return ClusterSource(
            console.store, console.fleet, config.cluster, [node.name for node in config.nodes],
            staging=lambda: (console.fleet.staging.staged, console.fleet.staging.expected),
            on_start=console.start,
            hosts=HostsFile(config.path, read) if config.path and read else None,
            publish=console.bus.publish_own,
            ui_state=UiStateFile.of_cluster(config.cluster) if is_kept else None,
            findings=console.findings, stalls=console.stalls,
            target=str(config.path.absolute()) if config.path else target,
            job_source=job_source(console),
            evaluator=FleetEvaluator(console.fleet.links, console.bus),
            own_checks=console.own_checks.of if console.own_checks is not None else lambda node: (),
        )  # fmt: skip

    async def stop() -> None:
        await asyncio.gather(*(console.stop() for console in consoles))

    first = source(config, read, target)
    keys = read_keys(keys_path(), every_action())
    views = [row.name for row in VIEWS]
    app = ConsoleApp(
        commands=read_commands(commands_path(), views, bound_actions(), keys.keymap),
        themes=ThemeCatalog.of_this_user(),
        keys=keys,
        clipboard=config.console.clipboard,
        on_stop=stop,
        place=place,
        others=[source(*other) for other in others],
        **msgspec.structs.asdict(first),
    )
    freeze_imported_modules()
    app.run()
    return app.return_code or 0


def job_source(console: Console) -> JobSource:
    """What starting jobs from the TUI needs; not for visitors in a browser, who would read and write files here."""
    from ..tui.controllers.job_tasks import JobSource
    from .run_options import request_in

    return JobSource(
        read_request=lambda text: request_in(text, console.fleet.config.run),
        nodes=lambda: [link.node for link in console.fleet.links.values()],
    )


def run_batch(
    config: Config, *, for_s: float = 0.0, output: str | None = None, quiet: bool = False, records: Path | None = None,
    fail_on: tuple[str, ...] = ("error",), order: CaptureRequest | Diagnosis | None = None,
    before: Callable[[], Awaitable[None]] | None = None, metrics: tuple[str, ...] = (), clocks: bool = False,
    probes: bool = False, recording: HeadlessRecording | None = None, stacks: StackOutput = AS_SUMMARY,
    selection: CaptureSelection | None = None, own_checks: bool = False, stdout_is_taken: bool = False,
    rereads: bool = False,
) -> int:  # fmt: skip
    """Run headless: watch, capture or diagnose per `order` what `selection` selects, report; returns the exit code.

    `before` is awaited after all nodes have sampled or failed, before any capture. `metrics`: families to stream to
    stdout; the summary then goes to stderr. `clocks`: probe during the run and once more at its end; `probes`: follow
    `[clock] duty`, continuously while a session records clocks. `recording`: the session to write. `own_checks`:
    the report has the user's checks, too. `stdout_is_taken`: the summary goes to stderr. `rereads` as in
    `headless.watch`. With an infinite `for_s`, an interrupt is the normal end.
    """
    store, interrupted = asyncio.run(
        watch_nodes(
            config, for_s, records=records, quiet=quiet, order=order, before=before, metrics=metrics,
            recording=recording, clocks_s=0.0 if clocks else None, probes=probes, selection=selection,
            awaits_ranks=True, rereads=rereads,
        )
    )  # fmt: skip
    status = finish(
        store, output, quiet, fail_on, stdout_is_taken=bool(metrics) or stdout_is_taken, stacks=stacks,
        is_diagnosis=isinstance(order, Diagnosis), own_checks=_own_checks(store) if own_checks and output else {},
    )  # fmt: skip
    if recording is not None and recording.failed:
        status = max(status, EXIT_PARTIAL)
    if order is not None and status == EXIT_OK and not len(store.captures):
        status = EXIT_PARTIAL  # nothing was captured or diagnosed
    return EXIT_INTERRUPTED if interrupted and not math.isinf(for_s) else status


def _own_checks(store: Store) -> Mapping[str, Sequence[CheckResult]]:
    """The results of the user's checks at the end of a run, by node; what is wrong with their file goes to stderr."""
    from ..session.query.own_check_watch import OwnCheckWatch

    def warn(log: Log) -> None:
        print_text(printable(f"gconsole: {log.text}"), err=True)

    async def evaluate() -> Mapping[str, Sequence[CheckResult]]:
        watch = OwnCheckWatch(store, warn)
        try:
            await watch.evaluate()
        finally:
            await watch.stop()
        return watch.results

    return asyncio.run(evaluate())


def run_clocks(config: Config, *, for_s: float, as_json: bool, quiet: bool) -> int:
    """Probe the clocks of all nodes and print the result; returns the exit code."""
    from ..present.clocks import clock_rows, clocks_text, longer_cadence_lines
    from ..report.skew import clocks_line

    lines = ClockLines(sys.stdout.buffer) if as_json else None
    store, interrupted = asyncio.run(watch_nodes(config, quiet=quiet, clocks_s=for_s, clock_lines=lines))
    rows = clock_rows(store.clocks, store.newest_rx)
    if not as_json:
        print_text(printable_lines(clocks_text(rows) or "no clock data: no node reported a probe window"))
    for line in longer_cadence_lines(rows, config.clock.probe_cadence_us, config.clock.cpu_cap_pct):
        print_text(printable_lines(line), err=as_json)
    if interrupted:
        return EXIT_INTERRUPTED
    lined = sum(line.bound_ns is not None for line in clocks_line(store).nodes)
    return EXIT_NOTHING if not lined else EXIT_OK if lined == len(store.nodes) else EXIT_PARTIAL


def observe(config: Config) -> Store:
    """Connect and wait until every node has sampled or failed once."""
    store, interrupted = asyncio.run(watch_nodes(config))
    if interrupted:
        raise KeyboardInterrupt
    return store


async def watch_nodes(
    config: Config, for_s: float = 0.0, *, records: Path | None = None, quiet: bool = False,
    order: CaptureRequest | Diagnosis | None = None, before: Callable[[], Awaitable[None]] | None = None,
    metrics: tuple[str, ...] = (), recording: HeadlessRecording | None = None, clocks_s: float | None = None,
    clock_lines: ClockLines | None = None, probes: bool = False, selection: CaptureSelection | None = None,
    awaits_ranks: bool = False, late_s: float = 0.0, stacks: bool = True, rereads: bool = False,
) -> tuple[Store, bool]:  # fmt: skip
    """Run headless; returns the store and whether it was interrupted. Parameters as for `run_batch`.

    `clocks_s`: probe clocks during the run and for this many seconds at the end. `late_s` and `rereads` as in
    `headless.watch`, `stacks` as in `Console`.
    """
    probes = probes or clocks_s is not None
    resume = recording.find_crashed(config) if recording else None
    writer = _writer(records)
    stream = SampleStream(metrics, sys.stdout.fileno()) if metrics else None
    console = Console(
        config,
        # May run for days: events are on disk and not displayed, so only warnings are kept in memory.
        store=Store(is_kept=headless.is_reported_event),
        sinks=[sink for sink in (writer, stream, clock_lines) if sink is not None],
        resume=resume,
        refold=recording.refold if recording and resume else None,
        probe_clocks=probes,
        black_box=for_s >= BLACK_BOX_S,
        stacks=stacks,
    )
    store, bus, fleet, clock_estimator = console.store, console.bus, console.fleet, console.clock_estimator
    if recording:
        await recording.start(console.recorder)
    interrupted = on_signals()
    families = {*metrics, "gpu_link"} if "gpu" in metrics else metrics
    streamed = DIGESTED if writer is not None else DIGESTED & frozenset(families)
    console.fleet.want("batch", Want(None, streamed, EVERY_SAMPLE))
    await console.start()
    progress = headless.ProgressLine(
        store, None if quiet else _progress, recording.line if recording and sys.stderr.isatty() else None
    )
    if clocks_s is not None:
        fleet.request_clock_probes("batch", True)
        before = _measured(bus, fleet, clock_estimator, clocks_s, progress, before)
    watching = asyncio.create_task(
        headless.watch(
            store, bus, fleet, for_s, progress, order, before, console.findings,
            lambda: (stream is not None and stream.is_closed) or (recording is not None and recording.is_stopped),
            stalls=console.stalls, selection=selection, awaits_ranks=awaits_ranks, late_s=late_s, rereads=rereads,
        )
    )  # fmt: skip
    try:
        await wait_until_done(watching, interrupted)
    finally:
        await clock_estimator.stop()
    if recording:
        await recording.stop()
    await console.black_box.close()
    if not quiet:
        if shows_progress():
            print_text(printable(""), err=True)  # end the progress line
        for line in headless.warnings(store):
            print_text(printable(f"gconsole: {line}"), err=True)
    if stream:
        close_stream(stream)
    if writer:
        writer.close()
        if writer.failure:
            print_text(
                printable(f"gconsole: {writer.path}: {writer.failure.strerror}; later records were not written"),
                err=True,
            )
    return store, interrupted.done()


async def wait_until_done(watching: asyncio.Task[None], interrupted: asyncio.Future[None]) -> None:
    """Wait until `watching` ends; an interrupt cancels it."""
    await asyncio.wait({watching, interrupted}, return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    try:
        await watching
    except asyncio.CancelledError:
        if not interrupted.done():
            raise


def _measured(
    hub: Hub, fleet: Fleet, clockwork: ClockEstimator, for_s: float, progress: headless.ProgressLine,
    then: Callable[[], Awaitable[None]] | None,
) -> Callable[[], Awaitable[None]]:  # fmt: skip
    """A `before` hook that measures the clocks, then runs `then`."""

    async def measure_first() -> None:
        await measure(hub, fleet, clockwork.config, for_s, progress.show_text)
        await clockwork.refresh()
        if then is not None:
            await then()

    return measure_first


def _writer(path: Path | None) -> RecordWriter | None:
    if path is None:
        return None
    from ..session.format.redact import Redactor

    try:
        return RecordWriter(path, Redactor(locals_too=True))
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error


def on_signals() -> asyncio.Future[None]:
    """A future that completes on SIGINT, SIGTERM or SIGHUP."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[None] = loop.create_future()

    def interrupt() -> None:
        if not interrupted.done():
            interrupted.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    return interrupted


def _progress(line: str) -> None:
    """On a terminal, overwrite the previous line; otherwise print one line per update."""
    if not shows_progress(off_terminal=True):
        return
    if sys.stderr.isatty():
        overwrite_line(line)
    else:
        print_text(printable_lines(line), err=True)


class HeadlessRecording:
    """One named recording that spans a command. Methods raise UsageError if the session cannot be written."""

    def __init__(self, name: str, selection: Selection | None) -> None:
        self.name, self.selection = name, selection
        self.failed = False
        self._recorder: Recorder | None = None
        self._session: Session | None = None

    def find_crashed(self, config: Config) -> CrashedRecording | None:
        """State to resume from if a session of this name was left by a crash; None for a new session."""
        with usage_errors():
            session = named(self.name, sessions_folder_of(config))
            if not session.path.is_dir():
                return None
            selection = session.read().selection
            names = Pseudonyms(key_of_this_user(session.path.parent)) if selection.anonymous else None
            crashed = recovery.resume_crashed(session, names.host if names else str)
        if not selection.anonymous:  # pseudonymous records cannot be folded
            self._session = session
        return crashed

    def refold(self, store: Store) -> None:
        """Restore the store to its state at the crash."""
        if self._session is not None:
            recovery.refold(self._session, store.apply)

    async def start(self, recorder: Recorder) -> None:
        """Start recording."""
        self._recorder = recorder
        with usage_errors():
            await recorder.start(self.name, self.selection)

    @property
    def is_stopped(self) -> bool:
        """Whether `gconsole sessions stop` ended the recording."""
        return self._recorder is not None and not self._recorder.active()

    def line(self) -> str:
        """Suffix for the progress line: session name, records, bytes."""
        recordings = self._recorder.active() if self._recorder else ()
        return "".join(f" · rec {recording.name} {_amount(recording)}" for recording in recordings)

    async def stop(self) -> None:
        """Close the session and print its size and errors."""
        if self._recorder is None:
            return
        for now in await self._recorder.close():
            self.failed = self.failed or bool(now.trouble)
            words = f"recording is incomplete: {now.trouble}; " if now.trouble else ""
            print_text(printable_lines(f"\ngconsole: {words}recorded {now.name}: {_amount(now)}"), err=True)


def _amount(now: ActiveRecording) -> str:
    return printable(
        f"{plural(now.records, 'record')}, {size(now.bytes)}" + (f" ({now.trouble})" if now.trouble else "")
    )
