"""Pictures of a session, by matplotlib: use, memory and power of the GPUs over time, and the steps of the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..files import being_written
from .chosen import Chosen
from .export.curves import Curves, folded_rows, median

SUFFIXES: Final = (".pdf", ".png", ".svg")
_FIGURES: Final = ("util_pct", "mem_used_bytes", "power_w")

#: A job, its steps, and the seconds of each.
Steps = tuple[str, Sequence[int], Sequence[float]]


def plot(what: Chosen, steps: Sequence[Steps], path: Path) -> None:
    """Draw everything there is to draw into one file. Raises OSError, ValueError where there is nothing to draw."""
    import matplotlib as mpl

    mpl.use("agg")  # no screen is asked for
    from matplotlib import pyplot

    curves = Curves(_FIGURES)
    for record in what.only("gpu"):
        curves.add(record)
    figures = [(figure, *curves.table(figure)) for figure in _FIGURES]
    present = [(figure, names, table) for figure, names, table in figures if names]
    count = len(present) + len(steps)
    if not count:
        raise ValueError("there are no figures of GPUs and no steps in it")
    figure, axes = pyplot.subplots(count, 1, figsize=(11, 3.2 * count), squeeze=False, layout="constrained")
    figure.suptitle(what.meta.name or what.path.name)
    for axis, (name, names, table) in zip(axes[:, 0], present, strict=False):
        (_powers if name == "power_w" else _heat)(axis, name, names, table, curves.seconds)
    for axis, (job, numbers, seconds) in zip(axes[len(present) :, 0], steps, strict=True):
        axis.plot(numbers, seconds, linewidth=0.8)
        axis.set(title=f"step time of {job}", xlabel="step", ylabel="s", ylim=(0, None))
    with being_written(path) as file:
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
