"""Rows under heads: what some rows of a list have in common, how many they are, and in which states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ...present.spans import Span
from ...present.status import state_word
from ...text.cells import clean
from ...text.nodeset_fold import natural
from .row import RowState, count_spans
from .row_context import RowContext, RowInContext

R = TypeVar("R")


@dataclass(frozen=True)
class Grouping(Generic[R]):
    """Something rows can be grouped by. `value` is what a row has in common with others; None where nobody knows.

    A grouping without `value` makes no groups. `is_state`: the values are states, so heads need not count them.
    """

    name: str
    value: Callable[[RowInContext[R]], str | None] | None
    order: Callable[[str], Any] = natural
    is_state: bool = False


#: No groups.
NONE: Final[Grouping[Any]] = Grouping("none", None)


@dataclass(frozen=True)
class GroupHeader:
    """The line above a group. `part` tells groups of the same value apart, where they are never mixed: their job."""

    by: str
    value: str | None
    spans: tuple[Span, ...]
    part: str = ""

    @property
    def key(self) -> tuple[str, str, str | None]:
        return (self.part, self.by, self.value)

    @property
    def version(self) -> tuple[Span, ...]:
        return self.spans

    @property
    def banner(self) -> tuple[Span, ...]:
        return self.spans

    @property
    def note(self) -> None:
        return None

    @property
    def node(self) -> str | None:
        """The node that it is the group of."""
        return self.value if self.by == "node" else None


def grouped(
    rows: Iterable[R], by: Grouping[R], context: RowContext, noun: str, row_state: Callable[[R], RowState | None], *,
    part: str = "", title: str = "",
) -> list[GroupHeader | R]:  # fmt: skip
    """The rows under a head each for what they have in common; within a group they stay in their order.

    What nobody knows stands last. `title` names the part that all these rows are of, where there are several.
    """
    if by.value is None:
        return list(rows)
    groups: dict[str | None, list[R]] = {}
    for row in rows:
        groups.setdefault(by.value(RowInContext(row, context)), []).append(row)
    values = sorted((value for value in groups if value is not None), key=by.order)
    listed: list[GroupHeader | R] = []
    for value in [*values, *(None,) * (None in groups)]:
        listed.append(GroupHeader(by.name, value, _spans(by, value, groups[value], noun, row_state, title), part))
        listed += groups[value]
    return listed


def _spans(
    by: Grouping[R], value: str | None, rows: Sequence[R], noun: str, row_state: Callable[[R], RowState | None],
    title: str,
) -> tuple[Span, ...]:  # fmt: skip
    name = state_word(value) if by.is_state and value else value
    label = clean(name) if name else f"{by.name} unknown"
    named = (Span(f"  {title}", "text"),) if title else ()
    states = () if by.is_state else count_spans(Counter(state for row in rows if (state := row_state(row))))
    return (
        Span(" ▾ ", "muted"), Span(label, "strong"), *named, Span("  "), Span(str(len(rows)), "text"),
        Span(f" {noun}{'s' * (len(rows) != 1)}   ", "muted"), *states,
    )  # fmt: skip


def group_under(rows: Sequence[GroupHeader | R], chosen: GroupHeader | R | None) -> list[R]:
    """The row that was chosen, or all of the group whose head was."""
    if chosen is None or not isinstance(chosen, GroupHeader):
        return [chosen] if chosen is not None else []
    members: list[R] = []
    index = next(
        (index for index, row in enumerate(rows) if isinstance(row, GroupHeader) and row.key == chosen.key), len(rows)
    )
    for row in rows[index + 1 :]:
        if isinstance(row, GroupHeader):
            break
        members.append(row)
    return members
