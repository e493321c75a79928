"""Identity and metrics of GPUs, through pynvml and the fake NVML."""

import pytest
from nvml import scenarios
from nvml.library import FUNCTIONS


def test_gpu_info_has_identity_and_limits(watch, tmp_path):
    device = tmp_path / "sys/bus/pci/devices/0000:10:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")

    info = watch(scenarios.hgx_h100()).tick().gpu_info[0]

    assert (info.name, info.pci_bus_id, info.serial) == ("NVIDIA H100 80GB HBM3", "00000000:10:00.0", "1650000000001")
    assert (info.power_limit_w, info.power_limit_min_w, info.power_limit_max_w) == (700.0, 200.0, 700.0)
    assert (info.max_sm_clock_mhz, info.pcie_gen, info.pcie_width_max, info.nvlinks) == (1980, 5, 16, 18)
    assert (info.driver, info.cuda_driver, info.vbios) == ("580.126.09", "13.0", "96.00.A5.00.01")
    assert (info.cpu_affinity, info.numa_node, info.compute_capability) == ("0-3,8-11", 1, "9.0")
    assert (info.fabric_state, info.fabric_clique, info.fabric_cluster) == (
        "completed", 1, "01020304-0506-0708-090a-0b0c0d0e0f10")  # fmt: skip
    assert (info.temp_slowdown_c, info.mem_temp_max_c, info.sram_threshold_exceeded) == (95, 105, False)
    assert info.fabric_faults == ()
    assert (info.mig_mode, info.ecc_mode, info.persistence, info.compute_mode) == (False, True, True, "default")
    assert info.lost is None


def test_application_clock_of_graphics_is_used_where_the_driver_has_none_of_sms(watch):
    lines = {key: value for key, value in scenarios.hgx_h100().items() if not key.startswith("gpu.app_clock")}
    lines |= {"gpu.app_clock.0": 1500, "gpu.app_clock_default.0": 1980}

    info = watch(lines).tick().gpu_info[0]
    assert (info.app_sm_clock_mhz, info.app_sm_clock_default_mhz) == (1500, 1980)
    assert not {"app_sm_clock_mhz", "app_sm_clock_default_mhz"} & set(info.unsupported)


def test_eight_gpus_send_figures_every_tick_and_their_info_once(watch):
    sampler = watch(scenarios.hgx_h100())

    first, second, third = sampler.tick(), sampler.tick(), sampler.tick()

    assert [len(records.gpu) for records in (first, second, third)] == [8, 8, 8]
    assert [len(records.gpu_info) for records in (first, second, third)] == [8, 0, 0]
    gpu = third.gpu[7]
    assert (gpu.index, gpu.util_pct, gpu.mem_util_pct, gpu.decoder_pct) == (7, 97, 41, 3)
    assert (gpu.mem_used_bytes, gpu.bar1_used_bytes) == (40 << 30, 1 << 30)
    assert (gpu.power_w, gpu.energy_j, gpu.temp_c, gpu.mem_temp_c) == (512.345, 5000.0, 61, 77)
    assert (gpu.sm_clock_mhz, gpu.mem_clock_mhz, gpu.video_clock_mhz, gpu.pstate) == (1755, 2619, 1545, 0)
    assert (gpu.sm_pct, gpu.sm_occupancy_pct, gpu.tensor_pct, gpu.dram_pct) == (88.5, 40.25, 61.0, 33.0)
    assert (gpu.ecc_corrected_aggregate, gpu.remap_pending, gpu.recovery_action) == (12, False, "none")


def test_reading_everything_again_sends_no_info_that_says_the_same(watch):
    lines = scenarios.hgx_h100()
    del lines["gpu.serial"], lines["gpu.field.161"], lines["gpu.remote_type"]
    sampler = watch(lines)
    for _ in range(2):  # sums over links have a reason only after a second reading
        sampler.tick(70.0)
        [sampler.tick() for _ in range(30)]

    ticks = [sampler.tick(70.0), *(sampler.tick() for _ in range(30))]  # each GPU is due within 8 s

    assert [info.unsupported for tick in ticks for info in tick.gpu_info] == []


