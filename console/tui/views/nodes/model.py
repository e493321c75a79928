"""The Nodes view as a list: rows, columns, filter fields and groupings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ....core.store import NodeNow
from ....present.spans import GLYPHS, Span, state_word
from ....records import AgentCost, Host, Node
from ....records.metrics import AGENT, HOST
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.column import ColumnField, column_field, fresh_style, keyed, metric_columns, plain_style, text_or_unknown
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.grouping import NONE, Grouping, RowInContext
from ...models.heat_map import GpuIndex
from ...models.job_ranks import JobsSummary
from ...models.list_kind import ListKind, attribute, state_filter, state_order, text_attribute
from ...models.node_summary import FleetSummary, NodeSummary
from ...models.rows import PlainRow, RowState

#: The words for the state of a node, the worst first.
_BY_SEVERITY = ("failed", "lost", "stale", "hung", "finding", "connecting", "expected", "ok")


@dataclass(frozen=True, slots=True)
class NodeRow(PlainRow):
    """One node with its newest records; these are replaced, never changed."""

    summary: NodeSummary
    node: Node | None = None
    host: Host | None = None
    cost: AgentCost | None = None
    tags: tuple[str, ...] = ()
    gpus: int | None = None
    ranks: int | None = None

    @property
    def key(self) -> str:
        """Name of the node."""
        return self.summary.name

    @property
    def version(self) -> tuple[object, ...]:
        """Changes with every value that the row shows."""
        records = (self.node, self.host, self.cost)
        seen = tuple(record and (record.agent, record.seq) for record in records)
        summary = self.summary
        return (self.key, state_text(summary), summary.reason, self.tags, self.gpus, self.ranks, seen)

    @property
    def note(self) -> Span | None:
        """Why the node reports no data; None if it does."""
        summary = self.summary
        if summary.fresh or summary.status == "stale" or not (summary.reason or summary.word == "expected"):
            return None
        return Span(summary.reason or "queued to connect", summary.status)


def state_text(summary: NodeSummary) -> str:
    """`● ok`, `◐ stale 12 s`: glyph, word, age of the data."""
    aged = summary.status == "stale" or summary.word == "lost"
    age = f" {format.age(summary.age_ns)}" if aged and summary.age_ns is not None else ""
    return f"{GLYPHS[summary.status]} {state_word(summary.health)}{age}"


def node_rows(fleet: FleetSummary, nodes: Mapping[str, NodeNow], gpus: GpuIndex, jobs: JobsSummary) -> list[NodeRow]:
    """One row per node, in the order of the fleet."""
    ranks = Counter(row.rank.node for job in jobs.jobs for row in job.rows if row.rank and row.state != "exited")
    return [_row(summary, nodes.get(summary.name), gpus, ranks) for summary in fleet.nodes]


def _row(summary: NodeSummary, now: NodeNow | None, gpus: GpuIndex, ranks: Counter[str]) -> NodeRow:
    if now is None:
        return NodeRow(summary)
    has_sampled = now.cost is not None
    count = len(gpus.of(summary.name)) or (0 if has_sampled and now.node and "gpu" in now.node.capabilities else None)
    return NodeRow(
        summary, now.node, now.host, now.cost, now.state.tags if now.state else (), count,
        ranks[summary.name] if has_sampled else None,
    )  # fmt: skip


# -- columns -----------------------------------------------------------------------------------------------------------


def _reason_style(row: NodeRow, text: str) -> str:
    return row.summary.status if row.summary.status != "ok" else fresh_style(row, text)


def _row_state(row: NodeRow) -> RowState:
    return row.summary.status, row.summary.health


FIELDS: Final[dict[str, ColumnField[NodeRow]]] = keyed(
    column_field("state", "state", lambda row: row.summary, state_text, lambda row, _: row.summary.status,
        lambda summary: state_order((summary.status, summary.health))),
    column_field("node", "node", lambda row: row.key, clean, plain_style, natural),
    *metric_columns(HOST, lambda metric, row: metric.read(row.host, row.node), fresh_style),
    column_field("gpus", "GPUs", lambda row: row.gpus, format.integer, fresh_style),
    column_field("ranks", "ranks", lambda row: row.ranks, format.integer, fresh_style),
    *metric_columns(AGENT, lambda metric, row: metric.read(row.cost), fresh_style),
    column_field("hostname", "hostname", attribute("node", "hostname"), text_or_unknown, plain_style, natural),
    column_field("kernel", "kernel", attribute("node", "kernel"), text_or_unknown, plain_style, natural),
    column_field("python", "python", attribute("node", "python"), text_or_unknown, plain_style, natural),
    column_field("tags", "tags", lambda row: ", ".join(row.tags) or None, text_or_unknown, plain_style),
    column_field("reason", "reason", lambda row: row.summary.reason or None, text_or_unknown, _reason_style),
)  # fmt: skip

# -- filter and groups -------------------------------------------------------------------------------------------------


def _gpus(name: str) -> Callable[[RowInContext[NodeRow]], Value]:
    """Reads one metric of each of the node's GPUs that reports it."""

    def read(entry: RowInContext[NodeRow]) -> Value:
        figures = (getattr(now.gpu, name) for now in entry.context.gpus.of(entry.row.key) if now.gpu)
        return tuple(float(value) for value in figures if value is not None)

    return read


