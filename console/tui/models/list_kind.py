"""What a list is made of: declared once for each kind of row, and then filtered, sorted, grouped and copied alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec

from ...present.spans import Span
from ...records.metrics import NO_NOISE, Metric, Noise
from ...text import format
from ...text.cells import clean
from ...text.nodeset_fold import natural
from .filter_language import Filter, Vocabulary
from .grouping import GroupHeader, Grouping, grouped
from .row import RowState
from .row_context import RowContext, RowInContext
from .steady_order import HasKey, SteadyOrder

R = TypeVar("R", bound=HasKey)
T = TypeVar("T")
#: As many values of a field are offered as anyone reads; what is typed narrows them first.
_MOST_VALUES = 1000


@dataclass(frozen=True)
class ColumnField(Generic[T]):
    """One thing known of a row: how it is written and drawn, and how it sorts (None sorts last)."""

    key: str
    title: str
    text: Callable[[T], str]
    order: Callable[[T], Any]
    style: Callable[[T, str], str]  # of a row's text
    noise: Noise = NO_NOISE  # by so much it moves all the time

    def span(self, row: T) -> Span:
        """Its text, as it is drawn."""
        text = self.text(row)
        return Span(text, self.style(row, text))


def column_field(
    key: str, title: str, read: Callable[[T], Any], write: Callable[[Any], str], style: Callable[[T, str], str],
    order: Callable[[Any], Any] = lambda value: value, noise: Noise = NO_NOISE,
) -> ColumnField[T]:  # fmt: skip
    """The field that `read` finds in a row; `order` says what a known value sorts by."""

    def ordered(row: T) -> Any:
        value = read(row)
        return None if value is None else order(value)

    return ColumnField(key, title, lambda row: write(read(row)), ordered, style, noise)


def metric_columns(
    metrics: Iterable[Metric], read: Callable[[Metric, T], Any], style: Callable[[T, str], str],
    after: Mapping[str, Sequence[ColumnField[T]]] = MappingProxyType({}),
) -> Iterator[ColumnField[T]]:  # fmt: skip
    """The columns of the metrics that have a title, as the catalogue declares them.

    Cells of a fault counter above 0 are warnings. `after`: columns that follow that of a metric.
    """

    def warning(row: T, text: str) -> str:
        return style(row, text) if text in (format.UNKNOWN, "0") else "warning"

    for metric in metrics:
        if metric.title:
            yield column_field(
                metric.name, metric.title, partial(read, metric), metric.format,
                warning if metric.is_fault else style, noise=metric.noise,
            )  # fmt: skip
        yield from after.get(metric.name, ())


def text_or_unknown(value: str | None) -> str:
    """A text of a node's; unknown where it is empty."""
    return clean(value) if value else format.UNKNOWN


@dataclass(frozen=True)
class ListKind(Generic[R]):
    """One kind of row. The list begins sorted by `sort`, in the first of its groupings.

    `row_state` is the state that heads count; `row_note` stands behind the columns of a copied row.
    """

    noun: str
    sort: str
    fields: Mapping[str, ColumnField[R]]
    vocabulary: Vocabulary[RowInContext[R]]
    groupings: tuple[Grouping[R], ...]
    row_state: Callable[[R], RowState | None]
    as_object: Callable[[R], dict[str, Any]]
    row_note: Callable[[R], str] = lambda row: ""

    def grouping(self, name: str) -> Grouping[R]:
        """The grouping of that name; the first where there is none."""
        return next((by for by in self.groupings if by.name == name), self.groupings[0])

    def counted(self, number: int) -> str:
        """`8 ranks`."""
        return format.plural(number, self.noun)

    def values_now(self, name: str, rows: Iterable[R], context: RowContext) -> Sequence[str]:
        """The values of a filter's field that occur now, in their natural order; figures are not offered."""
        field = self.vocabulary.field(name)
        if field is None or field.kind not in ("word", "text") or not field.offered:
            return ()
        values: set[str] = set()
        for row in rows:
            value = (field.offers or field.read)(RowInContext(row, context))
            values.update(map(str, value) if isinstance(value, tuple) else () if value is None else (str(value),))
        return sorted(values, key=natural)[:_MOST_VALUES]


class Arrangement(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a person arranged a view. What is empty is as the view begins."""

    sort: str = ""  # key of a column
    reverse: bool = False
    group: str = ""
    filter: str = ""
    earlier: tuple[str, ...] = ()  # filters that Ctrl-R brings back, the newest last
    columns: tuple[str, ...] = ()  # keys in their order
    hidden: tuple[str, ...] = ()  # keys of columns that are left out
    metric: str = ""  # of a heat map


#: Nothing arranged.
DEFAULT_ARRANGEMENT: Final = Arrangement()


def row_predicate(wanted: Filter[RowInContext[R]], context: RowContext) -> Callable[[R], bool] | None:
    """Whether a row passes that filter, with this around it; None where every row does."""
    return (lambda row: wanted.matches(RowInContext(row, context))) if wanted else None


def arranged_rows(
    kind: ListKind[R], rows: Sequence[R], arrangement: Arrangement, context: RowContext,
    passes: Callable[[R], bool] | None, steady: SteadyOrder[R],
) -> list[GroupHeader | R]:  # fmt: skip
    """The rows that pass, in their order, under their heads."""
    passing = [row for row in rows if passes(row)] if passes else rows
    field = kind.fields.get(arrangement.sort) or kind.fields[kind.sort]
    ordered = steady.sorted(passing, field.order, field.noise, arrangement.reverse)
    return grouped(ordered, kind.grouping(arrangement.group), context, kind.noun, kind.row_state)
