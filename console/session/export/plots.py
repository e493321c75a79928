"""Pictures of a session, by matplotlib: use, memory and power of the GPUs over time, steps and skew of the jobs.

Skew is of the collectives that captures read: who came how long after the others, on the clock of the cluster, with the
bound of that; where the clocks cannot tell, the point is hollow.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...analysis.skew import JobSkew
from ...core.store import Store
from ...monitor.skew import skew_of
from ...records import Gpu
from ...records.metrics import fields_for
from ...text.atomic_files import open_replacement
from .gpu_curves import Curves, folded_rows, median
from .slice import SessionSlice

SUFFIXES: Final = (".pdf", ".png", ".svg")
_FIGURES: Final = fields_for(Gpu, "plot")

#: What skew is made of.
_SKEW_KINDS: Final = ("clock_node", "clock_snapshot", "collective", "pg_status")

#: A job, its steps, and the seconds of each.
Steps = tuple[str, Sequence[int], Sequence[float]]


def require_matplotlib() -> None:
    """Raises ValueError where the extra `plots` is not installed."""
    if find_spec("matplotlib") is None:
        raise ValueError("plots need matplotlib; install gconsole[plots]")


def plot(what: SessionSlice, steps: Sequence[Steps], path: Path) -> None:
    """Draw everything there is to draw into one file. Raises OSError, ValueError where there is nothing to draw."""
    require_matplotlib()
    import matplotlib as mpl

    mpl.use("agg")  # no screen is asked for
    from matplotlib import pyplot

    curves = Curves(_FIGURES)
    for record in what.only("gpu"):
        curves.add(record)
    figures = [(figure, *curves.table(figure)) for figure in _FIGURES]
    present = [(figure, names, table) for figure, names, table in figures if names]
    skews = skews_of(what)
    count = len(present) + len(steps) + len(skews)
    if not count:
        raise ValueError("there are no figures of GPUs, no steps and no collectives in it")
    figure, axes = pyplot.subplots(count, 1, figsize=(11, 3.2 * count), squeeze=False, layout="constrained")
    figure.suptitle(what.meta.name or what.path.name)
    for axis, (name, names, table) in zip(axes[:, 0], present, strict=False):
        (_powers if name == "power_w" else _heat)(axis, name, names, table, curves.seconds)
    for axis, (job, numbers, seconds) in zip(axes[len(present) :, 0], steps, strict=False):
        axis.plot(numbers, seconds, linewidth=0.8)
        axis.set(title=f"step time of {job}", xlabel="step", ylabel="s", ylim=(0, None))
    for axis, skew in zip(axes[len(present) + len(steps) :, 0], skews, strict=True):
        _skew(axis, skew)
    # text stays text: it can be searched and copied
    with mpl.rc_context({"svg.fonttype": "none"}), open_replacement(path) as file:
        figure.savefig(file, format=path.suffix[1:])
    pyplot.close(figure)


def _heat(axis: Any, name: str, names: Sequence[str], table: np.ndarray[Any, Any], seconds: int) -> None:
    rows, folded = folded_rows(names, table)
    scale, unit, most = (1e9, "GB", None) if name == "mem_used_bytes" else (1.0, "%", 100.0)
    image = axis.imshow(
        folded / scale, aspect="auto", interpolation="nearest", vmin=0, vmax=most, cmap="viridis",
        extent=(0, seconds, len(rows), 0),
    )  # fmt: skip
    each = max(1, len(rows) // 16)
    axis.set_yticks([at + 0.5 for at in range(0, len(rows), each)], rows[::each], fontsize=7)
    axis.set(title=name, xlabel="s")
    axis.figure.colorbar(image, ax=axis, label=unit)


def _powers(axis: Any, name: str, names: Sequence[str], table: np.ndarray[Any, Any], seconds: int) -> None:
    x = np.linspace(0, seconds, table.shape[1])
    least, most = np.fmin.reduce(table, axis=0), np.fmax.reduce(table, axis=0)
    axis.fill_between(x, least, most, alpha=0.25, label="least to most")
    axis.plot(x, median(table), label="median")
    axis.set(title=f"{name} of {len(names)} GPUs", xlabel="s", ylabel="W", ylim=(0, None))
    axis.legend(loc="lower right", fontsize=8)


def skews_of(what: SessionSlice) -> list[JobSkew]:
    """The lateness at collectives of each job, of those captures that the store keeps."""
    store = Store()
    for record in what.only(*_SKEW_KINDS):
        store.apply([record])
    return [skew for skew in skew_of(store).collectives if skew.analysed]


def _skew(axis: Any, skew: JobSkew) -> None:
    for resolved, face, label in ((True, None, "resolved"), (False, "none", "within the clocks' bound")):
        found = [(n, one) for n, one in enumerate(skew.analysed, 1) if one.is_resolved is resolved]
        if found:
            axis.errorbar(
                [n for n, _ in found], [one.behind_ns / 1e6 for _, one in found],
                yerr=[one.bound_ns / 1e6 for _, one in found], fmt="o", markersize=3, linewidth=0.6,
                markerfacecolor=face, color="#b3261e" if resolved else "gray", label=label,
            )  # fmt: skip
    late = ", ".join(str(culprit.rank) for culprit in skew.culprits[:8])
    title = f"skew of {skew.job}" + (f"; late: rank {late}" if late else "")
    axis.set(title=title, xlabel="collective, oldest first", ylabel="ms behind the others")
    axis.set_ylim(0, 1.1 * max(1e-6, *(one.behind_ns / 1e6 for one in skew.analysed)))
    axis.legend(loc="upper right", fontsize=8)