def test_reason_of_a_field_is_gone_once_it_does_not_fail_any_more(watch):
    lines = scenarios.hgx_h100()
    del lines["gpu.field.82"]
    sampler = watch(lines)
    [sampler.tick() for _ in range(25)]
    sampler.scenario.change({"gpu0.field.82": "u32:77"})

    ticks = [sampler.tick(70.0), *(sampler.tick() for _ in range(30))]

    infos = [info for tick in ticks for info in tick.gpu_info if info.index == 0]
    assert "mem_temp_c" not in infos[-1].unsupported
    assert ticks[-1].gpu[0].mem_temp_c == 77


def test_unsupported_figures_are_none_and_listed_once_with_a_reason(watch):
    sampler = watch(scenarios.nothing_supported())

    first, second = sampler.tick(), sampler.tick()

    assert second.gpu_info == []
    assert set(first.gpu_info[0].unsupported.values()) == {"Not Supported"}
    missing = {field for field in first.gpu[0].__struct_fields__ if getattr(first.gpu[0], field) is None}
    missing.remove("period_s")  # of digests
    assert missing <= set(first.gpu_info[0].unsupported)


def test_newly_supported_figure_appears_after_the_refresh(watch):
    sampler = watch(scenarios.nothing_supported())
    sampler.tick()
    sampler.scenario.change({"gpu.power": 250000})

    assert sampler.tick().gpu[0].power_w is None
    records = sampler.tick(61.0)
    assert records.gpu[0].power_w == 250.0
    assert "power_w" not in records.gpu_info[0].unsupported


