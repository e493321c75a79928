"""An order that holds still: live figures jitter, and nobody can point at a row that jumps.

Every row keeps the figure it was last sorted by until its own has moved by more than noise, and even then the order
is looked at anew at most every two seconds. A row that comes finds its place at once; a person who sorts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from ...records.metrics import Noise

#: Rows may change places at most this often, in seconds.
REORDER_S: Final = 2.0


class HasKey(Protocol):
    """A row with a key that stays while it lives."""

    @property
    def key(self) -> Hashable: ...


R = TypeVar("R", bound=HasKey)


class SteadyOrder(Generic[R]):
    """Sorts the same rows again and again; `clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._settled: dict[Hashable, Any] = {}  # by the row's key: what it is sorted by; None for unknown
        self._due = 0.0
        self._held = False  # some row was kept at its place only because the time was not come

    @property
    def is_due(self) -> bool:
        """Whether rows stand where they no longer belong, and may move now: data that stopped arriving do not ask."""
        return self._held and self._clock() >= self._due

    def forget(self) -> None:
        """The person chose another order: sort anew at once."""
        self._settled, self._held = {}, False

    def sorted(self, rows: Sequence[R], order: Callable[[R], Any], noise: Noise, reverse: bool = False) -> list[R]:
        """The rows in the order of what `order` says of each, those of which it says None last. Equal ones stay."""
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
