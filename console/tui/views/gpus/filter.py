"""What a filter may say of a GPU: its figures, its node, the jobs and ranks on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....core.store import GpuNow
from ....text.cells import clean
from ...models.filter_language import Field, Value, Vocabulary
from ...models.gpu_metrics import held_pct, memory_pct
from ...models.row_context import Seen
from .model import GpuRow


def memory_pct_of(row: GpuRow) -> float | None:
    """Memory in use, of what the GPU has."""
    return memory_pct(GpuNow(row.info, row.gpu))


def _now(name: str) -> Callable[[Seen[GpuRow]], Value]:
    return lambda seen: getattr(seen.row.gpu, name) if seen.row.gpu else None


def _info(name: str) -> Callable[[Seen[GpuRow]], Value]:
    return lambda seen: clean(getattr(seen.row.info, name) or "") or None if seen.row.info else None


def _node(seen: Seen[GpuRow]) -> str:
    return seen.row.summary.name


def _reasons(seen: Seen[GpuRow]) -> Value:
    return tuple(clean(reason) for reason in seen.row.gpu.clocks_event_reasons) if seen.row.gpu else None


def _words(seen: Seen[GpuRow]) -> Iterable[str]:
    row = seen.row
    yield row.standing[1]
    yield clean(row.summary.name)
    yield f"gpu{row.index}"
    yield clean(row.uuid)
    yield from seen.around.tags(_node(seen))
    yield from seen.around.jobs_of.get(_node(seen), ())
    if row.info is not None:
        yield clean(row.info.name or "")
    if (row.gpu and row.gpu.simulated) or (row.info and row.info.simulated):
        yield "simulated"


GPUS: Vocabulary[Seen[GpuRow]] = Vocabulary(
    (
        Field("state", "word", lambda seen: (seen.row.standing[1], seen.row.standing[0]),
              "ok, lost, held*, …; or warning, failed, stale"),
        Field("node", "word", lambda seen: clean(_node(seen)), "a node's name, e.g. node0[1-3]*"),
        Field("gpu", "number", lambda seen: seen.row.index, "its index on its node, e.g. 4"),
        Field("job", "text", lambda seen: seen.around.jobs_of.get(_node(seen), ()), "a part of a job's name"),
        Field("tag", "word", lambda seen: seen.around.tags(_node(seen)), "a tag of its node in hosts.toml"),
        Field("rank", "number", lambda seen: tuple(float(rank) for rank in seen.row.ranks), "a rank on it, e.g. 0-7"),
        Field("util", "number", _now("util_pct"), "% of the time a kernel runs, e.g. <10", ("gpu_util",)),
        Field("mem", "number", lambda seen: memory_pct_of(seen.row), "% of its memory in use, e.g. >90"),
        Field("used", "size", _now("mem_used_bytes"), "memory in use, e.g. >40G", ("gpu_mem",)),
        Field("power", "number", _now("power_w"), "W, e.g. >650"),
        Field("temp", "number", _now("temp_c"), "°C, e.g. >80"),
        Field("mem_temp", "number", _now("mem_temp_c"), "°C of its memory"),
        Field("clock", "number", _now("sm_clock_mhz"), "MHz of its SMs, e.g. <1500", ("sm_clock",)),
        Field("held", "number", lambda seen: held_pct(seen.row.gpu), "% of the time heat or hardware held it down"),
        Field("reason", "word", _reasons, "what limits its clocks, e.g. *thermal*"),
        Field("sm", "number", _now("sm_pct"), "% of its SMs that work"),
        Field("tensor", "number", _now("tensor_pct"), "% of the time its tensor cores work"),
        Field("dram", "number", _now("dram_pct"), "% of its memory's bandwidth"),
        Field("nvlink_rx", "size", _now("nvlink_rx_bytes_s"), "bytes a second in over NVLink, e.g. >10G"),
        Field("nvlink_tx", "size", _now("nvlink_tx_bytes_s"), "bytes a second out over NVLink"),
        Field("pcie_rx", "size", _now("pcie_rx_bytes_s"), "bytes a second in over PCIe"),
        Field("pcie_tx", "size", _now("pcie_tx_bytes_s"), "bytes a second out over PCIe"),
        Field("ecc", "number", _now("ecc_uncorrected_volatile"), "uncorrected memory errors, e.g. >0"),
        Field("replays", "number", _now("pcie_replays"), "PCIe transfers sent again"),
        Field("model", "text", _info("name"), "a part of its name"),
        Field("driver", "word", _info("driver"), "its driver's version"),
        Field("uuid", "text", lambda seen: clean(seen.row.uuid), "a part of its uuid", offered=False),
    ),
    _words,
)  # fmt: skip
