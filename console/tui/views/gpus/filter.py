"""What a filter may say of a GPU: its figures, its node, the jobs and ranks on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....core.store import GpuNow
from ....text.cells import clean
from ...models.filter_language import FilterField, Value, Vocabulary
from ...models.gpu_metrics import memory_pct, throttle_pct
from ...models.row_context import RowInContext
from .model import GpuRow


def memory_pct_of(row: GpuRow) -> float | None:
    """Memory in use, of what the GPU has."""
    return memory_pct(GpuNow(row.info, row.gpu))


def _now(name: str) -> Callable[[RowInContext[GpuRow]], Value]:
    return lambda entry: getattr(entry.row.gpu, name) if entry.row.gpu else None


def _info(name: str) -> Callable[[RowInContext[GpuRow]], Value]:
    return lambda entry: clean(getattr(entry.row.info, name) or "") or None if entry.row.info else None


def _node(entry: RowInContext[GpuRow]) -> str:
    return entry.row.summary.name


def _reasons(entry: RowInContext[GpuRow]) -> Value:
    return tuple(clean(reason) for reason in entry.row.gpu.clocks_event_reasons) if entry.row.gpu else None


def _words(entry: RowInContext[GpuRow]) -> Iterable[str]:
    row = entry.row
    yield row.row_state[1]
    yield clean(row.summary.name)
    yield f"gpu{row.index}"
    yield clean(row.uuid)
    yield from entry.context.tags(_node(entry))
    yield from entry.context.jobs_of.get(_node(entry), ())
    if row.info is not None:
        yield clean(row.info.name or "")
    if (row.gpu and row.gpu.simulated) or (row.info and row.info.simulated):
        yield "simulated"


GPUS: Vocabulary[RowInContext[GpuRow]] = Vocabulary(
    (
        FilterField("state", "word", lambda entry: (entry.row.row_state[1], entry.row.row_state[0]),
              "ok, lost, held*, …; or warning, failed, stale"),
        FilterField("node", "word", lambda entry: clean(_node(entry)), "a node's name, e.g. node0[1-3]*"),
        FilterField("gpu", "number", lambda entry: entry.row.index, "its index on its node, e.g. 4"),
        FilterField("job", "text", lambda entry: entry.context.jobs_of.get(_node(entry), ()), "a part of a job's name"),
        FilterField("tag", "word", lambda entry: entry.context.tags(_node(entry)), "a tag of its node in hosts.toml"),
        FilterField("rank", "number", lambda entry: tuple(float(rank) for rank in entry.row.ranks),
            "a rank on it, e.g. 0-7"),
        FilterField("util", "number", _now("util_pct"), "% of the time a kernel runs, e.g. <10", ("gpu_util",)),
        FilterField("mem", "number", lambda entry: memory_pct_of(entry.row), "% of its memory in use, e.g. >90"),
        FilterField("used", "size", _now("mem_used_bytes"), "memory in use, e.g. >40G", ("gpu_mem",)),
        FilterField("power", "number", _now("power_w"), "W, e.g. >650"),
        FilterField("temp", "number", _now("temp_c"), "°C, e.g. >80"),
        FilterField("mem_temp", "number", _now("mem_temp_c"), "°C of its memory"),
        FilterField("clock", "number", _now("sm_clock_mhz"), "MHz of its SMs, e.g. <1500", ("sm_clock",)),
        FilterField("held", "number", lambda entry: throttle_pct(entry.row.gpu),
            "% of the time heat or hardware held it down"),
        FilterField("reason", "word", _reasons, "what limits its clocks, e.g. *thermal*"),
        FilterField("sm", "number", _now("sm_pct"), "% of its SMs that work"),
        FilterField("tensor", "number", _now("tensor_pct"), "% of the time its tensor cores work"),
        FilterField("dram", "number", _now("dram_pct"), "% of its memory's bandwidth"),
        FilterField("nvlink_rx", "size", _now("nvlink_rx_bytes_s"), "bytes a second in over NVLink, e.g. >10G"),
        FilterField("nvlink_tx", "size", _now("nvlink_tx_bytes_s"), "bytes a second out over NVLink"),
        FilterField("pcie_rx", "size", _now("pcie_rx_bytes_s"), "bytes a second in over PCIe"),
        FilterField("pcie_tx", "size", _now("pcie_tx_bytes_s"), "bytes a second out over PCIe"),
        FilterField("ecc", "number", _now("ecc_uncorrected_volatile"), "uncorrected memory errors, e.g. >0"),
        FilterField("replays", "number", _now("pcie_replays"), "PCIe transfers sent again"),
        FilterField("model", "text", _info("name"), "a part of its name"),
        FilterField("driver", "word", _info("driver"), "its driver's version"),
        FilterField("uuid", "text", lambda entry: clean(entry.row.uuid), "a part of its uuid", offered=False),
    ),
    _words,
)  # fmt: skip
