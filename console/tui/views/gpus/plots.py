"""The curves of one GPU: which there are, and how one is made from the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....core.store import GpuKey
from ....records import GpuInfo
from ....records.metrics import GPU as METRICS
from ....records.metrics import MetricPlot
from ...models.plot import Plot

if TYPE_CHECKING:
    from ....core.metric_history import MetricHistory

#: The hour is kept in steps of ten seconds, the last minutes in seconds.
RECENT_S, _COARSE_STEP_S = 300, 10.0


#: Metrics of the history that are drawn.
PLOT_METRICS: Final = tuple((metric.field, metric.plot) for metric in METRICS if metric.plot is not None)


def plot_of(
    history: MetricHistory, key: GpuKey, metric: tuple[str, MetricPlot], info: GpuInfo | None, *, hour: bool
) -> Plot:
    """The last five minutes second by second, or the hour in steps of ten seconds with min and max of each."""
    field, plot = metric
    high = _high(plot, info)
    series = history.series["gpu"]
    if not hour:
        return Plot(plot.title, plot.unit, series.recent(key, field, RECENT_S) / plot.scale, high=high)
    curve = series.hour(key, field)
    spread = (curve.minimum / plot.scale, curve.maximum / plot.scale)
    return Plot(plot.title, plot.unit, curve.mean / plot.scale, _COARSE_STEP_S, high=high, spread=spread)


def _high(plot: MetricPlot, info: GpuInfo | None) -> float | None:
    """The top of the axis, where the card has a limit."""
    limit = getattr(info, plot.limit) if info is not None and plot.limit else None
    return limit / plot.scale if limit else plot.high


def is_known(plot: Plot) -> bool:
    """Whether there is anything to draw."""
    return plot.summary()[1] is not None
