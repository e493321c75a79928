"""Conditions of one GPU at one sample. A check reports one that holds in every sample for some seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...records import Gpu, GpuInfo

#: °C below the temperature at which clocks are lowered.
NEAR_C: Final = 3.0
#: °C. Limit of memory whose GPU reports none: HBM and GDDR6 are specified up to 105.
MEMORY_LIMIT_C: Final = 105.0
#: °C. A lower threshold is not a temperature.
_LEAST_C: Final = 50.0
#: Utilisation from which clocks should be at their maximum, %.
_FULL_PCT: Final = 90.0
#: Share of the maximum clock below which a GPU under load is slow, unless a reason is given.
SLOW_CLOCK: Final = 0.6
#: % of a tick from which a clock event reason explains a low clock.
_REASON_PCT: Final = 1.0
#: Throttle reasons that indicate a cooling or power supply fault; power caps and application clocks do not.
HELD_BY: Final = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")
#: % of a tick from which clocks are throttled all the time.
_ALWAYS_PCT: Final = 90.0


def conditions(gpu: Gpu, info: GpuInfo | None) -> Iterator[str]:
    """Names of the conditions that hold; none if unknown.

    hot, memory_hot, throttled (all the time), loaded, slow_clock, fabric_pending.
    """
    if _is_near(gpu.temp_margin_c, gpu.temp_c, info.temp_slowdown_c if info else None):
        yield "hot"
    if gpu.mem_temp_c is not None and gpu.mem_temp_c >= memory_limit_c(info):
        yield "memory_hot"
    if any(reason in HELD_BY and held_pct(gpu, reason) >= _ALWAYS_PCT for reason in gpu.clocks_event_reasons):
        yield "throttled"
    if gpu.util_pct is not None and gpu.util_pct >= _FULL_PCT and info is not None:
        yield "loaded"
        if _is_slow(gpu, info):
            yield "slow_clock"
    if info is not None and info.fabric_state == "in_progress":
        yield "fabric_pending"


def held_pct(gpu: Gpu, reason: str) -> float:
    """Share of the last tick in which that reason throttled the clocks; without a counter, its state now is assumed."""
    share = gpu.clocks_event_share_pct.get(reason)
    if share is None:
        return 100.0 if reason in gpu.clocks_event_reasons else 0.0
    return share


def _is_near(margin_c: float | None, temp_c: float | None, limit_c: float | None) -> bool:
    if margin_c is not None and margin_c <= NEAR_C:
        return True
    return temp_c is not None and limit_c is not None and limit_c > _LEAST_C and temp_c >= limit_c - NEAR_C


def memory_limit_c(info: GpuInfo | None) -> float:
    """Memory temperature at which clocks are lowered."""
    limit_c = info.mem_temp_max_c if info is not None else None
    return limit_c if limit_c is not None and limit_c > _LEAST_C else MEMORY_LIMIT_C


def _is_slow(gpu: Gpu, info: GpuInfo) -> bool:
    """Whether the SM clock is far below its maximum although the driver names no reason."""
    if not gpu.sm_clock_mhz or not info.max_sm_clock_mhz or "clocks_event_reasons" in info.unsupported:
        return False
    is_explained = gpu.clocks_event_reasons or any(
        share >= _REASON_PCT for share in gpu.clocks_event_share_pct.values()
    )
    return not is_explained and gpu.sm_clock_mhz < SLOW_CLOCK * info.max_sm_clock_mhz
