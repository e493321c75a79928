"""What a list knows of its rows: how each thing is written, how it sorts, how much it jitters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ...present.spans import Span
from ...text import format
from ...text.cells import clean
from .steady_order import Noise

R = TypeVar("R")
NO_NOISE: Final = Noise()


@dataclass(frozen=True)
class Field(Generic[R]):
    """One thing known of a row: how it is written and drawn, and how it sorts (None sorts last)."""

    key: str
    title: str
    text: Callable[[R], str]
    order: Callable[[R], Any]
    style: Callable[[R, str], str]  # of a row's text
    noise: Noise = NO_NOISE  # by so much it moves all the time

    def span(self, row: R) -> Span:
        """Its text, as it is drawn."""
        text = self.text(row)
        return Span(text, self.style(row, text))


def field(
    key: str, title: str, read: Callable[[R], Any], write: Callable[[Any], str], style: Callable[[R, str], str],
    order: Callable[[Any], Any] = lambda value: value, noise: Noise = NO_NOISE,
) -> Field[R]:  # fmt: skip
    """The field that `read` finds in a row; `order` says what a known value sorts by."""

    def ordered(row: R) -> Any:
        value = read(row)
        return None if value is None else order(value)

    return Field(key, title, lambda row: write(read(row)), ordered, style, noise)


def word(value: str | None) -> str:
    """A text of a node's; unknown where it is empty."""
    return clean(value) if value else format.UNKNOWN


def integer(value: int | None) -> str:
    """A number that is no quantity: a pid, an index."""
    return format.UNKNOWN if value is None else str(value)
