"""Summary and report of headless commands, from live nodes, recordings and dump folders."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click
import msgspec

from .. import report
from ..analysis.checks.result import CheckResult
from ..analysis.crash.verdict import CrashVerdict
from ..analysis.stacks.fold import PLAIN, Shape
from ..analysis.stacks.frame_models import BadModel
from ..core.bus import Hub, Sink
from ..core.store import Store
from ..monitor.captures import newest_of
from ..monitor.crash import crash_findings as findings_of_crashes
from ..monitor.hang import hang_models, newest_communications, verdict_findings
from ..monitor.skew import skew_of
from ..present.clocks import clock_rows, clocks_text
from ..present.collectives import collectives_text
from ..present.crash import crash_text
from ..present.skew import skew_text
from ..present.stacks import captures_text
from ..present.verdict import verdict_text
from ..session.export.stacks import STACK_FORMATS
from ..session.format import reader
from ..session.format.layout import Session, find, sessions_folder
from ..session.format.zstd_frames import Damage
from ..session.ndjson import SampleStream, play
from ..text.format import plural
from ..text.sanitize import printable, printable_lines
from .options import refuse_black_box, usage_errors, write_output
from .terminal import elapsed_shown, print_text


class StackOutput(msgspec.Struct, frozen=True):
    """Format of stacks on stdout (None: not written) and their folding, also in the summary."""

    form: str | None = None
    shape: Shape = PLAIN


AS_SUMMARY: Final = StackOutput()


def finish(
    store: Store, output: str | None, quiet: bool, fail_on: tuple[str, ...], stdout_is_taken: bool = False,
    stacks: StackOutput = AS_SUMMARY, crashes: Sequence[CrashVerdict] = (), is_diagnosis: bool = False,
    own_checks: Mapping[str, Sequence[CheckResult]] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Write the report to `output` (`-` = stdout) and the summary to stdout or stderr; returns the exit code.

    `is_diagnosis`: verdicts were asked for. `own_checks`: results of the user's checks by node.
    """
    stdout_is_taken = stdout_is_taken or output == "-" or stacks.form is not None
    skew = skew_of(store)
    made = report.make_report(store, skew, crashes, own_checks)
    data = report.to_json(made)
    if output is not None:
        write_output(output, data)
    if stacks.form is not None:
        captures, models = store.captures.values(), hang_models(store)
        write_output(None, STACK_FORMATS[stacks.form].write(captures, models, stacks.shape).encode(errors="replace"))
    if not quiet:
        print_text(report.summary(made), err=stdout_is_taken)
        for crash in made.crashes:
            print_text(printable_lines("\n" + crash_text(crash)), err=stdout_is_taken)
        for verdict in made.verdicts:
            print_text(printable_lines("\n" + verdict_text(verdict)), err=stdout_is_taken)
        folded = newest_of(store.captures.values(), hang_models(store), stacks.shape) if stacks.form is None else ()
        for part in (
            captures_text(folded),
            collectives_text(each for _, each in newest_communications(store).values()),
            skew_text(skew),
            clocks_text(clock_rows(store.clocks, store.newest_rx)),
        ):
            if part:
                print_text(printable_lines(f"\n{part}"), err=stdout_is_taken)
    return report.exit_code(made, fail_on, is_diagnosis=is_diagnosis)


def close_stream(stream: SampleStream) -> None:
    """Flush and close the stream; print a warning for failed or dropped samples."""
    stream.close()
    if stream.failure:
        print_text(printable(f"gconsole: stdout: {stream.failure.strerror}; later samples were not written"), err=True)
    if stream.dropped:
        print_text(printable(f"gconsole: {stream.dropped} samples dropped: reader of stdout too slow"), err=True)


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
        store.apply([*verdict_findings(store), *findings_of_crashes(store)])
    return finish(store, output, quiet, fail_on, stdout_is_taken=bool(metrics), stacks=stacks, is_diagnosis=diagnose)


def folded(path: Path, *sinks: Sink) -> Store:
    """The store after replaying a file or session; records also go to `sinks`. Raises UsageError."""
    hub = Hub()
    store = Store()
    for sink in (store.apply, *sinks):
        hub.subscribe(sink)
    session = session_of(path)
    with usage_errors(str(path)), elapsed_shown(f"reading {path.name}"):
        if session is None:
            play(path, hub)
        else:
            for record in reader.lenient(session.path, _report_damage):
                hub.publish([record])
    return store


def session_of(path: Path) -> Session | None:
    """The session with that name or folder; None for a file or another folder. Raises UsageError if not found."""
    if path.exists() and not (path / "session.json").is_file():
        return None
    refuse_black_box(str(path))
    with usage_errors():
        session = find(str(path), sessions_folder())
        session.read()
    return session


def _report_damage(damage: Damage) -> None:
    rest = "; continuing with the rest" if damage.is_loss else ""
    print_text(printable(f"gconsole: {damage}{rest}"), err=True)


def run_from_folder(
    path: Path, models: tuple[str, ...], *, output: str | None, quiet: bool, fail_on: tuple[str, ...],
    stacks: StackOutput = AS_SUMMARY,
) -> int:  # fmt: skip
    """Analyse a folder of outputs, stack dumps and collective dumps; returns the exit code.

    Raises UsageError if it contains none of them.
    """
    from ..monitor.imports.folder import NothingToImport, import_evidence

    try:
        evidence = import_evidence(path, models)
    except BadModel as error:
        raise click.BadParameter(str(error), param_hint="--model") from error
    except NothingToImport as error:
        raise click.UsageError(str(error)) from error
    for problem in evidence.problems:
        print_text(printable(f"gconsole: {problem}"), err=True)
    if evidence.outputs and not evidence.crashes and not quiet:
        print_text(printable(f"no failure in {plural(evidence.outputs, 'output')}"), err=True)
    return finish(evidence.store, output, quiet, fail_on, stacks=stacks, crashes=evidence.crashes, is_diagnosis=True)
