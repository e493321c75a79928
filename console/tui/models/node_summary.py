"""Each node in one phrase: its state, why it is not here, how old its data are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ...core.store import NodeNow
from ...present.status import Status
from ...records import NodeState
from ...text.cells import clean
from ...text.nodeset_fold import fold

#: Data older than this many sample periods are stale.
STALE_PERIODS = 3
_DEFAULT_PERIOD_MS = 1000


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One node as the screen tells it."""

    name: str
    status: Status
    word: str  # "ok", "stale", "connecting", "lost", …
    reason: str = ""  # one phrase, e.g. "auth: the key was refused"
    try_: str = ""
    age_ns: int | None = None  # of its newest data, where they are not fresh
    fresh: bool = False  # data come in now
    simulated: bool = False


@dataclass(frozen=True)
class FleetSummary:
    """All nodes, in their given order."""

    nodes: tuple[NodeSummary, ...] = ()
    by_name: dict[str, NodeSummary] = field(default_factory=dict)
    counts: dict[Status, int] = field(default_factory=dict)

    @property
    def ok(self) -> int:
        """Nodes whose data come in now."""
        return sum(node.fresh for node in self.nodes)

    @property
    def expected(self) -> int:
        return len(self.nodes)

    @property
    def simulated(self) -> bool:
        return any(node.simulated for node in self.nodes)


def fleet_summary(
    names: Iterable[str], nodes: dict[str, NodeNow], simulated: Collection[str], blamed: Mapping[str, str], now: int
) -> FleetSummary:
    """Every name in its order. `simulated` have simulated data, `blamed` are culprits of an open finding, by its id."""
    summaries = tuple(
        node_summary(name, nodes.get(name), now, simulated=name in simulated, blamed=blamed.get(name, ""))
        for name in names
    )
    counts = Counter(node.status for node in summaries)
    return FleetSummary(summaries, {node.name: node for node in summaries}, dict(counts))


def node_summary(
    name: str, node: NodeNow | None, now: int, *, simulated: bool = False, blamed: str = ""
) -> NodeSummary:
    """One node at the instant `now` (console time, ns)."""
    if node is None or node.state is None:
        return NodeSummary(name, "unknown", "expected", simulated=simulated)
    simulated = simulated or bool(node.node and node.node.simulated)
    state = node.state
    age = now - node.last_rx if node.last_rx else None
    if state.state != "ok":
        return _not_ok(name, state, age, simulated)
    if age is not None and age > STALE_PERIODS * period_ns(node):
        return NodeSummary(name, "stale", "stale", age_ns=age, simulated=simulated)
    hung = node.cost.hung if node.cost else ()
    if hung:
        names = clean(", ".join(hung))
        return NodeSummary(
            name, "warning", "ok", f"hung: {names} not responding", "check that driver or mount on the node",
            fresh=True, simulated=simulated,
        )  # fmt: skip
    if blamed:
        return NodeSummary(name, "warning", "ok", f"finding: {clean(blamed)}", fresh=True, simulated=simulated)
    return NodeSummary(name, "ok", "ok", fresh=True, simulated=simulated)


def _not_ok(name: str, state: NodeState, age: int | None, simulated: bool) -> NodeSummary:
    reason, try_ = "", ""
    if state.error is not None:
        words = clean(state.error.name).replace("_", " ")
        text = clean(state.error.text)
        names_error = state.state == "lost" or text.lower().startswith(words.lower())
        reason = text if names_error else f"{words}: {text}"
        try_ = clean(state.error.try_)
    status: Status = "failed" if state.state in ("lost", "failed") else "unknown"
    return NodeSummary(name, status, state.state, reason, try_, age_ns=age, simulated=simulated)


def period_ns(node: NodeNow) -> int:
    """The period in which that node speaks, ns; GPUs may be sampled more often, and are told no oftener."""
    period = _DEFAULT_PERIOD_MS
    if node.cost is not None:
        period = node.cost.sample_interval_ms
    elif node.node is not None:
        period = node.node.sample_interval_ms
    return max(period, _DEFAULT_PERIOD_MS) * 1_000_000


@lru_cache(64)
def folded(names: tuple[str, ...]) -> str:
    """`node[001-064]`: names as a node set. Remembered, because folding a thousand takes longer than a frame."""
    return fold(names)
