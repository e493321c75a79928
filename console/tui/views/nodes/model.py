"""A row a node: its summary and the records it is told from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ....core.store import NodeNow
from ....present.spans import Span
from ....present.status import GLYPHS, state_word
from ....records import AgentCost, Host, Node
from ....text import format
from ...models.heat_map import GpuIndex
from ...models.job_ranks import JobsSummary
from ...models.node_summary import FleetSummary, NodeSummary
from ...models.row import PlainRow


@dataclass(frozen=True, slots=True)
class NodeRow(PlainRow):
    """One node with the records it is told from; those are replaced, never changed."""

    summary: NodeSummary
    node: Node | None = None
    host: Host | None = None
    cost: AgentCost | None = None
    tags: tuple[str, ...] = ()
    gpus: int | None = None
    ranks: int | None = None

    @property
    def key(self) -> str:
        return self.summary.name

    @property
    def version(self) -> tuple[object, ...]:
        records = (self.node, self.host, self.cost)
        seen = tuple(record and (record.agent, record.seq) for record in records)
        summary = self.summary
        return (self.key, state_text(summary), summary.reason, self.tags, self.gpus, self.ranks, seen)

    @property
    def note(self) -> Span | None:
        """Why there are no figures, where there are none."""
        summary = self.summary
        if summary.fresh or summary.status == "stale" or not (summary.reason or summary.word == "expected"):
            return None
        return Span(summary.reason or "queued to connect", summary.status)


def state_text(summary: NodeSummary) -> str:
    """`● ok`, `◐ stale 12 s`: the glyph, the word, and how old the data are."""
    aged = summary.status == "stale" or summary.word == "lost"
    age = f" {format.age(summary.age_ns)}" if aged and summary.age_ns is not None else ""
    return f"{GLYPHS[summary.status]} {state_word(summary.word)}{age}"


def node_rows(fleet: FleetSummary, nodes: Mapping[str, NodeNow], gpus: GpuIndex, jobs: JobsSummary) -> list[NodeRow]:
    """A row a node, in the fleet's order."""
    ranks = Counter(row.rank.node for job in jobs.jobs for row in job.rows if row.rank and row.state != "exited")
    return [_row(summary, nodes.get(summary.name), gpus, ranks) for summary in fleet.nodes]


def _row(summary: NodeSummary, now: NodeNow | None, gpus: GpuIndex, ranks: Counter[str]) -> NodeRow:
    if now is None:
        return NodeRow(summary)
    spoken = now.cost is not None
    count = len(gpus.of(summary.name)) or (0 if spoken and now.node and "gpu" in now.node.capabilities else None)
    return NodeRow(
        summary, now.node, now.host, now.cost, now.state.tags if now.state else (), count,
        ranks[summary.name] if spoken else None,
    )  # fmt: skip
