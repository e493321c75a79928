"""Topology of the fleet, updated by node and throttled, and findings about nodes that differ from their class."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..analysis.finding import FindingDraft
from ..analysis.topology.classes import NodeClass, classes_of
from ..analysis.topology.findings import ReportedFindings, difference_findings
from ..analysis.topology.node import node_topology
from ..core.derived import Derived
from ..core.store import GpuKey, NicKey, ProcessKey, Store
from ..records import GpuInfo, Nic, Rank
from ..text.nodeset_fold import natural
from ..topology.groups import captured_of, parallel_groups
from ..topology.snapshot import TopologySnapshot, facts_of, figures_of, ranks_on, users_of
from .coverage import complete_nodes
from .finding_tracker import FindingTracker

#: Seconds between updates.
EVERY_S: Final = 1.0
#: From so many changed nodes (1 ms each), compared nodes (512 take 90 ms) or ranks on, the update runs in a thread.
MANY_NODES, MANY_COMPARED, MANY_RANKS = 16, 64, 1024
#: Seconds a difference must last: a new node reports its devices one by one, and `nvlink_down` (every 10 s) goes first.
LASTS_S: Final = 15.0
#: Seconds to wait until every node has reported; without all of them the majority is unknown.
SETTLE_S: Final = 45.0
#: Health findings that may report the same as a difference.
_COVERING: Final = ("nvlink_down", "pcie_degraded", "version_skew", "nic_down", "gpu_settings")


class TopologyFold:
    """The topology of a store, updated by node; the topology view and `TopologyFindings` share one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted = -1  # version of the store up to which changed nodes are collected
        self.changed_at = -1  # version of the store at which devices were last seen to have changed
        self._dirty: set[str] = set()
        self._in_work: set[str] = set()  # changed nodes of the last update
        self._infos: dict[GpuKey, GpuInfo | None] = {}
        self._ports: dict[NicKey, tuple[object, ...]] = {}
        self._ranks: dict[ProcessKey, Rank] = {}
        self._has_new_ranks = False  # not what a rank does, which changes every second
        self._groups_at = -1  # version of the store up to which captures have given the groups
        changed = (store.gpu_processes.changed_since, store.captures.table.changed_since)
        #: The newest topology.
        self.derived = Derived(
            store, (lambda since: self._dirty, lambda since: self._has_new_ranks, *changed), self._prepare,
            TopologySnapshot({}, (), figures=figures_of(store)), every_s=EVERY_S, size=self._size, thread_above=1,
        )  # fmt: skip

    @property
    def fleet(self) -> TopologySnapshot:
        """The newest topology."""
        return self.derived.value

    @property
    def has_news(self) -> bool:
        """True where the links or devices of a node changed and an update is due."""
        return self.derived.is_due and bool(self._dirty)

    def note(self) -> None:
        """Collect changes of the store since the last call; figures that change every second are ignored."""
        store, since = self._store, self._noted
        self._noted = store.version
        dirty = {key[0] for key in store.links.changed_since(since)}
        for gpu_key in store.gpus.changed_since(since):
            now = store.gpus.get(gpu_key)
            info = now.info if now else None
            if self._infos.get(gpu_key) is not info:
                self._infos[gpu_key] = info
                dirty.add(gpu_key[0])
        for nic_key in store.nics.changed_since(since):
            port = _lasting(store.nics.get(nic_key))
            if self._ports.get(nic_key) != port:
                self._ports[nic_key] = port
                dirty.add(nic_key[0])
        if dirty:
            self._dirty |= dirty
            self.changed_at = self._noted
        for key in store.ranks.changed_since(since):
            rank = store.ranks.get(key)
            if rank is None:
                self._has_new_ranks |= self._ranks.pop(key, None) is not None
            elif self._ranks.get(key) is not rank.rank:
                self._ranks[key] = rank.rank
                self._has_new_ranks = True

    def still(self) -> TopologyFold:
        """A frozen copy: changes so far are applied on the first use, later ones are ignored."""
        fleet = replace(self.fleet, figures=self.fleet.figures.still())
        is_behind = self.derived.is_busy or self.derived.is_stale  # `fleet` lacks the changes of the last update
        dirty, size = (self._dirty | self._in_work, 1.0) if is_behind else (self._dirty, self._size())
        work = self._fold_of(dirty, fleet, regroup=is_behind or self._groups_changed)
        copy = TopologyFold(self._store)
        copy.derived = Derived(
            self._store, (lambda since: since < 0,), lambda: work, fleet, size=lambda: size, thread_above=1
        )  # fmt: skip
        return copy

    def _size(self) -> float:
        """1 where the update takes long enough for a thread, else 0."""
        many = len(self._dirty) >= MANY_NODES or len(self._store.ranks) >= MANY_RANKS
        many = many or (bool(self._dirty) and len(self.fleet.nodes) >= MANY_COMPARED)
        captures = self._store.captures.values() if self._groups_changed else ()
        return float(many or any(len(capture.collectives) >= MANY_RANKS for capture in captures))

    @property
    def _groups_changed(self) -> bool:
        return self.derived.is_stale or bool(self._store.captures.table.changed_since(self._groups_at))

    def _prepare(self) -> Callable[[], TopologySnapshot]:
        self._in_work = self._dirty | (self._in_work if self.derived.is_stale else set())
        self._dirty, self._has_new_ranks = set(), False
        work = self._fold_of(self._in_work, self.fleet, regroup=self._groups_changed)
        self._groups_at = self._store.version
        return work

    def _fold_of(self, dirty: set[str], before: TopologySnapshot, regroup: bool) -> Callable[[], TopologySnapshot]:
        """The update by these changed nodes; it works on copies and may run in any thread."""
        facts, users = facts_of(self._store, dirty) if dirty else {}, users_of(self._store)
        captured = captured_of(self._store) if regroup else None

        def fold() -> TopologySnapshot:
            nodes, classes = before.nodes, before.classes
            if facts:
                merged = {**before.nodes, **{node: node_topology(own) for node, own in facts.items()}}
                nodes = {node: merged[node] for node in sorted(merged, key=natural) if merged[node].devices}
                classes = classes_of(nodes.values())
            ranks = ranks_on(nodes, users)
            groups = before.groups if captured is None else parallel_groups(captured, users.ranks)
            if nodes is before.nodes and ranks == before.ranks and groups == before.groups:
                return before
            return replace(before, nodes=nodes, classes=classes, ranks=ranks, groups=groups)

        return fold


