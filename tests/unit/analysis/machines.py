"""Synthetic nodes for topology tests, as records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gconsole.analysis.topology.node import NodeTopology, TopologyFacts, node_topology
from gconsole.records import End, GpuInfo, Link, Nic

H100 = "NVIDIA H100 80GB HBM3"


def uuid(node: str, index: int) -> str:
    return f"GPU-{node}-{index}"


def gpu(node: str, index: int, **more: Any) -> GpuInfo:
    known: dict[str, Any] = {
        "name": H100, "driver": "570.124.06", "vbios": "96.00.A5", "pci_bus_id": f"00000000:{0x10 + index:02X}:00.0",
        "max_sm_clock_mhz": 1980.0, "power_limit_w": 700.0,
    }  # fmt: skip
    return GpuInfo(node=node, index=index, uuid=uuid(node, index), **(known | more))


def gpu_place(node: str, index: int, numa: int, switch: int, **more: Any) -> Link:
    known: dict[str, Any] = {
        "gen": 5, "width": 16, "gen_max": 5, "width_max": 16, "uplink_gen": 5, "uplink_width": 16,
        "via": (f"0000:{switch:02x}:02.{index % 8}", f"0000:{switch:02x}:01.0", f"0000:{switch:02x}:00.0",
                f"pci0000:{switch:02x}"),
    }  # fmt: skip
    return Link(node=node, type="pcie", a=End("gpu", uuid(node, index)), b=End("numa", str(numa)), **(known | more))


def nic(node: str, number: int, **more: Any) -> Nic:
    known: dict[str, Any] = {"rdma": True, "state": "active", "link_layer": "InfiniBand", "rate_bytes_s": 50e9,
                             "gid": "fe80:0000:0000:0000:0000:0000:0000:0001"}  # fmt: skip
    return Nic(node=node, device=f"mlx5_{number}", port=1, **(known | more))


def nic_place(node: str, number: int, numa: int, switch: int) -> Link:
    via = (f"0000:{switch:02x}:03.{number % 8}", f"0000:{switch:02x}:01.0", f"0000:{switch:02x}:00.0",
           f"pci0000:{switch:02x}")  # fmt: skip
    return Link(node=node, type="pcie", a=End("nic", f"mlx5_{number}"), b=End("numa", str(numa)), gen=5, width=16,
                gen_max=5, width_max=16, uplink_gen=5, uplink_width=16, via=via)  # fmt: skip


def peer(node: str, one: int, other: int, ancestor: str, status: str = "ok") -> Link:
    return Link(node=node, type="peer", a=End("gpu", uuid(node, one)), b=End("gpu", uuid(node, other)),
                ancestor=ancestor, read=status, write=status, atomics=status, nvlink=status)  # fmt: skip


def hgx_facts(
    node: str, *, gpus: int = 8, nics: int = 4, dead: Iterable[int] = (), links: int = 18, down: Iterable[str] = ()
) -> TopologyFacts:  # fmt: skip
    """Paired GPUs behind PCIe switches, a NIC per pair, four NVSwitches; GPUs in `dead` have no NVLink."""
    infos = [gpu(node, index) for index in range(gpus)]
    edges = [gpu_place(node, index, index * 2 // gpus, 0x80 + index // 2) for index in range(gpus)]
    edges += [nic_place(node, number, number * 2 // nics, 0x80 + number) for number in range(nics)]
    edges.append(Link(node=node, type="numa", a=End("numa", "0"), b=End("numa", "1"), distance=21))
    for index in range(gpus):
        for switch in range(4):
            numbers = tuple(range(switch, links, 4))
            edges.append(Link(node=node, type="nvlink", a=End("gpu", uuid(node, index)),
                              b=End("switch", f"0000:0{switch + 5}:00.0"), links=numbers,
                              up=() if index in set(dead) else numbers, version=4, speed_bytes_s=26.562e9))  # fmt: skip
        for other in range(index + 1, gpus):
            near = "PIX" if index // 2 == other // 2 else "NODE" if index * 2 // gpus == other * 2 // gpus else "SYS"
            edges.append(peer(node, index, other, near))
    ports = [nic(node, number, **({"state": "down", "rate_bytes_s": None} if f"mlx5_{number}" in set(down) else {}))
             for number in range(nics)]  # fmt: skip
    return TopologyFacts(node, infos, edges, ports)


def hgx(node: str, **more: Any) -> NodeTopology:
    return node_topology(hgx_facts(node, **more))


def pcie_facts(node: str, gpus: int = 4) -> TopologyFacts:
    """Two NICs per NUMA node in separate slots without peer access between them, and one Ethernet NIC."""
    infos = [gpu(node, index, name="NVIDIA L40S", max_sm_clock_mhz=2520.0, power_limit_w=350.0)
             for index in range(gpus)]  # fmt: skip
    edges = [gpu_place(node, index, index * 2 // gpus, 0x40 + index, gen=4, gen_max=4, uplink_gen=None,
                       uplink_width=None, via=(f"0000:{0x40 + index}:00.0", f"pci0000:{0x40 + index}"))
             for index in range(gpus)]  # fmt: skip
    edges.append(Link(node=node, type="numa", a=End("numa", "0"), b=End("numa", "1"), distance=32))
    for index in range(gpus):
        for other in range(index + 1, gpus):
            near = "NODE" if index * 2 // gpus == other * 2 // gpus else "SYS"
            edges.append(peer(node, index, other, near, "chipset_not_supported"))
    ethernet = Nic(node=node, device="eth0", port=0, state="up", link_layer="Ethernet", rate_bytes_s=3.125e9)
    place = Link(node=node, type="pcie", a=End("nic", "eth0"), b=End("numa", "0"), gen=3, width=8,
                 via=("0000:20:00.0", "pci0000:20"))  # fmt: skip
    return TopologyFacts(node, infos, [*edges, place], [ethernet])
