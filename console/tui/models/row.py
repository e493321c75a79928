"""What rows of most lists have in common."""

from __future__ import annotations

from collections.abc import Mapping

from ...present.spans import Span
from ...present.status import BY_WEIGHT, GLYPHS, Status, state_word


class PlainRow:
    """A row that heads no group; it says something in place of its figures only where `note` says so."""

    __slots__ = ()

    @property
    def banner(self) -> None:
        return None

    @property
    def note(self) -> Span | None:
        return None


#: A state with how bad it is.
RowState = tuple[Status, str]


def count_spans(counts: Mapping[RowState, int]) -> list[Span]:
    """`● 511 running  ✖ 1 stuck`: states that occur, the good ones first, then the worst."""
    spans: list[Span] = []
    for status, word in sorted(counts, key=lambda item: (item[0] != "ok", BY_WEIGHT.index(item[0]), item[1])):
        count = counts[status, word]
        if count:
            spans += [Span("  ")] if spans else []
            spans += [Span(f"{GLYPHS[status]} {count} ", status), Span(state_word(word), "muted")]
    return spans
