"""When the topology is folded anew: only the nodes that said something else, and rarely."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..analysis.topology.classes import classes_of
from ..analysis.topology.node import node_topology
from ..core.store import GpuKey, NicKey, Store
from ..records import GpuInfo, Nic
from ..text.nodeset_fold import natural
from ..topology.groups import captured_of, parallel_groups
from ..topology.snapshot import TopologySnapshot, facts_of, figures_of, ranks_on, users_of

#: It is folded at most this often, in seconds, and the ranks are laid over it as often; more cannot be read.
EVERY_S: Final = 1.0
#: From this many changed nodes on it is folded in a thread (a node takes about a millisecond); also where so many are
#: compared with each other (512 take 90 ms, whichever of them has changed), or so many ranks laid over them.
MANY_NODES, MANY_COMPARED, MANY_RANKS = 16, 64, 1024


class TopologyFold:
    """`note` takes in what changed; `fold`, or `prepare` and `accept`, make the topology of it.

    One serves all who want it: the view that draws it, and `Differing`, which tells of what differs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted = -1  # version of the store up to which changes are known
        self._dirty: set[str] = set()
        self._in_work: set[str] | None = None  # the changed nodes that a fold has, from `prepare` to `accept`
        self._infos: dict[GpuKey, GpuInfo | None] = {}
        self._ports: dict[NicKey, tuple[object, ...]] = {}
        self._due = 0.0
        self._ranks_at = -1  # version of the store up to which ranks are laid over it
        self._groups_at = -1  # and up to which captures have told their groups
        self._pending: Callable[[], TopologySnapshot] | None = None  # of a copy that stands still: its only fold
        self.fleet = TopologySnapshot({}, (), figures=figures_of(store))

    def note(self) -> None:
        """Take in what the store has learned since; figures that change every second are no change here."""
        store, since = self._store, self._noted
        self._noted = store.version
        self._dirty.update(key[0] for key in store.links.changed_since(since))
        for gpu_key in store.gpus.changed_since(since):
            now = store.gpus.get(gpu_key)
            info = now.info if now else None
            if self._infos.get(gpu_key) is not info:
                self._infos[gpu_key] = info
                self._dirty.add(gpu_key[0])
        for nic_key in store.nics.changed_since(since):
            port = _lasting(store.nics.get(nic_key))
            if self._ports.get(nic_key) != port:
                self._ports[nic_key] = port
                self._dirty.add(nic_key[0])

    def still(self) -> TopologyFold:
        """The topology of this moment: what has changed until now is folded when somebody looks, and nothing later."""
        copy = TopologyFold(self._store)
        copy.fleet = replace(self.fleet, figures=self.fleet.figures.still())
        copy._dirty = self._dirty | (self._in_work or set())
        copy._pending = copy._fold_of(copy._dirty)
        copy._due = float("inf")
        return copy

    @property
    def is_wanted(self) -> bool:
        """Whether somebody who looks at it would see something else; never while it is being folded."""
        if self._pending is not None:
            return True
        changed = bool(self._dirty) or self._ranks_changed or self._groups_changed
        return self._in_work is None and self._is_due and changed

    @property
    def has_news(self) -> bool:
        """Whether a node has told something else of how it is connected, and the last fold is long enough ago."""
        return self._in_work is None and self._is_due and bool(self._dirty)

    @property
    def _is_due(self) -> bool:
        return time.monotonic() >= self._due

    @property
    def _ranks_changed(self) -> bool:
        since = self._ranks_at
        return bool(self._store.ranks.changed_since(since) or self._store.gpu_processes.changed_since(since))

    @property
    def _groups_changed(self) -> bool:
        return bool(self._store.captures.table.changed_since(self._groups_at))

    @property
    def is_large(self) -> bool:
        many = len(self._dirty) >= MANY_NODES or len(self._store.ranks) >= MANY_RANKS
        many = many or (bool(self._dirty) and len(self.fleet.nodes) >= MANY_COMPARED)
        return many or (self._groups_changed and any(len(capture.collectives) >= MANY_RANKS
                                                     for capture in self._store.captures.values()))  # fmt: skip

    async def fold(self) -> None:
        """Fold what is known now; in a thread where that is much."""
        if not self.is_large:
            self.accept(self.prepare()())
            return
        made = self.prepare()
        try:
            self.accept(await asyncio.to_thread(made))
        finally:
            if self._in_work is not None:  # it was cancelled
                self._dirty |= self._in_work
                self._in_work = None

    def prepare(self) -> Callable[[], TopologySnapshot]:
        """The fold of what is known now, to be called in any thread: it works on copies."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            return pending
        dirty, self._dirty = self._dirty, set()
        self._in_work = dirty
        self._due = time.monotonic() + EVERY_S
        self._ranks_at = self._store.version
        return self._fold_of(dirty)

    def _fold_of(self, dirty: set[str]) -> Callable[[], TopologySnapshot]:
        facts, users, before = facts_of(self._store, dirty) if dirty else {}, users_of(self._store), self.fleet
        captured = captured_of(self._store) if self._groups_changed else None
        self._groups_at = self._store.version

        def fold() -> TopologySnapshot:
            nodes, classes = before.nodes, before.classes
            if facts:
                made = {node: node_topology(one) for node, one in facts.items()}
                known = {**before.nodes, **made}
                nodes = {node: known[node] for node in sorted(known, key=natural) if known[node].devices}
                classes = classes_of(nodes.values())
            ranks = ranks_on(nodes, users)
            groups = before.groups if captured is None else parallel_groups(captured, users.ranks)
            if nodes is before.nodes and ranks == before.ranks and groups == before.groups:
                return before
            return replace(before, nodes=nodes, classes=classes, ranks=ranks, groups=groups)

        return fold

    def accept(self, fleet: TopologySnapshot) -> None:
        """From now on this is the topology."""
        self.fleet = fleet
        self._in_work = None


def _lasting(nic: Nic | None) -> tuple[object, ...]:
    """What of a port matters to the topology."""
    return () if nic is None else (nic.state, nic.rate_bytes_s, nic.link_layer, nic.rdma, nic.gid)
