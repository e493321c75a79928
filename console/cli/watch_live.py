"""Runs `gconsole watch`: the console with a sentinel, and a test of one rule."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable

from .. import report
from ..config import Config
from ..config.diff import HostsFile
from ..core.control import Control
from ..core.store import Store
from ..monitor import headless
from ..monitor.alerting.actions import ActionRunner, KeepError
from ..monitor.alerting.alerts import Alert
from ..monitor.alerting.events import WatchEvent, event_json, event_line, journal_line
from ..monitor.alerting.heartbeat import PassHealth
from ..monitor.alerting.payload import Surroundings
from ..monitor.alerting.rules import compile_rules
from ..monitor.alerting.sentinel import Sentinel
from ..monitor.alerting.state_file import StateFile
from ..monitor.alerting.systemd import ServiceNotifier
from ..records import Finding
from ..runtime.console import Console
from ..session.format.layout import SessionError
from ..text.documents import pretty
from ..text.format import plural
from ..text.sanitize import printable, printable_lines, printable_utf8
from .json_documents import ActionResult, RuleTest
from .live import HeadlessRecording, on_signals, wait_until_done
from .main import EXIT_INTERRUPTED, EXIT_OK, EXIT_PARTIAL
from .terminal import print_text

#: Text of the finding that `--test-rule` fires.
TEST_TEXT = "this is a test of the rule; nothing is wrong"


def run_watch(
    config: Config, read: Callable[[], Config], *, target: str, for_s: float, until_finding: bool,
    fail_on: tuple[str, ...], as_json: bool, session: str | None,
) -> int:  # fmt: skip
    """Watch until `for_s` is over, a finding counts (`until_finding`), or a signal; returns the exit code.

    A signal is the normal end of a watch without an end. Raises ConfigError for rules that cannot be used.
    """
    return asyncio.run(_watch(config, read, target, for_s, until_finding, fail_on, as_json, session))


async def _watch(
    config: Config, read: Callable[[], Config], target: str, for_s: float, until_finding: bool,
    fail_on: tuple[str, ...], as_json: bool, session: str | None,
) -> int:  # fmt: skip
    notifier = ServiceNotifier()
    emit = _printer(as_json=as_json, is_service=notifier.is_service)
    recording = HeadlessRecording(session, None) if session is not None else None
    resume = recording.find_crashed(config) if recording else None
    console = Console(
        config, store=Store(is_kept=headless.is_warning), resume=resume,
        refold=recording.refold if recording and resume else None, probe_clocks=False,
    )  # fmt: skip
    store, fleet = console.store, console.fleet

    def notify(health: PassHealth, blindness: str) -> None:
        status = blindness or f"{health.seen}/{health.expected} nodes seen"
        notifier.send("READY=1", "WATCHDOG=1", f"STATUS={status}")

    keeper = RecordingsKeeper(fleet, config.console.black_box_s)
    sentinel = Sentinel(
        config, store, fleet, console.findings, emit, crashes=console.crashes,
        state=StateFile.of(config.cluster + "\0" + target), keeper=keeper, on_pass=notify,
        hosts=HostsFile(config.path, read) if config.path else None,
    )  # fmt: skip
    if recording:
        await recording.start(console.recorder)
    interrupted = on_signals()
    await console.start()
    rules = plural(len(config.rules), "rule")
    emit(WatchEvent("started", f"watching {plural(len(config.nodes), 'node')} of {config.cluster} with {rules}"))
    passes = asyncio.create_task(sentinel.run(), name="sentinel")
    watching = asyncio.create_task(
        headless.watch(
            store, console.bus, fleet, for_s, headless.ProgressLine(store, None), findings=console.findings,
            is_over=lambda: passes.done() or (until_finding and _has_finding(store, fail_on)), stalls=console.stalls,
        )
    )  # fmt: skip
    try:
        await wait_until_done(watching, interrupted)
    finally:
        notifier.send("STOPPING=1")
        passes.cancel()
        await asyncio.wait({passes})
        await sentinel.finish()
        await console.clock_estimator.stop()
        if recording:
            await recording.stop()
        await console.recorder.close()
        await console.black_box.close()
        notifier.close()
    if not passes.cancelled() and (error := passes.exception()) is not None:
        raise error
    status = report.exit_code(report.make_report(store), fail_on)
    if recording is not None and recording.failed:
        status = max(status, EXIT_PARTIAL)
    if interrupted.done() and not math.isinf(for_s):
        status = EXIT_INTERRUPTED
    opened = sum(finding.cleared_at is None for finding in store.findings.values())
    emit(WatchEvent("ended", f"exit code {status}, {plural(opened, 'open finding')}", {"exit_code": status}))
    return status


def fire_test_rule(config: Config, name: str, as_json: bool) -> int:
    """Carry out a rule's actions with a finding that is marked as a test; returns the exit code."""
    rule = next(rule for rule in compile_rules(config) if rule.name == name)
    finding = Finding(
        id="job_stalled", severity="error", confidence="certain", culprits=("rank 0",), victims=("rank 1",),
        text=TEST_TEXT, evidence=("test",), job="test", first_seen=time.time_ns(),
    )  # fmt: skip
    around = Surroundings(config.cluster, time.time_ns(), 0, len(config.nodes))
    alerts = [Alert(rule, "test", "test", (finding,))]

    results: list[ActionResult] = []

    def report(action: str, is_ok: bool | None, text: str) -> None:
        results.append(ActionResult(action, is_ok, text))
        if not as_json:
            print_text(printable(f"{'skip' if is_ok is None else 'ok' if is_ok else 'failed':6}  {action}: {text}"))

    async def fire() -> None:
        runner = ActionRunner(lambda event: None, None, lambda alert: around)
        for alert in alerts:
            for outcome in await runner.carry_out(alert, around):
                report(outcome.action, outcome.is_ok, outcome.text)

    if rule.config.keep:
        report("keep", None, "a test has no evidence")
    if rule.config.textfile:
        report("textfile", None, f"{rule.config.textfile} is written while the watch runs")
    asyncio.run(fire())
    if as_json:
        print_text(pretty(RuleTest(rule=name, outcomes=tuple(results))), is_document=True)
    return EXIT_PARTIAL if any(result.is_ok is False for result in results) else EXIT_OK


