"""Each NVML call of the agent failing in isolation: which values are lost, and that the reason is reported."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvml import scenarios
from nvml.library import FUNCTIONS

import gconsole_remote

GIB = scenarios.GIB
SOURCES = Path(gconsole_remote.__file__).parent
NOT_SUPPORTED = 3
TICKS = 13  # NVLinks are read every 10 s, and a rate needs two samples
#: Fields of every record, and process names: no value is lost with them.
_ENVELOPE = {"node", "agent", "seq", "t", "mono", "rx", "index", "uuid", "simulated", "unsupported", "gone", "link"}

_SINGLE = {
    "nvmlDeviceGetApplicationsClock": "gpu_info.app_sm_clock_mhz",
    "nvmlDeviceGetDefaultApplicationsClock": "gpu_info.app_sm_clock_default_mhz",
    "nvmlDeviceGetBAR1MemoryInfo": "gpu.bar1_used_bytes",
    "nvmlDeviceGetClockInfo": "gpu.sm_clock_mhz gpu.mem_clock_mhz gpu.video_clock_mhz",
    "nvmlDeviceGetComputeMode": "gpu_info.compute_mode",
    "nvmlDeviceGetCpuAffinity": "gpu_info.cpu_affinity",
    "nvmlDeviceGetCudaComputeCapability": "gpu_info.compute_capability",
    "nvmlDeviceGetCurrPcieLinkGeneration": "gpu_info.pcie_gen",
    "nvmlDeviceGetCurrPcieLinkWidth": "gpu_info.pcie_width",
    "nvmlDeviceGetCurrentClocksEventReasons": "gpu.clocks_event_reasons",
    "nvmlDeviceGetDecoderUtilization": "gpu.decoder_pct",
    "nvmlDeviceGetEccMode": "gpu_info.ecc_mode",
    "nvmlDeviceGetEncoderUtilization": "gpu.encoder_pct",
    "nvmlDeviceGetEnforcedPowerLimit": "gpu_info.power_limit_w",
    "nvmlDeviceGetFanSpeed": "gpu.fan_pct",
    "nvmlDeviceGetGpuFabricInfoV": "gpu_info.fabric_state gpu_info.fabric_clique gpu_info.fabric_cluster",
    "nvmlDeviceGetMaxClockInfo": "gpu_info.max_sm_clock_mhz gpu_info.max_mem_clock_mhz gpu_info.max_video_clock_mhz",
    "nvmlDeviceGetMaxPcieLinkGeneration": "gpu_info.pcie_gen_max",
    "nvmlDeviceGetMaxPcieLinkWidth": "gpu_info.pcie_width_max",
    "nvmlDeviceGetMemoryInfo_v2": "gpu.mem_used_bytes gpu_info.mem_total_bytes",
    "nvmlDeviceGetMigMode": "gpu_info.mig_mode",
    "nvmlDeviceGetName": "gpu_info.name",
    "nvmlDeviceGetNumaNodeId": "gpu_info.numa_node",
    "nvmlDeviceGetPciInfo_v3": "gpu_info.pci_bus_id",
    "nvmlDeviceGetPerformanceState": "gpu.pstate",
    "nvmlDeviceGetPersistenceMode": "gpu_info.persistence",
    "nvmlDeviceGetPowerManagementDefaultLimit": "gpu_info.power_limit_default_w",
    "nvmlDeviceGetPowerManagementLimitConstraints": "gpu_info.power_limit_min_w gpu_info.power_limit_max_w",
    "nvmlDeviceGetPowerUsage": "gpu.power_w",
    "nvmlDeviceGetSerial": "gpu_info.serial",
    "nvmlDeviceGetTemperatureV": "gpu.temp_c",
    "nvmlDeviceGetTemperatureThreshold": "gpu_info.temp_slowdown_c gpu_info.mem_temp_max_c",
    "nvmlDeviceGetMarginTemperature": "gpu.temp_margin_c",
    "nvmlDeviceGetSramEccErrorStatus": "gpu_info.sram_threshold_exceeded",
    "nvmlDeviceGetUtilizationRates": "gpu.util_pct gpu.mem_util_pct",
    "nvmlDeviceGetVbiosVersion": "gpu_info.vbios",
    "nvmlSystemGetCudaDriverVersion": "gpu_info.cuda_driver",
    "nvmlSystemGetDriverVersion": "gpu_info.driver",
    "nvmlDeviceGetProcessUtilization": "gpu_process.sm_pct",
}
_GPM = "gpu.sm_pct gpu.sm_occupancy_pct gpu.tensor_pct gpu.dram_pct"
#: NVML function: the values that are lost if it fails and everything else works.
COSTS = {
    **_SINGLE,
    **dict.fromkeys(("nvmlGpmMetricsGet", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"), _GPM),
    # called if the newer function, or the field value, is not available
    **dict.fromkeys(("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetNvLinkState",
                     "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetRemappedRows",
                     "nvmlDeviceGetTemperature", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetTotalEnergyConsumption"),
                    ""),
    # reported outside a value field; covered by other tests
    **dict.fromkeys(("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlEventSetFree",
                     "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlGpmMigSampleGet",
                     "nvmlGpmSampleFree", "nvmlShutdown", "nvmlInit_v2"), ""),
}  # fmt: skip
#: An older function replaces these if the driver lacks them; not for transient failures.
REPLACED = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV"}
#: Identity, not a value; listed by this name in `unsupported`.
NAMED = {
    "nvmlDeviceGetComputeRunningProcesses_v3": "gpu_process.compute",
    "nvmlDeviceGetGraphicsRunningProcesses_v3": "gpu_process.graphics",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": "gpu_process.mps",
    "nvmlDeviceRegisterEvents": "gpu_event.xid",
    "nvmlEventSetCreate": "gpu_event.xid",
    "nvmlEventSetWait_v2": "gpu_event.xid",
}
#: Without these there are no GPUs or no distinct ones: see `test_events` and `test_figures`.
OPENING = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
           "nvmlDeviceGetFieldValues"}  # fmt: skip
#: Called by the topology sampler: see `test_topology`.
TOPOLOGY = {"nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetNvLinkVersion",
            "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo_v2"}  # fmt: skip


def all_calls():
    """A machine that supports everything that the agent queries."""
    lines = scenarios.hgx_h100() | {
        "gpu.fan": 40, "gpu.numa": 1, "gpu.gpm.60": 10.0, "gpu.gpm.61": 20.0, "gpu.share.0": "700 66 10",
        "gpu.compute.0": f"700 {GIB}", "gpu.graphics.0": f"701 {GIB}", "gpu.mps.0": f"702 {GIB}",
        "gpu.field.31": "u32:0", "gpu.field.186": "u32:500000", "gpu.reasons": 4,
    }  # fmt: skip
    return lines | dict.fromkeys((f"gpu.field.{number}" for number in (29, 30, 38, 45, 52, 59)), 0)


def report_figures(watch, lines):
    """Records of GPU 0: the names of all values ever reported, and the reasons for the missing ones."""
    sampler = watch(lines)
    reported, unsupported = set(), {}
    for tick in range(TICKS):
        sampler.scenario.change({"gpu.field.138": 1000 + tick, "gpu.field.139": 1000 + tick,
                                 "gpu.field.138@all": 5000 * tick, "gpu.field.139@all": 5000 * tick})  # fmt: skip
        records = sampler.tick()
        for kind in ("gpu_info", "gpu", "gpu_link", "gpu_process"):
            for record in (candidate for candidate in getattr(records, kind) if candidate.index == 0):
                values = {field: getattr(record, field) for field in record.__struct_fields__}
                reported |= {f"{kind}.{field}" for field, value in values.items() if value not in (None, (), {}, "")}
        for info in records.gpu_info:
            unsupported = info.unsupported if info.index == 0 else unsupported
    return SimpleNamespace(
        sampler=sampler, unsupported=unsupported,
        figures={name for name in reported if name.partition(".")[2] not in _ENVELOPE},
    )  # fmt: skip


@pytest.fixture
def full_figures(watch):
    """The values of a machine on which every call works; computed once."""
    if not _FULL_FIGURES:
        _FULL_FIGURES.update(report_figures(watch, all_calls()).figures)
    return _FULL_FIGURES


_FULL_FIGURES = set()


@pytest.fixture(scope="module")
def named_calls():
    """Every NVML function named in the agent's sources."""
    sources = [*(SOURCES / "nvml").glob("*.py"), SOURCES / "samplers/gpu.py", SOURCES / "samplers/topology.py"]
    text = "".join(path.read_text() for path in sources)
    return set(re.findall(r"\bnvml(?:Init|Shutdown|(?:Device|System|Event|Gpm)[A-Z][a-z]\w*)\b(?!_t)", text)) - {
        "nvmlEventTypeXidCriticalError", "nvmlGpmMetricId", "nvmlGpmMetricsGet_t", "nvmlGpmMetricId_t"}  # fmt: skip


