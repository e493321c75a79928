"""Topology of a node (GPUs, NVSwitches, network ports, PCIe bridges, NUMA nodes), and metrics of network ports.

Edges are sent at the start and on change. They contain only data of the driver and the kernel; relations of GPUs,
bandwidths and paths are derived in `analysis/topology`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, DigestibleRecord, Float, Int, Record

#: nvlink: NVLinks between a GPU and the other end; xgmi: Infinity Fabric between two GPUs of AMD; pcie: path of a
#: device to its CPU; peer: distance and peer-to-peer access of two GPUs of a node; numa: two NUMA nodes.
LinkType = Literal["nvlink", "xgmi", "pcie", "peer", "numa"]
EndKind = Literal["gpu", "switch", "cpu", "nic", "numa", "unknown"]
#: Common ancestor of two devices, nearest first: one PCIe bridge, several, the host bridge, the NUMA node, none.
Ancestor = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]


class End(msgspec.Struct, frozen=True, order=True):
    """One end of an edge.

    `id` is a GPU's uuid, the PCI address of a switch or a CPU's NVLink port ("" if not reported),
    the name of a network device (`mlx5_0`, `eth0`), the number of a NUMA node ("" if unknown).
    """

    kind: EndKind
    id: str = ""


class Link(Record, tag="link", kw_only=True):
    """One edge of a node's topology. Unavailable values are None; `unsupported` has the reasons."""

    type: LinkType  # nvlink, xgmi, pcie, peer or numa
    a: End  # one end: kind and id
    b: End  # other end: kind and id
    links: tuple[Count, ...] = ()  # nvlink: their numbers on the GPU
    up: tuple[Count, ...] = ()  # nvlink: the ones that are up
    version: Count | None = None  # nvlink: generation
    speed_bytes_s: Float | None = None  # one direction, as the driver reports it: nvlink of one link, xgmi of all
    gen: Count | None = None  # pcie: current; lower when idle, which alone is not a change
    width: Count | None = None  # pcie: lanes in use
    gen_max: Count | None = None  # maximum of device and slot
    width_max: Count | None = None  # pcie: lanes that device and slot support
    via: tuple[str, ...] = ()  # pcie: ports and bridges from the device upwards, the root bus (`pci0000:15`) last
    uplink_gen: Count | None = None  # pcie: narrowest link above the device's own; None: there is none
    uplink_width: Count | None = None  # pcie: lanes of that link
    cpus: str | None = None  # pcie: the CPUs near the device: "0-51,104-155"
    ancestor: Ancestor | None = None  # peer
    read: str | None = None  # peer: ok, or why not, in the words of NVML: chipset_not_supported, gpu_not_supported, …
    write: str | None = None  # peer: ok, or why not: disabled_by_regkey, not_supported, unknown, …
    atomics: str | None = None  # peer: the same for atomic operations
    nvlink: str | None = None  # peer: the same for access over NVLink
    distance: Int | None = None  # numa: as the firmware reports it, 10 is the node itself; xgmi: weight, 15 a hop
    gone: bool = False  # the edge was removed
    unsupported: dict[str, str] = msgspec.field(default_factory=dict)  # field: why it is None
    simulated: bool = False  # True for simulated data


class Nic(DigestibleRecord, tag="nic", kw_only=True):
    """Metrics of one network port at one tick. Rates are since the previous tick; the rest is read every 5 s.

    Error counters are totals; `grown` has those that increased since the previous read, with their gain. Counters that
    the card or its driver does not have are None.
    """

    device: str  # "mlx5_0", or the interface
    port: Count  # number of the port; 0 for an Ethernet interface
    rdma: bool = False  # True for an RDMA port
    state: str | None = None  # active, init, armed, down; of an interface up, down, …; gone
    physical_state: str | None = None  # linkup, polling, disabled, …
    rate_bytes_s: Float | None = None  # speed of the link in one direction; None while it is down
    link_layer: str | None = None  # InfiniBand, Ethernet
    netdev: str | None = None  # the interface of the same port
    gid: str | None = None  # global identifier of the port
    pci_bus_id: str | None = None  # PCI address
    numa_node: Int | None = None  # nearest NUMA node; None if not reported
    rx_bytes_s: Float | None = None  # traffic to the port
    tx_bytes_s: Float | None = None  # traffic from the port
    rx_packets_s: Float | None = None  # packets received
    tx_packets_s: Float | None = None  # packets sent
    symbol_errors: Count | None = None  # symbols received with errors
    link_downed: Count | None = None  # times the link went down
    link_recoveries: Count | None = None  # times the link recovered
    rx_errors: Count | None = None  # packets received with errors
    tx_errors: Count | None = None  # packets that could not be sent, Ethernet only
    rx_discards: Count | None = None  # received packets that were dropped
    tx_discards: Count | None = None  # outgoing packets that were dropped
    out_of_sequence: Count | None = None  # RDMA packets that arrived out of sequence
    packet_seq_errors: Count | None = None  # negative acknowledgements for lost packets
    ack_timeouts: Count | None = None  # acknowledgements that did not arrive in time
    cnp_sent: Count | None = None  # congestion notifications, RoCE
    cnp_handled: Count | None = None  # congestion notifications that were obeyed, RoCE
    ecn_marked: Count | None = None  # packets that arrived with a congestion mark
    grown: dict[str, Count] = msgspec.field(default_factory=dict)  # counter: gain since the previous read
