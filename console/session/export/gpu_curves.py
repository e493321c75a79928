"""GPU metrics of a whole session as means over equal spans of time, in a table of bounded size."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ...core.bus import Published
from ...core.metric_history import COARSE_S, HistorySnapshot
from ...records import Gpu

Floats = NDArray[np.float64]
#: Columns of the table: spans of a session, which double when it outgrows them.
SLOTS: Final = 240
#: Upper bound of the rows of a heat map; for more GPUs a row is the mean of several.
_MAX_ROWS: Final = 128

#: Sort key of a GPU: node, index, uuid.
GpuName = tuple[str, int, str]


class Curves:
    """Means of each GPU's metrics over equal spans of time; spans double when a session outgrows them."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = metrics
        self._rows: dict[GpuName, int] = {}
        self._start: int | None = None  # second of the first record
        self._span_s = 1
        self._sums: Floats = np.zeros((0, SLOTS, len(metrics)))
        self._counts: Floats = np.zeros((0, SLOTS, len(metrics)))

    @classmethod
    def of_history(
        cls, metrics: Sequence[str], history: HistorySnapshot, names: Sequence[str], gpus: Mapping[Hashable, GpuName]
    ) -> Self:
        """Return the curves of a metric history; `names` are the metrics on its last axis."""
        curves = cls(metrics)
        sources = [(row, gpus[key]) for row, key in enumerate(history.keys) if key in gpus]
        rows = [curves._row(gpu) for _, gpu in sources]
        values = history.values[:, [row for row, _ in sources]][:, :, [names.index(metric) for metric in metrics]]
        is_set = ~np.isnan(values)
        filled = np.flatnonzero(is_set.any(axis=(1, 2)))
        if not filled.size:
            return curves
        steps = np.diff(history.t, append=history.t[-1:] + 1)  # a mean of ten seconds counts for all of them
        lengths = np.where(steps > 1, COARSE_S, 1)
        curves._start = first = int(history.t[filled[0]])
        end = int(history.t[filled[-1]] + lengths[filled[-1]])
        while -(-(end - first) // curves._span_s) > SLOTS:
            curves._span_s *= 2
        for point in filled:
            sums = np.where(is_set[point], values[point], 0.0)
            for slot, share_s in _slots(int(history.t[point]) - first, int(lengths[point]), curves._span_s):
                curves._sums[rows, slot] += sums * share_s
                curves._counts[rows, slot] += is_set[point] * share_s
        return curves

    @property
    def seconds(self) -> int:
        """Length of the table in seconds."""
        filled = np.nonzero(self._counts.any(axis=(0, 2)))[0]
        return int(filled[-1] + 1) * self._span_s if filled.size else 0

    def add(self, record: Published, at_ns: int) -> None:
        """Add a record that was taken at this instant; only those of GPUs count."""
        if not isinstance(record, Gpu):
            return
        second = at_ns // 1_000_000_000
        self._start = second if self._start is None else self._start
        while (second - self._start) // self._span_s >= SLOTS:
            self._halve()
        slot = max(0, (second - self._start) // self._span_s)
        row = self._row((record.node, record.index, record.uuid))
        for place, metric in enumerate(self._metrics):
            value = getattr(record, metric)
            if value is not None:
                self._sums[row, slot, place] += value
                self._counts[row, slot, place] += 1

    def table(self, metric: str) -> tuple[list[str], Floats]:
        """Return the names of the GPUs with this metric, and a row of means for each; NaN where unknown."""
        place = list(self._metrics).index(metric)
        filled = np.nonzero(self._counts.any(axis=(0, 2)))[0]
        keys = [key for key in sorted(self._rows) if self._counts[self._rows[key], :, place].any()]
        if not keys:
            return [], np.zeros((0, 0))
        rows = [self._rows[key] for key in keys]
        end = int(filled[-1]) + 1
        with np.errstate(invalid="ignore"):
            table: Floats = self._sums[rows, :end, place] / self._counts[rows, :end, place]
        return [f"{node} GPU {index}" for node, index, _ in keys], held(table)

    def _row(self, key: GpuName) -> int:
        if key not in self._rows:
            self._rows[key] = len(self._rows)
            if len(self._rows) > len(self._sums):
                more = np.zeros((max(8, len(self._sums)), SLOTS, len(self._metrics)))
                self._sums, self._counts = np.concatenate([self._sums, more]), np.concatenate([self._counts, more])
        return self._rows[key]

    def _halve(self) -> None:
        """Double the spans: add neighbouring columns."""
        self._span_s *= 2
        for name in ("_sums", "_counts"):
            table: Floats = getattr(self, name)
            halved = np.zeros_like(table)
            halved[:, : SLOTS // 2] = table[:, 0::2] + table[:, 1::2]
            setattr(self, name, halved)


def _slots(begin: int, length: int, span: int) -> list[tuple[int, int]]:
    """The slots that a span of seconds overlaps, and the seconds in each."""
    end = begin + length
    return [
        (slot, min(end, (slot + 1) * span) - max(begin, slot * span))
        for slot in range(begin // span, -(-end // span))
    ]  # fmt: skip


def held(table: Floats) -> Floats:
    """Return rows in which a value holds until the next sample is due: samples may be sparser than columns.

    A gap of more than one and a half sampling intervals stays unknown.
    """
    result: Floats = table.copy()
    for row, values in zip(result, table, strict=True):
        present = np.flatnonzero(~np.isnan(values))
        if len(present) < 2:
            continue
        gaps = np.diff(present, append=table.shape[1])
        interval = float(np.median(gaps[:-1]))
        for place, gap in zip(present, gaps, strict=True):
            row[place : place + (gap if gap <= 1.5 * interval else round(interval))] = values[place]
    return result


def folded_rows(names: Sequence[str], table: Floats) -> tuple[list[str], Floats]:
    """Return at most `_MAX_ROWS` rows; of more, each is the mean of several neighbours."""
    each = -(-len(names) // _MAX_ROWS) if len(names) else 1
    if each == 1:
        return list(names), table
    groups = range(0, len(names), each)
    with np.errstate(invalid="ignore"):
        is_set = ~np.isnan(table)
        sums = np.add.reduceat(np.where(is_set, table, 0.0), list(groups), axis=0)
        means = sums / np.add.reduceat(is_set.astype(np.float64), list(groups), axis=0)
    return [f"{names[first]} …" for first in groups], means


def median(table: Floats) -> Any:
    """Return the median of each column; NaN where nothing is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without a value
        return np.nanmedian(table, axis=0)