def test_nvlink_throughput_comes_from_gpm_where_there_is_gpm(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu.gpm.60": 3000.0, "gpu.gpm.61": 0.0})
    sampler.tick()
    sampler.scenario.change({"gpu.field.138@all": 10**9, "gpu.field.139@all": 10**9})

    gpu = sampler.tick().gpu[0]

    assert (gpu.nvlink_rx_bytes_s, gpu.nvlink_tx_bytes_s) == (3000 << 20, 0.0)


def test_nvlink_traffic_above_the_line_rate_is_unknown(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu.gpm.60": 500_000.0})  # MiB/s, of 18 links of 26.6 GB/s
    [sampler.tick() for _ in range(12)]
    sampler.scenario.change({"gpu0.field.139": 2000 + 10**9, "gpu0.field.138": 1000 + 200 * 10**6})

    ticks = [sampler.tick() for _ in range(10)]
    links = [link for tick in ticks for link in tick.gpu_link if (link.index, link.link) == (0, 3)]

    assert [(link.rx_bytes_s, link.tx_bytes_s) for link in links] == [(None, 200e6 * 1024 / 10)]
    assert sampler.tick().gpu[0].nvlink_rx_bytes_s is None
    infos = [info for tick in (*ticks, sampler.tick(61.0)) for info in tick.gpu_info if info.index == 0]
    assert "exceeds the line rate" in infos[-1].unsupported["nvlink_rx_bytes_s"]


def test_nvlink_throughput_of_blackwell_without_throughput_counters_comes_from_bytes(watch):
    sampler = watch(scenarios.hgx_b200())
    [sampler.tick() for _ in range(22)]
    sampler.scenario.change({"gpu0.field.202": 10**10, "gpu0.field.204": 3 * 10**10})

    links = [link for _ in range(10) for link in sampler.tick().gpu_link if (link.index, link.link) == (0, 3)]

    assert [(link.rx_bytes_s, link.tx_bytes_s) for link in links] == [(3e9, 1e9)]


def test_nvlink_throughput_is_the_sum_of_the_links_where_the_driver_does_not_sum(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu.field.138@all": 0})
    [sampler.tick() for _ in range(12)]
    sampler.scenario.change({"gpu0.field.138": 1000 + 10240})

    links = [link for _ in range(10) for link in sampler.tick().gpu_link if (link.index, link.link) == (0, 3)]

    assert links[-1].tx_bytes_s == 1024 * 1024
    assert sampler.tick().gpu[0].nvlink_tx_bytes_s == 18 * 1024 * 1024


def test_instantaneous_power_is_beside_the_average(watch):
    gpu = watch(scenarios.hgx_h100() | {"gpu.field.186": "u32:698500"}).tick().gpu[0]

    assert (gpu.power_w, gpu.power_instant_w) == (512.345, 698.5)


def test_nvlink_throughput_is_the_growth_of_the_link_counters(watch):
    sampler = watch(scenarios.hgx_h100())
    first = sampler.tick()
    sampler.scenario.change({"gpu.field.138@all": 1_000_000 + 500, "gpu.field.139@all": 2_000_000 + 4000})

    gpu = sampler.tick(2.0).gpu[0]

    assert first.gpu[0].nvlink_tx_bytes_s is None
    assert (gpu.nvlink_tx_bytes_s, gpu.nvlink_rx_bytes_s) == (250 * 1024, 2000 * 1024)


def test_pcie_traffic_comes_from_gpm_where_there_is_gpm(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()

    gpu = sampler.tick().gpu[0]

    assert (gpu.pcie_tx_bytes_s, gpu.pcie_rx_bytes_s) == (100 << 20, 200 << 20)


def test_pcie_throughput_comes_from_64_bit_counters_without_gpm(watch):
    sampler = watch(scenarios.pcie_only() | {"gpu.field.197": 10**12, "gpu.field.198": 2 * 10**12})
    sampler.tick()
    sampler.scenario.change({"gpu.field.197": 10**12 + 10**9, "gpu.field.198": 2 * 10**12 + 3 * 10**9})

    gpu = sampler.tick().gpu[0]

    assert (gpu.pcie_tx_bytes_s, gpu.pcie_rx_bytes_s) == (1e9, 3e9)


@pytest.mark.parametrize("narrow", [{}, {"gpu.field.197": "u32:5", "gpu.field.198": "u32:9"}])
def test_pcie_throughput_falls_back_to_the_slow_background_call(watch, narrow):
    sampler = watch(scenarios.pcie_only() | narrow)
    sampler.tick()

    records = sampler.until(lambda records: all(gpu.pcie_rx_bytes_s is not None for gpu in records.gpu), 1.0)

    assert (records.gpu[3].pcie_rx_bytes_s, records.gpu[3].pcie_tx_bytes_s) == (4096 * 1024, 1024 * 1024)
    assert "pcie_rx_bytes_s" not in sampler.sampler._devices[3].last_info["unsupported"]


def test_throttle_reasons_have_their_share_of_time(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({"gpu.reasons": 0x44, "gpu.field.74": 500_000_000, "gpu.field.270": 20_000_000})

    gpu = sampler.tick(2.0).gpu[0]

    assert gpu.clocks_event_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert gpu.clocks_event_share_pct["sw_power_cap"] == 25.0
    assert gpu.clocks_event_share_pct["hw_thermal_slowdown"] == 1.0
    assert gpu.clocks_event_share_pct["sync_boost"] == 0.0


#: Driver, and the number of its counter of hw_thermal_slowdown; None: it has none, or it is not known.
COUNTERS = (
    ("550.163.01", None), ("570.172.08", None), ("575.51.03", 252), ("580.65.06", 252), ("580.76.05", None),
    ("580.82.07", 270), ("580.126.09", 270), ("590.48.01", 270), ("unknown", None),
)  # fmt: skip


@pytest.mark.parametrize(("driver", "number"), COUNTERS)
def test_throttle_counters_are_read_by_the_numbers_of_the_drivers_release(watch, driver, number):
    """The numbers of other releases are settings of power smoothing, which do not change: throttling by 0 %."""
    smoothing = {f"gpu.field.{other}": 3 for other in (251, 252, 253, 269, 270, 271)}
    sampler = watch(scenarios.hgx_h100() | smoothing | {"driver": driver})
    sampler.tick()
    sampler.scenario.change({"gpu.reasons": 0x40, f"gpu.field.{number or 270}": 500_000_003})

    records = sampler.tick(1.0)
    shares = records.gpu[0].clocks_event_share_pct
    assert shares.get("hw_thermal_slowdown") == (50.0 if number else None)
    assert records.gpu[0].clocks_event_reasons == ("hw_thermal_slowdown",)
    reasons = sampler.sampler._devices[0].last_info["unsupported"]
    assert ("clocks_event_share_pct.hw_thermal_slowdown" in reasons) is not bool(number)


def test_error_counters_have_totals_and_growth(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({"gpu2.field.3": 7, "gpu2.field.94": "u32:2"})

    gpus = [sampler.tick().gpu for _ in range(6)]

    assert (gpus[-1][2].ecc_corrected_volatile, gpus[-1][2].pcie_replays) == (7, 2)
    assert [gpu[2].grown for gpu in gpus if gpu[2].grown] == [{"ecc_corrected_volatile": 7, "pcie_replays": 2}]
    assert not any(gpu[1].grown for gpu in gpus)


def test_counters_and_slow_figures_are_read_every_five_seconds_and_sent_every_second(watch):
    sampler = watch(scenarios.hgx_h100())
    before = sampler.tick().gpu[0].bar1_used_bytes
    sampler.scenario.change({"gpu0.bar1": "0 0 7", "gpu0.power": 123000, "gpu0.field.3": 5})

    gpus = [sampler.tick().gpu[0] for _ in range(5)]

    assert [gpu.ecc_corrected_volatile for gpu in gpus] == [0, 0, 0, 0, 5]
    assert {gpu.bar1_used_bytes for gpu in gpus[:4]} == {before}
    assert {gpu.power_w for gpu in gpus} == {123.0}


def test_wrapped_32_bit_counter_grows_and_a_reset_counter_does_not(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu0.field.94": f"u32:{2**32 - 3}", "gpu1.field.94": "u32:50"})
    sampler.tick()
    sampler.scenario.change({"gpu0.field.94": "u32:4", "gpu1.field.94": "u32:1", "gpu.field.138@all": 5})

    gpus = sampler.tick(5.0).gpu

    assert (gpus[0].grown, gpus[1].grown) == ({"pcie_replays": 7}, {})
    assert gpus[0].nvlink_tx_bytes_s is None  # the driver was reset: the traffic in between is unknown


def test_every_nvlink_is_reported_every_ten_seconds_with_speed_and_errors(watch):
    sampler = watch(scenarios.hgx_h100())
    records = [sampler.tick() for _ in range(12)]
    sampler.scenario.change({"gpu0.field.138@5": 1000 + 2048, "gpu0.field.161@5": 9})

    links = [link for _ in range(10) for link in sampler.tick().gpu_link if link.index == 0]

    assert all(len(tick.gpu_link) in (0, 18) for tick in records[1:])
    assert {link.index for tick in records for link in tick.gpu_link} == set(range(8))
    changed, link = [link for link in links if link.link == 5]
    assert (changed.up, changed.version, changed.speed_bytes_s) == (True, 4, 26562e6)
    assert (changed.replay_errors, changed.grown, link.replay_errors, link.grown) == (9, {"replay_errors": 9}, 9, {})
    assert 0 < link.tx_bytes_s <= 2048 * 1024 / 10
    assert sampler.tick().gpu[0].nvlink_replay_errors == 9  # the sum over links, because the GPU has no total


@pytest.mark.parametrize("later_s", [0, 5])  # whichever of the two kinds of reading comes first
@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"gpu3.field.162@7": 2}, "recovery_errors", 2),
        ({"gpu3.field.163@7": 4}, "crc_errors", 4),
        ({"gpu3.field.165@7": 0}, "up", False),
    ],
)
def test_changed_nvlink_is_reported_within_five_seconds_with_its_sum(watch, change, field, value, later_s):
    sampler = watch(scenarios.hgx_h100())
    [sampler.tick() for _ in range(25 + later_s)]
    sampler.scenario.change(change)

    ticks = [sampler.tick() for _ in range(5)]

    found = [(tick, link) for tick in ticks for link in tick.gpu_link
             if (link.index, link.link, getattr(link, field)) == (3, 7, value)]  # fmt: skip
    ((tick, link),) = found
    assert (link.version, link.speed_bytes_s) == (4, 26562e6)
    assert field == "up" or tick.gpu[3].grown[f"nvlink_{field}"] == value


def test_nvlink_whose_state_only_the_older_call_returns_is_reported_within_five_seconds(watch):
    lines = scenarios.hgx_h100()
    lines = {key: value for key, value in lines.items() if ".field.165" not in key} | {
        f"gpu.link_state.{link}": 1 for link in range(18)
    }
    sampler = watch(lines)
    [sampler.tick() for _ in range(25)]
    sampler.scenario.change({"gpu3.link_state.7": 0})

    links = [link for _ in range(5) for link in sampler.tick().gpu_link if (link.index, link.link) == (3, 7)]

    assert not links[0].up


@pytest.mark.parametrize("capability", ["10 0", "8 0"])
def test_nvlink_errors_of_blackwell_are_counted_whatever_the_architecture(watch, capability):
    sampler = watch(scenarios.hgx_b200() | {"gpu.capability": capability})
    [sampler.tick() for _ in range(25)]
    sampler.scenario.change({"gpu3.field.215@7": 2, "gpu3.field.208@7": 9, "gpu3.field.221@7": 5})

    links = [link for _ in range(10) for link in sampler.tick().gpu_link if (link.index, link.link) == (3, 7)]

    link, later = links
    assert later.grown == {}
    assert (link.recovery_errors, link.rx_errors, link.symbol_errors, link.integrity_errors) == (2, 9, 5, 0)
    assert (link.crc_errors, link.replay_errors) == (None, None)
    assert link.grown == {"recovery_errors": 2, "rx_errors": 9, "symbol_errors": 5}
    assert sampler.tick().gpu[3].nvlink_recovery_errors == 2


def test_older_calls_replace_field_values_missing_from_the_driver(watch):
    lines = scenarios.hgx_h100() | {"gpu.ecc.0.0": 3, "gpu.remapped": "1 2 1 0", "gpu.energy": 7000, "gpu.replays": 4}
    for number in (3, 83, 94, 142, 143, 144, 145):
        del lines[f"gpu.field.{number}"]
    sampler = watch(lines)
    sampler.tick()

    gpu = sampler.tick().gpu[0]

    assert (gpu.ecc_corrected_volatile, gpu.energy_j, gpu.pcie_replays) == (3, 7.0, 4)
    assert (gpu.remapped_rows_uncorrected, gpu.remap_pending, gpu.remap_failed) == (2, True, False)


def test_each_mig_device_has_its_own_records(watch):
    sampler = watch(scenarios.mig())
    first = sampler.tick()
    second = sampler.tick()

    physical, *parts = first.gpu_info
    assert (physical.mig_mode, physical.mig_devices, len(parts)) == (True, ("MIG-1", "MIG-2"), 2)
    assert [(part.parent, part.mig_index, part.gpu_instance) for part in parts] == [
        (physical.uuid, 0, 1), (physical.uuid, 2, 2)]  # fmt: skip
    assert [(gpu.uuid, gpu.util_pct, gpu.sm_pct) for gpu in second.gpu[1:]] == [
        ("MIG-1", None, 25.0), ("MIG-2", None, 75.0)]  # fmt: skip
    assert [process.uuid for process in first.gpu_process] == ["MIG-2"]


def test_removed_mig_device_is_reported_as_lost(watch):
    sampler = watch(scenarios.mig())
    sampler.tick()
    sampler.scenario.change(drop=("gpu0mig2.uuid",))

    records = sampler.tick(61.0)

    lost = [(info.uuid, info.lost) for info in records.gpu_info if info.lost]
    assert lost == [("MIG-2", "this MIG device was removed")]
    assert [process.gone for process in records.gpu_process] == [True]
    assert [gpu.uuid for gpu in records.gpu][1:] == ["MIG-1"]


#: Nothing works without these; covered by other tests.
_OPENING = {"nvmlInitWithFlags", "nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
            "nvmlDeviceGetUUID", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTemperature", "nvmlShutdown"}  # fmt: skip


@pytest.mark.parametrize("code", [3, 999])
@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name not in _OPENING | {"nvmlEventSetFree"}])
def test_any_failing_call_keeps_the_other_figures(watch, function, code):
    sampler = watch(scenarios.hgx_h100() | {f"fail.{function}": code})

    sampler.tick()
    records = sampler.tick()

    assert [(gpu.util_pct, gpu.temp_c) for gpu in records.gpu].count((97, 61)) == 8 or function in (
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperatureV")  # fmt: skip
    assert all(gpu.energy_j == 5000.0 for gpu in records.gpu)


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name not in _OPENING])
def test_gpu_lost_in_any_call_keeps_the_other_gpus(watch, function):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({f"gpu3.fail.{function}": 15})

    records = [sampler.tick(61.0), sampler.tick()]

    assert {gpu.index for tick in records for gpu in tick.gpu} >= {0, 1, 2, 4, 5, 6, 7}
    assert {event.index for tick in records for event in tick.gpu_event} <= {3}


@pytest.mark.parametrize("code", [3, 999])
@pytest.mark.parametrize("function", [
    "nvmlGpmMigSampleGet", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetMigMode"])  # fmt: skip
def test_failing_mig_call_keeps_the_figures_of_the_gpu(watch, function, code):
    sampler = watch(scenarios.mig() | {f"fail.{function}": code})
    sampler.tick()

    assert sampler.tick().gpu[0].power_w == 512.345


@pytest.mark.parametrize("function", [
    "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature", "nvmlDeviceGetMemoryInfo",
    "nvmlShutdown"])  # fmt: skip
def test_failing_fallback_call_keeps_the_other_figures(watch, function):
    sampler = watch(scenarios.nothing_supported() | {"gpu.power": 250000, f"fail.{function}": 999})
    sampler.tick()

    assert [gpu.power_w for gpu in sampler.tick().gpu] == [250.0, 250.0]


@pytest.mark.parametrize("code", [2, 3, 4, 999])
def test_figures_of_single_calls_remain_without_field_values(watch, code):
    sampler = watch(scenarios.hgx_h100() | {"fail.nvmlDeviceGetFieldValues": code})
    sampler.tick()

    gpu = sampler.tick().gpu[0]

    assert (gpu.util_pct, gpu.energy_j, gpu.sm_pct) == (97, None, 88.5)


def test_older_call_versions_are_used_when_new_ones_are_missing(watch):
    fails = {f"fail.{name}": 13 for name in (
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMemoryInfo_v2",
    )}  # fmt: skip
    records = watch(scenarios.hgx_h100() | fails | {"gpu.reasons": 4}).tick()

    gpu = records.gpu[0]
    assert (gpu.temp_c, gpu.clocks_event_reasons, gpu.mem_used_bytes) == (61, ("sw_power_cap",), 40 << 30)
    assert {"temp_c", "clocks_event_reasons", "mem_used_bytes"}.isdisjoint(records.gpu_info[0].unsupported)
