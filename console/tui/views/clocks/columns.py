"""The Clocks view as a list: columns, filter fields and groupings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....present.clocks import ClockRow, service_text, state_text
from ....records.metrics import CLOCK as METRICS
from ....records.metrics import Metric, Noise
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.grouping import NONE, Grouping, RowInContext
from ...models.list_kind import (
    ColumnField,
    ListKind,
    attribute,
    column_field,
    keyed,
    metric_columns,
    plain_style,
    state_order,
    text_or_unknown,
)


def _style(row: ClockRow, text: str) -> str:
    return "stale" if row.status == "stale" and text != format.UNKNOWN else plain_style(row, text)


def _percent(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:.1f}"


def _warned(row: ClockRow, text: str) -> str:
    return "warning" if text != format.UNKNOWN and row.status != "ok" else "muted"


def _claimed(row: ClockRow, text: str) -> str:
    source = row.source
    return "warning" if source is not None and source.synced is False else _style(row, text)


#: Columns that are not metrics, each behind that of a metric.
_BETWEEN: Final[dict[str, tuple[ColumnField[ClockRow], ...]]] = {
    "drift": (
        column_field("method", "method", attribute("line", "method"), text_or_unknown, _style),
        column_field("stamps", "stamps", attribute("line", "stamps"), text_or_unknown, _style),
    ),
    "edges": (
        column_field("loss", "loss %", lambda row: row.loss_pct, _percent, _style, noise=Noise(absolute=0.2)),
        column_field(
            "residual", "fit residual", lambda row: row.residual_ns, format.micro, _style, noise=Noise(share=0.2)
        ),
    ),
}
FIELDS: Final[dict[str, ColumnField[ClockRow]]] = keyed(
    column_field("state", "state", lambda row: row, state_text, lambda row, _: row.status,
        lambda row: state_order((row.status, row.word))),
    column_field("node", "node", lambda row: row.node, clean, _style, natural),
    *metric_columns(METRICS, lambda metric, row: metric.read(row.line), _style, _BETWEEN),
    column_field("service", "time sync", lambda row: service_text(row.source), text_or_unknown, _claimed, natural),
    column_field("age", "age", lambda row: row.age_ns, format.age, _style, noise=Noise(absolute=2e9)),
    column_field("warnings", "warnings", lambda row: " ".join(row.line.warnings) if row.line else None,
        text_or_unknown, _warned),
    column_field("cost", "CPU %", attribute("cost", "cpu_pct"), format.percent, _style, noise=Noise(absolute=1.0)),
)  # fmt: skip


def _figure(metric: Metric, entry: RowInContext[ClockRow]) -> Value:
    """A metric in the unit of its column: nanoseconds as µs."""
    value: float | None = metric.read(entry.row.line)
    return value / 1000 if value is not None and metric.field.endswith("_ns") else value


def _method(entry: RowInContext[ClockRow]) -> str | None:
    return entry.row.line.method if entry.row.line else None


def _words(entry: RowInContext[ClockRow]) -> Iterable[str]:
    row = entry.row
    yield row.word
    yield clean(row.node)
    yield clean(service_text(row.source) or "")
    yield from row.line.warnings if row.line else ()


VOCABULARY: Final[Vocabulary[RowInContext[ClockRow]]] = Vocabulary(
    (
        FilterField("state", "word", lambda entry: (entry.row.word, entry.row.status), "ok, wide, stale, unknown, …"),
        FilterField("node", "word", lambda entry: clean(entry.row.node), "node name, e.g. node0[1-3]*"),
        FilterField("tag", "word", lambda entry: entry.context.tags(entry.row.node), "tag in hosts.toml"),
        *metric_filters(METRICS, _figure),
        FilterField("loss", "number", lambda entry: entry.row.loss_pct, "lost probes in %"),
        FilterField("method", "word", _method, "probe, ssh, ntp, ptp or system"),
        FilterField("warning", "word", lambda entry: entry.row.line.warnings if entry.row.line else (),
                    "step, slew, asym, wide, …"),
        FilterField("service", "text", lambda entry: service_text(entry.row.source), "part of the time sync status"),
    ),
    _words,
)  # fmt: skip

GROUPINGS: Final[tuple[Grouping[ClockRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.word, is_state=True),
    Grouping("method", _method),
    Grouping("service", lambda entry: entry.row.source.daemon if entry.row.source else None),
)


def _object(row: ClockRow) -> dict[str, Any]:
    return {
        "node": row.node, "state": row.word, "status": row.status, "age_ns": row.age_ns, "loss_pct": row.loss_pct,
        "residual_ns": row.residual_ns, "clock_node": row.line, "clock_source": row.source, "clock_cost": row.cost,
    }  # fmt: skip


KIND: Final = ListKind("clock", "node", FIELDS, VOCABULARY, GROUPINGS, lambda row: (row.status, row.word), _object)
