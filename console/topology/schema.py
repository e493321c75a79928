"""JSON schema of the topology, documented in `gconsole schema`."""

from __future__ import annotations

from typing import Final

import msgspec

SCHEMA: Final = "gconsole.topology/1"


class DifferenceLine(msgspec.Struct):
    """A difference: `subject` is `value` on `nodes` and `usual` in `than` (a class, or the rest of their own)."""

    nodes: tuple[str, ...]
    subject: str  # GPU4–GPU5, GPU3 PCIe width, driver
    value: str
    usual: str
    than: str
    text: str  # the same as a sentence


class ClassLine(msgspec.Struct):
    """Nodes with identical topology; the matrix is that of `nvidia-smi topo -m`, a row and a column per label."""

    name: str  # A is the largest class
    nodes: tuple[str, ...]
    title: str
    simulated: bool
    labels: tuple[str, ...]  # GPU0, …, NIC0, …
    matrix: list[list[str]]
    differences: list[DifferenceLine]  # from the class it is compared with, and of single nodes from their class


class DeviceLine(msgspec.Struct):
    """A GPU or NIC."""

    label: str
    kind: str  # gpu, nic
    id: str  # a GPU's uuid, a card's device
    name: str | None
    pci_bus_id: str | None
    numa_node: int | None
    cpu_affinity: str | None
    pcie_gen: int | None
    pcie_width: int | None
    nearest_nics: list[str]  # of a GPU: their labels
    ranks: list[int]  # of a GPU: known ranks that use it
    ranks_presumed: bool  # derived from the local rank only
    groups: list[str]  # of a GPU: the labels of the parallel groups of these ranks


class TopologyNode(msgspec.Struct):
    """One node; `class` is the name of its class."""

    node: str
    node_class: str | None = msgspec.field(name="class")
    simulated: bool
    switches: list[str]  # PCI addresses of its NVSwitches
    devices: list[DeviceLine]


class TopologyLink(msgspec.Struct):
    """One edge, or the relation of two devices of a node.

    `type`: nvlink (GPU to switch, CPU or GPU), pcie (device to NUMA node), network (NIC to the network of its port),
    pair (two GPUs: relation and best path). Bandwidths are per direction; `bandwidth_source`: driver, nominal or port;
    `at_most`: part of the path is unknown.
    """

    node: str
    type: str
    a: str  # a label, or the id of what has none
    b: str
    relation: str | None = None  # pair: NV18, PIX, …
    bandwidth_bytes_s: float | None = None
    bandwidth_source: str | None = None
    bandwidth_text: str | None = None
    at_most: bool = False
    rx_bytes_s: float | None = None  # measured last
    tx_bytes_s: float | None = None
    up: bool | None = None
    via: tuple[str, ...] = ()  # pcie: the bridges between; pair: the stations of the path
    peer_access: bool | None = None  # pair
    why: str | None = None
    unsupported: dict[str, str] = msgspec.field(default_factory=dict)  # unavailable fields, and why


class ParallelGroupLine(msgspec.Struct):
    """A process group of a job from its newest capture, mapped to nodes."""

    job: str
    kind: str  # tp, dp; `group` without a description
    label: str  # tp 3
    name: str  # PyTorch's own, the same on all ranks
    desc: str
    ranks: tuple[int, ...]
    is_whole: bool  # whether those are all
    nodes: tuple[str, ...]  # known nodes of its ranks
    relation: str | None  # within one node: the farthest between its GPUs, as in the matrix


class TopologyDocument(msgspec.Struct):
    """`gconsole.topology/1`: the classes of nodes, every node with its devices, every link, the parallel groups."""

    schema: str
    classes: list[ClassLine]
    nodes: list[TopologyNode]
    links: list[TopologyLink]
    groups: list[ParallelGroupLine]
