"""Where the report and the summary of a headless command go."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .. import batch, captured, communication, files, plaintext, report
from ..analysis.hang.text import to_text
from ..store import Store


def finish(store: Store, output: str | None, quiet: bool, fail_on: tuple[str, ...]) -> int:
    """Write the report where it was asked for (`-` is stdout) and the summary where there is room for it."""
    made = report.make_report(store)
    data = report.to_json(made)
    if output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    elif output is not None:
        try:
            files.write_atomically(Path(output), data)
        except OSError as error:
            raise click.FileError(output, error.strerror or str(error)) from error
    if not quiet:
        click.echo(batch.summary(made), err=output == "-")
        for verdict in made.verdicts:
            click.echo("\n" + plaintext.printable_lines(to_text(verdict)), err=output == "-")
        for part in (captured.capture_text(store), communication.collectives_text(store)):
            if part:
                click.echo(f"\n{part}", err=output == "-")
    return report.exit_code(made, fail_on)
