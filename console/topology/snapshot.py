"""Topology snapshot of all nodes: node topologies, classes, ranks on GPUs, groups and current traffic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..analysis.topology.classes import NodeClass, classes_of
from ..analysis.topology.link_graph import Vertex
from ..analysis.topology.node import Device, NodeTopology, TopologyFacts, node_topology
from ..core.store import GpuKey, GpuNow, GpuPartKey, NicKey, Store
from ..core.versioned_table import Table
from ..records import Gpu, GpuInfo, GpuLink, GpuProcess, Link, Nic, Rank
from ..text.nodeset_fold import fold_ranks, natural
from .groups import GroupPlacement, ParallelGroup, captured_of, parallel_groups


class Traffic(NamedTuple):
    """Last measured bytes/s in and out; None if not measured."""

    rx_bytes_s: float | None = None
    tx_bytes_s: float | None = None


class OnGpu(msgspec.Struct, frozen=True):
    """(job, rank) pairs on a GPU; `presumed`: derived from the local rank only."""

    ranks: tuple[tuple[str, int], ...] = ()
    presumed: bool = False


class Figures(msgspec.Struct, frozen=True):
    """Last measured figures; live tables of the store, which change while they are read."""

    gpus: Table[GpuKey, GpuNow] = msgspec.field(default_factory=Table)
    links: Table[GpuPartKey, GpuLink] = msgspec.field(default_factory=Table)
    nics: Table[NicKey, Nic] = msgspec.field(default_factory=Table)

    def still(self) -> Figures:
        """A copy of the current figures."""
        gpus: Table[GpuKey, GpuNow] = Table()
        for key in self.gpus:
            gpus.put(key, replace(self.gpus[key]), 0)
        return Figures(gpus, self.links.copied(), self.nics.copied())

    def nvlink(self, gpu: Vertex) -> Traffic:
        """Traffic over all NVLinks of a GPU."""
        now = self._gpu(gpu)
        return Traffic(now.nvlink_rx_bytes_s, now.nvlink_tx_bytes_s) if now else Traffic()

    def pcie(self, gpu: Vertex) -> Traffic:
        """PCIe traffic of a GPU."""
        now = self._gpu(gpu)
        return Traffic(now.pcie_rx_bytes_s, now.pcie_tx_bytes_s) if now else Traffic()

    def port(self, node: str, device: str, port: int) -> Traffic:
        """Traffic of a network port."""
        now = self.nics.get((node, device, port))
        return Traffic(now.rx_bytes_s, now.tx_bytes_s) if now else Traffic()

    def nvlinks(self, gpu: Vertex, numbers: Sequence[int]) -> Traffic:
        """Traffic over these NVLinks; None unless all are measured."""
        each = [self.links.get((gpu.node, gpu.id, number)) for number in numbers]
        rx = [link.rx_bytes_s if link else None for link in each]
        tx = [link.tx_bytes_s if link else None for link in each]
        return Traffic(_total(rx), _total(tx))

    def _gpu(self, vertex: Vertex) -> Gpu | None:
        now = self.gpus.get((vertex.node, vertex.id))
        return now.gpu if now else None


def _total(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured and len(measured) == len(values) else None


@dataclass(frozen=True, eq=False)
class TopologySnapshot:
    """Input of all topology outputs; compared by identity."""

    nodes: Mapping[str, NodeTopology]
    classes: tuple[NodeClass, ...]
    ranks: Mapping[Vertex, OnGpu] = field(default_factory=dict)
    groups: tuple[ParallelGroup, ...] = ()
    figures: Figures = field(default_factory=Figures)

    @property
    def simulated(self) -> bool:
        """Whether any node is simulated."""
        return any(topology.simulated for topology in self.nodes.values())

    @cached_property
    def group_placement(self) -> GroupPlacement:
        """Parallel groups mapped to GPUs."""
        return GroupPlacement(self)

    @cached_property
    def _by_label(self) -> dict[tuple[str, str], OnGpu]:
        gpus = ((topology.node, gpu) for topology in self.nodes.values() for gpu in topology.gpus)
        return {(node, gpu.label): self.ranks[gpu.vertex] for node, gpu in gpus if gpu.vertex in self.ranks}

    @cached_property
    def _jobs(self) -> frozenset[str]:
        """Jobs with ranks on GPUs."""
        return frozenset(job for on in self.ranks.values() for job, _ in on.ranks)

    def class_of(self, node: str) -> NodeClass | None:
        """Class of a node."""
        return next((made for made in self.classes if node in made.nodes), None)

    def ranks_text(self, nodes: Iterable[str], label: str) -> str:
        """Ranks on that GPU of these nodes: `0`, `0,8,16,…504`, with a question mark if presumed."""
        users: list[tuple[str, int]] = []
        presumed = False
        for node in nodes:
            on = self._by_label.get((node, label))
            if on is not None:
                users += on.ranks
                presumed |= on.presumed
        jobs = sorted({job for job, _ in users}, key=natural)
        parts = [_some(sorted(rank for name, rank in users if name == job)) for job in jobs]
        if len(self._jobs) > 1:
            parts = [f"{job}:{part}" for job, part in zip(jobs, parts, strict=True)]
        return " ".join(parts) + ("?" if presumed and parts else "")


def _some(ranks: list[int]) -> str:
    """Folded ranks; of many ranges only the first three ranks and the last."""
    folded = fold_ranks(ranks)
    if folded.count(",") <= 3:
        return folded
    return f"{','.join(map(str, ranks[:3]))},…{ranks[-1]}"


def gather(store: Store) -> TopologySnapshot:
    """Topology snapshot of the store."""
    nodes = {node: node_topology(facts) for node, facts in facts_of(store).items()}
    users = users_of(store)
    groups = parallel_groups(captured_of(store), users.ranks)
    return TopologySnapshot(nodes, classes_of(nodes.values()), ranks_on(nodes, users), groups, figures_of(store))


def figures_of(store: Store) -> Figures:
    """Live figures of the store."""
    return Figures(store.gpus, store.gpu_links, store.nics)


def facts_of(store: Store, nodes: Collection[str] | None = None) -> dict[str, TopologyFacts]:
    """Topology records per node (default: all nodes)."""
    gpus: dict[str, list[GpuInfo]] = {}
    links: dict[str, list[Link]] = {}
    nics: dict[str, list[Nic]] = {}
    for now in store.gpus.values():
        if now.info is not None and (nodes is None or now.info.node in nodes):
            gpus.setdefault(now.info.node, []).append(now.info)
    for link in store.links.values():
        if nodes is None or link.node in nodes:
            links.setdefault(link.node, []).append(link)
    for nic in store.nics.values():
        if nodes is None or nic.node in nodes:
            nics.setdefault(nic.node, []).append(nic)
    wanted = nodes if nodes is not None else sorted({*gpus, *links, *nics}, key=natural)
    return {node: TopologyFacts(node, gpus.get(node, ()), links.get(node, ()), nics.get(node, ())) for node in wanted}


class Users(msgspec.Struct, frozen=True):
    """Records that map ranks to GPUs, copied for use in any thread."""

    processes: Sequence[GpuProcess]
    ranks: Sequence[Rank]
    wholes: Mapping[GpuKey, str]  # MIG device → the uuid of its GPU


def users_of(store: Store) -> Users:
    """Current GPU users of the store."""
    infos = [now.info for now in store.gpus.values() if now.info is not None]
    wholes = {(info.node, info.uuid): info.parent for info in infos if info.parent is not None}
    return Users(store.gpu_processes.values(), [now.rank for now in store.ranks.values()], wholes)


def ranks_on(nodes: Mapping[str, NodeTopology], users: Users) -> dict[Vertex, OnGpu]:
    """Ranks per GPU: from the driver's processes, else the environment, else presumed from the local rank."""
    confirmed: dict[Vertex, set[tuple[str, int]]] = {}
    settled: set[tuple[str, str, int]] = set()  # (node, job, rank)
    for process in users.processes:
        if process.rank is not None:
            uuid = users.wholes.get((process.node, process.uuid), process.uuid)
            job = process.job or ""
            confirmed.setdefault(Vertex(process.node, "gpu", uuid), set()).add((job, process.rank))
            settled.add((process.node, job, process.rank))
    presumed: dict[Vertex, set[tuple[str, int]]] = {}
    for rank in users.ranks:
        topology = nodes.get(rank.node)
        if topology is None or rank.rank is None or rank.status != "present":
            continue
        if (rank.node, rank.job, rank.rank) in settled:
            continue
        named = _named(topology, rank.gpu)
        if named is not None:
            confirmed.setdefault(named.vertex, set()).add((rank.job, rank.rank))
        elif rank.gpu is None and rank.local_rank is not None:
            guess = _named(topology, str(rank.local_rank))
            if guess is not None:
                presumed.setdefault(guess.vertex, set()).add((rank.job, rank.rank))
    return {
        vertex: OnGpu(tuple(sorted(confirmed.get(vertex, set()) | presumed.get(vertex, set()))), vertex in presumed)
        for vertex in {**confirmed, **presumed}
    }


def _named(topology: NodeTopology, name: str | None) -> Device | None:
    """GPU by index or uuid."""
    return next((gpu for gpu in topology.gpus if gpu.info and name in (gpu.info.uuid, str(gpu.info.index))), None)
