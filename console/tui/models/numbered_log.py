"""A bounded log of numbered items, a filter over it, and rows that are made when they are drawn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar, overload

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
