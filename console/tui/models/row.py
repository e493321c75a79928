"""What rows of most lists have in common."""

from __future__ import annotations

from ...present.spans import Span


class PlainRow:
    """A row that heads no group; it says something in place of its figures only where `note` says so."""

    __slots__ = ()

    @property
    def banner(self) -> None:
        return None

    @property
    def note(self) -> Span | None:
        return None
