"""What a filter may say of a GPU: its figures, its node, the jobs and ranks on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....core.store import GpuNow
from ....present.status import state_word
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
        FilterField("state", "word", lambda entry: (entry.row.row_state[1], state_word(entry.row.row_state[1]),
            entry.row.row_state[0]),
              "ok, lost, throttled, …; or warning, failed, stale"),
        FilterField("node", "word", lambda entry: clean(_node(entry)), "node name, e.g. node0[1-3]*"),
        FilterField("gpu", "number", lambda entry: entry.row.index, "index on its node, e.g. 4"),
        FilterField("job", "text", lambda entry: entry.context.jobs_of.get(_node(entry), ()), "part of a job name"),
        FilterField("tag", "word", lambda entry: entry.context.tags(_node(entry)), "node tag in hosts.toml"),
        FilterField("rank", "number", lambda entry: tuple(float(rank) for rank in entry.row.ranks),
            "rank using it, e.g. 0-7"),
        FilterField("util", "number", _now("util_pct"), "GPU utilisation in %, e.g. <10", ("gpu_util",)),
        FilterField("mem", "number", lambda entry: memory_pct_of(entry.row), "memory in use in %, e.g. >90"),
        FilterField("used", "size", _now("mem_used_bytes"), "memory in use, e.g. >40G", ("gpu_mem",)),
        FilterField("power", "number", _now("power_w"), "W, e.g. >650"),
        FilterField("temp", "number", _now("temp_c"), "°C, e.g. >80"),
        FilterField("mem_temp", "number", _now("mem_temp_c"), "memory temperature in °C"),
        FilterField("clock", "number", _now("sm_clock_mhz"), "SM clock in MHz, e.g. <1500", ("sm_clock",)),
        FilterField("throttle", "number", lambda entry: throttle_pct(entry.row.gpu), "time throttled in %", ("held",)),
        FilterField("reason", "word", _reasons, "throttle reason, e.g. *thermal*"),
        FilterField("sm", "number", _now("sm_pct"), "SM activity in %"),
        FilterField("tensor", "number", _now("tensor_pct"), "tensor core activity in %"),
        FilterField("dram", "number", _now("dram_pct"), "DRAM bandwidth in %"),
        FilterField("nvlink_rx", "size", _now("nvlink_rx_bytes_s"), "NVLink RX in bytes/s, e.g. >10G"),
        FilterField("nvlink_tx", "size", _now("nvlink_tx_bytes_s"), "NVLink TX in bytes/s"),
        FilterField("pcie_rx", "size", _now("pcie_rx_bytes_s"), "PCIe RX in bytes/s"),
        FilterField("pcie_tx", "size", _now("pcie_tx_bytes_s"), "PCIe TX in bytes/s"),
        FilterField("ecc", "number", _now("ecc_uncorrected_volatile"), "uncorrected ECC errors, e.g. >0"),
        FilterField("replays", "number", _now("pcie_replays"), "PCIe replays"),
        FilterField("model", "text", _info("name"), "part of the model name"),
        FilterField("driver", "word", _info("driver"), "driver version"),
        FilterField("uuid", "text", lambda entry: clean(entry.row.uuid), "part of the UUID", offered=False),
    ),
    _words,
)  # fmt: skip
