"""Figures of GPUs over a whole session in a bounded table."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ...core.bus import Published
from ...core.metric_history import COARSE_S, HistorySnapshot
from ...records import Gpu

Floats = NDArray[np.float64]
#: Instants that are kept: of a longer session each is a mean of several.
SLOTS: Final = 240
#: GPUs that are drawn one by one; of more, the heat map has a row for several.
_MOST_ROWS: Final = 128

#: A GPU, as rows are sorted: node, index, uuid.
GpuName = tuple[str, int, str]


class Curves:
    """Means of each GPU's figures over equal spans of time; spans double when a session outgrows them."""

    def __init__(self, figures: Sequence[str]) -> None:
        self._figures = figures
        self._rows: dict[GpuName, int] = {}
        self._start: int | None = None  # second of the first record
        self._span_s = 1
        self._sums: Floats = np.zeros((0, SLOTS, len(figures)))
        self._counts: Floats = np.zeros((0, SLOTS, len(figures)))

    @classmethod
    def of_history(
        cls, figures: Sequence[str], kept: HistorySnapshot, metrics: Sequence[str], names: Mapping[Hashable, GpuName]
    ) -> Self:
        """The same of what a console keeps of its GPUs; `metrics` are the last axis of what is `kept`."""
        made = cls(figures)
        known = [(row, names[key]) for row, key in enumerate(kept.keys) if key in names]
        rows = [made._row(name) for _, name in known]
        values = kept.values[:, [row for row, _ in known]][:, :, [metrics.index(figure) for figure in figures]]
        is_known = ~np.isnan(values)
        filled = np.flatnonzero(is_known.any(axis=(1, 2)))
        if not filled.size:
            return made
        steps = np.diff(kept.t, append=kept.t[-1:] + 1)  # what is a mean of ten seconds stands for all of them
        lengths = np.where(steps > 1, COARSE_S, 1)
        made._start = first = int(kept.t[filled[0]])
        end = int(kept.t[filled[-1]] + lengths[filled[-1]])
        while -(-(end - first) // made._span_s) > SLOTS:
            made._span_s *= 2
        for at in filled:
            sums = np.where(is_known[at], values[at], 0.0)
            for slot, share_s in _slots(int(kept.t[at]) - first, int(lengths[at]), made._span_s):
                made._sums[rows, slot] += sums * share_s
                made._counts[rows, slot] += is_known[at] * share_s
        return made

    @property
    def seconds(self) -> int:
        """How long the whole table is."""
        filled = np.nonzero(self._counts.any(axis=(0, 2)))[0]
        return int(filled[-1] + 1) * self._span_s if filled.size else 0

    def add(self, record: Published) -> None:
        """Take in one record; only those of GPUs matter."""
        if not isinstance(record, Gpu):
            return
        second = record.rx // 1_000_000_000
        self._start = second if self._start is None else self._start
        while (second - self._start) // self._span_s >= SLOTS:
            self._halve()
        slot = max(0, (second - self._start) // self._span_s)
        row = self._row((record.node, record.index, record.uuid))
        for place, figure in enumerate(self._figures):
            value = getattr(record, figure)
            if value is not None:
                self._sums[row, slot, place] += value
                self._counts[row, slot, place] += 1

    def table(self, figure: str) -> tuple[list[str], Floats]:
        """The GPUs that have this figure, by name, and a row of means for each; NaN where nothing is known."""
        place = list(self._figures).index(figure)
        filled = np.nonzero(self._counts.any(axis=(0, 2)))[0]
        keys = [key for key in sorted(self._rows) if self._counts[self._rows[key], :, place].any()]
        if not keys:
            return [], np.zeros((0, 0))
        rows = [self._rows[key] for key in keys]
        end = int(filled[-1]) + 1
        with np.errstate(invalid="ignore"):
            table: Floats = self._sums[rows, :end, place] / self._counts[rows, :end, place]
        return [f"{node} GPU {index}" for node, index, _ in keys], table

    def _row(self, key: GpuName) -> int:
        if key not in self._rows:
            self._rows[key] = len(self._rows)
            if len(self._rows) > len(self._sums):
                more = np.zeros((max(8, len(self._sums)), SLOTS, len(self._figures)))
                self._sums, self._counts = np.concatenate([self._sums, more]), np.concatenate([self._counts, more])
        return self._rows[key]

    def _halve(self) -> None:
        """Each two neighbouring spans become one."""
        self._span_s *= 2
        for name in ("_sums", "_counts"):
            table: Floats = getattr(self, name)
            halved = np.zeros_like(table)
            halved[:, : SLOTS // 2] = table[:, 0::2] + table[:, 1::2]
            setattr(self, name, halved)


def _slots(begin: int, length: int, span: int) -> list[tuple[int, int]]:
    """The slots that so many seconds fall into, and how many of them into each."""
    end = begin + length
    return [
        (slot, min(end, (slot + 1) * span) - max(begin, slot * span))
        for slot in range(begin // span, -(-end // span))
    ]  # fmt: skip


def folded_rows(names: Sequence[str], table: Floats) -> tuple[list[str], Floats]:
    """At most `_MOST_ROWS` rows: of more, each is the mean of several neighbours."""
    each = -(-len(names) // _MOST_ROWS) if len(names) else 1
    if each == 1:
        return list(names), table
    groups = range(0, len(names), each)
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(table)
        sums = np.add.reduceat(np.where(known, table, 0.0), list(groups), axis=0)
        means = sums / np.add.reduceat(known.astype(np.float64), list(groups), axis=0)
    return [f"{names[first]} …" for first in groups], means


def median(table: Floats) -> Any:
    """The median of each column; NaN where nothing is known."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a column without any figure
        return np.nanmedian(table, axis=0)
