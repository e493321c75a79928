"""The figures of a GPU that the heat map can show, and which GPUs stand apart from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from ...core.store import GpuNow
from ...records import Gpu
from ...text import format

Scale = Literal["load", "temperature"]

_COLD_C, _HOT_C = 30.0, 90.0
#: Where the driver does not say the most: an H100's limit and clock.
_POWER_FALLBACK_W, _CLOCK_FALLBACK_MHZ = 700.0, 1980.0
#: Bytes a second of one PCIe lane in one direction, by generation, after its line code (PCI-SIG base specifications).
_LANE_BYTES_S: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_PCIE_FALLBACK_BYTES_S = 16 * _LANE_BYTES_S[5]
#: Bytes a second of one NVLink in one direction (generations 2 to 4; the fifth has twice as much).
_NVLINK_BYTES_S, _NVLINK_FALLBACK = 25e9, 18
#: Reasons of the driver that take clocks away from a GPU with work to do; an idle GPU or a set limit are none.
THROTTLE_REASONS: Final = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")

#: A figure stands apart beyond so many spreads from the middle of its peers; of fewer peers nothing is said.
_SPREADS, _FEWEST = 6.0, 8
#: Makes the median distance of a normal distribution its standard deviation.
_SIGMA = 1.4826


@dataclass(frozen=True)
class HeatMetric:
    """One figure the map can show. `read` gives the figure, `level` its place between 0 and 1.

    `apart` is the least distance from its peers, in its unit, that means anything.
    """

    name: str
    title: str
    unit: str
    scale: Scale
    read: Callable[[GpuNow], float | None]
    level: Callable[[float, GpuNow], float]
    apart: float
    write: Callable[[float], str] = format.whole


def _figure(name: str) -> Callable[[GpuNow], float | None]:
    return lambda gpu: getattr(gpu.gpu, name) if gpu.gpu else None


def memory_pct(gpu: GpuNow) -> float | None:
    """Memory in use, of what the GPU has."""
    total = gpu.info.mem_total_bytes if gpu.info else None
    used = gpu.gpu.mem_used_bytes if gpu.gpu else None
    return None if not total or used is None else 100 * used / total


def _power_limit(gpu: GpuNow) -> float:
    return (gpu.info.power_limit_w if gpu.info else None) or _POWER_FALLBACK_W


def _most_clock(gpu: GpuNow) -> float:
    return (gpu.info.max_sm_clock_mhz if gpu.info else None) or _CLOCK_FALLBACK_MHZ


def _both_ways(kind: str) -> Callable[[GpuNow], float | None]:
    """Traffic in and out together, in GB/s."""

    def read(gpu: GpuNow) -> float | None:
        ways = [getattr(gpu.gpu, f"{kind}_{way}_bytes_s") for way in ("rx", "tx")] if gpu.gpu else [None]
        known = [way for way in ways if way is not None]
        return sum(known) / 1e9 if known else None

    return read


def _most_pcie_gb(gpu: GpuNow) -> float:
    info = gpu.info
    if info is None or not info.pcie_width_max or info.pcie_gen_max not in _LANE_BYTES_S:
        return 2 * _PCIE_FALLBACK_BYTES_S / 1e9
    return 2 * info.pcie_width_max * _LANE_BYTES_S[info.pcie_gen_max] / 1e9


def _most_nvlink_gb(gpu: GpuNow) -> float:
    links = (gpu.info.nvlinks if gpu.info else None) or _NVLINK_FALLBACK
    return 2 * links * _NVLINK_BYTES_S / 1e9


def throttle_pct(now: Gpu | None) -> float | None:
    """The share of the last tick in which heat or the hardware held the clocks down, in percent.

    Where the driver counts no time, 100 while such a reason is given and 0 while none is.
    """
    if now is None or (now.sm_clock_mhz is None and not now.clocks_event_reasons and not now.clocks_event_share_pct):
        return None
    shares = [now.clocks_event_share_pct[reason] for reason in THROTTLE_REASONS if reason in now.clocks_event_share_pct]
    stated = any(reason in THROTTLE_REASONS for reason in now.clocks_event_reasons)
    return max(shares) if shares else 100.0 * stated


def _gb(value: float) -> str:
    """GB/s in three characters: "0.4", "12", "450"."""
    return format.percent(value) if value < 999.5 else "999"


def _ghz(value: float) -> str:
    """MHz as GHz in three characters, "1.9": four would not fit a cell."""
    return f"{value / 1000:.1f}"


HEAT_METRICS: tuple[HeatMetric, ...] = (
    HeatMetric("util", "GPU util", "%", "load", _figure("util_pct"), lambda v, _: v / 100, 25),
    HeatMetric("memory", "memory", "%", "load", memory_pct, lambda v, _: v / 100, 15),
    HeatMetric("power", "power", "W", "load", _figure("power_w"), lambda v, g: v / _power_limit(g), 100),
    HeatMetric("temperature", "temperature", "°C", "temperature", _figure("temp_c"),
           lambda v, _: (v - _COLD_C) / (_HOT_C - _COLD_C), 10),
    HeatMetric("clock", "SM clock", "GHz", "load", _figure("sm_clock_mhz"), lambda v, g: v / _most_clock(g), 150, _ghz),
    HeatMetric("nvlink", "NVLink RX + TX", "GB/s", "load", _both_ways("nvlink"), lambda v,
        g: v / _most_nvlink_gb(g),
           20, _gb),
    HeatMetric("pcie", "PCIe RX + TX", "GB/s", "load", _both_ways("pcie"), lambda v, g: v / _most_pcie_gb(g), 4,
        _gb),
    HeatMetric("throttle", "thermal or hardware throttling", "% of time", "temperature",
           lambda g: throttle_pct(g.gpu), lambda v, _: v / 100, 5),
)  # fmt: skip


@dataclass(frozen=True)
class PeerRange:
    """What GPUs have in common: the middle of one figure, and how far from it is far."""

    middle: float
    far: float

    def side(self, value: float) -> str:
        """ "▼" for a figure far below the others', "▲" for one far above, "" else."""
        if abs(value - self.middle) <= self.far:
            return ""
        return "▼" if value < self.middle else "▲"


def peer_range(gpus: Iterable[GpuNow], metric: HeatMetric, before: PeerRange | None = None) -> PeerRange | None:
    """The middle (median) and the spread (median distance from it) of that figure over all GPUs that tell it.

    None of fewer than eight. `before` stays while both have hardly moved, so that rows need not be drawn anew.
    """
    values = [value for gpu in gpus if (value := metric.read(gpu)) is not None]
    if len(values) < _FEWEST:
        return None
    middle = median(values)
    spread = _SIGMA * median(abs(value - middle) for value in values)
    found = PeerRange(middle, max(metric.apart, _SPREADS * spread))
    if before is not None and max(abs(found.middle - before.middle), abs(found.far - before.far)) < metric.apart / 5:
        return before
    return found
