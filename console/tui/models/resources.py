"""Resources of the fleet: each figure over all nodes with fresh data, and the node or GPU where it is worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...core.store import GpuNow, NodeNow
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


class Worst(NamedTuple):
    """The node or GPU with the worst value of a figure."""

    value: float
    name: str
    key: PageItem


class Resource(NamedTuple):
    """One figure: over all nodes, and where it is worst."""

    title: str
    all_of_it: str
    worst: str = ""
    where: str = ""
    key: PageItem | None = None
    is_bad: bool = False


Values = Sequence[Worst]


def resources(frame: ScreenSnapshot) -> tuple[Resource, ...]:
    """The figures that any node with fresh data reports; nodes without fresh data do not count."""
    fresh = [node.name for node in frame.fleet.nodes if node.fresh]
    gpus = [(node, gpu) for node in fresh for gpu in frame.gpus.of(node) if gpu.gpu is not None]
    hosts = [now for node in fresh if (now := frame.nodes.get(node)) is not None and now.host is not None]
    return tuple(row for row in (*_gpu_rows(gpus), *_host_rows(hosts)) if row is not None)


def _gpu_rows(gpus: Sequence[tuple[str, GpuNow]]) -> Iterable[Resource | None]:
    def values(read: Callable[[GpuNow], float | None]) -> Values:
        return [
            Worst(value, f"{node} gpu{index_of(gpu)}", PageItem("gpu", (node, uuid_of(gpu))))
            for node, gpu in gpus
            if (value := read(gpu)) is not None
        ]

    yield _of_median("GPU util", values(lambda gpu: gpu.gpu.util_pct if gpu.gpu else None), "%", lowest=True)
    yield _of_median("GPU temp", values(lambda gpu: gpu.gpu.temp_c if gpu.gpu else None), "°C")
    yield _throttled(values(lambda gpu: throttle_pct(gpu.gpu)))
    yield _memory("GPU memory", values(_gpu_memory_pct), *_gpu_memory(gpus), full=None)


def _of_median(title: str, values: Values, unit: str, *, lowest: bool = False) -> Resource | None:
    """The median, and the highest or lowest value."""
    if not values:
        return None
    worst = (min if lowest else max)(values, key=lambda item: item.value)
    middle, arrow = median(item.value for item in values), "↓" if lowest else "↑"
    text = f"{arrow} {format.percent(worst.value)} {unit}"
    return Resource(title, f"{format.percent(middle)} {unit} median", text, worst.name, worst.key)


def _throttled(values: Values) -> Resource | None:
    if not values:
        return None
    held = [item for item in values if item.value > 0]
    text = f"{len(held)} of {format.plural(len(values), 'GPU')}"
    if not held:
        return Resource("throttle", text)
    worst = max(held, key=lambda item: item.value)
    return Resource("throttle", text, f"↑ {format.percent(worst.value)} %", worst.name, worst.key, is_bad=True)


def _gpu_memory(gpus: Iterable[tuple[str, GpuNow]]) -> tuple[float, float]:
    """Bytes in use, and of all GPUs that report both."""
    used = total = 0.0
    for _, gpu in gpus:
        if gpu.gpu and gpu.info and gpu.gpu.mem_used_bytes is not None and gpu.info.mem_total_bytes:
            used, total = used + gpu.gpu.mem_used_bytes, total + gpu.info.mem_total_bytes
    return used, total


def _gpu_memory_pct(gpu: GpuNow) -> float | None:
    used, total = _gpu_memory([("", gpu)])
    return 100 * used / total if total else None


def _memory(title: str, values: Values, used: float, total: float, full: float | None = _FULL) -> Resource | None:
    """Memory in use of what there is, and where least is free; from `full` percent on that is a warning."""
    if not values:
        return None
    worst = max(values, key=lambda item: item.value)
    used_text, total_text = format.size(used), format.size(total)
    if used_text.split()[-1:] == total_text.split()[-1:]:
        used_text = used_text.split()[0]  # the unit once
    text = f"{used_text} of {total_text}"
    worst_text = f"↑ {format.percent(worst.value)} %"
    return Resource(title, text, worst_text, worst.name, worst.key, is_bad=full is not None and worst.value >= full)


def _host_rows(hosts: Sequence[NodeNow]) -> Iterable[Resource | None]:
    def values(read: Callable[[Any], float | None]) -> Values:
        return [
            Worst(value, node.name, PageItem("node", node.name))
            for node in hosts
            if (value := read(node.host)) is not None
        ]

    used = total = 0.0
    shares: list[Worst] = []
    for node in hosts:
        own, size = node.host.mem_used_bytes if node.host else None, node.node.mem_total_bytes if node.node else None
        if own is not None and size:
            used, total = used + own, total + size
            shares.append(Worst(100 * own / size, node.name, PageItem("node", node.name)))
    yield _of_median("CPU", values(lambda host: host.cpu_pct), "%")
    yield _memory("memory", shares, used, total)
    yield _stalled("CPU stall", values(lambda host: host.cpu_stall_pct))
    yield _stalled("memory stall", values(lambda host: host.mem_stall_pct))
    yield _stalled("I/O stall", values(lambda host: host.io_stall_pct))
    yield _traffic("disk read", values(lambda host: host.disk_read_bytes_s))
    yield _traffic("disk write", values(lambda host: host.disk_write_bytes_s))
    yield _traffic("network in", values(lambda host: host.net_rx_bytes_s))
    yield _traffic("network out", values(lambda host: host.net_tx_bytes_s))


def _stalled(title: str, values: Values) -> Resource | None:
    made = _of_median(title, values, "%")
    return made._replace(is_bad=max(item.value for item in values) >= _STALLED) if made is not None else None


def _traffic(title: str, values: Values) -> Resource | None:
    """The sum, and the node with the most."""
    if not values:
        return None
    most = max(values, key=lambda item: item.value)
    total = f"{format.byte_rate(sum(item.value for item in values))}"
    if most.value <= 0:
        return Resource(title, total)
    return Resource(title, total, f"↑ {format.size_compact(most.value)}/s", most.name, most.key)
