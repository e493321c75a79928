"""Current entries by key, and what changed since when: the part of the store that a screen asks many times a second."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

#: So many of the newest removals, at least, are remembered; on a busy node processes come and go for ever.
REMOVALS_KEPT = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """Current entries by key, each with the store's version at its last change; removals are remembered as changes.

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
        return self._entries.get(key)

    def values(self) -> list[V]:
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        return list(self._entries.items())

    def take_missing(self, other: Table[K, V], version: int) -> None:
        """Take over the entries of another table whose keys this one does not have."""
        for key, value in other.items():
            if key not in self._entries:
                self.put(key, value, version)

    def put(self, key: K, value: V, version: int) -> None:
        self._entries[key] = value
        self.touch(key, version)

    def touch(self, key: K, version: int) -> None:
        """The entry changed in place."""
        self._changed.pop(key, None)
        self._changed[key] = version

    def drop(self, key: K, version: int) -> None:
        if self._entries.pop(key, None) is not None:
            self.touch(key, version)
            if len(self._changed) - len(self._entries) > 2 * REMOVALS_KEPT:
                self._forget_removals()

    @property
    def version(self) -> int:
        """The version at which an entry changed last; -1 for a table that never changed."""
        return next(reversed(self._changed.values()), -1)

    def changed_since(self, version: int) -> list[K]:
        """Keys that changed (or went) after that version, the latest first; the cost is that of the changes.

        Who asks for the first time (a version below any other) gets every entry. Removals older than the newest
        `REMOVALS_KEPT` may be missing: for somebody who asks every frame they are long told.
        """
        found = []
        for key in reversed(self._changed):
            if self._changed[key] <= version:
                break
            found.append(key)
        return found

    def copied(self) -> Table[K, V]:
        """The entries of this moment, in a table of their own."""
        copy: Table[K, V] = Table()
        copy._entries, copy._changed = dict(self._entries), dict(self._changed)
        return copy

    def _forget_removals(self) -> None:
        gone = [key for key in self._changed if key not in self._entries]
        for key in gone[:-REMOVALS_KEPT]:
            del self._changed[key]
