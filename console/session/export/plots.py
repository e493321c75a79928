"""Plots of a session with matplotlib: GPU utilisation, memory and power over time, steps and skew of the jobs.

Skew is the lateness at captured collectives on the common clock, with its error bound; points within the bound are
hollow.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...analysis.skew.lateness import JobSkew
from ...core.store import Store
from ...monitor.skew import skew_of
from ...records import Gpu
from ...records.metrics import fields_for
from ...text.atomic_files import open_replacement
from .gpu_curves import Curves, folded_rows, median
from .slice import SampleClock, SessionSlice

_METRICS: Final = fields_for(Gpu, "plot")

#: Kinds from which skew is computed.
_SKEW_KINDS: Final = ("clock_node", "clock_snapshot", "collective", "pg_status")

#: A job, its steps, and the seconds of each.
Steps = tuple[str, Sequence[int], Sequence[float]]


def require_matplotlib() -> None:
    """Raises ValueError if the extra `plots` is not installed."""
    if find_spec("matplotlib") is None:
        raise ValueError("plots need matplotlib; install gconsole[plots]")


def plot(source: SessionSlice, steps: Sequence[Steps], path: Path) -> None:
    """Draw all plots into one file; requires matplotlib. Raises OSError, ValueError without data."""
    import matplotlib as mpl

    mpl.use("agg")  # no display
    from matplotlib import pyplot

    curves = Curves(_METRICS)
    clock = SampleClock(source)
    for record in source.only("gpu"):
        curves.add(record, clock.at(record))
    figures = [(figure, *curves.table(figure)) for figure in _METRICS]
    present = [(figure, names, table) for figure, names, table in figures if names]
    skews = skews_of(source)
    count = len(present) + len(steps) + len(skews)
    if not count:
        raise ValueError("nothing to plot: the session has neither GPU metrics nor steps nor collectives")
    figure, axes = pyplot.subplots(count, 1, figsize=(11, 3.2 * count), squeeze=False, layout="constrained")
    figure.suptitle(source.name)
    for axis, (name, names, table) in zip(axes[:, 0], present, strict=False):
        (_powers if name == "power_w" else _heat)(axis, name, names, table, curves.seconds)
    for axis, (job, numbers, seconds) in zip(axes[len(present) :, 0], steps, strict=False):
        axis.plot(numbers, seconds, linewidth=0.8)
        axis.set(title=f"step time of {job}", xlabel="step", ylabel="s", ylim=(0, None))
    for axis, skew in zip(axes[len(present) + len(steps) :, 0], skews, strict=True):
        _skew(axis, skew)
    # SVG text stays text, searchable
    with mpl.rc_context({"svg.fonttype": "none"}), open_replacement(path) as file:
        figure.savefig(file, format=path.suffix[1:])
    pyplot.close(figure)


def _heat(axis: Any, name: str, names: Sequence[str], table: np.ndarray[Any, Any], seconds: int) -> None:
    rows, folded = folded_rows(names, table)
    scale, unit, top = (1 << 30, "GiB", None) if name == "mem_used_bytes" else (1.0, "%", 100.0)
    image = axis.imshow(
        folded / scale, aspect="auto", interpolation="nearest", vmin=0, vmax=top, cmap="viridis",
        extent=(0, seconds, len(rows), 0),
    )  # fmt: skip
    each = max(1, len(rows) // 16)
    axis.set_yticks([row + 0.5 for row in range(0, len(rows), each)], rows[::each], fontsize=7)
    axis.set(title=name, xlabel="s")
    axis.figure.colorbar(image, ax=axis, label=unit)


def _powers(axis: Any, name: str, names: Sequence[str], table: np.ndarray[Any, Any], seconds: int) -> None:
    x = np.linspace(0, seconds, table.shape[1])
    low, high = np.fmin.reduce(table, axis=0), np.fmax.reduce(table, axis=0)
    axis.fill_between(x, low, high, alpha=0.25, label="min to max")
    axis.plot(x, median(table), label="median")
    axis.set(title=f"{name} of {len(names)} GPUs", xlabel="s", ylabel="W", ylim=(0, None))
    axis.legend(loc="lower right", fontsize=8)


def skews_of(source: SessionSlice) -> list[JobSkew]:
    """Return the lateness at collectives per job, of the captures within retention."""
    store = Store()
    for record in source.only(*_SKEW_KINDS):
        store.apply([record])
    return [skew for skew in skew_of(store).collectives if skew.analysed]


def _skew(axis: Any, skew: JobSkew) -> None:
    for resolved, face, label in ((True, None, "resolved"), (False, "none", "within the clock error bound")):
        points = [(number, point) for number, point in enumerate(skew.analysed, 1) if point.is_resolved is resolved]
        if points:
            axis.errorbar(
                [number for number, _ in points], [point.behind_ns / 1e6 for _, point in points],
                yerr=[point.bound_ns / 1e6 for _, point in points], fmt="o", markersize=3, linewidth=0.6,
                markerfacecolor=face, color="#b3261e" if resolved else "gray", label=label,
            )  # fmt: skip
    late = ", ".join(str(culprit.rank) for culprit in skew.culprits[:8])
    title = f"skew of {skew.job}" + (f"; late: rank {late}" if late else "")
    axis.set(title=title, xlabel="collective, oldest first", ylabel="ms behind the others")
    axis.set_ylim(0, 1.1 * max(1e-6, *(point.behind_ns / 1e6 for point in skew.analysed)))
    axis.legend(loc="upper right", fontsize=8)
