"""Rows of lists: a sort order without jitter, and a bounded log whose rows are made when they are drawn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, overload

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
    """`● 511 running  ✖ 1 stuck`: states that occur, ok first, then worst first."""
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


T = TypeVar("T")
Row = TypeVar("Row")


class NumberedLog(Generic[T, Row]):
    """The newest items, oldest first: at least `kept`. Items are numbered from 0; `first` is the oldest kept.

    The oldest items are dropped a tenth of `kept` at a time, so that positions seldom change.
    """

    def __init__(self, kept: int, items: Iterable[T] = (), first: int = 0) -> None:
        self.items, self.first, self._kept = list(items), first, kept

    @property
    def end(self) -> int:
        """The number of the next item."""
        return self.first + len(self.items)

    @property
    def numbers(self) -> range:
        """The numbers of all kept items."""
        return range(self.first, self.end)

    def append(self, items: Sequence[T]) -> None:
        """Add items, oldest first."""
        self.items += items
        excess = len(self.items) - self._kept
        if excess >= self._kept // 10:
            del self.items[:excess]
            self.first += excess

    def row(self, number: int) -> Row:
        """The item of that number as a row of a list; it must be kept."""
        raise NotImplementedError


class LogFilter(Generic[Row]):
    """The numbers of the rows that pass, each row tested once; without `passes` all do."""

    def __init__(self, passes: Callable[[Row], bool] | None) -> None:
        self.gone = 0  # rows that passed and are no longer kept
        self._passes = passes
        self._passing: list[int] = []
        self._end = 0

    def update(self, log: NumberedLog[T, Row]) -> Sequence[int]:
        """Test the items added since the last call; returns the numbers of all that pass, oldest first."""
        if self._passes is None:
            self.gone = log.first
            return log.numbers
        lost = bisect_left(self._passing, log.first)
        self.gone += lost
        del self._passing[:lost]
        new = range(max(self._end, log.first), log.end)
        self._passing += [number for number in new if self._passes(log.row(number))]
        self._end = log.end
        return self._passing


class LazyRows(Sequence[Row]):
    """Rows that are made when they are drawn: of each entry that is a number, by `row`; others are rows already."""

    def __init__(self, entries: Sequence[int | Row], row: Callable[[int], Row]) -> None:
        self._entries, self._make = entries, row

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self._row(entry) for entry in self._entries[index]]
        return self._row(self._entries[index])

    def _row(self, entry: int | Row) -> Row:
        return self._make(entry) if isinstance(entry, int) else entry
