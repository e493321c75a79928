"""Sampling faster than once per second: one digest per second, and other records at the normal rate."""

import pytest
from nvml import scenarios


def run_one_second(sampler, changes=None):
    """Ten ticks of 100 ms; before tick N the scenario becomes `changes[N]`. The records, by kind."""
    by_kind = {"gpu": [], "gpu_digest": [], "gpu_info": [], "gpu_link": []}
    for number in range(10):
        if number in (changes or {}):
            sampler.scenario.change(changes[number])
        once = sampler.tick(0.1)
        for kind, records in by_kind.items():
            records.extend(getattr(once, kind))
    return by_kind


def test_subsecond_spike_is_in_the_digest_sent_once_a_second(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu.power": 300_000, "gpu.util": "10 5"}, interval_s=0.1)
    run_one_second(sampler)

    run_one_second(sampler, {3: {"gpu5.power": 690_000, "gpu5.util": "100 5", "gpu5.reasons": 4},
                        4: {"gpu5.power": 300_000, "gpu5.util": "10 5", "gpu5.reasons": 0}})  # fmt: skip
    by_kind = run_one_second(sampler)

    assert (len(by_kind["gpu"]), len(by_kind["gpu_digest"])) == (8, 8)
    spiked, quiet = by_kind["gpu_digest"][5], by_kind["gpu_digest"][4]
    assert (spiked.index, spiked.samples) == (5, 10)
    assert (spiked.power_w.min, spiked.power_w.mean, spiked.power_w.max, spiked.power_w.last) == (300, 339, 690, 300)
    assert (spiked.util_pct.max, spiked.clocks_event_reasons) == (100, ("sw_power_cap",))
    assert (quiet.power_w.max, quiet.clocks_event_reasons) == (300, ())


def test_digest_has_the_instantaneous_power_where_the_driver_has_it(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu.field.186": "u32:300000"}, interval_s=0.1)
    run_one_second(sampler)

    run_one_second(sampler, {3: {"gpu5.field.186": "u32:900000"}, 4: {"gpu5.field.186": "u32:300000"}})
    power = run_one_second(sampler)["gpu_digest"][5].power_w

    assert (power.min, power.mean, power.max, power.last) == (300, 360, 900, 300)


def test_sampling_once_a_second_sends_no_digest(watch):
    sampler = watch(scenarios.hgx_h100())

    assert [sampler.tick().gpu_digest for _ in range(3)] == [[], [], []]


def test_unsupported_gpu_figures_are_none_in_the_digest(watch):
    sampler = watch(scenarios.nothing_supported() | {"gpu0.power": 250_000}, interval_s=0.1)
    run_one_second(sampler)

    first, second = run_one_second(sampler)["gpu_digest"]

    assert (first.power_w.last, first.util_pct, second.power_w, second.samples) == (250, None, None, 10)


def test_gpu_lost_between_digests_is_reported_and_the_others_continue(watch):
    sampler = watch(scenarios.hgx_h100(), interval_s=0.1)
    run_one_second(sampler)

    run_one_second(sampler, {2: {"gpu3.lost": 15}})
    by_kind = run_one_second(sampler)

    assert [info.index for info in by_kind["gpu_info"] if info.lost] == [3]
    assert [digest.index for digest in by_kind["gpu_digest"]] == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("function", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage",
                                      "nvmlDeviceGetClockInfo"])  # fmt: skip
def test_failing_fast_call_keeps_the_other_figures_in_the_digest(watch, function):
    sampler = watch(scenarios.hgx_h100() | {f"fail.{function}": 999}, interval_s=0.1)
    run_one_second(sampler)

    digest = run_one_second(sampler)["gpu_digest"][0]

    assert (digest.temp_c.last, digest.mem_used_bytes.last) == (61, 40 << 30)
