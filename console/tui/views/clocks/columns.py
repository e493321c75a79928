"""The Clocks view as a list: what its columns say, how they sort, what is filtered, grouped and copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ....present.clocks import ClockRow, service_text, state_text
from ....present.status import BY_WEIGHT
from ....records.metrics import CLOCK as METRICS
from ....records.metrics import Metric, Noise
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.grouping import NONE, Grouping
from ...models.list_kind import ColumnField, ListKind, column_field, metric_columns, text_or_unknown
from ...models.row_context import RowInContext


def _style(row: ClockRow, text: str) -> str:
    if text == format.UNKNOWN:
        return "muted"
    return "stale" if row.status == "stale" else "text"


def _of_line(name: str) -> Callable[[ClockRow], Any]:
    return lambda row: getattr(row.line, name) if row.line else None


def _percent(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:.1f}"


def _warned(row: ClockRow, text: str) -> str:
    return "muted" if text == format.UNKNOWN else "warning" if row.status != "ok" else "muted"


def _claimed(row: ClockRow, text: str) -> str:
    source = row.source
    return "warning" if source is not None and source.synced is False else _style(row, text)


#: Columns that are not metrics, each behind that of a metric.
_BETWEEN: Final[dict[str, tuple[ColumnField[ClockRow], ...]]] = {
    "drift": (
        column_field("method", "method", _of_line("method"), text_or_unknown, _style),
        column_field("stamps", "stamps", _of_line("stamps"), text_or_unknown, _style),
    ),
    "edges": (
        column_field("loss", "loss %", lambda row: row.loss_pct, _percent, _style, noise=Noise(absolute=0.2)),
        column_field(
            "residual", "fit residual", lambda row: row.residual_ns, format.micro, _style, noise=Noise(share=0.2)
        ),
    ),
}
FIELDS: dict[str, ColumnField[ClockRow]] = {
    column.key: column
    for column in (
        column_field("state", "state", lambda row: row, state_text, lambda row, _: row.status,
              lambda row: (BY_WEIGHT.index(row.status), row.word)),
        column_field("node", "node", lambda row: row.node, clean, _style, natural),
        *metric_columns(METRICS, lambda metric, row: metric.read(row.line), _style, _BETWEEN),
        column_field("service", "time sync", lambda row: service_text(row.source), text_or_unknown, _claimed,
            natural),
        column_field("age", "age", lambda row: row.age_ns, format.age, _style, noise=Noise(absolute=2e9)),
        column_field("warnings", "warnings", lambda row: " ".join(row.line.warnings) if row.line else None,
            text_or_unknown, _warned),
        column_field("cost", "CPU %", lambda row: row.cost.cpu_pct if row.cost else None, format.percent, _style,
              noise=Noise(absolute=1.0)),
    )
}  # fmt: skip


def _figure(metric: Metric, entry: RowInContext[ClockRow]) -> Value:
    """A figure of the line as its column has it: nanoseconds as µs."""
    value: float | None = metric.read(entry.row.line)
    return value / 1000 if value is not None and metric.field.endswith("_ns") else value


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
        FilterField("method", "word", lambda entry: entry.row.line.method if entry.row.line else None,
                    "probe, ssh, ntp, ptp or system"),
        FilterField("warning", "word", lambda entry: entry.row.line.warnings if entry.row.line else (),
                    "step, slew, asym, wide, …"),
        FilterField("service", "text", lambda entry: service_text(entry.row.source), "part of the time sync status"),
    ),
    _words,
)  # fmt: skip

GROUPINGS: Final[tuple[Grouping[ClockRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.word, is_state=True),
    Grouping("method", lambda entry: entry.row.line.method if entry.row.line else None),
    Grouping("service", lambda entry: entry.row.source.daemon if entry.row.source else None),
)


def _object(row: ClockRow) -> dict[str, Any]:
    return {
        "node": row.node, "state": row.word, "status": row.status, "age_ns": row.age_ns, "loss_pct": row.loss_pct,
        "residual_ns": row.residual_ns, "clock_node": row.line, "clock_source": row.source, "clock_cost": row.cost,
    }  # fmt: skip


KIND: Final = ListKind(
    "clock", "node", FIELDS, VOCABULARY, GROUPINGS, lambda row: (row.status, row.word), _object,
    row_note=lambda row: row.note.text if row.note else "",
)  # fmt: skip
