"""A table of current entries that answers which keys changed since a version."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from itertools import takewhile
from typing import Generic, TypeVar

#: Removals remembered at least; on a busy node processes start and end all the time.
REMOVALS_KEPT = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def newer(entries: deque[tuple[int, V]], version: int) -> list[V]:
    """Entries of (version, value), oldest first, that were added after a version."""
    return [value for _, value in takewhile(lambda entry: entry[0] > version, reversed(entries))][::-1]


class Table(Generic[K, V]):
    """Current entries by key, each with the store's version of its last change; removals count as changes.

    Versions must not decrease from one call to the next.
    """

    def __init__(self) -> None:
        self._entries: dict[K, V] = {}
        self._changed: dict[K, int] = {}  # least recently changed first; every entry, and keys that went

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The entry, or None."""
        return self._entries.get(key)

    def values(self) -> list[V]:
        """All entries, oldest first."""
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        """All keys and entries, oldest first."""
        return list(self._entries.items())

    def take_missing(self, other: Table[K, V], version: int) -> None:
        """Add the entries of another table whose keys this one lacks."""
        for key, value in other.items():
            if key not in self._entries:
                self.put(key, value, version)

    def put(self, key: K, value: V, version: int) -> None:
        """Add or replace an entry."""
        self._entries[key] = value
        self.touch(key, version)

    def touch(self, key: K, version: int) -> None:
        """Mark an entry as changed in place."""
        self._changed.pop(key, None)
        self._changed[key] = version

    def drop(self, key: K, version: int) -> None:
        """Remove an entry, if it exists."""
        if self._entries.pop(key, None) is not None:
            self.touch(key, version)
            if len(self._changed) - len(self._entries) > 2 * REMOVALS_KEPT:
                self._forget_removals()

    @property
    def version(self) -> int:
        """The version at which an entry changed last; -1 for a table that never changed."""
        return next(reversed(self._changed.values()), -1)

    def changed_since(self, version: int) -> list[K]:
        """Keys that changed or were removed after a version, newest first, in time proportional to their number.

        -1 gives every entry. Removals older than the newest `REMOVALS_KEPT` may be missing.
        """
        return list(takewhile(lambda key: self._changed[key] > version, reversed(self._changed)))

    def copied(self) -> Table[K, V]:
        """A shallow copy."""
        copy: Table[K, V] = Table()
        copy._entries, copy._changed = dict(self._entries), dict(self._changed)
        return copy

    def _forget_removals(self) -> None:
        gone = [key for key in self._changed if key not in self._entries]
        for key in gone[:-REMOVALS_KEPT]:
            del self._changed[key]
