"""The figures of a GPU that the heat map can show, and which GPUs stand apart from the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, NamedTuple

from ...core.store import GpuKey, GpuNow, NodeNow
from ...core.versioned_table import Table
from ...present.spans import Span
from ...present.status import Status
from ...records.metrics import HEAT, HeatRange, Metric
from ...text import format
from .node_summary import NodeSummary

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


#: Steps of colour from the lowest to the highest figure; more cannot be told apart and would only repaint.
LEVELS = 16


class HeatCell(NamedTuple):
    """One figure: its text of at most three characters, and its level below LEVELS, None where it is unknown.

    `apart` says that it is far from what its peers have: "▼" below, "▲" above them, "" where it is not.
    """

    text: str
    level: int | None
    apart: str = ""


_UNKNOWN = HeatCell(format.UNKNOWN, None)


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One node's figures. `note` stands in the place of cells that do not exist."""

    node: str
    status: Status
    cells: tuple[HeatCell, ...] = ()
    note: str = ""


def heat_row(node: NodeSummary, gpus: Sequence[GpuNow], metric: HeatMetric, peers: PeerRange | None = None) -> HeatRow:
    """The row of one node; the last known figures of a node that is silent stay, and are drawn as stale."""
    if not gpus:
        return HeatRow(node.name, node.status, note=_note(node))
    peers = peers if node.fresh else None
    return HeatRow(node.name, node.status, tuple(_cell(gpu, metric, peers) for gpu in gpus))


def host_row(node: NodeSummary, now: NodeNow | None) -> HeatRow:
    """Where no GPU is known: the CPUs of the node, all together, as its one cell."""
    value = now.host.cpu_pct if now and now.host else None
    if value is None:
        return HeatRow(node.name, node.status, note=_note(node))
    return HeatRow(node.name, node.status, (HeatCell(format.whole(value), _level(value / 100)),))


def _note(node: NodeSummary) -> str:
    if node.reason and node.status == "failed":
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
    """The GPUs of each node in the order of their index, kept up to date from what the store says changed."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[GpuNow, ...]] = {}
        self._keys: dict[str, set[GpuKey]] = {}
        self._version: dict[str, int] = {}
        self.total = 0
        self.simulated: set[str] = set()  # nodes with a simulated GPU

    def __bool__(self) -> bool:
        return self.total > 0

    def of(self, node: str) -> tuple[GpuNow, ...]:
        return self._of.get(node, ())

    def __iter__(self) -> Iterator[GpuNow]:
        """All GPUs, node by node."""
        for gpus in self._of.values():
            yield from gpus

    def version(self, node: str) -> int:
        """The store's version when a figure of that node's GPUs changed last, as far as this index was told."""
        return self._version.get(node, 0)

    def copied(self) -> GpuIndex:
        """The GPUs as they are now; the copy is not to be updated."""
        copy = GpuIndex()
        copy._of = {node: tuple(replace(gpu) for gpu in gpus) for node, gpus in self._of.items()}
        copy._version, copy.total, copy.simulated = dict(self._version), self.total, set(self.simulated)
        return copy

    def update(self, gpus: Table[GpuKey, GpuNow], changed: Iterable[GpuKey], version: int) -> None:
        """Take in what changed up to that version of the store."""
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
        if any(_is_simulated(gpu) for gpu in self._of[node]):
            self.simulated.add(node)
        else:
            self.simulated.discard(node)


def index_of(gpu: GpuNow) -> int:
    """The driver's number of a GPU on its node."""
    record = gpu.gpu or gpu.info
    return record.index if record else 0


def uuid_of(gpu: GpuNow) -> str:
    """What names a GPU for ever; empty where nothing was said of it."""
    record = gpu.gpu or gpu.info
    return record.uuid if record else ""


def pointed_spans(node: str, gpu: GpuNow, metric: HeatMetric, *, all_of_it: bool) -> tuple[Span, ...]:
    """One GPU in a line: the metric of the map first, then (`all_of_it`) what else people ask of it."""
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
