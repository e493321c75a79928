"""`gconsole diff`: two recorded sessions side by side."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..text.json import pretty
from ..text.sanitize import printable
from .main import EXIT_INTERRUPTED
from .options import sessions_folder

if TYPE_CHECKING:
    from ..session.format.layout import Session
    from ..session.manage.diff import Comparison


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@sessions_folder
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead.")
@click.option("--text", "as_text", is_flag=True, help="Text also on a terminal, instead of a screen.")
def diff(a: str, b: str, folder: Path, as_json: bool, as_text: bool) -> int:
    """What differs between the sessions A and B: nodes, versions, links, findings, and how figures were spread.

    On a terminal that is a screen to look around in, elsewhere text. Exit code 1 where nodes, their facts or findings
    differ; figures always do.
    """

    from ..session.format.layout import SessionError, find
    from ..session.manage.diff import compare_sessions
    from ..session.manage.diff_lines import comparison_text

    try:
        one, other = find(a, folder), find(b, folder)
        for session in (one, other):
            session.read()
        on_screen = not (as_json or as_text) and _is_at_a_terminal()
        found = _shown(one, other) if on_screen else compare_sessions(one, other)
    except (SessionError, OSError) as error:
        raise click.UsageError(printable(str(error))) from error
    if found is None:
        return EXIT_INTERRUPTED
    if as_json:
        click.echo(pretty(found))
    elif not on_screen:
        click.echo(comparison_text(found))
    return 1 if found.is_different else 0


def _is_at_a_terminal() -> bool:
    """Somebody looks at what is printed, on a terminal that can be drawn on."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM") not in (None, "dumb", "unknown")


def _shown(one: Session, other: Session) -> Comparison | None:
    """On the screen, until the person leaves; None where that was before it was read."""
    from ..session.format.layout import SessionError
    from ..tui.diff_app import DiffApp
    from ..tui.diff_screen import diff_of
    from ..tui.theme.catalog import ThemeCatalog
    from .screen import ask_the_terminal_for_its_size

    ask_the_terminal_for_its_size()
    app = DiffApp(diff_of(one, other), ThemeCatalog.of_this_user())
    app.run()
    if app.error:
        raise SessionError(app.error)
    return app.comparison
