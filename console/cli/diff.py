"""`gconsole diff`: comparison of two recorded sessions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..text.sanitize import pretty, printable
from .main import EXIT_INTERRUPTED
from .options import sessions_folder

if TYPE_CHECKING:
    from ..session.format.layout import Session
    from ..session.manage.diff import Comparison


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@sessions_folder
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--text", "as_text", is_flag=True, help="Print text even on a terminal, instead of opening the TUI.")
def diff(a: str, b: str, folder: Path, as_json: bool, as_text: bool) -> int:
    """Compare sessions A and B: nodes, versions, links, findings and metric distributions.

    Opens a TUI on a terminal, prints text otherwise. Exit code 1 if nodes, their facts or findings differ; metric
    differences do not count.
    """

    from ..session.format.layout import SessionError, find
    from ..session.manage.diff import compare_sessions
    from ..session.manage.diff_lines import comparison_text

    try:
        session_a, session_b = find(a, folder), find(b, folder)
        for session in (session_a, session_b):
            session.read()
        on_screen = not (as_json or as_text) and _is_interactive()
        comparison = _run_app(session_a, session_b) if on_screen else compare_sessions(session_a, session_b)
    except (SessionError, OSError) as error:
        raise click.UsageError(printable(str(error))) from error
    if comparison is None:
        return EXIT_INTERRUPTED
    if as_json:
        click.echo(pretty(comparison))
    elif not on_screen:
        click.echo(comparison_text(comparison))
    return 1 if comparison.is_different else 0


def _is_interactive() -> bool:
    """Whether all streams are a terminal with cursor control."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM") not in (None, "dumb", "unknown")


def _run_app(a: Session, b: Session) -> Comparison | None:
    """Run the TUI; None if the user quits before the comparison is complete."""
    from ..session.format.layout import SessionError
    from ..tui.diff_screen import DiffApp, diff_of
    from ..tui.theme.catalog import ThemeCatalog
    from .terminal import clear_inherited_size

    clear_inherited_size()
    app = DiffApp(diff_of(a, b), ThemeCatalog.of_this_user())
    app.run()
    if app.error:
        raise SessionError(app.error)
    return app.comparison
