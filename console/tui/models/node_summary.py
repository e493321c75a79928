"""Each node with its state, error and age of its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

import msgspec

from ...analysis.finding import name_of
from ...core.store import NodeNow
from ...core.store.freshness import STALE_PERIODS, period_ns
from ...present.spans import SEVERITY_STATUS, Status
from ...records import Finding, NodeState
from ...text.cells import clean
from ...text.nodeset_fold import fold


class NodeSummary(msgspec.Struct, frozen=True):
    """One node: status, state, and why it is not ok."""

    name: str
    status: Status
    word: str  # of its connection: "ok", "stale", "connecting", "lost", …
    reason: str = ""  # one phrase, e.g. "auth: the key was refused"
    try_: str = ""
    age_ns: int | None = None  # of its newest data, unless fresh
    fresh: bool = False  # data are arriving
    simulated: bool = False
    trouble: str = ""  # of a node with fresh data: "finding", "hung"

    @property
    def health(self) -> str:
        """ "ok" only if nothing is wrong: the trouble, or the state of the connection."""
        return self.trouble or self.word


class FleetSummary(msgspec.Struct, frozen=True):
    """All nodes, in their given order, and counts."""

    nodes: tuple[NodeSummary, ...] = ()
    by_name: dict[str, NodeSummary] = msgspec.field(default_factory=dict)
    counts: dict[Status, int] = msgspec.field(default_factory=dict)

    @property
    def ok(self) -> int:
        """Number of nodes with fresh data."""
        return sum(node.fresh for node in self.nodes)

    @property
    def expected(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def simulated(self) -> bool:
        """Whether any node has simulated data."""
        return any(node.simulated for node in self.nodes)


def fleet_summary(
    names: Iterable[str], nodes: dict[str, NodeNow], simulated: Collection[str], culprits: Mapping[str, Finding],
    now: int,
) -> FleetSummary:  # fmt: skip
    """The nodes of these names. `simulated` have simulated data; `culprits` are node → its worst open finding."""
    summaries = tuple(
        node_summary(name, nodes.get(name), now, simulated=name in simulated, finding=culprits.get(name))
        for name in names
    )
    counts = Counter(node.status for node in summaries)
    return FleetSummary(summaries, {node.name: node for node in summaries}, dict(counts))


def node_summary(
    name: str, node: NodeNow | None, now: int, *, simulated: bool = False, finding: Finding | None = None
) -> NodeSummary:
    """One node at `now` (console time, ns); `finding` is the worst open one with this culprit."""
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
    status = SEVERITY_STATUS[finding.severity] if finding is not None else "ok"
    is_named = finding is not None and finding.id == "driver_broken"  # it names the call of the driver
    if hung and not is_named and status != "failed":
        names = clean(", ".join(hung))
        return NodeSummary(
            name, "warning", "ok", f"hung: {names} not responding", "check that driver or mount on the node",
            fresh=True, simulated=simulated, trouble="hung",
        )  # fmt: skip
    if finding is not None:
        what = "error" if status == "failed" else "finding"  # in words, too: not every reader sees the glyph
        reason = f"{what}: {clean(name_of(finding.id))}"
        return NodeSummary(name, status, "ok", reason, fresh=True, simulated=simulated, trouble="finding")
    return NodeSummary(name, "ok", "ok", fresh=True, simulated=simulated)


def _not_ok(name: str, state: NodeState, age: int | None, simulated: bool) -> NodeSummary:
    try_ = clean(state.error.try_) if state.error is not None else ""
    status: Status = "failed" if state.state in ("lost", "failed") else "unknown"
    return NodeSummary(name, status, state.state, error_phrase(state), try_, age_ns=age, simulated=simulated)


def error_phrase(state: NodeState) -> str:
    """Name and text of an error, e.g. "auth: the key was refused"; the text alone if it has the name; or empty."""
    if state.error is None:
        return ""
    words, text = clean(state.error.name).replace("_", " "), clean(state.error.text)
    return text if state.state == "lost" or words.lower() in text.lower() else f"{words}: {text}"


@lru_cache(64)
def folded(names: tuple[str, ...]) -> str:
    """`node[001-064]`: names as a node set. Cached: folding a thousand takes longer than a frame."""
    return fold(names)
