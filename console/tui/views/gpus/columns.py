"""The GPUs view as a list: columns, filter fields and groupings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....present.spans import GLYPHS, state_word
from ....records.metrics import GPU as METRICS
from ....records.metrics import Noise
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
    fresh_style,
    keyed,
    metric_columns,
    plain_style,
    state_filter,
    state_order,
    text_attribute,
    text_or_unknown,
)
from ...models.plot import bars
from .model import GpuRow, age_text, ranks_text

#: Cells of the utilisation curve in a row, and the seconds it covers.
CURVE_CELLS, _CURVE_S = 10, 60


def _state_text(row: GpuRow) -> str:
    status, state = row.row_state
    age = age_text(row)
    return f"{GLYPHS[status]} {state_word(state)}" + (f" {age}" if age else "")


def _curve(row: GpuRow) -> str:
    """The utilisation of the last minute, oldest first."""
    if row.recent is None:
        return format.UNKNOWN
    return bars(row.recent(row.key, "util_pct", _CURVE_S), CURVE_CELLS, 0, 100)


def _throttle_reasons(row: GpuRow) -> str | None:
    """Why the clocks are throttled; being idle does not count."""
    reasons = [reason for reason in (row.gpu.clocks_event_reasons if row.gpu else ()) if reason != "gpu_idle"]
    return ", ".join(reasons) or None


def _slot(row: GpuRow) -> str | None:
    """PCIe generation and lanes now."""
    info = row.info
    return f"{info.pcie_gen}x{info.pcie_width}" if info and info.pcie_gen and info.pcie_width else None


#: Columns that are not metrics, each behind that of a metric.
_BETWEEN: Final[dict[str, tuple[ColumnField[GpuRow], ...]]] = {
    "util": (
        ColumnField("curve", "last minute", _curve, lambda row: row.gpu and row.gpu.util_pct,
            lambda row, _: "accent" if row.summary.fresh else "stale", Noise(2.0)),
    ),
    "held": (column_field("reasons", "throttle reasons", _throttle_reasons, text_or_unknown, fresh_style),),
    "pcie_tx": (column_field("slot", "PCIe", _slot, text_or_unknown, fresh_style),),
}  # fmt: skip
FIELDS: Final[dict[str, ColumnField[GpuRow]]] = keyed(
    column_field("state", "state", lambda row: row, _state_text, lambda row, _: row.row_state[0],
        lambda row: state_order(row.row_state)),
    column_field("node", "node", lambda row: row.summary.name, clean, plain_style, natural),
    column_field("gpu", "gpu", lambda row: row.index, format.integer, plain_style),
    *metric_columns(METRICS, lambda metric, row: metric.read(row.gpu, row.info), fresh_style, _BETWEEN),
    ColumnField("ranks", "ranks", ranks_text, lambda row: row.ranks or None, plain_style),
    column_field("model", "model", attribute("info", "name"), text_or_unknown, plain_style, natural),
    column_field("driver", "driver", attribute("info", "driver"), text_or_unknown, plain_style, natural),
    column_field("uuid", "uuid", lambda row: row.uuid, text_or_unknown, plain_style),
)  # fmt: skip


def _node(entry: RowInContext[GpuRow]) -> str:
    return entry.row.summary.name


def _jobs(entry: RowInContext[GpuRow]) -> tuple[str, ...]:
    return entry.context.jobs_of.get(_node(entry), ())


def _reasons(entry: RowInContext[GpuRow]) -> Value:
    return tuple(clean(reason) for reason in entry.row.gpu.clocks_event_reasons) if entry.row.gpu else None


def _words(entry: RowInContext[GpuRow]) -> Iterable[str]:
    row = entry.row
    yield row.row_state[1]
    yield clean(row.summary.name)
    yield f"gpu{row.index}"
    yield clean(row.uuid)
    yield from entry.context.tags(_node(entry))
    yield from _jobs(entry)
    if row.info is not None:
        yield clean(row.info.name or "")
    if (row.gpu and row.gpu.simulated) or (row.info and row.info.simulated):
        yield "simulated"


GPUS: Final[Vocabulary[RowInContext[GpuRow]]] = Vocabulary(
    (
        state_filter(lambda row: row.row_state, "ok, lost, throttled, …; or warning, failed, stale"),
        FilterField("node", "word", lambda entry: clean(_node(entry)), "node name, e.g. node0[1-3]*"),
        FilterField("gpu", "number", lambda entry: entry.row.index, "index on its node, e.g. 4"),
        FilterField("job", "text", _jobs, "part of a job name"),
        FilterField("tag", "word", lambda entry: entry.context.tags(_node(entry)), "node tag in hosts.toml"),
        FilterField("rank", "number", lambda entry: tuple(map(float, entry.row.ranks)), "rank using it, e.g. 0-7"),
        *metric_filters(METRICS, lambda metric, entry: metric.read(entry.row.gpu, entry.row.info), {
            "held": (FilterField("reason", "word", _reasons, "throttle reason, e.g. *thermal*"),),
        }),
        FilterField("model", "text", text_attribute("info", "name"), "part of the model name"),
        FilterField("driver", "word", text_attribute("info", "driver"), "driver version"),
        FilterField("uuid", "text", lambda entry: clean(entry.row.uuid), "part of the UUID", offered=False),
    ),
    _words,
)  # fmt: skip
GROUPINGS: Final[tuple[Grouping[GpuRow], ...]] = (
    NONE,
    Grouping("node", _node),
    Grouping("state", lambda entry: entry.row.row_state[1], lambda word: (word == "ok", word), is_state=True),
    Grouping("model", lambda entry: entry.row.info.name if entry.row.info else None),
    Grouping("job", lambda entry: ", ".join(_jobs(entry)) or None),
    Grouping("tag", lambda entry: entry.context.all_tags(_node(entry))),
)


def _object(row: GpuRow) -> dict[str, Any]:
    """The state on the screen, and the records in their own units."""
    status, state = row.row_state
    return {
        "node": row.summary.name, "index": row.index, "uuid": row.uuid, "state": state, "status": status,
        "ranks": row.ranks, "finding": row.finding.id if row.finding else None, "gpu_info": row.info, "gpu": row.gpu,
    }  # fmt: skip


KIND: Final = ListKind("GPU", "node", FIELDS, GPUS, GROUPINGS, lambda row: row.row_state, _object)
