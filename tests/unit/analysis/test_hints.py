"""Hints derived from GPU metrics, each with its counter; unknown metrics give no hint."""

from __future__ import annotations

from typing import Any

import pytest

from gconsole.analysis.health.advice import hints
from gconsole.records import Gpu, GpuInfo

GIB = 1 << 30


def gpu(**fields: Any) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", **fields)


def info(**fields: Any) -> GpuInfo:
    return GpuInfo(index=0, uuid="GPU-0", **fields)


def counters(info_: GpuInfo | None, gpu_: Gpu | None) -> list[str]:
    return [hint.counter for hint in hints(info_, gpu_)]


def test_missing_data_gives_no_hints() -> None:
    assert hints(None, None) == ()
    assert hints(info(), gpu()) == ()


def test_a_healthy_busy_gpu_has_no_hint() -> None:
    busy = gpu(util_pct=98.0, sm_pct=91.0, tensor_pct=60.0, dram_pct=55.0, mem_used_bytes=70 * GIB,
               recovery_action="none", mem_temp_c=80.0, ecc_uncorrected_volatile=0, pcie_replays=0,
               clocks_event_reasons=("gpu_idle",))  # fmt: skip
    fine = info(mem_total_bytes=80 * GIB, pcie_gen=5, pcie_gen_max=5, pcie_width=16, pcie_width_max=16,
                persistence=True, compute_mode="default", fabric_state="completed")  # fmt: skip
    assert hints(fine, busy) == ()


@pytest.mark.parametrize(
    ("figures", "counter"),
    [
        ({"util_pct": 0.0, "mem_used_bytes": 60 * GIB}, "gpu.util_pct 0 %"),
        ({"util_pct": 97.0, "sm_pct": 12.0}, "gpu.sm_pct 12 % at gpu.util_pct 97 %"),
        ({"util_pct": 97.0, "sm_pct": 80.0, "tensor_pct": 1.0}, "gpu.tensor_pct 1 %"),
        ({"util_pct": 97.0, "dram_pct": 91.0}, "gpu.dram_pct 91 %"),
        ({"clocks_event_share_pct": {"hw_thermal_slowdown": 38.0}},
         "gpu.clocks_event_share_pct hw_thermal_slowdown 38 %"),
        ({"clocks_event_reasons": ("sw_power_cap",)}, "gpu.clocks_event_reasons sw_power_cap"),
        ({"mem_temp_c": 97.0}, "gpu.mem_temp_c 97 °C"),
        ({"ecc_uncorrected_volatile": 2}, "gpu.ecc_uncorrected_volatile 2"),
        ({"pcie_replays": 9, "grown": {"pcie_replays": 4}}, "gpu.pcie_replays 9 (+4)"),
        ({"remap_pending": True}, "gpu.remap_pending true"),
        ({"recovery_action": "gpu_reset"}, "gpu.recovery_action gpu_reset"),
    ],
)  # fmt: skip
def test_each_hint_names_the_counter_that_made_it(figures: dict[str, Any], counter: str) -> None:
    assert counters(info(mem_total_bytes=80 * GIB), gpu(**figures)) == [counter]


def test_past_replays_give_no_hint_and_uncorrected_remapped_rows_give_one() -> None:
    assert counters(None, gpu(pcie_replays=4000, nvlink_crc_errors=3)) == []
    assert counters(None, gpu(remapped_rows_uncorrected=1)) == ["gpu.remapped_rows_uncorrected 1"]


def test_throttle_reason_with_a_small_share_of_the_tick_gives_no_hint() -> None:
    held = gpu(clocks_event_reasons=("sw_thermal_slowdown",), clocks_event_share_pct={"sw_thermal_slowdown": 2.0})
    assert hints(None, held) == ()


def test_idle_gpu_gets_a_hint_for_reduced_pcie_width_but_not_generation() -> None:
    slow = info(pcie_gen=1, pcie_gen_max=5, pcie_width=16, pcie_width_max=16)
    assert counters(slow, gpu(util_pct=0.0)) == []
    assert counters(slow, gpu(util_pct=99.0)) == ["gpu_info.pcie_gen 1 of 5"]
    assert counters(info(pcie_width=8, pcie_width_max=16), gpu(util_pct=0.0)) == ["gpu_info.pcie_width 8 of 16"]


def test_hints_list_warnings_first() -> None:
    both = hints(info(persistence=False), gpu(remap_failed=True))
    assert [hint.severity for hint in both] == ["warning", "info"]
