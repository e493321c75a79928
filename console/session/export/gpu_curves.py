"""Figures of GPUs over a whole session in a bounded table, and pictures of them as SVG."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from html import escape
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ...core.bus import Published
from ...core.metric_history import COARSE_S, HistorySnapshot
from ...records import Gpu

Floats = NDArray[np.float64]
#: Instants that are kept: of a longer session each is a mean of several.
SLOTS: Final = 240
_WIDTH, _HEIGHT, _LEFT, _ROW = 960, 150, 70, 10
#: GPUs that are drawn one by one; of more, the heat map has a row for several.
_MOST_ROWS: Final = 128
_COLORS: Final = ("#7aa2d6", "#2457a6", "#b3261e")

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


def line_svg(lines: Sequence[Floats], names: Sequence[str], seconds: int, unit: str) -> str:
    """Curves over the same time; what is unknown is a gap."""
    known = np.concatenate(list(lines))
    most = float(np.nanmax(known)) if (~np.isnan(known)).any() else 1.0
    top = most if most > 0 else 1.0
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 30}" role="img" xmlns="http://www.w3.org/2000/svg">']
    for share in (0.0, 0.5, 1.0):
        y = 10 + (1 - share) * (_HEIGHT - 20)
        label = escape(f"{short(share * top)} {unit}")
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="#8884"/>')
        parts.append(_text(_LEFT - 6, y + 4, label))
    for line, name, color in zip(lines, names, _COLORS, strict=True):
        parts.append(f'<path d="{_path(line, top)}" fill="none" stroke="{color}"><title>{escape(name)}</title></path>')
    legend = "".join(
        f'<tspan fill="{color}">{escape(name)}  </tspan>' for name, color in zip(names, _COLORS, strict=True)
    )
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT + 18}" font-size="12">{legend}</text>')
    parts.append(_text(_WIDTH, _HEIGHT + 18, f"{seconds} s"))
    return "".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y:.0f}" text-anchor="end" font-size="11" fill="gray">{text}</text>'


def _path(line: Floats, top: float) -> str:
    step = (_WIDTH - _LEFT) / max(1, len(line) - 1)
    words, is_down = [], False
    for at, value in enumerate(line):
        if np.isnan(value):
            is_down = False
            continue
        y = 10 + (1 - value / top) * (_HEIGHT - 20)
        words.append(f"{'L' if is_down else 'M'}{_LEFT + at * step:.1f} {y:.1f}")
        is_down = True
    return "".join(words)


def heat_svg(names: Sequence[str], table: Floats) -> str:
    """A row a GPU, or a row a few of them, dark where the figure is high; white where nothing is known."""
    names, table = folded_rows(names, table)
    known = table[~np.isnan(table)]
    least, most = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    height = len(names) * _ROW
    step = (_WIDTH - _LEFT * 2) / max(1, table.shape[1])
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">']
    for row, (name, values) in enumerate(zip(names, table, strict=True)):
        y = row * _ROW
        parts.append(f'<text x="{_LEFT * 2 - 6}" y="{y + _ROW - 2}" text-anchor="end" font-size="9" fill="gray">'
                     f"{escape(name)}</text>")  # fmt: skip
        parts += [
            f'<rect x="{_LEFT * 2 + at * step:.1f}" y="{y}" width="{length * step:.2f}" height="{_ROW - 1}" '
            f'fill="{_shade(value, least, most)}"/>'
            for at, length, value in _runs(values, least, most)
        ]
    return "".join([*parts, "</svg>"])


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


def _runs(values: Floats, least: float, most: float) -> list[tuple[int, int, float]]:
    """Neighbours of the same shade as one: (first, how many, value)."""
    found: list[tuple[int, int, float]] = []
    for at, value in enumerate(values):
        if found and _shade(found[-1][2], least, most) == _shade(value, least, most):
            first, length, same = found[-1]
            found[-1] = (first, length + 1, same)
        else:
            found.append((at, 1, float(value)))
    return [run for run in found if not np.isnan(run[2])]


def _shade(value: float, least: float, most: float) -> str:
    if np.isnan(value):
        return "none"
    level = round(15 * (value - least) / (most - least)) if most > least else 15
    return f"hsl(215 65% {92 - 4 * level}%)"


def short(value: float) -> str:
    """A figure of an axis."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 9_999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.0f}{unit}" if abs(value) >= 99.5 or value == int(value) else f"{value:.1f}{unit}"


def median(table: Floats) -> Any:
    """The median of each column; NaN where nothing is known."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a column without any figure
        return np.nanmedian(table, axis=0)