def stem(name):
    """The function name without its version suffix."""
    return re.sub(r"(_v\d|WithFlags)$", "", name)


def test_every_nvml_function_of_the_agent_is_covered_here(named_calls):
    covered = {*COSTS, *NAMED, *OPENING, *TOPOLOGY}

    assert {stem(name) for name in named_calls} <= {stem(name) for name in FUNCTIONS}
    assert covered == set(FUNCTIONS)


def test_every_figure_is_known_when_all_calls_succeed(watch):
    result = report_figures(watch, all_calls())

    assert result.unsupported == {}
    expected = {figure for figures in COSTS.values() for figure in figures.split()}
    assert expected <= result.figures


@pytest.mark.parametrize("code", [NOT_SUPPORTED, 999])
@pytest.mark.parametrize("function", COSTS)
def test_failing_call_loses_only_its_own_figures_with_a_reason(watch, full_figures, function, code):
    result = report_figures(watch, all_calls() | {f"fail.{function}": code} | _without_gpm(function))

    costs = set(COSTS[function].split()) if code != NOT_SUPPORTED or function not in REPLACED else set()
    assert full_figures - result.figures - _buses(function) == costs
    assert result.figures <= full_figures
    for figure in costs:
        kind, _, field = figure.partition(".")
        assert result.unsupported[figure if kind == "gpu_process" else field]


