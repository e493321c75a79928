"""Resources of the fleet: each figure over all nodes with fresh data, and the node or GPU where it is worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest, nsmallest
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core.store import GpuNow, NodeNow
from ...core.store.freshness import gpu_stale_ns
from ...records.metrics import throttle_pct
from ...text import format
from .detail import PageItem
from .heat_map import index_of, uuid_of

if TYPE_CHECKING:
    from ..snapshot import ScreenSnapshot

#: Percent from which on a figure of one node is a warning: of time in which tasks waited, and of memory in use. GPU
#: memory is no such figure: training programs fill it on purpose.
_STALLED: Final = 20.0
_FULL: Final = 95.0
#: Nodes or GPUs after the worst one of each figure, for screens with room for them.
OTHERS: Final = 4


class Worst(NamedTuple):
    """The node or GPU with the worst value of a figure."""

    value: float
    name: str
    key: PageItem


class ResourceValues(NamedTuple):
    """One figure of many GPUs or nodes; `entity` names the one of an index. Bare numbers: there may be thousands."""

    values: Sequence[float | None]  # None: not reported
    entity: Callable[[int], tuple[str, PageItem]]

    @property
    def reported(self) -> list[float]:
        """The values without the unknown ones."""
        return [value for value in self.values if value is not None]

    def worst(self, *, lowest: bool = False) -> Worst:
        """The highest or lowest value, the first of equal ones. Raises ValueError without any."""
        value = (min if lowest else max)(self.reported)
        return Worst(value, *self.entity(self.values.index(value)))

    def next_worst(self, *, lowest: bool = False) -> list[Worst]:
        """Up to `OTHERS` after the worst one, the worst first; only those above 0 unless `lowest`."""
        pairs = ((value, index) for index, value in enumerate(self.values) if value is not None)
        if lowest:
            ranked = nsmallest(1 + OTHERS, pairs)
        else:
            ranked = nlargest(1 + OTHERS, ((value, -index) for value, index in pairs if value > 0))
        return [Worst(value, *self.entity(abs(index))) for value, index in ranked[1:]]


class Offender(NamedTuple):
    """A node or GPU that comes after the worst one, as text."""

    text: str
    name: str
    key: PageItem


class Resource(NamedTuple):
    """One figure: over all nodes, where it is worst, and which ones come next."""

    title: str
    all_of_it: str
    worst: str = ""
    where: str = ""
    key: PageItem | None = None
    is_bad: bool = False
    others: tuple[Offender, ...] = ()


def resources(frame: ScreenSnapshot) -> tuple[Resource, ...]:
    """The figures that any node with fresh data reports; nodes and GPUs without fresh data do not count."""
    fresh = [node.name for node in frame.fleet.nodes if node.fresh]
    gpus = [
        gpu for node in fresh for gpu in frame.gpus.of(node)
        if gpu.gpu is not None and gpu_stale_ns(gpu, frame.nodes.get(node)) is None
    ]  # fmt: skip
    hosts = [now for node in fresh if (now := frame.nodes.get(node)) is not None and now.host is not None]
    return tuple(row for row in (*_gpu_rows(gpus), *_host_rows(hosts)) if row is not None)


def _gpu_rows(gpus: Sequence[GpuNow]) -> Iterable[Resource | None]:
    def entity(index: int) -> tuple[str, PageItem]:
        gpu = gpus[index]
        node = gpu.gpu.node if gpu.gpu is not None else ""
        return f"{node} gpu{index_of(gpu)}", PageItem("gpu", (node, uuid_of(gpu)))

    def figures(read: Callable[[GpuNow], float | None]) -> ResourceValues:
        return ResourceValues([read(gpu) for gpu in gpus], entity)

    yield _of_median("GPU util", figures(lambda gpu: gpu.gpu.util_pct if gpu.gpu else None), "%", lowest=True)
    yield _of_median("GPU temp", figures(lambda gpu: gpu.gpu.temp_c if gpu.gpu else None), "°C")
    yield _throttled(figures(lambda gpu: throttle_pct(gpu.gpu)))
    yield _memory("GPU memory", figures(_gpu_memory_pct), *_gpu_memory(gpus), full=None)


def _of_median(title: str, figures: ResourceValues, unit: str, *, lowest: bool = False) -> Resource | None:
    """The median, and the highest or lowest value."""
    reported = figures.reported
    if not reported:
        return None
    worst, arrow = figures.worst(lowest=lowest), "↓" if lowest else "↑"

    def text(value: float) -> str:
        return f"{arrow} {format.percent(value)} {unit}"

    return Resource(
        title, f"{format.percent(median(reported))} {unit} median", text(worst.value), worst.name, worst.key,
        others=_others(figures.next_worst(lowest=lowest), text),
    )  # fmt: skip


def _others(worst: Iterable[Worst], text: Callable[[float], str]) -> tuple[Offender, ...]:
    return tuple(Offender(text(entity.value), entity.name, entity.key) for entity in worst)


def _share(value: float) -> str:
    return f"↑ {format.percent(value)} %"


def _throttled(figures: ResourceValues) -> Resource | None:
    reported = figures.reported
    if not reported:
        return None
    held = sum(value > 0 for value in reported)
    text = f"{held} of {format.plural(len(reported), 'GPU')}"
    if not held:
        return Resource("throttle", text)
    worst, others = figures.worst(), _others(figures.next_worst(), _share)
    return Resource("throttle", text, _share(worst.value), worst.name, worst.key, is_bad=True, others=others)


def _gpu_memory(gpus: Iterable[GpuNow]) -> tuple[float, float]:
    """Bytes in use, and of all GPUs that report both."""
    used = total = 0.0
    for gpu in gpus:
        if gpu.gpu and gpu.info and gpu.gpu.mem_used_bytes is not None and gpu.info.mem_total_bytes:
            used, total = used + gpu.gpu.mem_used_bytes, total + gpu.info.mem_total_bytes
    return used, total


def _gpu_memory_pct(gpu: GpuNow) -> float | None:
    used, total = _gpu_memory((gpu,))
    return 100 * used / total if total else None


def _memory(
    title: str, figures: ResourceValues, used: float, total: float, full: float | None = _FULL
) -> Resource | None:
    """Memory in use of what there is, and where least is free; from `full` percent on that is a warning."""
    if not figures.reported:
        return None
    worst = figures.worst()
    used_text, total_text = format.size(used), format.size(total)
    if used_text.split()[-1:] == total_text.split()[-1:]:
        used_text = used_text.split()[0]  # the unit once
    text = f"{used_text} of {total_text}"
    return Resource(
        title, text, _share(worst.value), worst.name, worst.key, is_bad=full is not None and worst.value >= full,
        others=_others(figures.next_worst(), _share),
    )  # fmt: skip


def _host_rows(hosts: Sequence[NodeNow]) -> Iterable[Resource | None]:
    def entity(index: int) -> tuple[str, PageItem]:
        return hosts[index].name, PageItem("node", hosts[index].name)

    def figures(read: Callable[[Any], float | None]) -> ResourceValues:
        return ResourceValues([read(node.host) for node in hosts], entity)

    used = total = 0.0
    shares: list[float | None] = []
    for node in hosts:
        own, size = node.host.mem_used_bytes if node.host else None, node.node.mem_total_bytes if node.node else None
        if own is not None and size:
            used, total = used + own, total + size
        shares.append(100 * own / size if own is not None and size else None)
    yield _of_median("CPU", figures(lambda host: host.cpu_pct), "%")
    yield _memory("memory", ResourceValues(shares, entity), used, total)
    yield _stalled("CPU stall", figures(lambda host: host.cpu_stall_pct))
    yield _stalled("memory stall", figures(lambda host: host.mem_stall_pct))
    yield _stalled("I/O stall", figures(lambda host: host.io_stall_pct))
    yield _traffic("disk read", figures(lambda host: host.disk_read_bytes_s))
    yield _traffic("disk write", figures(lambda host: host.disk_write_bytes_s))
    yield _traffic("network in", figures(lambda host: host.net_rx_bytes_s))
    yield _traffic("network out", figures(lambda host: host.net_tx_bytes_s))


def _stalled(title: str, figures: ResourceValues) -> Resource | None:
    made = _of_median(title, figures, "%")
    return made._replace(is_bad=figures.worst().value >= _STALLED) if made is not None else None


def _traffic(title: str, figures: ResourceValues) -> Resource | None:
    """The sum, and the node with the most."""
    reported = figures.reported
    if not reported:
        return None
    most = figures.worst()
    total = format.byte_rate(sum(reported))
    if most.value <= 0:
        return Resource(title, total)

    def text(value: float) -> str:
        return f"↑ {format.size_compact(value)}/s"

    return Resource(
        title, total, text(most.value), most.name, most.key, others=_others(figures.next_worst(), text)
    )  # fmt: skip
