"""Network ports, as sysfs shows them: RDMA ports (InfiniBand, RoCE) and physical Ethernet interfaces."""

from __future__ import annotations

import msgspec

from .base import Count, Int, Record


class Nic(Record, tag="nic", kw_only=True):
    """One port at one tick. Rates are over the time since the previous tick; the rest is read every 5 s.

    Counters of errors are totals; `grown` says which of them gained since they were read last, and by how much. What a
    card or its driver does not count is None.
    """

    device: str  # "mlx5_0", or the interface
    port: Count  # 0 for an Ethernet interface
    rdma: bool = False
    state: str | None = None  # active, init, armed, down; of an interface the kernel's up, down, …; gone
    physical_state: str | None = None  # linkup, polling, disabled, …
    rate_bytes_s: float | None = None  # of the link, one direction; None while it is down
    link_layer: str | None = None  # InfiniBand, Ethernet
    netdev: str | None = None  # the interface of the same port
    gid: str | None = None
    pci_bus_id: str | None = None
    numa_node: Int | None = None
    rx_bytes_s: float | None = None
    tx_bytes_s: float | None = None
    rx_packets_s: float | None = None
    tx_packets_s: float | None = None
    symbol_errors: Count | None = None
    link_downed: Count | None = None
    link_recoveries: Count | None = None
    rx_errors: Count | None = None
    tx_errors: Count | None = None
    rx_discards: Count | None = None
    tx_discards: Count | None = None
    out_of_sequence: Count | None = None
    packet_seq_errors: Count | None = None
    ack_timeouts: Count | None = None
    cnp_sent: Count | None = None  # congestion notifications, RoCE
    cnp_handled: Count | None = None
    ecn_marked: Count | None = None  # packets that arrived with a congestion mark
    grown: dict[str, int] = msgspec.field(default_factory=dict)
