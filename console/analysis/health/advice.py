"""What the figures of one GPU suggest to somebody who wants to know why it is slow. Each hint names its counter.

A hint is no finding: it blames nobody, and it may have a good reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from ...records import Gpu, GpuInfo

#: Below this a GPU does nothing; above `_BUSY_PCT` it has work all the time.
_IDLE_PCT, _BUSY_PCT = 5.0, 90.0
#: Memory that belongs to a job rather than to a driver's context.
_HELD_MEMORY = 0.2
#: SMs so little in use while kernels run all the time: they are small, or few.
_FEW_SMS_PCT, _FEW_TENSOR_PCT, _MUCH_DRAM_PCT = 30.0, 5.0, 80.0
#: Close to where memory is slowed down by its own heat: makers state limits between 95 and 105 °C.
_HOT_MEMORY_C = 95.0
#: Of a tick, in percent: below this a reason of the clocks is noise.
_SHARE_PCT = 10.0

_SLOWED: Final = {
    "sw_power_cap": "its clocks are as high as the power limit allows",
    "hw_slowdown": "the hardware slows it down: heat, the power brake, or a bad supply",
    "sw_thermal_slowdown": "the driver slows it down because it is hot",
    "hw_thermal_slowdown": "the hardware slows it down because it is hot",
    "hw_power_brake_slowdown": "the machine's power brake slows it down: the supply is at its limit",
    "sync_boost": "its clocks follow the slowest of a sync-boost group",
    "applications_clocks_setting": "somebody set its clocks lower than they could be",
}
_COUNTERS: Final = {
    "ecc_uncorrected_volatile": "uncorrected memory errors since the driver was loaded",
    "remapped_rows_uncorrected": "memory rows replaced after uncorrected errors",
    "retired_pages_uncorrected": "memory pages retired after uncorrected errors",
    "pcie_replays": "PCIe transfers that had to be sent again",
    "nvlink_crc_errors": "NVLink transfers with a bad checksum",
    "nvlink_replay_errors": "NVLink transfers that had to be sent again",
    "nvlink_recovery_errors": "NVLinks that had to be trained again",
}


@dataclass(frozen=True, slots=True)
class Hint:
    """One suggestion, and the counter with its value that made it."""

    severity: Literal["info", "warning"]
    text: str
    counter: str  # "gpu.sm_pct 12 %"


def hints(info: GpuInfo | None, now: Gpu | None) -> tuple[Hint, ...]:
    """What a GPU's newest records suggest, warnings first; nothing of figures that are not known."""
    found: list[Hint] = []
    if now is not None:
        for part in (_work, _clocks, _errors):
            found += part(info, now)
    if info is not None:
        found += _state(info, now)
    return tuple(sorted(found, key=lambda hint: hint.severity != "warning"))


def _work(info: GpuInfo | None, now: Gpu) -> Iterator[Hint]:
    util, used = now.util_pct, now.mem_used_bytes
    total = info.mem_total_bytes if info else None
    if util is not None and util < _IDLE_PCT and used and total and used > _HELD_MEMORY * total:
        yield Hint("warning", "a process holds its memory, and it does nothing", f"gpu.util_pct {util:.0f} %")
    if util is None or util < _BUSY_PCT:
        return
    if now.sm_pct is not None and now.sm_pct < _FEW_SMS_PCT:
        yield Hint("info", "a kernel always runs, on few of its SMs: small batches, or a launch-bound step",
                   f"gpu.sm_pct {now.sm_pct:.0f} % at gpu.util_pct {util:.0f} %")  # fmt: skip
    elif now.tensor_pct is not None and now.tensor_pct < _FEW_TENSOR_PCT:
        yield Hint("info", "it is busy without its tensor cores: communication, or a type they do not have",
                   f"gpu.tensor_pct {now.tensor_pct:.0f} %")  # fmt: skip
    if now.dram_pct is not None and now.dram_pct > _MUCH_DRAM_PCT:
        yield Hint("info", "its memory is the limit", f"gpu.dram_pct {now.dram_pct:.0f} %")


def _clocks(info: GpuInfo | None, now: Gpu) -> Iterator[Hint]:
    for reason, words in _SLOWED.items():
        share = now.clocks_event_share_pct.get(reason)
        if share is not None and share >= _SHARE_PCT:
            yield Hint(_weight(reason), words, f"gpu.clocks_event_share_pct {reason} {share:.0f} %")
        elif share is None and reason in now.clocks_event_reasons:
            yield Hint(_weight(reason), words, f"gpu.clocks_event_reasons {reason}")
    if now.mem_temp_c is not None and now.mem_temp_c >= _HOT_MEMORY_C:
        hot = f"gpu.mem_temp_c {now.mem_temp_c:.0f} °C"
        yield Hint("warning", "its memory is so hot that it may be slowed down", hot)


def _weight(reason: str) -> Literal["info", "warning"]:
    return "warning" if "slowdown" in reason else "info"


def _errors(info: GpuInfo | None, now: Gpu) -> Iterator[Hint]:
    for counter, words in _COUNTERS.items():
        total = getattr(now, counter)
        grown = now.grown.get(counter, 0)
        if grown:
            yield Hint("warning", f"{words}, and more just now", f"gpu.{counter} {total} (+{grown})")
        elif total and "uncorrected" in counter:
            yield Hint("warning", words, f"gpu.{counter} {total}")
    flags: tuple[tuple[str, str], ...] = (
        ("remap_pending", "memory rows wait for a reset to be replaced"),
        ("remap_failed", "memory rows could not be replaced: the card wants to be returned"),
        ("retire_pending", "memory pages wait for a reset to be retired"),
    )
    for flag, words in flags:
        if getattr(now, flag):
            yield Hint("warning", words, f"gpu.{flag} true")
    if now.recovery_action not in (None, "none"):
        yield Hint("warning", "the driver asks for a recovery", f"gpu.recovery_action {now.recovery_action}")


def _state(info: GpuInfo, now: Gpu | None) -> Iterator[Hint]:
    if info.lost is not None:
        yield Hint("warning", "the driver cannot reach it any more", f"gpu_info.lost {info.lost}")
    if _is_below(info.pcie_width, info.pcie_width_max):
        yield Hint("warning", "fewer PCIe lanes work than card and slot have",
                   f"gpu_info.pcie_width {info.pcie_width} of {info.pcie_width_max}")  # fmt: skip
    busy = now is not None and now.util_pct is not None and now.util_pct >= _BUSY_PCT
    if busy and _is_below(info.pcie_gen, info.pcie_gen_max):  # an idle GPU lowers it to save power
        yield Hint("warning", "PCIe runs slower than card and slot can, under load",
                   f"gpu_info.pcie_gen {info.pcie_gen} of {info.pcie_gen_max}")  # fmt: skip
    if info.persistence is False:
        yield Hint("info", "the driver unloads when nobody uses it: the first CUDA call takes seconds",
                   "gpu_info.persistence false")  # fmt: skip
    if info.compute_mode not in (None, "default"):
        yield Hint("info", "not every process may use it", f"gpu_info.compute_mode {info.compute_mode}")
    if info.fabric_state == "in_progress":
        yield Hint("warning", "its NVLink fabric is not ready: is the fabric manager running?",
                   "gpu_info.fabric_state in_progress")  # fmt: skip


def _is_below(now: int | None, most: int | None) -> bool:
    return now is not None and most is not None and now < most
