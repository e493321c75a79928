"""The heat map: one row per node, one value per GPU on a scale of 16 levels; outliers; the layout on the screen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ...core.store import GpuKey, GpuNow, NodeNow
from ...core.versioned_table import Table
from ...present.spans import BY_WEIGHT, GLYPHS, Span, Status
from ...records.metrics import HEAT, HeatRange, Metric
from ...text import format
from ...text.cells import width_of
from .node_summary import NodeSummary

#: Outliers are more than this many spreads from the median of their peers, of which there must be this many.
_SPREADS, _FEWEST = 6.0, 8
#: Ratio of standard deviation to median absolute deviation of a normal distribution.
_SIGMA = 1.4826


class HeatMetric(msgspec.Struct, frozen=True):
    """One metric of the heat map, as the catalogue declares it."""

    metric: Metric
    heat: HeatRange

    @property
    def name(self) -> str:
        """Its name in saved layouts."""
        return self.heat.name

    def read(self, gpu: GpuNow) -> float | None:
        """The value of a GPU; None if unknown."""
        value: float | None = self.metric.read(gpu.gpu, gpu.info)
        return value

    def level(self, value: float, gpu: GpuNow) -> float:
        """Position of a value in the range, 0 to 1."""
        high = self.heat.high(gpu.info) if callable(self.heat.high) else self.heat.high
        return (value - self.heat.low) / (high - self.heat.low)


HEAT_METRICS: Final = tuple(HeatMetric(metric, metric.heat) for metric in HEAT if metric.heat is not None)


class PeerRange(msgspec.Struct, frozen=True):
    """Median of one metric over all GPUs, and the distance from it at which outliers begin."""

    middle: float
    far: float

    def side(self, value: float) -> str:
        """ "▼" for a low outlier, "▲" for a high one, else ""."""
        if abs(value - self.middle) <= self.far:
            return ""
        return "▼" if value < self.middle else "▲"


def peer_range(gpus: Iterable[GpuNow], metric: HeatMetric, before: PeerRange | None = None) -> PeerRange | None:
    """Median and spread (median absolute deviation) over all GPUs that report the metric; None for fewer than eight.

    Returns `before` if both have hardly changed, so that rows are not redrawn.
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


#: Colours from the lowest to the highest value; more cannot be distinguished.
LEVELS = 16


class HeatCell(NamedTuple):
    """One value: text of at most three characters, and level below LEVELS, None if unknown.

    `apart`: "▼" or "▲" if it is far below or above those of its peers, else "".
    """

    text: str
    level: int | None
    apart: str = ""


_UNKNOWN = HeatCell(format.UNKNOWN, None)


class HeatRow(msgspec.Struct, frozen=True):
    """One node's cells; `note` is shown without any."""

    node: str
    status: Status
    cells: tuple[HeatCell, ...] = ()
    note: str = ""
    fresh: bool = False  # data are arriving

    @property
    def is_old(self) -> bool:
        """Whether the cells are the last ones of a node that sends no more."""
        return self.status == "stale" or (self.status == "failed" and not self.fresh)


def heat_row(node: NodeSummary, gpus: Sequence[GpuNow], metric: HeatMetric, peers: PeerRange | None = None) -> HeatRow:
    """The row of one node; a node without fresh data keeps its last values."""
    if not gpus:
        return HeatRow(node.name, node.status, note=_note(node))
    peers = peers if node.fresh else None
    return HeatRow(node.name, node.status, tuple(_cell(gpu, metric, peers) for gpu in gpus), fresh=node.fresh)


def host_row(node: NodeSummary, now: NodeNow | None) -> HeatRow:
    """Without GPUs: the utilisation of the node's CPUs as its only cell."""
    value = now.host.cpu_pct if now and now.host else None
    if value is None:
        return HeatRow(node.name, node.status, note=_note(node))
    return HeatRow(node.name, node.status, (HeatCell(format.whole(value), _level(value / 100)),), fresh=node.fresh)


