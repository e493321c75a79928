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
    from ..session.manage.diff import Comparison, Figure, Spread


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
        click.echo("\n".join(map(printable, _lines(found))))
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
    from ..tui.theme.catalog import ThemeShelf
    from .screen import ask_the_terminal_for_its_size

    ask_the_terminal_for_its_size()
    app = DiffApp(diff_of(one, other), ThemeShelf.of_this_user())
    app.run()
    if app.error:
        raise SessionError(app.error)
    return app.comparison


def _lines(found: Comparison) -> list[str]:
    from ..session.manage.diff import folded
    from ..text.nodeset_fold import fold

    lines = [f"{found.a} → {found.b}"]
    for nodes, session in ((found.nodes_only_a, found.a), (found.nodes_only_b, found.b)):
        if nodes:
            lines.append(f"  only in {session}: {fold(nodes)}")
    lines += [f"  {fold(one.nodes)}  {one.what}: {one.a or '–'} → {one.b or '–'}" for one in folded(found.changed)]
    for findings, session in ((found.findings_only_a, found.a), (found.findings_only_b, found.b)):
        lines += [f"  found only in {session}: {finding}" for finding in findings]
    lines += [f"  found in both: {finding}" for finding in found.findings_both]
    return [*lines, *_table(found.figures)]


def _table(figures: tuple[Figure, ...]) -> list[str]:
    from ..text.table import table

    rows: list[tuple[str, ...]] = []
    for figure in figures:
        cells = [figure.name]
        for name in ("median", "p95", "p99"):
            cells += [_number(figure.a, name), _number(figure.b, name)]
        rows.append((*cells, str(figure.a.samples if figure.a else 0), str(figure.b.samples if figure.b else 0)))
    header = ("figure", "median", "", "p95", "", "p99", "", "samples", "")
    return table(rows, header=header, align="<>>>>>>>>", indent="  ")


def _number(spread: Spread | None, name: str) -> str:
    if spread is None:
        return "–"
    value: float = getattr(spread, name)
    return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
