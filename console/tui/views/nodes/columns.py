"""The Nodes view as a list: what its columns say, how they sort, what nodes are grouped by, what is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....present.status import BY_WEIGHT
from ....records.metrics import AGENT, HOST
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.grouping import NONE, Grouping
from ...models.list_kind import ColumnField, ListKind, column_field, metric_columns, text_or_unknown
from ...models.node_summary import NodeSummary
from ...models.row_context import RowInContext
from .filter import NODES
from .model import NodeRow, state_text

#: The words for the state of a node, the worst first.
_BY_SEVERITY = ("failed", "lost", "stale", "connecting", "expected", "ok")


def _style(row: NodeRow, text: str) -> str:
    """Who a node is holds although nothing comes from it."""
    return "muted" if text == format.UNKNOWN else "text"


def _live(row: NodeRow, text: str) -> str:
    """Figures that are not fresh are drawn as stale."""
    return _style(row, text) if row.summary.fresh or text == format.UNKNOWN else "stale"


def _reason_style(row: NodeRow, text: str) -> str:
    return row.summary.status if row.summary.status != "ok" else _live(row, text)


def _severity(summary: NodeSummary) -> tuple[int, str]:
    return (BY_WEIGHT.index(summary.status), summary.word)


def _word_severity(word: str) -> tuple[int, str]:
    return (_BY_SEVERITY.index(word) if word in _BY_SEVERITY else 0, word)


def _of_node(name: str) -> Callable[[NodeRow], Any]:
    return lambda row: getattr(row.node, name) if row.node else None


FIELDS: dict[str, ColumnField[NodeRow]] = {
    column.key: column
    for column in (
        column_field(
            "state", "state", lambda row: row.summary, state_text, lambda row, _: row.summary.status, _severity
        ),
        column_field("node", "node", lambda row: row.summary.name, clean, _style, natural),
        *metric_columns(HOST, lambda metric, row: metric.read(row.host, row.node), _live),
        column_field("gpus", "GPUs", lambda row: row.gpus, format.integer, _live),
        column_field("ranks", "ranks", lambda row: row.ranks, format.integer, _live),
        *metric_columns(AGENT, lambda metric, row: metric.read(row.cost), _live),
        column_field("hostname", "hostname", _of_node("hostname"), text_or_unknown, _style, natural),
        column_field("kernel", "kernel", _of_node("kernel"), text_or_unknown, _style, natural),
        column_field("python", "python", _of_node("python"), text_or_unknown, _style, natural),
        column_field("tags", "tags", lambda row: ", ".join(row.tags) or None, text_or_unknown, _style),
        column_field("reason", "reason", lambda row: row.summary.reason or None, text_or_unknown, _reason_style),
    )
}


def _seen_name(entry: RowInContext[NodeRow]) -> str:
    return entry.row.summary.name


#: What nodes can be grouped by.
GROUPINGS: Final[tuple[Grouping[NodeRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.summary.word, _word_severity, is_state=True),
    Grouping("class", lambda entry: entry.context.class_of(_seen_name(entry))),
    Grouping("tag", lambda entry: entry.context.all_tags(_seen_name(entry))),
)


def _object(row: NodeRow) -> dict[str, Any]:
    """What the screen makes of it, and its records as they came, in their own units."""
    summary = row.summary
    return {
        "node": summary.name, "state": summary.word, "status": summary.status, "reason": summary.reason or None,
        "try": summary.try_ or None, "age_ns": summary.age_ns, "simulated": summary.simulated, "tags": row.tags,
        "gpus": row.gpus, "ranks": row.ranks, "record": row.node, "host": row.host, "agent_cost": row.cost,
    }  # fmt: skip


KIND: Final = ListKind(
    "node", "node", FIELDS, NODES, GROUPINGS, lambda row: (row.summary.status, row.summary.word), _object,
    row_note=lambda row: row.note.text if row.note else "",
)  # fmt: skip
