"""The rows of the Nodes view: what each column says of a node, and how it sorts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...nodesets import natural
from ...records import AgentCost, Host, Node
from ...store import NodeNow
from .. import figures
from ..status import BY_WEIGHT, GLYPHS
from ..text import clean
from .heat import GpuIndex
from .jobs import Jobs
from .nodes import FleetSummary, NodeSummary
from .ordering import Noise, SteadyOrder
from .spans import Span

_NO_NOISE, _LOAD, _RATE = Noise(), Noise(absolute=2.0), Noise(absolute=4096.0, share=0.1)


@dataclass(frozen=True, slots=True)
class NodeRow:
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
        known = (self.node, self.host, self.cost)
        seen = tuple(record and (record.agent, record.seq) for record in known)
        summary = self.summary
        return (self.key, state_text(summary), summary.reason, self.tags, self.gpus, self.ranks, seen)

    @property
    def banner(self) -> None:
        return None

    @property
    def note(self) -> Span | None:
        """Why there are no figures, where there are none."""
        summary = self.summary
        if summary.fresh or summary.status == "stale" or not (summary.reason or summary.word == "expected"):
            return None
        return Span(summary.reason or "waiting for its turn to connect", summary.status)


@dataclass(frozen=True)
class Field:
    """One thing known of a node: how it is written, and how it sorts (None sorts last)."""

    key: str
    title: str
    text: Callable[[NodeRow], str]
    order: Callable[[NodeRow], Any]
    noise: Noise = _NO_NOISE

    def span(self, row: NodeRow) -> Span:
        """Its text; figures that are not fresh are drawn as stale."""
        text, status = self.text(row), row.summary.status
        if self.key == "state" or (self.key == "reason" and status != "ok"):
            return Span(text, status)
        if text == figures.UNKNOWN:
            return Span(text, "muted")
        live = self.key not in ("node", "hostname", "kernel", "python", "tags")
        return Span(text, "stale" if live and not row.summary.fresh else "text")


def state_text(summary: NodeSummary) -> str:
    """`● ok`, `◐ stale 12 s`: the glyph, the word, and how old the data are."""
    aged = summary.status == "stale" or summary.word == "lost"
    age = f" {figures.age(summary.age_ns)}" if aged and summary.age_ns is not None else ""
    return f"{GLYPHS[summary.status]} {summary.word}{age}"


def _field(
    key: str, title: str, read: Callable[[NodeRow], Any], write: Callable[[Any], str],
    order: Callable[[Any], Any] = lambda value: value, noise: Noise = _NO_NOISE,
) -> Field:  # fmt: skip
    return Field(key, title, lambda row: write(read(row)), lambda row: _ordered(read(row), order), noise)


def _ordered(value: Any, order: Callable[[Any], Any]) -> Any:
    return None if value is None else order(value)


def _badness(summary: NodeSummary) -> tuple[int, str]:
    return (BY_WEIGHT.index(summary.status), summary.word)


def _of_host(name: str) -> Callable[[NodeRow], Any]:
    return lambda row: getattr(row.host, name) if row.host else None


def _of_node(name: str) -> Callable[[NodeRow], Any]:
    return lambda row: getattr(row.node, name) if row.node else None


def _of_cost(name: str) -> Callable[[NodeRow], Any]:
    return lambda row: getattr(row.cost, name) if row.cost else None


def memory_pct(row: NodeRow) -> float | None:
    """Memory in use, of what the node has."""
    used = row.host.mem_used_bytes if row.host else None
    total = row.node.mem_total_bytes if row.node else None
    return None if used is None or not total else 100 * used / total


def _word(value: str | None) -> str:
    return clean(value) if value else figures.UNKNOWN


def byte_rate(value: float | None) -> str:
    """Bytes a second in binary units: "12M"."""
    return figures.UNKNOWN if value is None else figures.size(int(value))


def _integer(value: int | None) -> str:
    return figures.UNKNOWN if value is None else str(value)


FIELDS: dict[str, Field] = {
    field.key: field
    for field in (
        _field("state", "state", lambda row: row.summary, state_text, _badness),
        _field("node", "node", lambda row: row.summary.name, clean, natural),
        _field("cpu", "CPU %", _of_host("cpu_pct"), figures.percent, noise=_LOAD),
        _field("mem", "mem %", memory_pct, figures.percent, noise=_LOAD),
        _field("cpu_stall", "CPU stall", _of_host("cpu_stall_pct"), figures.percent, noise=_LOAD),
        _field("mem_stall", "mem stall", _of_host("mem_stall_pct"), figures.percent, noise=_LOAD),
        _field("io_stall", "I/O stall", _of_host("io_stall_pct"), figures.percent, noise=_LOAD),
        _field("read", "read/s", _of_host("disk_read_bytes_s"), byte_rate, noise=_RATE),
        _field("write", "write/s", _of_host("disk_write_bytes_s"), byte_rate, noise=_RATE),
        _field("rx", "in/s", _of_host("net_rx_bytes_s"), byte_rate, noise=_RATE),
        _field("tx", "out/s", _of_host("net_tx_bytes_s"), byte_rate, noise=_RATE),
        _field("gpus", "GPUs", lambda row: row.gpus, _integer),
        _field("ranks", "ranks", lambda row: row.ranks, _integer),
        _field("agent", "agent %", _of_cost("cpu_pct"), figures.percent),
        _field("agent_rss", "RSS", _of_cost("rss_bytes"), figures.size),
        _field("hostname", "host name", _of_node("hostname"), _word, natural),
        _field("kernel", "kernel", _of_node("kernel"), _word, natural),
        _field("python", "python", _of_node("python"), _word, natural),
        _field("tags", "tags", lambda row: ", ".join(row.tags) or None, _word),
        _field("reason", "reason", lambda row: row.summary.reason or None, _word),
    )
}  # fmt: skip


def node_rows(fleet: FleetSummary, nodes: Mapping[str, NodeNow], gpus: GpuIndex, jobs: Jobs) -> list[NodeRow]:
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


def sorted_rows(rows: Sequence[NodeRow], sort: str, reverse: bool, steady: SteadyOrder[NodeRow]) -> list[NodeRow]:
    """In the order of that column; a node without that figure stands last, whichever the order; noise moves no row."""
    field = FIELDS[sort]
    return steady.sorted(rows, field.order, field.noise, reverse)
