"""What pages are made of: facts under their labels, and sections of things of which each can be opened."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, NamedTuple, TypeVar

from ...present.spans import Line, Span, cut, plain, wrapped
from ...text import format
from ...text.cells import fit
from ..views.events.model import EventRow
from .detail import Fact

_LABEL = 14

T = TypeVar("T")
PageItemKind = Literal["fact", "gpu", "rank", "process", "event", "link", "node"]


class PageItem(NamedTuple):
    """What a line of the page is about; `key` names it among its kind."""

    kind: PageItemKind
    key: Hashable


def fact_lines(facts: Sequence[Fact], width: int) -> tuple[Line, ...]:
    """A line a fact, or more where its text is long; an empty label leaves a line free."""
    lines: list[Line] = []
    for number, fact in enumerate(facts):
        if not fact.label:
            lines.append(plain(""))
            continue
        key = PageItem("fact", (fact.label, number))
        lines += [Line(spans, key) for spans in _fact_spans(fact, width)]
    return tuple(lines)


def _fact_spans(fact: Fact, width: int) -> list[tuple[Span, ...]]:
    label = fit(fact.label, _LABEL)
    parts = wrapped(fact.text, max(10, width - _LABEL - 1)) or [""]
    head = (Span(f"{label} ", "muted"), Span(parts[0], fact.style))
    return [head, *((Span(" " * (_LABEL + 1)), Span(part, fact.style)) for part in parts[1:])]


def section(title: str, things: Sequence[T], line: Callable[[T, int], Line], width: int) -> list[Line]:
    """A heading with a count, a line a thing, and a line that stays free."""
    count = Span(f" {len(things)}", "muted")
    return [
        Line((Span(title, "accent"), count)),
        *(line(thing, width) for thing in things),
        plain(""),
    ]


def event_line(row: EventRow, width: int) -> Line:
    """When it happened, how bad it is, what it was."""
    when = format.clock_time(row.record.rx)
    return Line(cut((Span(f"{when} ", "muted"), row.mark, Span(" "), row.span), width), PageItem("event", row.number))
