"""The curves of one GPU: which there are, and how one is made from the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....core.store import GpuKey
from ....records import GpuInfo
from ...models.plot import Plot

if TYPE_CHECKING:
    from ....core.metric_history import History

#: The hour is kept in steps of ten seconds, the last minutes in seconds.
RECENT_S, _COARSE_STEP_S = 300, 10.0


@dataclass(frozen=True)
class PlotMetric:
    """One metric of the history as it is drawn: in `unit`, one of which is `scale` of the record's own."""

    metric: str
    title: str
    unit: str
    scale: float = 1.0
    high: float | None = None


PLOT_METRICS: Final = (
    PlotMetric("util_pct", "GPU util", "%", high=100),
    PlotMetric("mem_used_bytes", "memory", "GiB", 1 << 30),
    PlotMetric("power_w", "power", "W"),
    PlotMetric("temp_c", "temperature", "°C"),
    PlotMetric("sm_clock_mhz", "SM clock", "MHz"),
    PlotMetric("sm_pct", "SM activity", "%", high=100),
    PlotMetric("tensor_pct", "tensor cores", "%", high=100),
    PlotMetric("nvlink_rx_bytes_s", "NVLink RX", "GB/s", 1e9),
    PlotMetric("nvlink_tx_bytes_s", "NVLink TX", "GB/s", 1e9),
    PlotMetric("pcie_rx_bytes_s", "PCIe RX", "GB/s", 1e9),
    PlotMetric("pcie_tx_bytes_s", "PCIe TX", "GB/s", 1e9),
)


def plot_of(history: History, key: GpuKey, figure: PlotMetric, info: GpuInfo | None, *, hour: bool) -> Plot:
    """The last five minutes second by second, or the hour in steps of ten seconds with what lay within each."""
    high = _high(figure, info)
    series = history.series["gpu"]
    if not hour:
        values = series.recent(key, figure.metric, RECENT_S) / figure.scale
        return Plot(figure.title, figure.unit, values, high=high)
    curve = series.hour(key, figure.metric)
    spread = (curve.minimum / figure.scale, curve.maximum / figure.scale)
    return Plot(figure.title, figure.unit, curve.mean / figure.scale, _COARSE_STEP_S, high=high, spread=spread)


def _high(figure: PlotMetric, info: GpuInfo | None) -> float | None:
    """The top of the axis, where the card has a limit."""
    limits = {} if info is None else {
        "mem_used_bytes": info.mem_total_bytes, "power_w": info.power_limit_w, "sm_clock_mhz": info.max_sm_clock_mhz,
    }  # fmt: skip
    limit = limits.get(figure.metric)
    return limit / figure.scale if limit else figure.high


def is_known(plot: Plot) -> bool:
    """Whether there is anything to draw."""
    return plot.summary()[1] is not None
