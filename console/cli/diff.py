"""`gconsole diff`: two recorded sessions side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..plaintext import printable
from .options import sessions_folder

if TYPE_CHECKING:
    from ..session.comparing import Changed, Comparison, Figure, Spread


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@sessions_folder
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def diff(a: str, b: str, folder: Path, as_json: bool) -> int:
    """What differs between the sessions A and B: nodes, versions, links, findings, and how figures were spread.

    Exit code 1 where nodes, their facts or findings differ; figures always do.
    """
    import msgspec

    from ..session import reading
    from ..session.comparing import compare
    from ..session.layout import SessionError, find

    try:
        one, other = find(a, folder), find(b, folder)
        for session in (one, other):
            session.read()
        found = compare(one.name, reading.records(one.path), other.name, reading.records(other.path))
    except (SessionError, OSError) as error:
        raise click.UsageError(printable(str(error))) from error
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        click.echo("\n".join(map(printable, _lines(found))))
    nodes, findings = found.nodes_only_a + found.nodes_only_b, found.findings_only_a + found.findings_only_b
    return 1 if nodes or findings or found.changed else 0


def _lines(found: Comparison) -> list[str]:
    from ..nodesets import fold

    lines = [f"{found.a} → {found.b}"]
    for nodes, session in ((found.nodes_only_a, found.a), (found.nodes_only_b, found.b)):
        if nodes:
            lines.append(f"  only in {session}: {fold(nodes)}")
    lines += _changes(found.changed)
    for findings, session in ((found.findings_only_a, found.a), (found.findings_only_b, found.b)):
        lines += [f"  found only in {session}: {finding}" for finding in findings]
    lines += [f"  found in both: {finding}" for finding in found.findings_both]
    return [*lines, *_table(found.figures)]


def _changes(changed: tuple[Changed, ...]) -> list[str]:
    """Folded over the nodes that changed alike."""
    from ..nodesets import fold

    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    for one in changed:
        alike.setdefault((one.what, one.a, one.b), []).append(one.node)
    return [f"  {fold(nodes)}  {what}: {a or '–'} → {b or '–'}" for (what, a, b), nodes in alike.items()]


def _table(figures: tuple[Figure, ...]) -> list[str]:
    rows: list[tuple[str, ...]] = [("figure", "median", "", "p95", "", "p99", "", "samples", "")]
    for figure in figures:
        cells = [figure.name]
        for name in ("median", "p95", "p99"):
            cells += [_number(figure.a, name), _number(figure.b, name)]
        rows.append((*cells, str(figure.a.samples if figure.a else 0), str(figure.b.samples if figure.b else 0)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for name, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(["", name.ljust(widths[0]), *cells]))
    return lines


def _number(spread: Spread | None, name: str) -> str:
    if spread is None:
        return "–"
    value: float = getattr(spread, name)
    return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
