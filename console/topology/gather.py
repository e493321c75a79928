"""The topology of every node the store knows, the classes they form, and what runs on it now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..analysis.topology import Device, NodeFacts, NodeTopology, Vertex, node_topology
from ..analysis.topology_classes import NodeClass, classes_of
from ..nodesets import fold_ranks, natural
from ..records import GpuInfo, GpuLink, Link, Nic
from ..store import Store


class Traffic(NamedTuple):
    """Bytes a second that were measured last, in and out; None where nobody measures them."""

    rx_bytes_s: float | None = None
    tx_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class OnGpu:
    """The ranks that use a GPU, as (job, rank). `presumed`: nothing but their local rank says that it is this one."""

    ranks: tuple[tuple[str, int], ...] = ()
    presumed: bool = False


@dataclass(frozen=True)
class Fleet:
    """Everything a topology is drawn from."""

    nodes: Mapping[str, NodeTopology]
    classes: tuple[NodeClass, ...]
    ranks: Mapping[Vertex, OnGpu] = field(default_factory=dict)
    nvlink: Mapping[Vertex, Traffic] = field(default_factory=dict)
    pcie: Mapping[Vertex, Traffic] = field(default_factory=dict)
    network: Mapping[Vertex, Traffic] = field(default_factory=dict)
    links: Mapping[tuple[Vertex, int], Traffic] = field(default_factory=dict)  # one NVLink of a GPU

    @property
    def simulated(self) -> bool:
        return any(topology.simulated for topology in self.nodes.values())

    def class_of(self, node: str) -> NodeClass | None:
        return next((made for made in self.classes if node in made.nodes), None)

    def ranks_text(self, nodes: Iterable[str], label: str) -> str:
        """The ranks on that GPU of these nodes: `0`, `0,8,16,…504`; a question mark where that is presumed."""
        found: list[tuple[str, int]] = []
        presumed = False
        for node in nodes:
            for gpu in self.nodes[node].gpus:
                on = self.ranks.get(gpu.vertex) if gpu.label == label else None
                if on is not None:
                    found += on.ranks
                    presumed |= on.presumed
        jobs = sorted({job for job, _ in found}, key=natural)
        alone = len({job for on in self.ranks.values() for job, _ in on.ranks}) == 1
        parts = [_some(sorted(rank for name, rank in found if name == job)) for job in jobs]
        if not alone:
            parts = [f"{job}:{part}" for job, part in zip(jobs, parts, strict=True)]
        return " ".join(parts) + ("?" if presumed and parts else "")


def _some(ranks: list[int]) -> str:
    """At most a handful of numbers: the first ones and the last."""
    folded = fold_ranks(ranks)
    if folded.count(",") <= 3:
        return folded
    return f"{','.join(map(str, ranks[:3]))},…{ranks[-1]}"


def gather(store: Store) -> Fleet:
    """The topology of everything the store knows."""
    nodes = {node: node_topology(facts) for node, facts in facts_of(store).items()}
    return overlaid(store, nodes, classes_of(nodes.values()))


def facts_of(store: Store, nodes: Collection[str] | None = None) -> dict[str, NodeFacts]:
    """What these nodes (all, without any) said of their topology."""
    gpus: dict[str, list[GpuInfo]] = {}
    links: dict[str, list[Link]] = {}
    nics: dict[str, list[Nic]] = {}
    for now in store.gpus.values():
        if now.info is not None:
            gpus.setdefault(now.info.node, []).append(now.info)
    for link in store.links.values():
        links.setdefault(link.node, []).append(link)
    for nic in store.nics.values():
        nics.setdefault(nic.node, []).append(nic)
    wanted = nodes if nodes is not None else sorted({*gpus, *links, *nics}, key=natural)
    return {node: NodeFacts(node, gpus.get(node, ()), links.get(node, ()), nics.get(node, ())) for node in wanted}


def overlaid(store: Store, nodes: Mapping[str, NodeTopology], classes: tuple[NodeClass, ...]) -> Fleet:
    """These topologies with the ranks and the traffic that the store knows now."""
    nvlink, pcie = {}, {}
    for now in store.gpus.values():
        if now.gpu is not None:
            gpu, vertex = now.gpu, Vertex(now.gpu.node, "gpu", now.gpu.uuid)
            nvlink[vertex] = Traffic(gpu.nvlink_rx_bytes_s, gpu.nvlink_tx_bytes_s)
            pcie[vertex] = Traffic(gpu.pcie_rx_bytes_s, gpu.pcie_tx_bytes_s)
    network: dict[Vertex, Traffic] = {}
    for nic in store.nics.values():
        vertex = Vertex(nic.node, "nic", nic.device)
        network[vertex] = _sum(network.get(vertex), Traffic(nic.rx_bytes_s, nic.tx_bytes_s))
    links = {_place(link): Traffic(link.rx_bytes_s, link.tx_bytes_s) for link in store.gpu_links.values()}
    return Fleet(nodes, classes, _ranks(store, nodes), nvlink, pcie, network, links)


def _place(link: GpuLink) -> tuple[Vertex, int]:
    return Vertex(link.node, "gpu", link.uuid), link.link


def _sum(one: Traffic | None, other: Traffic) -> Traffic:
    if one is None:
        return other
    return Traffic(*(a if b is None else b if a is None else a + b for a, b in zip(one, other, strict=True)))


def _ranks(store: Store, nodes: Mapping[str, NodeTopology]) -> dict[Vertex, OnGpu]:
    """Which ranks use which GPU: as the driver lists their processes, else as their environment says, else presumed."""
    told: dict[Vertex, set[tuple[str, int]]] = {}
    infos = [now.info for now in store.gpus.values() if now.info is not None]
    whole = {(info.node, info.uuid): info.parent for info in infos if info.parent is not None}
    settled: set[tuple[str, str, int]] = set()  # (node, job, rank)
    for process in store.gpu_processes.values():
        if process.rank is not None:
            uuid = whole.get((process.node, process.uuid), process.uuid)
            job = process.job or ""
            told.setdefault(Vertex(process.node, "gpu", uuid), set()).add((job, process.rank))
            settled.add((process.node, job, process.rank))
    presumed: dict[Vertex, set[tuple[str, int]]] = {}
    for rank_now in store.ranks.values():
        rank = rank_now.rank
        topology = nodes.get(rank.node)
        if topology is None or rank.rank is None or rank.status != "present":
            continue
        if (rank.node, rank.job, rank.rank) in settled:
            continue
        named = _named(topology, rank.gpu)
        if named is not None:
            told.setdefault(named.vertex, set()).add((rank.job, rank.rank))
        elif rank.gpu is None and rank.local_rank is not None:
            guess = _named(topology, str(rank.local_rank))
            if guess is not None:
                presumed.setdefault(guess.vertex, set()).add((rank.job, rank.rank))
    return {
        vertex: OnGpu(tuple(sorted(told.get(vertex, set()) | presumed.get(vertex, set()))), vertex in presumed)
        for vertex in {**told, **presumed}
    }


def _named(topology: NodeTopology, name: str | None) -> Device | None:
    """The GPU that an index or a uuid means."""
    return next((gpu for gpu in topology.gpus if gpu.info and name in (gpu.info.uuid, str(gpu.info.index))), None)
