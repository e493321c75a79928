"""The Nodes view as a list: what its columns say, how they sort, what nodes are grouped by, what is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....present.status import BY_WEIGHT
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.field import Field, field, integer, word
from ...models.grouping import NONE, Grouping
from ...models.list_kind import Kind
from ...models.node_summary import NodeSummary
from ...models.row_context import Seen
from ...models.steady_order import Noise
from .filter import NODES
from .model import NodeRow, memory_pct, state_text

_LOAD, _RATE = Noise(absolute=2.0), Noise(absolute=4096.0, share=0.1)
#: The words for the state of a node, the worst first.
_BY_BADNESS = ("failed", "lost", "stale", "connecting", "expected", "ok")


def _style(row: NodeRow, text: str) -> str:
    """Who a node is holds although nothing comes from it."""
    return "muted" if text == format.UNKNOWN else "text"


def _live(row: NodeRow, text: str) -> str:
    """Figures that are not fresh are drawn as stale."""
    return _style(row, text) if row.summary.fresh or text == format.UNKNOWN else "stale"


def _told(row: NodeRow, text: str) -> str:
    return row.summary.status if row.summary.status != "ok" else _live(row, text)


def _badness(summary: NodeSummary) -> tuple[int, str]:
    return (BY_WEIGHT.index(summary.status), summary.word)


def _word_badness(word: str) -> tuple[int, str]:
    return (_BY_BADNESS.index(word) if word in _BY_BADNESS else 0, word)


def _of_host(name: str) -> Callable[[NodeRow], Any]:
    return lambda row: getattr(row.host, name) if row.host else None


def _of_node(name: str) -> Callable[[NodeRow], Any]:
    return lambda row: getattr(row.node, name) if row.node else None


def _of_cost(name: str) -> Callable[[NodeRow], Any]:
    return lambda row: getattr(row.cost, name) if row.cost else None


FIELDS: dict[str, Field[NodeRow]] = {
    found.key: found
    for found in (
        field("state", "state", lambda row: row.summary, state_text, lambda row, _: row.summary.status, _badness),
        field("node", "node", lambda row: row.summary.name, clean, _style, natural),
        field("cpu", "CPU %", _of_host("cpu_pct"), format.percent, _live, noise=_LOAD),
        field("mem", "mem %", memory_pct, format.percent, _live, noise=_LOAD),
        field("cpu_stall", "CPU stall", _of_host("cpu_stall_pct"), format.percent, _live, noise=_LOAD),
        field("mem_stall", "mem stall", _of_host("mem_stall_pct"), format.percent, _live, noise=_LOAD),
        field("io_stall", "I/O stall", _of_host("io_stall_pct"), format.percent, _live, noise=_LOAD),
        field("read", "read/s", _of_host("disk_read_bytes_s"), format.byte_rate, _live, noise=_RATE),
        field("write", "write/s", _of_host("disk_write_bytes_s"), format.byte_rate, _live, noise=_RATE),
        field("rx", "in/s", _of_host("net_rx_bytes_s"), format.byte_rate, _live, noise=_RATE),
        field("tx", "out/s", _of_host("net_tx_bytes_s"), format.byte_rate, _live, noise=_RATE),
        field("gpus", "GPUs", lambda row: row.gpus, integer, _live),
        field("ranks", "ranks", lambda row: row.ranks, integer, _live),
        field("agent", "agent %", _of_cost("cpu_pct"), format.percent, _live),
        field("agent_rss", "RSS", _of_cost("rss_bytes"), format.size, _live),
        field("hostname", "host name", _of_node("hostname"), word, _style, natural),
        field("kernel", "kernel", _of_node("kernel"), word, _style, natural),
        field("python", "python", _of_node("python"), word, _style, natural),
        field("tags", "tags", lambda row: ", ".join(row.tags) or None, word, _style),
        field("reason", "reason", lambda row: row.summary.reason or None, word, _told),
    )
}


def _seen_name(seen: Seen[NodeRow]) -> str:
    return seen.row.summary.name


#: What nodes can be grouped by.
GROUPINGS: Final[tuple[Grouping[NodeRow], ...]] = (
    NONE,
    Grouping("state", lambda seen: seen.row.summary.word, _word_badness, is_state=True),
    Grouping("class", lambda seen: seen.around.class_of(_seen_name(seen))),
    Grouping("tag", lambda seen: seen.around.all_tags(_seen_name(seen))),
)


def _object(row: NodeRow) -> dict[str, Any]:
    """What the screen makes of it, and its records as they came, in their own units."""
    summary = row.summary
    return {
        "node": summary.name, "state": summary.word, "status": summary.status, "reason": summary.reason or None,
        "try": summary.try_ or None, "age_ns": summary.age_ns, "simulated": summary.simulated, "tags": row.tags,
        "gpus": row.gpus, "ranks": row.ranks, "record": row.node, "host": row.host, "agent_cost": row.cost,
    }  # fmt: skip


KIND: Final = Kind(
    "node", "node", FIELDS, NODES, GROUPINGS, lambda row: (row.summary.status, row.summary.word), _object,
    remark=lambda row: row.note.text if row.note else "",
)  # fmt: skip
