"""Bandwidth of a link in one direction, and the source of the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ...records import Link, Nic
from ...text.format import bandwidth, port_speed

#: driver: reported for the link; nominal: by generation; port: negotiated rate of the port.
Source = Literal["driver", "nominal", "port"]

#: One NVLink, one direction, bytes/s, per generation (NVIDIA's product briefs: P100, V100, A100, H100, B200).
NVLINK_BYTES_S: Final[dict[int, float]] = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}
#: One lane, one direction, bytes/s, per generation: transfers/s × encoding (8b/10b, 128b/130b, 242/256 flit) / 8 bits.
#: Packet headers take another few percent.
PCIE_LANE_BYTES_S: Final[dict[int, float]] = {
    1: 2.5e9 * 8 / 10 / 8, 2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8, 6: 64e9 * 242 / 256 / 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes/s in one direction; `text` is the composition (`18 × 26.6 GB/s`, `PCIe 5 x16`)."""

    bytes_s: float
    source: Source
    text: str


def of_nvlinks(edges: Sequence[Link]) -> Bandwidth | None:
    """Sum over all active NVLinks of these edges; None if none is up, or a speed is unknown."""
    edges = [edge for edge in edges if edge.up]
    count = sum(len(edge.up) for edge in edges)
    if edges and all(edge.speed_bytes_s for edge in edges):
        total = sum(len(edge.up) * (edge.speed_bytes_s or 0.0) for edge in edges)
        return Bandwidth(total, "driver", _times(count, total / count))
    if not edges or not all(edge.version in NVLINK_BYTES_S for edge in edges):
        return None
    total = sum(len(edge.up) * NVLINK_BYTES_S[edge.version or 0] for edge in edges)
    return Bandwidth(total, "nominal", f"{_times(count, total / count)} nominal")


def of_pcie(gen: int | None, width: int | None) -> Bandwidth | None:
    """PCIe link by generation and lanes."""
    lane = PCIE_LANE_BYTES_S.get(gen or 0)
    return Bandwidth(lane * width, "nominal", f"PCIe {gen} x{width}") if lane and width else None


def own_link(link: Link) -> Bandwidth | None:
    """A device's own PCIe link; for GPUs at the maximum generation, because an idle GPU lowers it."""
    gen = (link.gen_max or link.gen) if link.a.kind == "gpu" else (link.gen or link.gen_max)
    return of_pcie(gen, link.width or link.width_max)


def uplink(link: Link) -> Bandwidth | None:
    """Narrowest link between a device's own link and its root port, possibly shared."""
    return of_pcie(link.uplink_gen, link.uplink_width)


def of_port(nic: Nic) -> Bandwidth | None:
    """Negotiated rate of a network port."""
    if not nic.rate_bytes_s:
        return None
    return Bandwidth(nic.rate_bytes_s, "port", port_speed(nic.rate_bytes_s))


def _times(count: int, each: float) -> str:
    return f"{count} × {bandwidth(each)}" if count > 1 else bandwidth(each)
