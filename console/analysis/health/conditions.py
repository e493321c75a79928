"""Conditions of one GPU at one sample or digest. A check reports one that holds in every sample for some seconds.

A condition holds in a digest where it holds in each of its samples: the extremes of the figures are compared.
`thresholds` are the limits between which a digest may not mix samples, so that its other sums and instants are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
#: Prefix of the shares of clock event reasons among the figures of a digest.
SHARE: Final = "clocks_event_share_pct."
#: % of a tick from which clocks are throttled all the time.
_ALWAYS_PCT: Final = 90.0
#: Clock event reasons whose begin and end a digest may not hide.
REASONS: Final = (*HELD_BY, "gpu_idle")
#: °C beyond `NEAR_C`: an upper limit that belongs to the range, where thresholds are lower ones.
_BEYOND_C: Final = 1e-6


def thresholds(infos: Iterable[GpuInfo], busy_pct: float) -> dict[str, tuple[float, ...]]:
    """By field of `gpu`: values at which the result of a check may change; without any, only whether it is known."""
    limits: dict[str, set[float]] = {
        "util_pct": {busy_pct, _FULL_PCT}, "sm_pct": {busy_pct}, "power_w": set(), "mem_used_bytes": set(),
        "temp_margin_c": {NEAR_C + _BEYOND_C}, "temp_c": set(), "mem_temp_c": set(), "sm_clock_mhz": set(),
        **{f"{SHARE}{reason}": {_ALWAYS_PCT} for reason in HELD_BY},
    }  # fmt: skip
    for info in infos:
        limits["mem_temp_c"].add(memory_limit_c(info))
        if info.temp_slowdown_c is not None and info.temp_slowdown_c > _LEAST_C:
            limits["temp_c"].add(info.temp_slowdown_c - NEAR_C)
        if info.max_sm_clock_mhz:
            limits["sm_clock_mhz"].add(SLOW_CLOCK * info.max_sm_clock_mhz)
    return {field: tuple(sorted(values)) for field, values in limits.items()}


def conditions(gpu: Gpu, info: GpuInfo | None) -> Iterator[str]:
    """Names of the conditions that hold; none if unknown.

    hot, memory_hot, throttled (all the time), loaded, slow_clock, fabric_pending.
    """
    if _is_near(highest(gpu, "temp_margin_c"), lowest(gpu, "temp_c"), info.temp_slowdown_c if info else None):
        yield "hot"
    mem_temp_c = lowest(gpu, "mem_temp_c")
    if mem_temp_c is not None and mem_temp_c >= memory_limit_c(info):
        yield "memory_hot"
    if any(reason in HELD_BY and held_pct(gpu, reason, gpu.low) >= _ALWAYS_PCT for reason in gpu.clocks_event_reasons):
        yield "throttled"
    util_pct = lowest(gpu, "util_pct")
    if util_pct is not None and util_pct >= _FULL_PCT and info is not None:
        yield "loaded"
        if _is_slow(gpu, info):
            yield "slow_clock"
    if info is not None and info.fabric_state == "in_progress":
        yield "fabric_pending"


def lowest(gpu: Gpu, field: str) -> float | None:
    """The lowest value among the samples of a record."""
    value: float | None = getattr(gpu, field)
    return gpu.low.get(field, value) if gpu.low else value


def highest(gpu: Gpu, field: str) -> float | None:
    """The highest value among the samples of a record."""
    value: float | None = getattr(gpu, field)
    return gpu.high.get(field, value) if gpu.high else value


def average(gpu: Gpu, field: str) -> float | None:
    """The mean of the samples of a record."""
    value: float | None = getattr(gpu, field)
    return gpu.mean.get(field, value) if gpu.mean else value


def held_pct(gpu: Gpu, reason: str, of: Mapping[str, float]) -> float:
    """Share of a tick in which that reason throttled the clocks; without a counter, its state now is assumed.

    `of`: which of the shares of a digest, `low`, `mean` or `high` of the record.
    """
    share = gpu.clocks_event_share_pct.get(reason)
    if share is None:
        return 100.0 if reason in gpu.clocks_event_reasons else 0.0
    return of.get(SHARE + reason, share) if of else share


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
    clock_mhz = highest(gpu, "sm_clock_mhz")
    if not clock_mhz or not info.max_sm_clock_mhz or "clocks_event_reasons" in info.unsupported:
        return False
    is_explained = gpu.clocks_event_reasons or any(
        held_pct(gpu, reason, gpu.high) >= _REASON_PCT for reason in gpu.clocks_event_share_pct
    )
    return not is_explained and clock_mhz < SLOW_CLOCK * info.max_sm_clock_mhz
