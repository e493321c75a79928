"""What each view's table is made of when it leaves the console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...store import GpuNow
from .. import figures
from ..text import clean
from . import noderows, ranks
from .copying import rank_facts
from .events import EventRow, clock_ms, event_kind, event_status, event_text, is_of_node
from .heat import METRICS, GpuIndex, Metric, index_of
from .jobs import RankRow
from .noderows import NodeRow
from .sheets import Sheet


def rank_sheet(what: str, rows: Iterable[RankRow], columns: Sequence[str]) -> Sheet:
    """Ranks; the text has these columns, the rest has everything."""
    fields = [ranks.FIELDS[key] for key in columns]
    return Sheet(
        "ranks", what, tuple(rows), rank_facts, tuple((field.title, field.text) for field in fields),
        ("record", "stat"), lambda row: str(row.reason),
    )  # fmt: skip


def node_sheet(what: str, rows: Iterable[NodeRow], columns: Sequence[str]) -> Sheet:
    """Nodes; the text has these columns, the rest has everything."""
    fields = [noderows.FIELDS[key] for key in columns]
    return Sheet(
        "nodes", what, tuple(rows), _node_facts, tuple((field.title, field.text) for field in fields),
        ("identity", "host", "agent"), lambda row: str(row.note.text if row.note else ""),
    )  # fmt: skip


def event_sheet(what: str, rows: Iterable[EventRow]) -> Sheet:
    """Events; only JSON has the whole records, for each kind has other fields."""
    return Sheet(
        "events", what, tuple(rows), _event_facts,
        (
            ("time", lambda row: figures.clock_time(row.record.rx) if row.record.rx else figures.UNKNOWN),
            ("node's clock", lambda row: clock_ms(row.record.t) if is_of_node(row.record) else figures.UNKNOWN),
            ("", lambda row: row.mark.text),
            ("node", lambda row: row.node),
            ("kind", lambda row: event_kind(row.record)),
            ("what happened", lambda row: event_text(row.record)),
        ),
    )  # fmt: skip


def gpu_sheet(what: str, nodes: Iterable[str], gpus: GpuIndex) -> Sheet:
    """Every GPU of these nodes, in the order of nodes and indices."""
    rows = tuple((node, now.info, now.gpu) for node in nodes for now in gpus.of(node))
    return Sheet(
        "gpus", what, rows, _gpu_facts,
        (
            ("node", lambda row: clean(row[0])), ("gpu", lambda row: str(index_of(_now(row)))),
            *((f"{metric.title} {metric.unit}", _figure(metric)) for metric in METRICS),
        ),
        ("info", "figures"),
    )  # fmt: skip


def _node_facts(row: NodeRow) -> dict[str, Any]:
    summary = row.summary
    return {
        "node": summary.name, "state": summary.word, "reason": summary.reason or None, "tags": row.tags,
        "gpus": row.gpus, "ranks": row.ranks, "identity": row.node, "host": row.host, "agent": row.cost,
    }  # fmt: skip


def _event_facts(row: EventRow) -> dict[str, Any]:
    record = row.record
    return {
        "number": row.number, "rx": record.rx or None, "t": record.t if is_of_node(record) else None,
        "node": record.node or None, "kind": event_kind(record), "status": event_status(record),
        "text": event_text(record), "record": record,
    }  # fmt: skip


def _gpu_facts(row: tuple[str, Any, Any]) -> dict[str, Any]:
    return {"node": row[0], "index": index_of(_now(row)), "info": row[1], "figures": row[2]}


def _now(row: tuple[str, Any, Any]) -> GpuNow:
    return GpuNow(row[1], row[2])


def _figure(metric: Metric) -> Any:
    def text(row: tuple[str, Any, Any]) -> str:
        value = metric.read(_now(row))
        return figures.UNKNOWN if value is None else figures.whole(value)

    return text


def counted(noun: str, shown: int, of: int | None = None) -> str:
    """ "8 ranks", "3 of 512 ranks": for the person who chooses."""
    return " ".join(_words(noun, shown, of))


def _words(noun: str, shown: int, of: int | None) -> Iterator[str]:
    yield str(shown)
    if of is not None and of != shown:
        yield f"of {of}"
    yield noun + "s" * ((of or shown) != 1)
