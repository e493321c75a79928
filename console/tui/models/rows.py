"""Rows of lists: what they have in common, and a sort order without jitter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from ...present.spans import BY_WEIGHT, GLYPHS, Span, Status, state_word
from ...records.metrics import Noise


class PlainRow:
    """A row that is not a group header; a `note` replaces its values."""

    __slots__ = ()

    @property
    def banner(self) -> None:
        """Text over the whole width: none."""

    @property
    def note(self) -> Span | None:
        """Text in place of the values; None shows these."""
        return None


#: A status, and the word for the state.
RowState = tuple[Status, str]


def count_spans(counts: Mapping[RowState, int]) -> list[Span]:
    """`● 511 running  ✖ 1 stopped`: states that occur, ok first, then worst first."""
    spans: list[Span] = []
    for status, word in sorted(counts, key=lambda item: (item[0] != "ok", BY_WEIGHT.index(item[0]), item[1])):
        count = counts[status, word]
        if count:
            spans += [Span("  ")] if spans else []
            spans += [Span(f"{GLYPHS[status]} {count} ", status), Span(state_word(word), "muted")]
    return spans


#: Seconds between two re-orderings.
REORDER_S: Final = 2.0


class HasKey(Protocol):
    """A row with an identity."""

    @property
    def key(self) -> Hashable:
        """Identifies the row in all snapshots."""
        ...


R = TypeVar("R", bound=HasKey)


class SteadyOrder(Generic[R]):
    """Sorts the same rows repeatedly without jitter; `clock` is monotonic, in seconds.

    A row keeps the value it was sorted by until its own differs by more than noise; rows change places at most every
    `REORDER_S`. New rows are placed at once.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._settled: dict[Hashable, Any] = {}  # key of a row → the value it is sorted by
        self._due = 0.0
        self._held = False  # some row awaits the next re-ordering

    @property
    def is_due(self) -> bool:
        """Whether rows await a re-ordering that may happen now, also without new data."""
        return self._held and self._clock() >= self._due

    def forget(self) -> None:
        """Drop the order: the next call sorts anew."""
        self._settled, self._held = {}, False

    def sorted(self, rows: Sequence[R], order: Callable[[R], Any], noise: Noise, reverse: bool = False) -> list[R]:
        """The rows by their `order` value, None last. The sort is stable."""
        now = self._clock()
        may_move = not self._settled or now >= self._due
        if may_move:
            self._due = now + REORDER_S
        before, self._settled, self._held = self._settled, {}, False
        ordered: list[tuple[Any, R]] = []
        unknown: list[R] = []
        for row in rows:
            key, value = row.key, order(row)
            if key in before and before[key] != value:
                is_noise = noise.covers(before[key], value)
                self._held = self._held or not (is_noise or may_move)
                if is_noise or not may_move:
                    value = before[key]
            self._settled[key] = value
            if value is None:
                unknown.append(row)
            else:
                ordered.append((value, row))
        ordered.sort(key=lambda pair: pair[0], reverse=reverse)
        return [*(row for _, row in ordered), *unknown]
