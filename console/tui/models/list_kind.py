"""What a list is made of: declared once for each kind of row, and then filtered, sorted, grouped and copied alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from ...text.nodeset_fold import natural
from .field import Field
from .filter_language import Filter, Vocabulary
from .grouping import Grouping, Head, grouped
from .row_context import Around, Seen
from .state_counts import Standing
from .steady_order import Keyed, SteadyOrder

R = TypeVar("R", bound=Keyed)
#: As many values of a field are offered as anyone reads; what is typed narrows them first.
_MOST_VALUES = 1000


@dataclass(frozen=True)
class Kind(Generic[R]):
    """One kind of row. The list begins sorted by `sort`, in the first of its groupings.

    `standing` is the state that heads count; `remark` stands behind the columns of a copied row.
    """

    noun: str
    sort: str
    fields: Mapping[str, Field[R]]
    vocabulary: Vocabulary[Seen[R]]
    groupings: tuple[Grouping[R], ...]
    standing: Callable[[R], Standing | None]
    as_object: Callable[[R], dict[str, Any]]
    remark: Callable[[R], str] = lambda row: ""

    def grouping(self, name: str) -> Grouping[R]:
        """The grouping of that name; the first where there is none."""
        return next((by for by in self.groupings if by.name == name), self.groupings[0])

    def counted(self, number: int) -> str:
        """`8 ranks`."""
        return f"{number} {self.noun}{'s' * (number != 1)}"

    def values_now(self, name: str, rows: Iterable[R], around: Around) -> Sequence[str]:
        """The values of a filter's field that occur now, in their natural order; figures are not offered."""
        field = self.vocabulary.field(name)
        if field is None or field.kind not in ("word", "text") or not field.offered:
            return ()
        found: set[str] = set()
        for row in rows:
            value = field.read(Seen(row, around))
            found.update(map(str, value) if isinstance(value, tuple) else () if value is None else (str(value),))
        return sorted(found, key=natural)[:_MOST_VALUES]


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
AS_AT_FIRST: Final = Arrangement()


def passing(wanted: Filter[Seen[R]], around: Around) -> Callable[[R], bool] | None:
    """Whether a row passes that filter, with this around it; None where every row does."""
    return (lambda row: wanted.matches(Seen(row, around))) if wanted else None


def arranged(
    kind: Kind[R], rows: Sequence[R], arrangement: Arrangement, around: Around,
    passes: Callable[[R], bool] | None, steady: SteadyOrder[R],
) -> list[Head | R]:  # fmt: skip
    """The rows that pass, in their order, under their heads."""
    found = [row for row in rows if passes(row)] if passes else rows
    field = kind.fields.get(arrangement.sort) or kind.fields[kind.sort]
    ordered = steady.sorted(found, field.order, field.noise, arrangement.reverse)
    return grouped(ordered, kind.grouping(arrangement.group), around, kind.noun, kind.standing)