def node_cell(node: NodeSummary, gpus: Sequence[GpuNow], metric: HeatMetric, peers: PeerRange | None) -> HeatCell:
    """One cell for a node: its GPU that is farthest from all others, if that is far, else the median of its GPUs.

    The mark of a node that is not ok comes first.
    """
    mark = "" if node.status == "ok" else GLYPHS[node.status]
    values = sorted((value, index) for index, gpu in enumerate(gpus) if (value := metric.read(gpu)) is not None)
    if not values:
        return HeatCell(format.UNKNOWN, None, mark)
    value, index = values[len(values) // 2]
    if peers is not None and node.fresh:
        middle = peers.middle
        farthest = max(values[0], values[-1], key=lambda item: abs(item[0] - middle))
        side = peers.side(farthest[0])
        if side:
            (value, index), mark = farthest, mark or side
    return HeatCell(metric.heat.format(value)[:3], _level(metric.level(value, gpus[index])), mark)


#: Position of the cell that stands for a whole node: beyond those of its GPUs.
WHOLE_NODE: Final = 1 << 16
#: Order of the cells of nodes: by status, then those with a GPU that is far from the others, then as in hosts.toml.
_PLAIN = len(BY_WEIGHT)


class NodeCells:
    """The map of many nodes: lines of cells, one a node, worst first; above them the GPUs of the `opened` node."""

    def __init__(self) -> None:
        self.opened: str | None = None
        self._order: list[str] = []
        self._per_line = 1

    def lines(self, rows: Sequence[HeatRow], width: int) -> list[HeatRow]:
        """The rows of the map; `rows` have one cell each, except that of the opened node."""
        places = {row.node: place for place, row in enumerate(rows)}
        if self.opened not in places:
            self.opened = None
        ordered = sorted(rows, key=_weight)
        self._order = [row.node for row in ordered]
        self._per_line = max(1, width - len(str(len(rows))) - 4)
        lines = [rows[places[self.opened]]] if self.opened is not None else []
        for first in range(0, len(ordered), self._per_line):
            part = ordered[first : first + self._per_line]
            lines.append(HeatRow(f"#{first + 1}", "ok", tuple(map(_summed, part))))
        return lines

    def target(self, line: str, cell: int) -> tuple[str, int] | None:
        """Node and GPU position of a cell of the map; the position of one that stands for a node is `WHOLE_NODE`."""
        if line == self.opened:
            return line, cell
        if not line.startswith("#"):  # as no node's name does
            return None
        place = int(line[1:]) - 1 + cell
        return (self._order[place], WHOLE_NODE) if place < len(self._order) else None

    def place(self, node: str, cell: int) -> tuple[int, int]:
        """Line and cell of the map that show this; the first ones where the node is gone."""
        if node == self.opened and cell != WHOLE_NODE:
            return 0, cell
        if node not in self._order:
            return 0, 0
        line, column = divmod(self._order.index(node), self._per_line)
        return line + (self.opened is not None), column


def _weight(row: HeatRow) -> int:
    if row.status != "ok":
        return BY_WEIGHT.index(row.status)
    return _PLAIN - any(cell.apart for cell in row.cells)


def _summed(row: HeatRow) -> HeatCell:
    """The cell of a node in a line of nodes."""
    mark = next((cell.apart for cell in row.cells if cell.apart), "" if row.status == "ok" else GLYPHS[row.status])
    reported = sorted((cell for cell in row.cells if cell.level is not None), key=lambda cell: cell.level or 0)
    middle = reported[len(reported) // 2] if reported else _UNKNOWN
    return middle._replace(apart=mark)


def _note(node: NodeSummary) -> str:
    if node.reason and node.status == "failed" and not node.fresh:
        return node.reason.partition(":")[0]
    return "" if node.fresh else node.word


def _cell(gpu: GpuNow, metric: HeatMetric, peers: PeerRange | None) -> HeatCell:
    value = metric.read(gpu)
    if value is None:
        return _UNKNOWN
    return HeatCell(metric.heat.format(value)[:3], _level(metric.level(value, gpu)), peers.side(value) if peers else "")


def _level(share: float) -> int:
    return min(LEVELS - 1, max(0, int(share * LEVELS)))


class GpuIndex:
    """The GPUs of each node by index, updated with the changes in the store."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[GpuNow, ...]] = {}
        self._keys: dict[str, set[GpuKey]] = {}
        self._version: dict[str, int] = {}
        self._usable: dict[str, int] = {}
        self.total = 0
        self.simulated: set[str] = set()  # nodes with a simulated GPU

    def __bool__(self) -> bool:
        return self.total > 0

    def of(self, node: str) -> tuple[GpuNow, ...]:
        """The GPUs of a node, by index."""
        return self._of.get(node, ())

    def __iter__(self) -> Iterator[GpuNow]:
        """All GPUs, node by node."""
        for gpus in self._of.values():
            yield from gpus

    def usable(self, node: str) -> int:
        """Number of the node's GPUs that are neither lost nor unusable."""
        return self._usable.get(node, 0)

    def version(self, node: str) -> int:
        """Store version of the last change of the node's GPUs, up to the last update."""
        return self._version.get(node, 0)

    def copied(self) -> GpuIndex:
        """A copy; it must not be updated."""
        copy = GpuIndex()
        copy._of = {node: tuple(replace(gpu) for gpu in gpus) for node, gpus in self._of.items()}
        copy._version, copy.total, copy.simulated = dict(self._version), self.total, set(self.simulated)
        copy._usable = dict(self._usable)
        return copy

    def update(self, gpus: Table[GpuKey, GpuNow], changed: Iterable[GpuKey], version: int) -> None:
        """Apply changes up to that version of the store."""
        nodes: set[str] = set()
        for key in changed:
            nodes.add(key[0])
            keys = self._keys.setdefault(key[0], set())
            (keys.add if key in gpus else keys.discard)(key)
        for node in nodes:
            self._arrange(node, gpus)
            self._version[node] = version

    def _arrange(self, node: str, gpus: Table[GpuKey, GpuNow]) -> None:
        ordered = sorted(((key, gpus[key]) for key in self._keys[node]), key=lambda item: (index_of(item[1]), item[0]))
        self.total += len(ordered) - len(self._of.get(node, ()))
        self._of[node] = tuple(gpu for _, gpu in ordered)
        self._usable[node] = sum(
            gpu.info is None or (gpu.info.lost is None and gpu.info.unusable is None) for gpu in self._of[node]
        )
        if any(_is_simulated(gpu) for gpu in self._of[node]):
            self.simulated.add(node)
        else:
            self.simulated.discard(node)


def index_of(gpu: GpuNow) -> int:
    """The driver's index of a GPU on its node."""
    record = gpu.gpu or gpu.info
    return record.index if record else 0


def uuid_of(gpu: GpuNow) -> str:
    """The uuid of a GPU; empty without records."""
    record = gpu.gpu or gpu.info
    return record.uuid if record else ""


def pointed_spans(node: str, gpu: GpuNow, metric: HeatMetric, *, all_of_it: bool) -> tuple[Span, ...]:
    """One GPU on a line: the metric of the map, then with `all_of_it` utilisation, memory, power, temperature."""
    now, value = gpu.gpu, metric.read(gpu)
    figure = format.UNKNOWN if value is None else f"{metric.heat.format(value)} {metric.heat.unit}"
    more = [] if now is None or not all_of_it else [
        text for name, text in (
            ("util", f"{format.percent(now.util_pct)} %"), ("memory", format.size(now.mem_used_bytes)),
            ("power", f"{format.whole(now.power_w)} W"), ("temperature", f"{format.whole(now.temp_c)} °C"),
        ) if name != metric.name
    ]  # fmt: skip
    rest = "".join(f"  {text}" for text in more)
    return (Span(f"{node} gpu{index_of(gpu)} ", "muted"), Span(figure, "text"), Span(rest, "muted"))


def _is_simulated(gpu: GpuNow) -> bool:
    return bool((gpu.gpu and gpu.gpu.simulated) or (gpu.info and gpu.info.simulated))


#: Cells between two columns of nodes.
GAP: Final = 2
#: Cells of a number with one blank, widest first, and of a bar.
_FIGURE_WIDTHS = (7, 6, 5, 4)
_BAR_WIDTH = 1
#: Least cells for the note of a node without numbers.
_NOTE_WIDTH = 8


class HeatLayout(msgspec.Struct, frozen=True):
    """`columns` of nodes side by side over `lines`; `cell` cells per GPU, 1 for a bar."""

    labels: tuple[str, ...]
    columns: int
    lines: int
    label: int
    cell: int
    gpus: int

    @property
    def node_width(self) -> int:
        """Cells of one node."""
        return self.label + self.room

    @property
    def room(self) -> int:
        """Cells right of the label."""
        return max(self.gpus * self.cell, _NOTE_WIDTH)


def plan(rows: Sequence[HeatRow], width: int, height: int) -> HeatLayout:
    """The widest layout in which all rows fit; if none does, the densest, which scrolls."""
    names = tuple(row.node for row in rows)
    gpus = max((len(row.cells) for row in rows), default=1) or 1
    needed = max(1, -(-len(rows) // max(1, height)))  # least columns in which all rows fit
    for cell in (*_FIGURE_WIDTHS, _BAR_WIDTH):
        layout = _plan(names, needed, cell, gpus)
        if layout.columns * (layout.node_width + GAP) - GAP <= width:
            return layout
    short = _without_prefix(names)
    node_width = _plan(short, 1, _BAR_WIDTH, gpus).node_width
    return _plan(short, min(needed, max(1, (width + GAP) // (node_width + GAP))), _BAR_WIDTH, gpus)


def lines_for_map(rows: Sequence[HeatRow], width: int) -> tuple[int, int]:
    """Lines in which all rows fit with a number per GPU, and with a bar per GPU."""
    gpus = max((len(row.cells) for row in rows), default=1) or 1
    return _lines_of(tuple(row.node for row in rows), gpus, width)


def lines_of_bars(names: tuple[str, ...], gpus: int, width: int) -> int:
    """Lines in which nodes of these names fit with a bar for each of `gpus` GPUs."""
    return _lines_of(names, max(1, gpus), width)[1]


@lru_cache(8)
def _lines_of(names: tuple[str, ...], gpus: int, width: int) -> tuple[int, int]:
    def lines(labels: tuple[str, ...], cell: int) -> int:
        return -(-len(names) // max(1, (width + GAP) // (_plan(labels, 1, cell, gpus).node_width + GAP)))

    return lines(names, _FIGURE_WIDTHS[-2]), lines(_without_prefix(names), _BAR_WIDTH)


def _plan(labels: tuple[str, ...], columns: int, cell: int, gpus: int) -> HeatLayout:
    lines = -(-len(labels) // columns)
    longest = max((width_of(label) for label in labels), default=0)
    return HeatLayout(labels, columns, lines, longest + 3, cell, gpus)  # a blank, the status glyph and a blank


def _without_prefix(names: tuple[str, ...]) -> tuple[str, ...]:
    """`node017` → `017` if all names have the same prefix and a number."""
    heads = {re.sub(r"\d*$", "", name) for name in names}
    short = tuple(name.removeprefix(next(iter(heads), "")) for name in names)
    return short if len(heads) == 1 and all(short) else names
