"""A session comparison as lines: what only one session has, changed facts, metrics side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from ..analysis.comparison import LINKS, Alike, Comparison, Figure, Spread, folded
from ..text import format
from ..text.cells import clean, fit, width_of
from ..text.nodeset_fold import fold
from .spans import Line, Span, as_text, cut, glyph, plain

Order = Literal["name", "change"]
#: Relative change of a median below which it is not highlighted.
NOTABLE: Final = 0.1
#: Cells of a metric's name, a value, two values with an arrow, the change.
_NAME, _VALUE, _PAIR, _CHANGE = 23, 9, 22, 9
#: Formats by the suffix of the metric name.
_UNITS: Final[dict[str, Callable[[float], str]]] = {
    "link_rx_bytes_s": format.link_rate,
    "link_tx_bytes_s": format.link_rate,
    "pcie_rx_bytes_s": format.link_rate,
    "pcie_tx_bytes_s": format.link_rate,
    "_bytes_s": lambda value: f"{format.size_compact(value)}/s",
    "_bytes": format.size_compact,
    "_pct": lambda value: f"{format.percent(value)} %",
    "_w": lambda value: f"{format.whole(value)} W",
    "_c": lambda value: f"{format.whole(value)} °C",
    "_mhz": lambda value: f"{format.whole(value)} MHz",
}


def difference_lines(comparison: Comparison, width: int, order: Order) -> list[Line]:
    """All differences in lines of at most `width` cells; metrics in that order."""
    changed = folded(comparison.changed)
    links = [change for change in changed if change.what.endswith(LINKS)]
    facts = [change for change in changed if not change.what.endswith(LINKS)]
    parts = (
        ("NODES", _only(comparison, [_folded(comparison.nodes_only_a)], [_folded(comparison.nodes_only_b)])),
        ("VERSIONS AND HARDWARE", _changes(facts, width)),
        ("TOPOLOGY", _changes(links, width)),
        (
            "FINDINGS",
            [
                *_only(comparison, comparison.findings_only_a, comparison.findings_only_b),
                *_both(comparison.findings_both),
            ],
        ),
        (f"METRICS  by {order}", _table(comparison, width, order)),
    )
    lines: list[Line] = []
    for title, body in parts:
        lines += [plain("")] if lines else []
        lines.append(_title(title, width))
        lines += body or [plain("  no differences", "muted")]
    return [Line(cut(line.spans, width), line.key) for line in lines]


def comparison_text(comparison: Comparison, width: int = 160) -> str:
    """The comparison as plain text, metrics by name."""
    head = Line(headline(comparison))
    return as_text([head, *difference_lines(comparison, width, "name")])


def headline(comparison: Comparison) -> tuple[Span, ...]:
    """The names of both sessions and the number of differences."""
    findings = len(comparison.findings_only_a) + len(comparison.findings_only_b)
    nodes = len(comparison.nodes_only_a) + len(comparison.nodes_only_b)
    counts = [(nodes, "node"), (len(comparison.changed), "fact"), (findings, "finding")]
    differences = [format.plural(number, what) for number, what in counts if number]
    words = f"differences: {', '.join(differences)}" if differences else "no differences in nodes, facts and findings"
    return (*names(comparison.a, comparison.b), Span(f"   {words}", "warning" if differences else "ok"))


def names(a: str, b: str) -> tuple[Span, ...]:
    """`diff a → b`."""
    return (Span(" diff  "), Span(clean(a), "strong"), Span(" → ", "muted"), Span(clean(b), "strong"))


def _title(text: str, width: int) -> Line:
    rule = "─" * max(0, width - width_of(text) - 3)
    return Line((Span("─ ", "rule"), Span(text, "strong"), Span(f" {rule}", "rule")))


def _folded(nodes: Sequence[str]) -> str:
    return fold(nodes) if nodes else ""


def _only(comparison: Comparison, a: Iterable[str], b: Iterable[str]) -> list[Line]:
    return [
        Line((Span("  "), glyph("warning"), Span(f" only in {clean(session)}  ", "muted"), Span(clean(text))))
        for session, texts in ((comparison.a, a), (comparison.b, b))
        for text in texts
        if text
    ]


def _both(findings: Iterable[str]) -> list[Line]:
    return [Line((Span("  = in both  ", "muted"), Span(clean(text), "muted"))) for text in findings]


def _changes(changed: Sequence[Alike], width: int) -> list[Line]:
    """Columns: nodes, fact, values before and after."""
    rows = [(fold(change.nodes), clean(change.what), change.a, change.b) for change in changed]
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


def _table(comparison: Comparison, width: int, order: Order) -> list[Line]:
    if not comparison.figures:
        return [plain("  no metrics in either session", "muted")]
    shown = _columns(width)
    heads = [Span(fit("  metric", _NAME + 2), "muted")]
    for column in shown:
        heads.append(Span(fit(column, _VALUE + 1, "right") + " " * (_PAIR - _VALUE - 1), "muted"))
        if column == "median":
            heads.append(Span(fit("change", _CHANGE, "right"), "muted"))
    lines = [Line(tuple(heads))]
    for figure in sorted(comparison.figures, key=_by_change) if order == "change" else comparison.figures:
        cells = [Span(fit(f"  {figure.name.replace('.', ' ')}", _NAME + 2))]
        for column in shown:
            cells += _pair(figure, column)
            if column == "median":
                text, style = _change(figure)
                cells.append(Span(fit(text, _CHANGE, "right"), style))
        lines.append(Line(tuple(cells)))
    return lines


def _columns(width: int) -> list[str]:
    """Statistics that fit, in the order of their size; the most important are kept longest."""
    number = max(1, (width - _NAME - 2 - _CHANGE) // _PAIR)
    kept = ("median", "p99", "p95", "max", "samples")[:number]
    return [column for column in ("median", "p95", "p99", "max", "samples") if column in kept]


def _pair(figure: Figure, column: str) -> list[Span]:
    """Values before and after."""
    a, b = (_statistic(figure.name, spread, column) for spread in (figure.a, figure.b))
    return [
        Span(fit(a, _VALUE + 1, "right"), "muted"), Span(" →", "muted"),
        Span(fit(b, _VALUE + 1, "right"), "muted" if a == b or column == "samples" else "text"),
    ]  # fmt: skip


def _statistic(name: str, spread: Spread | None, column: str) -> str:
    if spread is None:
        return format.UNKNOWN
    return format.count(spread.samples) if column == "samples" else _amount(name, getattr(spread, column))


def _amount(name: str, value: float) -> str:
    return next((write(value) for end, write in _UNITS.items() if name.endswith(end)), f"{value:.4g}")


def _change(figure: Figure) -> tuple[str, str]:
    share = _share(figure)
    if figure.a is None or figure.b is None:
        return "one side", "muted"
    if share is None:
        return "was 0", "accent"
    style = "accent" if abs(share) >= NOTABLE else "muted"
    return ("=" if share == 0 else f"{100 * share:+.1f} %" if abs(share) < 10 else f"× {share + 1:.0f}"), style


def _share(figure: Figure) -> float | None:
    """Relative change of the median; None where it is undefined."""
    if figure.a is None or figure.b is None:
        return None
    if figure.a.median == figure.b.median:
        return 0.0
    return (figure.b.median - figure.a.median) / abs(figure.a.median) if figure.a.median else None


def _by_change(figure: Figure) -> tuple[int, float, str]:
    """Sort key: undefined changes first, then the largest; metrics of one session last."""
    if figure.a is None or figure.b is None:
        return 2, 0.0, figure.name
    share = _share(figure)
    return (0, 0.0, figure.name) if share is None else (1, -abs(share), figure.name)
