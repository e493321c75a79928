"""The Clocks view as a list: what its columns say, how they sort, what is filtered, grouped and copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ....present.status import BY_WEIGHT
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.filter_language import FilterField, Value, Vocabulary
from ...models.grouping import NONE, Grouping
from ...models.list_kind import ColumnField, ListKind, column_field, integer, text_or_unknown
from ...models.row_context import RowInContext
from ...models.steady_order import Noise
from .model import ClockRow, micro, service_text, state_text

_BOUND = Noise(share=0.2)


def _style(row: ClockRow, text: str) -> str:
    if text == format.UNKNOWN:
        return "muted"
    return "stale" if row.status == "stale" else "text"


def _of_line(name: str) -> Callable[[ClockRow], Any]:
    return lambda row: getattr(row.line, name) if row.line else None


def _offset(ns: int | None) -> str:
    return micro(ns, signed=True)


def _ppm(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:+.2f}"


def _percent(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:.1f}"


def _warned(row: ClockRow, text: str) -> str:
    return "muted" if text == format.UNKNOWN else "warning" if row.status != "ok" else "muted"


def _claimed(row: ClockRow, text: str) -> str:
    source = row.source
    return "warning" if source is not None and source.synced is False else _style(row, text)


FIELDS: dict[str, ColumnField[ClockRow]] = {
    found.key: found
    for found in (
        column_field("state", "state", lambda row: row, state_text, lambda row, _: row.status,
              lambda row: (BY_WEIGHT.index(row.status), row.word)),
        column_field("node", "node", lambda row: row.node, clean, _style, natural),
        column_field("offset", "offset µs", _of_line("offset_ns"), _offset, _style, noise=Noise(absolute=2000.0,
            share=0.1)),
        column_field("bound", "± µs", _of_line("bound_ns"), micro, _style, noise=_BOUND),
        column_field("drift", "drift ppm", _of_line("drift_ppm"), _ppm, _style, noise=Noise(absolute=0.5)),
        column_field("method", "method", _of_line("method"), text_or_unknown, _style),
        column_field("stamps", "stamps", _of_line("stamps"), text_or_unknown, _style),
        column_field("rtt", "rtt µs", _of_line("min_rtt_ns"), micro, _style, noise=_BOUND),
        column_field("edges", "edges", _of_line("edges"), integer, _style),
        column_field("loss", "loss %", lambda row: row.loss_pct, _percent, _style, noise=Noise(absolute=0.2)),
        column_field("residual", "fit residual", lambda row: row.residual_ns, micro, _style, noise=_BOUND),
        column_field("repeat", "repeatability", _of_line("repeat_ns"), micro, _style, noise=_BOUND),
        column_field("service", "time sync", lambda row: service_text(row.source), text_or_unknown, _claimed,
            natural),
        column_field("age", "age", lambda row: row.age_ns, format.age, _style, noise=Noise(absolute=2e9)),
        column_field("warnings", "warnings", lambda row: " ".join(row.line.warnings) if row.line else None,
            text_or_unknown, _warned),
        column_field("cost", "CPU %", lambda row: row.cost.cpu_pct if row.cost else None, format.percent, _style,
              noise=Noise(absolute=1.0)),
    )
}  # fmt: skip


def _figure(name: str) -> Callable[[RowInContext[ClockRow]], Value]:
    """A figure of the line in µs, as the column has it."""

    def read(entry: RowInContext[ClockRow]) -> Value:
        value = getattr(entry.row.line, name) if entry.row.line else None
        return None if value is None else value / 1000

    return read


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
        FilterField("offset", "number", _figure("offset_ns"), "offset from the reference in µs, e.g. >500"),
        FilterField("bound", "number", _figure("bound_ns"), "error bound in µs, e.g. >100"),
        FilterField("drift", "number", lambda entry: entry.row.line.drift_ppm if entry.row.line else None,
                    "drift in ppm, e.g. >20"),
        FilterField("rtt", "number", _figure("min_rtt_ns"), "minimum round-trip time in µs"),
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
