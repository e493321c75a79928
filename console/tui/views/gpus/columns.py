"""The GPUs view as a list: what its columns say, how they sort, what GPUs are grouped by, what is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....present.status import BY_WEIGHT, GLYPHS, state_word
from ....records.metrics import GPU as METRICS
from ....records.metrics import Noise
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.grouping import NONE, Grouping
from ...models.list_kind import ColumnField, ListKind, column_field, metric_columns, text_or_unknown
from ...models.plot import bars
from .filter import GPUS
from .model import GpuRow, age_text, ranks_text

#: Cells of the curve of the last minute in a row.
CURVE_CELLS, _CURVE_S = 10, 60


def _style(row: GpuRow, text: str) -> str:
    return "muted" if text == format.UNKNOWN else "text"


def _live(row: GpuRow, text: str) -> str:
    """Figures that are not fresh are drawn as stale."""
    return _style(row, text) if row.summary.fresh or text == format.UNKNOWN else "stale"


def _curved(row: GpuRow, text: str) -> str:
    return "accent" if row.summary.fresh else "stale"


def _state_text(row: GpuRow) -> str:
    status, state = row.row_state
    age = age_text(row)
    return f"{GLYPHS[status]} {state_word(state)}" + (f" {age}" if age else "")


def _info(name: str) -> Callable[[GpuRow], Any]:
    return lambda row: getattr(row.info, name) if row.info else None


def _severity(standing: tuple[Any, str]) -> tuple[int, str]:
    return (BY_WEIGHT.index(standing[0]), standing[1])


def _curve(row: GpuRow) -> str:
    """The utilisation of the last minute, oldest first."""
    if row.recent is None:
        return format.UNKNOWN
    return bars(row.recent(row.key, "util_pct", _CURVE_S), CURVE_CELLS, 0, 100)


def _reasons(row: GpuRow) -> str | None:
    """What keeps the clocks down; an idle GPU is no reason to look."""
    reasons = [reason for reason in (row.gpu.clocks_event_reasons if row.gpu else ()) if reason != "gpu_idle"]
    return ", ".join(reasons) or None


def _slot(row: GpuRow) -> str | None:
    """PCIe generation and lanes now."""
    info = row.info
    return f"{info.pcie_gen}x{info.pcie_width}" if info and info.pcie_gen and info.pcie_width else None


#: Columns that are not metrics, each behind that of a metric.
_BETWEEN: Final[dict[str, tuple[ColumnField[GpuRow], ...]]] = {
    "util": (
        ColumnField("curve", "last minute", _curve, lambda row: row.gpu and row.gpu.util_pct, _curved, Noise(2.0)),
    ),
    "held": (column_field("reasons", "throttle reasons", _reasons, text_or_unknown, _live),),
    "pcie_tx": (column_field("slot", "PCIe", _slot, text_or_unknown, _live),),
}
FIELDS: dict[str, ColumnField[GpuRow]] = {
    column.key: column
    for column in (
        column_field("state", "state", lambda row: row, _state_text, lambda row, _: row.row_state[0],
              lambda row: _severity(row.row_state)),
        column_field("node", "node", lambda row: row.summary.name, clean, _style, natural),
        column_field("gpu", "gpu", lambda row: row.index, format.integer, _style),
        *metric_columns(METRICS, lambda metric, row: metric.read(row.gpu, row.info), _live, _BETWEEN),
        ColumnField("ranks", "ranks", ranks_text, lambda row: row.ranks or None, _style),
        column_field("model", "model", _info("name"), text_or_unknown, _style, natural),
        column_field("driver", "driver", _info("driver"), text_or_unknown, _style, natural),
        column_field("uuid", "uuid", lambda row: row.uuid, text_or_unknown, _style),
    )
}  # fmt: skip


def _word_severity(word_: str) -> tuple[int, str]:
    return (0 if word_ != "ok" else 1, word_)


#: What GPUs can be grouped by.
GROUPINGS: Final[tuple[Grouping[GpuRow], ...]] = (
    NONE,
    Grouping("node", lambda entry: entry.row.summary.name),
    Grouping("state", lambda entry: entry.row.row_state[1], _word_severity, is_state=True),
    Grouping("model", lambda entry: entry.row.info.name if entry.row.info else None),
    Grouping("job", lambda entry: ", ".join(entry.context.jobs_of.get(entry.row.summary.name, ())) or None),
    Grouping("tag", lambda entry: entry.context.all_tags(entry.row.summary.name)),
)


def _object(row: GpuRow) -> dict[str, Any]:
    """What the screen makes of it, and its records as they came, in their own units."""
    status, state = row.row_state
    return {
        "node": row.summary.name, "index": row.index, "uuid": row.uuid, "state": state, "status": status,
        "ranks": row.ranks, "finding": row.finding.id if row.finding else None, "gpu_info": row.info, "gpu": row.gpu,
    }  # fmt: skip


KIND: Final = ListKind(
    "GPU", "node", FIELDS, GPUS, GROUPINGS, lambda row: row.row_state, _object,
    row_note=lambda row: row.note.text if row.note else "",
)  # fmt: skip
