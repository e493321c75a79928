"""Two sessions side by side as lines: what only one of them has, what changed, how figures moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from ...present.spans import Line, Span, cut, glyph, plain
from ...session.manage.diff import LINKS, Alike, Comparison, Figure, Spread, folded
from ...text import format
from ...text.cells import clean, fit, width_of
from ...text.nodeset_fold import fold

Order = Literal["name", "change"]
#: A median that moved by less than this share is drawn quietly.
NOTABLE: Final = 0.1
#: Cells of a figure's name, of a value, of two with an arrow between them, of the change.
_NAME, _VALUE, _PAIR, _CHANGE = 23, 8, 20, 9
#: What a figure is told in, by how its name ends.
_UNITS: Final[dict[str, Callable[[float], str]]] = {
    "_bytes_s": lambda value: f"{format.size_compact(value)}/s",
    "_bytes": format.size_compact,
    "_pct": lambda value: f"{format.percent(value)} %",
    "_w": lambda value: f"{format.whole(value)} W",
    "_c": lambda value: f"{format.whole(value)} °C",
    "_mhz": lambda value: f"{format.whole(value)} MHz",
}


def difference_lines(found: Comparison, width: int, order: Order) -> list[Line]:
    """All of it, for a screen of that width."""
    changed = folded(found.changed)
    links = [one for one in changed if one.what.endswith(LINKS)]
    facts = [one for one in changed if not one.what.endswith(LINKS)]
    parts = (
        ("NODES", _only(found, [_folded(found.nodes_only_a)], [_folded(found.nodes_only_b)])),
        ("VERSIONS AND HARDWARE", _changes(facts, width)),
        ("TOPOLOGY", _changes(links, width)),
        ("FINDINGS", [*_only(found, found.findings_only_a, found.findings_only_b), *_both(found.findings_both)]),
        (f"METRICS  by {order}", _table(found, width, order)),
    )
    lines: list[Line] = []
    for title, body in parts:
        lines += [plain("")] if lines else []
        lines.append(_title(title, width))
        lines += body or [plain("  no differences", "muted")]
    return [Line(cut(line.spans, width), line.key) for line in lines]


def headline(found: Comparison) -> tuple[Span, ...]:
    """Which sessions, and how much is not the same."""
    findings = len(found.findings_only_a) + len(found.findings_only_b)
    nodes = len(found.nodes_only_a) + len(found.nodes_only_b)
    counts = [(nodes, "node"), (len(found.changed), "fact"), (findings, "finding")]
    told = [f"{number} {what}{'s' * (number != 1)}" for number, what in counts if number]
    words = f"{', '.join(told)} differ" if told else "no differences in nodes, facts and findings"
    return (*names(found.a, found.b), Span(f"   {words}", "warning" if told else "ok"))


def names(a: str, b: str) -> tuple[Span, ...]:
    return (Span(" diff  "), Span(clean(a), "strong"), Span(" → ", "muted"), Span(clean(b), "strong"))


def _title(text: str, width: int) -> Line:
    rule = "─" * max(0, width - width_of(text) - 3)
    return Line((Span("─ ", "rule"), Span(text, "strong"), Span(f" {rule}", "rule")))


def _folded(nodes: Sequence[str]) -> str:
    return fold(nodes) if nodes else ""


def _only(found: Comparison, a: Iterable[str], b: Iterable[str]) -> list[Line]:
    return [
        Line((Span("  "), glyph("warning"), Span(f" only in {clean(session)}  ", "muted"), Span(clean(text))))
        for session, texts in ((found.a, a), (found.b, b))
        for text in texts
        if text
    ]


def _both(findings: Iterable[str]) -> list[Line]:
    return [Line((Span("  = in both  ", "muted"), Span(clean(text), "muted"))) for text in findings]


def _changes(changed: Sequence[Alike], width: int) -> list[Line]:
    """Nodes, the fact, then and now; a column each, and the last one takes the rest."""
    rows = [(fold(one.nodes), clean(one.what), one.a, one.b) for one in changed]
    nodes = min(max((width_of(row[0]) for row in rows), default=0), max(12, width // 3))
    what = min(max((width_of(row[1]) for row in rows), default=0), max(12, width // 4))
    return [
        Line((
            Span("  "), Span(fit(where, nodes)), Span("  "), Span(fit(fact, what), "muted"), Span("  "),
            Span(_value(before), "muted"), Span(" → ", "muted"), Span(_value(after), "strong"),
        ))
        for where, fact, before, after in rows
    ]  # fmt: skip


def _value(text: str | None) -> str:
    return format.UNKNOWN if text is None else clean(text)


# -- figures -------------------------------------------------------------------------------------------------------


def _table(found: Comparison, width: int, order: Order) -> list[Line]:
    if not found.figures:
        return [plain("  no metrics in either session", "muted")]
    shown = _columns(width)
    heads = [Span(fit("  metric", _NAME + 2), "muted")]
    for column in shown:
        heads.append(Span(fit(column, _VALUE + 1, "right") + " " * (_PAIR - _VALUE - 1), "muted"))
        if column == "median":
            heads.append(Span(fit("change", _CHANGE, "right"), "muted"))
    lines = [Line(tuple(heads))]
    for figure in sorted(found.figures, key=_by_change) if order == "change" else found.figures:
        cells = [Span(fit(f"  {figure.name.replace('.', ' ')}", _NAME + 2))]
        for column in shown:
            cells += _pair(figure, column)
            if column == "median":
                text, style = _change(figure)
                cells.append(Span(fit(text, _CHANGE, "right"), style))
        lines.append(Line(tuple(cells)))
    return lines


def _columns(width: int) -> list[str]:
    """What is told of a figure's spread: as much as fits, the most telling first, in the order of their size."""
    number = max(1, (width - _NAME - 2 - _CHANGE) // _PAIR)
    kept = ("median", "p99", "p95", "max", "samples")[:number]
    return [column for column in ("median", "p95", "p99", "max", "samples") if column in kept]


def _pair(figure: Figure, column: str) -> list[Span]:
    """Then and now."""
    a, b = (_told(figure.name, spread, column) for spread in (figure.a, figure.b))
    return [
        Span(fit(a, _VALUE + 1, "right"), "muted"), Span(" →", "muted"),
        Span(fit(b, _VALUE + 1, "right"), "muted" if a == b or column == "samples" else "text"),
    ]  # fmt: skip


def _told(name: str, spread: Spread | None, column: str) -> str:
    if spread is None:
        return format.UNKNOWN
    return format.count(spread.samples) if column == "samples" else _amount(name, getattr(spread, column))


def _amount(name: str, value: float) -> str:
    return next((tell(value) for end, tell in _UNITS.items() if name.endswith(end)), f"{value:.4g}")


def _change(figure: Figure) -> tuple[str, str]:
    share = _share(figure)
    if figure.a is None or figure.b is None:
        return "one side", "muted"
    if share is None:
        return "was 0", "accent"
    style = "accent" if abs(share) >= NOTABLE else "muted"
    return ("=" if share == 0 else f"{100 * share:+.1f} %" if abs(share) < 10 else f"× {share + 1:.0f}"), style


def _share(figure: Figure) -> float | None:
    """By how much of what it was the median moved; None where that is no number."""
    if figure.a is None or figure.b is None:
        return None
    if figure.a.median == figure.b.median:
        return 0.0
    return (figure.b.median - figure.a.median) / abs(figure.a.median) if figure.a.median else None


def _by_change(figure: Figure) -> tuple[int, float, str]:
    """The largest first; before it what has no share of nothing, last what only one session has."""
    if figure.a is None or figure.b is None:
        return 2, 0.0, figure.name
    share = _share(figure)
    return (0, 0.0, figure.name) if share is None else (1, -abs(share), figure.name)
