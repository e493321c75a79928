"""Report and summary output of headless commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from .. import report
from ..analysis.stacks.fold import PLAIN, Shape
from ..core.store import Store
from ..headless import batch
from ..monitor.hang import hang_models, newest_communications
from ..monitor.skew import skew_of
from ..present.clocks import clock_rows, clocks_text
from ..present.collectives import collectives_text
from ..present.skew import skew_text
from ..present.stacks import captures_text
from ..present.verdict import verdict_text
from ..report.captures import newest_of
from ..session.export.stacks import STACK_FORMATS
from ..session.ndjson import SampleStream
from ..text import atomic_files, sanitize


@dataclass(frozen=True)
class StackOutput:
    """Format of stacks on stdout (None: not written) and their folding, also in the summary."""

    form: str | None = None
    shape: Shape = PLAIN


AS_SUMMARY: Final = StackOutput()


def finish(
    store: Store, output: str | None, quiet: bool, fail_on: tuple[str, ...], stdout_is_taken: bool = False,
    stacks: StackOutput = AS_SUMMARY,
) -> int:  # fmt: skip
    """Write the report to `output` (`-` = stdout) and the summary to stdout or stderr; returns the exit code."""
    stdout_is_taken = stdout_is_taken or output == "-" or stacks.form is not None
    skew = skew_of(store)
    made = report.make_report(store, skew)
    data = report.to_json(made)
    if output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    elif output is not None:
        try:
            atomic_files.write_atomically(Path(output), data)
        except OSError as error:
            raise click.FileError(output, error.strerror or str(error)) from error
    if stacks.form is not None:
        captures, models = store.captures.values(), hang_models(store)
        click.echo(STACK_FORMATS[stacks.form].write(captures, models, stacks.shape), nl=False)
    if not quiet:
        click.echo(batch.summary(made), err=stdout_is_taken)
        for verdict in made.verdicts:
            click.echo("\n" + sanitize.printable_lines(verdict_text(verdict)), err=stdout_is_taken)
        folded = newest_of(store.captures.values(), hang_models(store), stacks.shape) if stacks.form is None else ()
        for part in (
            captures_text(folded),
            collectives_text(each for _, each in newest_communications(store).values()),
            skew_text(skew),
            clocks_text(clock_rows(store.clocks, store.newest_rx)),
        ):
            if part:
                click.echo(f"\n{part}", err=stdout_is_taken)
    return report.exit_code(made, fail_on)


def close_stream(stream: SampleStream) -> None:
    """Flush and close the stream; print a warning for failed or dropped samples."""
    stream.close()
    if stream.failure:
        click.echo(f"gconsole: stdout: {stream.failure.strerror}; later samples were not written", err=True)
    if stream.dropped:
        click.echo(f"gconsole: {stream.dropped} samples dropped: reader of stdout too slow", err=True)