def _jobs(entry: RowInContext[NodeRow]) -> Value:
    return entry.context.jobs_of.get(entry.row.key, ())


def _words(entry: RowInContext[NodeRow]) -> Iterable[str]:
    row = entry.row
    yield row.summary.health
    yield clean(row.key)
    yield row.summary.reason
    yield from entry.context.tags(row.key)
    yield from entry.context.jobs_of.get(row.key, ())
    yield entry.context.class_of(row.key) or ""
    if row.node is not None:
        yield clean(row.node.hostname)
        yield clean(row.node.kernel)
    if row.summary.simulated:
        yield "simulated"


NODES: Final[Vocabulary[RowInContext[NodeRow]]] = Vocabulary(
    (
        state_filter(_row_state, "ok, finding, stale, lost, failed, …; or warning, unknown"),
        FilterField("node", "word", lambda entry: clean(entry.row.key), "node name, e.g. node0[1-3]*"),
        FilterField("tag", "word", lambda entry: entry.context.tags(entry.row.key), "tag in hosts.toml"),
        FilterField("job", "text", _jobs, "part of the name of a job on it"),
        FilterField("class", "text", lambda entry: entry.context.class_of(entry.row.key), "part of the hardware class"),
        FilterField("util", "number", _gpus("util_pct"), "utilisation of one of its GPUs in %, e.g. <10",
            ("gpu_util",)),
        FilterField("gpumem", "size", _gpus("mem_used_bytes"), "memory used on one of its GPUs, e.g. >40G",
            ("gpu_mem",)),
        FilterField("temp", "number", _gpus("temp_c"), "temperature of one of its GPUs in °C, e.g. >80"),
        *metric_filters(HOST, lambda metric, entry: metric.read(entry.row.host, entry.row.node)),
        FilterField("gpus", "number", lambda entry: entry.row.gpus, "number of GPUs, e.g. <8"),
        FilterField("ranks", "number", lambda entry: entry.row.ranks, "number of ranks on it, e.g. 0"),
        *metric_filters(AGENT, lambda metric, entry: metric.read(entry.row.cost)),
        FilterField("hostname", "text", text_attribute("node", "hostname"), "part of the hostname"),
        FilterField("kernel", "text", text_attribute("node", "kernel"), "part of the kernel version"),
        FilterField("python", "word", text_attribute("node", "python"), "Python version of the agent, e.g. 3.6*"),
        FilterField("reason", "text", lambda entry: entry.row.summary.reason or None, "part of the failure reason"),
    ),
    _words,
)  # fmt: skip


def _word_severity(word: str) -> tuple[int, str]:
    return (_BY_SEVERITY.index(word) if word in _BY_SEVERITY else 0, word)


GROUPINGS: Final[tuple[Grouping[NodeRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.summary.health, _word_severity, is_state=True),
    Grouping("class", lambda entry: entry.context.class_of(entry.row.key)),
    Grouping("tag", lambda entry: entry.context.all_tags(entry.row.key)),
)


def _object(row: NodeRow) -> dict[str, Any]:
    """The state on the screen, and the records in their own units."""
    summary = row.summary
    return {
        "node": summary.name, "state": summary.health, "status": summary.status, "reason": summary.reason or None,
        "try": summary.try_ or None, "age_ns": summary.age_ns, "simulated": summary.simulated, "tags": row.tags,
        "gpus": row.gpus, "ranks": row.ranks, "record": row.node, "host": row.host, "agent_cost": row.cost,
    }  # fmt: skip


KIND: Final = ListKind("node", "node", FIELDS, NODES, GROUPINGS, _row_state, _object, lambda row: row.summary.name)
