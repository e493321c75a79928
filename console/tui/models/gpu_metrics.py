"""The figures of a GPU that the heat map can show, and which GPUs stand apart from the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from ...core.store import GpuNow
from ...records.metrics import HEAT, HeatRange, Metric

#: A figure stands apart beyond so many spreads from the middle of its peers; of fewer peers nothing is said.
_SPREADS, _FEWEST = 6.0, 8
#: Makes the median distance of a normal distribution its standard deviation.
_SIGMA = 1.4826


@dataclass(frozen=True)
class HeatMetric:
    """One figure the heat map can show, as the metric catalogue declares it."""

    metric: Metric
    heat: HeatRange

    @property
    def name(self) -> str:
        """As saved layouts name it."""
        return self.heat.name

    def read(self, gpu: GpuNow) -> float | None:
        """The figure of a GPU; None where it is not known."""
        value: float | None = self.metric.read(gpu.gpu, gpu.info)
        return value

    def level(self, value: float, gpu: GpuNow) -> float:
        """Where a figure lies between the ends of the range, 0 to 1."""
        high = self.heat.high(gpu.info) if callable(self.heat.high) else self.heat.high
        return (value - self.heat.low) / (high - self.heat.low)


HEAT_METRICS: Final = tuple(HeatMetric(metric, metric.heat) for metric in HEAT if metric.heat is not None)


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
    peers = PeerRange(middle, max(metric.heat.apart, _SPREADS * spread))
    if (
        before is not None
        and max(abs(peers.middle - before.middle), abs(peers.far - before.far)) < metric.heat.apart / 5
    ):
        return before
    return peers
