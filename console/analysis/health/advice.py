"""Hints on why a GPU is slow, from its metrics. Each hint names its counter.

A hint is not a finding: it names no culprit, and it may be intended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from ...records import Gpu, GpuInfo

#: Utilisation below which a GPU is idle, and above which it is busy, %.
_IDLE_PCT, _BUSY_PCT = 5.0, 90.0
#: Share of memory above which it belongs to a job rather than to a driver context.
_HELD_MEMORY = 0.2
#: Activity of SMs and tensor cores below which kernels are small, and of DRAM above which it is the limit, %.
_FEW_SMS_PCT, _FEW_TENSOR_PCT, _MUCH_DRAM_PCT = 30.0, 5.0, 80.0
#: °C. Memory is throttled between 95 and 105 °C, by the vendors' data sheets.
_HOT_MEMORY_C = 95.0
#: % of a tick below which a throttle reason is noise.
_SHARE_PCT = 10.0

_SLOWED: Final = {
    "sw_power_cap": "clocks limited by the power cap",
    "hw_slowdown": "clocks throttled by hardware: temperature, power brake or power supply",
    "sw_thermal_slowdown": "clocks throttled by the driver: temperature",
    "hw_thermal_slowdown": "clocks throttled by hardware: temperature",
    "hw_power_brake_slowdown": "clocks throttled: power brake (power supply at its limit)",
    "sync_boost": "clocks follow the slowest GPU of a sync boost group",
    "applications_clocks_setting": "clocks limited by application clocks setting",
}
_COUNTERS: Final = {
    "ecc_uncorrected_volatile": "uncorrected memory errors since the driver was loaded",
    "remapped_rows_uncorrected": "memory rows remapped after uncorrected errors",
    "retired_pages_uncorrected": "memory pages retired after uncorrected errors",
    "pcie_replays": "PCIe replays",
    "nvlink_crc_errors": "NVLink CRC errors",
    "nvlink_replay_errors": "NVLink replays",
    "nvlink_recovery_errors": "NVLink recoveries",
}


class Hint(msgspec.Struct, frozen=True):
    """One suggestion, and the counter with its value that made it."""

    severity: Literal["info", "warning"]
    text: str
    counter: str  # "gpu.sm_pct 12 %"


def hints(info: GpuInfo | None, now: Gpu | None) -> tuple[Hint, ...]:
    """Hints from a GPU's latest records, warnings first; unknown values give none."""
    made: list[Hint] = []
    if now is not None:
        for part in (_work, _clocks, _errors):
            made += part(info, now)
    if info is not None:
        made += _state(info, now)
    return tuple(sorted(made, key=lambda hint: hint.severity != "warning"))


def _work(info: GpuInfo | None, now: Gpu) -> Iterator[Hint]:
    util, used = now.util_pct, now.mem_used_bytes
    total = info.mem_total_bytes if info else None
    if util is not None and util < _IDLE_PCT and used and total and used > _HELD_MEMORY * total:
        yield Hint("warning", "memory in use, but the GPU is idle", f"gpu.util_pct {util:.0f} %")
    if util is None or util < _BUSY_PCT:
        return
    if now.sm_pct is not None and now.sm_pct < _FEW_SMS_PCT:
        yield Hint("info", "kernels run on few SMs: small batches, or launch-bound",
                   f"gpu.sm_pct {now.sm_pct:.0f} % at gpu.util_pct {util:.0f} %")  # fmt: skip
    elif now.tensor_pct is not None and now.tensor_pct < _FEW_TENSOR_PCT:
        yield Hint("info", "busy without tensor cores: communication, or an unsupported dtype",
                   f"gpu.tensor_pct {now.tensor_pct:.0f} %")  # fmt: skip
    if now.dram_pct is not None and now.dram_pct > _MUCH_DRAM_PCT:
        yield Hint("info", "memory-bound", f"gpu.dram_pct {now.dram_pct:.0f} %")


def _clocks(info: GpuInfo | None, now: Gpu) -> Iterator[Hint]:
    for reason, words in _SLOWED.items():
        share = now.clocks_event_share_pct.get(reason)
        if share is not None and share >= _SHARE_PCT:
            yield Hint(_weight(reason), words, f"gpu.clocks_event_share_pct {reason} {share:.0f} %")
        elif share is None and reason in now.clocks_event_reasons:
            yield Hint(_weight(reason), words, f"gpu.clocks_event_reasons {reason}")
    if now.mem_temp_c is not None and now.mem_temp_c >= _HOT_MEMORY_C:
        hot = f"gpu.mem_temp_c {now.mem_temp_c:.0f} °C"
        yield Hint("warning", "memory temperature close to throttling", hot)


def _weight(reason: str) -> Literal["info", "warning"]:
    return "warning" if "slowdown" in reason else "info"


def _errors(info: GpuInfo | None, now: Gpu) -> Iterator[Hint]:
    for counter, words in _COUNTERS.items():
        total = getattr(now, counter)
        grown = now.grown.get(counter, 0)
        if grown:
            yield Hint("warning", f"{words}, still increasing", f"gpu.{counter} {total} (+{grown})")
        elif total and "uncorrected" in counter:
            yield Hint("warning", words, f"gpu.{counter} {total}")
    flags: tuple[tuple[str, str], ...] = (
        ("remap_pending", "pending row remaps; reset the GPU"),
        ("remap_failed", "row remapping failed; RMA the GPU"),
        ("retire_pending", "pending page retirements; reset the GPU"),
    )
    for flag, words in flags:
        if getattr(now, flag):
            yield Hint("warning", words, f"gpu.{flag} true")
    if now.recovery_action not in (None, "none"):
        yield Hint("warning", "the driver requests a recovery action", f"gpu.recovery_action {now.recovery_action}")


def _state(info: GpuInfo, now: Gpu | None) -> Iterator[Hint]:
    if info.lost is not None:
        yield Hint("warning", "lost by the driver", f"gpu_info.lost {info.lost}")
    if info.unusable is not None:
        yield Hint("warning", "no call returns a value", f"gpu_info.unusable {info.unusable}")
    if _is_below(info.pcie_width, info.pcie_width_max):
        yield Hint("warning", "fewer PCIe lanes than GPU and slot support",
                   f"gpu_info.pcie_width {info.pcie_width} of {info.pcie_width_max}")  # fmt: skip
    busy = now is not None and now.util_pct is not None and now.util_pct >= _BUSY_PCT
    if busy and _is_below(info.pcie_gen, info.pcie_gen_max):  # an idle GPU lowers it to save power
        yield Hint("warning", "lower PCIe generation than GPU and slot support, under load",
                   f"gpu_info.pcie_gen {info.pcie_gen} of {info.pcie_gen_max}")  # fmt: skip
    if info.persistence is False:
        yield Hint("info", "persistence mode off: the first CUDA call takes seconds",
                   "gpu_info.persistence false")  # fmt: skip
    if info.compute_mode not in (None, "default"):
        yield Hint(
            "info", "compute mode restricts which processes may use it", f"gpu_info.compute_mode {info.compute_mode}"
        )
    if info.fabric_state == "in_progress":
        yield Hint("warning", "NVLink fabric not ready; check the fabric manager",
                   "gpu_info.fabric_state in_progress")  # fmt: skip


def _is_below(now: int | None, most: int | None) -> bool:
    return now is not None and most is not None and now < most