class RecordingsKeeper:
    """Keeps evidence as a session of the black box, and as a mark in the recordings that run."""

    def __init__(self, control: Control, last_s: float) -> None:
        self._control, self._last_s = control, last_s

    async def save(self, name: str) -> str:
        """Keep the last minutes; returns the name of the session. Raises KeepError, OSError."""
        recordings = self._control.recordings
        active = recordings.active() if recordings is not None else ()
        if active:
            await self._control.mark(name)
        if recordings is not None and recordings.black_box() is not None:
            try:
                kept = await recordings.keep_last(name, self._last_s)
            except SessionError as error:
                raise KeepError(str(error)) from error
            return f"session {kept.path.name}"
        if not active:
            raise KeepError("nothing is recorded; start the watch with --record NAME, or set [console] black_box")
        return f"mark {name} in {', '.join(recording.name for recording in active)}"


def _has_finding(store: Store, fail_on: tuple[str, ...]) -> bool:
    return any(report.counts(finding, fail_on) for finding in store.findings.values())


def _printer(*, as_json: bool, is_service: bool) -> Callable[[WatchEvent], None]:
    """Prints events: NDJSON on stdout, or lines on stderr. A closed output ends nothing: the rules go on."""

    def emit(event: WatchEvent) -> None:
        try:
            if as_json:
                sys.stdout.buffer.write(_for_output(event_json(event)))
                sys.stdout.buffer.flush()
            else:
                line = journal_line(event) if is_service else event_line(event, with_time=True)
                print_text(printable_lines(line), err=True)
        except (BrokenPipeError, ValueError):
            return

    return emit


def _for_output(data: bytes) -> bytes:
    return printable_utf8(data) if sys.stdout.isatty() else data