def _lasting(nic: Nic | None) -> tuple[object, ...]:
    """Fields of a port that the topology depends on."""
    return () if nic is None else (nic.state, nic.rate_bytes_s, nic.link_layer, nic.rdma, nic.gid)


class TopologyFindings:
    """Updates the shared topology fold and reports differences that last."""

    def __init__(
        self, store: Store, fold: TopologyFold, findings: FindingTracker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._fold, self._findings, self._clock = store, fold, findings, clock
        self._began_s: float | None = None
        self._complete: frozenset[str] = frozenset()  # nodes that have reported all of their devices
        self._complete_at, self._names = -1, frozenset[str]()  # version of the store and nodes, when that was computed
        self._partial: tuple[object, frozenset[str], tuple[NodeClass, ...]] = ((), frozenset(), ())
        self._basis: tuple[object, ...] = ()  # inputs of the current differences
        self._now: tuple[FindingDraft, ...] = ()
        self._since: dict[tuple[tuple[str, ...], str], float] = {}  # (culprits, text): since when it differs
        self._reported: tuple[FindingDraft, ...] = ()

    async def evaluate(self, *, at_last: bool = False) -> None:
        """Report lasting differences that no health finding covers; `at_last` all of them."""
        try:
            self._fold.note()
            if self._fold.has_news or at_last:
                await self._fold.derived.update()
            self._update_complete()
            self._compare()
            if at_last or self._has_settled():
                self._reported = self._lasting(at_last)
        except Exception as error:  # noqa: BLE001 - a failing analysis stops no other; published as an error
            self._findings.failed("topology", error)
        self._findings.report("topology", self._reported)

    def _update_complete(self) -> None:
        """Recompute which nodes are complete, if devices or nodes have come or gone."""
        store, names = self._store, frozenset(self._store.nodes)
        changed_at = max(self._fold.changed_at, store.inventories.version)
        if changed_at > self._complete_at or names != self._names:
            self._complete, self._complete_at, self._names = complete_nodes(store), store.version, names

    def _compare(self) -> None:
        """Recompute the differences if the classes or the reported health findings changed."""
        covered = [finding for finding in self._findings.reported_by("health") if finding.id in _COVERING]
        classes = self._complete_classes()
        basis = (classes, {(finding.id, finding.culprits, finding.parts) for finding in covered})
        if self._basis and basis[0] is self._basis[0] and basis[1] == self._basis[1]:
            return
        self._basis = basis
        self._now = difference_findings(classes, ReportedFindings(covered, self._fold.fleet.nodes))

    def _complete_classes(self) -> tuple[NodeClass, ...]:
        """Classes of the nodes that have reported all of their devices."""
        fleet = self._fold.fleet
        complete = frozenset(name for name in fleet.nodes if name in self._complete)
        if len(complete) == len(fleet.nodes):
            return fleet.classes
        if self._partial[:2] != (fleet.classes, complete):
            self._partial = (fleet.classes, complete, classes_of(fleet.nodes[name] for name in complete))
        return self._partial[2]

    def _lasting(self, at_last: bool) -> tuple[FindingDraft, ...]:
        now_s = self._clock()
        self._since = {(now.culprits, now.text): self._since.get((now.culprits, now.text), now_s) for now in self._now}
        return tuple(now for now in self._now if at_last or now_s - self._since[now.culprits, now.text] >= LASTS_S)

    def _has_settled(self) -> bool:
        if self._began_s is None:
            self._began_s = self._clock()
        if self._clock() - self._began_s > SETTLE_S:
            return True
        nodes = self._store.nodes.values()
        return all(now.name in self._complete or (now.state and now.state.state in ("failed", "lost")) for now in nodes)
