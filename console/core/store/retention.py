"""Ended entities that are kept for their reason, up to a limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..versioned_table import Table

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RetainedEntries(Generic[K, V]):
    """Keeps at most `most` ended entries of `table`; an entry that becomes active again no longer counts."""

    def __init__(self, table: Table[K, V], most: int, is_over: Callable[[V], bool]) -> None:
        self._table, self._most, self._is_over = table, most, is_over
        self._keys: deque[K] = deque()  # oldest first

    def add(self, key: K, version: int) -> None:
        """The entry of that key has ended."""
        self._keys.append(key)
        if len(self._keys) > self._most:
            self._drop(self._keys.popleft(), version)

    def _drop(self, key: K, version: int) -> None:
        entry = self._table.get(key)
        if entry is not None and self._is_over(entry) and key not in self._keys:
            self._table.drop(key, version)
