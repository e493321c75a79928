"""Columns of lists: the attributes of a row as text, with their style and sort value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from ...present.spans import Span
from ...records.metrics import NO_NOISE, Metric, Noise
from ...text import format
from ...text.cells import clean

T = TypeVar("T")


class ColumnField(msgspec.Struct, Generic[T], frozen=True):
    """One attribute of a row: its text, its style and its sort value (None sorts last)."""

    key: str
    title: str
    text: Callable[[T], str]
    order: Callable[[T], Any]
    style: Callable[[T, str], str]  # of a row's text
    noise: Noise = NO_NOISE  # fluctuation that does not move a row

    def span(self, row: T) -> Span:
        """The text of a row with its style."""
        text = self.text(row)
        return Span(text, self.style(row, text))


def column_field(
    key: str, title: str, read: Callable[[T], Any], write: Callable[[Any], str], style: Callable[[T, str], str],
    order: Callable[[Any], Any] = lambda value: value, noise: Noise = NO_NOISE,
) -> ColumnField[T]:  # fmt: skip
    """The field whose value `read` returns; `order` is the sort value of a known value."""

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


def keyed(*fields: ColumnField[T]) -> dict[str, ColumnField[T]]:
    """The fields by their keys."""
    return {field.key: field for field in fields}


def text_or_unknown(value: str | None) -> str:
    """A text of a node's; unknown where it is empty."""
    return clean(value) if value else format.UNKNOWN


def plain_style(row: object, text: str) -> str:
    """Style of a value that does not get stale: muted if unknown."""
    return "muted" if text == format.UNKNOWN else "text"


def fresh_style(row: Any, text: str) -> str:
    """Style of a value of a node, whose `summary` the row has: stale if the node's data are."""
    return plain_style(row, text) if row.summary.fresh or text == format.UNKNOWN else "stale"
