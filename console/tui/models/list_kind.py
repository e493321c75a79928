"""Kinds of list rows: columns, filter vocabulary, groupings, declared once per kind; and how a user arranged a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from ...present.spans import BY_WEIGHT, state_word
from ...text import format
from ...text.cells import clean
from ...text.nodeset_fold import natural
from .column import ColumnField
from .filter_language import Filter, FilterField, Value, Vocabulary
from .grouping import GroupHeader, Grouping, RowContext, RowInContext, grouped
from .rows import HasKey, RowState, SteadyOrder

R = TypeVar("R", bound=HasKey)
#: Upper bound on the values that completion offers for one field.
_MOST_VALUES = 1000


def attribute(record: str, name: str) -> Callable[[Any], Any]:
    """Reads attribute `name` of the record that a row has as `record`; None for rows without that record."""

    def read(row: Any) -> Any:
        value = getattr(row, record)
        return None if value is None else getattr(value, name)

    return read


def text_attribute(record: str, name: str) -> Callable[[RowInContext[Any]], Value]:
    """The same for filters: sanitised, None for an empty text."""
    read = attribute(record, name)
    return lambda entry: clean(read(entry.row) or "") or None


def state_order(state: RowState) -> tuple[int, str]:
    """Sort value of a state: worst first."""
    return BY_WEIGHT.index(state[0]), state[1]


def state_filter(read: Callable[[Any], RowState], help_: str) -> FilterField[RowInContext[Any]]:
    """The filter field `state`: matches the word as recorded, as displayed, and the status it is drawn in."""

    def values(entry: RowInContext[Any]) -> Value:
        status, word = read(entry.row)
        return (word, state_word(word), status)

    return FilterField("state", "word", values, help_)


def note_text(row: Any) -> str:
    """What a row shows in place of its values; empty if it shows these."""
    return row.note.text if row.note else ""


class ListKind(msgspec.Struct, Generic[R], frozen=True):
    """One kind of row. `sort` is the initial sort column, the first grouping the initial one.

    Group headers count `row_state`; a row copied as text ends with its `row_note`. `name` is what a row is called in
    commands; empty if it has no name.
    """

    noun: str
    sort: str
    fields: Mapping[str, ColumnField[R]]
    vocabulary: Vocabulary[RowInContext[R]]
    groupings: tuple[Grouping[R], ...]
    row_state: Callable[[R], RowState | None]
    as_object: Callable[[R], dict[str, Any]]
    name: Callable[[R], str]
    row_note: Callable[[R], str] = note_text

    def grouping(self, name: str) -> Grouping[R]:
        """The grouping of that name; the first where there is none."""
        return next((by for by in self.groupings if by.name == name), self.groupings[0])

    def counted(self, number: int) -> str:
        """`8 ranks`."""
        return format.plural(number, self.noun)

    def values_now(self, name: str, rows: Iterable[R], context: RowContext) -> Sequence[str]:
        """The values of a filter field that occur now, in natural order; none for numbers."""
        field = self.vocabulary.field(name)
        if field is None or field.kind not in ("word", "text") or not field.offered:
            return ()
        values: set[str] = set()
        for row in rows:
            value = (field.offers or field.read)(RowInContext(row, context))
            values.update(map(str, value) if isinstance(value, tuple) else () if value is None else (str(value),))
        return sorted(values, key=natural)[:_MOST_VALUES]


class Arrangement(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the user arranged a view; empty fields are defaults."""

    sort: str = ""  # key of a column
    reverse: bool = False
    group: str = ""
    filter: str = ""
    earlier: tuple[str, ...] = ()  # previous filters (Ctrl-R), newest last
    columns: tuple[str, ...] = ()  # keys in their order
    hidden: tuple[str, ...] = ()  # keys of hidden columns
    metric: str = ""  # of a heat map


#: Nothing arranged.
DEFAULT_ARRANGEMENT: Final = Arrangement()


def row_predicate(wanted: Filter[RowInContext[R]], context: RowContext) -> Callable[[R], bool] | None:
    """Whether a row passes that filter in this context; None if every row does."""
    return (lambda row: wanted.matches(RowInContext(row, context))) if wanted else None


def arranged_rows(
    kind: ListKind[R], rows: Sequence[R], arrangement: Arrangement, context: RowContext,
    passes: Callable[[R], bool] | None, steady: SteadyOrder[R],
) -> list[GroupHeader | R]:  # fmt: skip
    """The rows that pass, sorted, under their group headers."""
    passing = [row for row in rows if passes(row)] if passes else rows
    field = kind.fields.get(arrangement.sort) or kind.fields[kind.sort]
    ordered = steady.sorted(passing, field.order, field.noise, arrangement.reverse)
    return grouped(ordered, kind.grouping(arrangement.group), context, kind.noun, kind.row_state)