def _without_gpm(function):
    """If GPM fails, PCIe is queried separately, which works."""
    return {"gpu.pcie_rx": 4096, "gpu.pcie_tx": 1024} if function.startswith("nvmlGpm") else {}


def _buses(function):
    """Values that a separate thread reports asynchronously."""
    return {"gpu.pcie_rx_bytes_s", "gpu.pcie_tx_bytes_s"} if function.startswith("nvmlGpm") else set()


@pytest.mark.parametrize("function", NAMED)
def test_failing_call_without_its_own_figure_is_listed_as_unsupported(watch, function):
    result = report_figures(watch, all_calls() | {f"fail.{function}": 999})

    def is_reported(records):
        return any(NAMED[function] in info.unsupported for info in records.gpu_info if info.index == 0)

    assert NAMED[function] in result.unsupported or result.sampler.until(is_reported)


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name not in OPENING])
def test_call_that_starts_failing_later_loses_no_gpu_records(watch, function):
    sampler = watch(all_calls())
    sampler.tick()
    sampler.scenario.change({f"fail.{function}": 999})

    records = [sampler.tick(61.0), sampler.tick()]

    assert [len(tick.gpu) for tick in records] == [8, 8]
    assert not any(info.lost for tick in records for info in tick.gpu_info)
    assert not any(process.gone for tick in records for process in tick.gpu_process)


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount",
                                      "nvmlDeviceGetMigDeviceHandleByIndex"])  # fmt: skip
def test_mig_devices_stay_when_the_mig_calls_fail(watch, function):
    sampler = watch(scenarios.mig())
    sampler.tick()
    sampler.scenario.change({f"fail.{function}": 999})

    records = sampler.tick(61.0)

    assert [gpu.uuid for gpu in records.gpu][1:] == ["MIG-1", "MIG-2"]
    assert not any(info.lost for info in records.gpu_info)


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_processes_stay_while_the_process_list_call_fails(watch, kind):
    function = {name.partition(".")[2]: function for function, name in NAMED.items()}[kind]
    sampler = watch(all_calls())
    sampler.tick()
    sampler.scenario.change({f"fail.{function}": 999})
    while_unknown = [process for _ in range(4) for process in sampler.tick().gpu_process]
    sampler.scenario.change(drop=(f"fail.{function}", f"gpu.{kind}.0"))

    gone = [process for _ in range(4) for process in sampler.tick().gpu_process]

    assert while_unknown == []
    assert {(process.type, process.gone) for process in gone} == {(kind, True)}
