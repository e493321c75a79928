"""From NVML values to findings: each fault simulated by the fake NVML, and each call failing once."""

import msgspec
import pytest
from nvml import scenarios
from nvml.library import FUNCTIONS

from gconsole.analysis.health import health_findings
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.records import KINDS, Node
from gconsole_remote.nvml.simulate import SimulatedNvml
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.gpu import GpuSampler

LIMITS = HealthConfig(window_s=10)
GIB = scenarios.GIB


def findings_after(sampler, seconds, play=None):
    """Findings after some seconds; `play(second)` returns the scenario changes of that second."""
    facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
    facts.add([Node(node="n1", agent="a", hostname="n1", boot_id="b", kernel="6.1", arch="x86_64", python="3.11",
                    uid=0, pid=1, sample_interval_ms=1000)])  # fmt: skip
    for second in range(seconds):
        if play is not None:
            sampler.scenario.change(play(second))
        tick = sampler.tick()
        for records in vars(tick).values():
            for record in records:
                record.node, record.agent = "n1", "a"
                record.mono = record.rx = int(sampler.now * 1e9)
        facts.add([record for records in (tick.gpu_info, *vars(tick).values()) for record in records])
    return {finding.id: finding for finding in health_findings(facts, LIMITS)}


def test_healthy_node_has_no_findings(watch):
    assert findings_after(watch(scenarios.hgx_h100()), 25) == {}


#: fault: (initial lines, changes at a second, text of the one finding).
FAULTS = {
    "gpu_ecc": ({"gpu2.field.4": 3}, None, "n1:gpu2: 3 uncorrected memory errors"),
    "gpu_remap_pending": ({"gpu1.field.144": "u32:1"}, None, "n1:gpu1: pending row remaps"),
    "gpu_throttle": (
        {}, lambda s: {"gpu4.field.271": 500_000_000 * s, "gpu4.temp": 88},
        "n1:gpu4: clocks throttled: power brake (hw_power_brake_slowdown) for 50 %",
    ),
    "gpu_lost": ({}, lambda s: {"gpu3.lost": 15} if s > 2 else {}, "n1:gpu3: lost by the driver"),
    "gpu_xid": (
        {}, lambda s: {"gpu6.field.230": "u32:1"} if s > 2 else {}, "n1:gpu6: the driver requests a recovery action",
    ),
    "pcie_degraded": ({"gpu0.pcie_width": 4}, None, "n1:gpu0: PCIe x4, GPU and slot support x16"),
    "nvlink_down": (
        {}, lambda s: {"gpu5.field.165@11": f"u32:{int(s < 12)}"}, "n1:gpu5: NVLink 11 went down; 17 of 18",
    ),
    "nvlink_errors": ({"gpu7.field.59": 1}, lambda s: {"gpu7.field.59": 1 + s}, "recovery errors on its NVLinks"),
}  # fmt: skip


@pytest.mark.parametrize("id", FAULTS)
def test_each_gpu_fault_gives_exactly_its_own_finding(watch, id):
    lines, play, words = FAULTS[id]
    findings = findings_after(watch(scenarios.hgx_h100() | lines), 25, play)

    assert set(findings) == {id}
    assert words in findings[id].text


def test_uncorrected_ecc_errors_are_found_through_the_old_call(watch):
    lines = scenarios.hgx_h100() | {"gpu.field.4": "code:3", "gpu.ecc.1.0": 0, "gpu2.ecc.1.0": 2}

    assert "2 uncorrected memory errors" in findings_after(watch(lines), 3)["gpu_ecc"].text


def test_gpu_that_cannot_be_opened_is_a_gpu_lost_finding(watch):
    findings = findings_after(watch(scenarios.hgx_h100() | {"gpu3.fail.nvmlDeviceGetUUID": 15}), 3)

    assert set(findings) == {"gpu_lost"}
    assert findings["gpu_lost"].culprits == ("n1:gpu3",)


def test_node_without_supported_figures_has_no_findings(watch):
    assert findings_after(watch(scenarios.nothing_supported()), 25) == {}


def test_mig_devices_have_no_findings(watch):
    assert findings_after(watch(scenarios.mig()), 25) == {}


@pytest.mark.parametrize("function", [name for name in FUNCTIONS if name != "nvmlDeviceGetUUID"])
def test_failing_nvml_call_raises_no_finding(watch, function):
    """A missing value is not a fault; only a GPU that the driver cannot open is one."""
    try:
        sampler = watch(scenarios.hgx_h100() | {f"gpu2.fail.{function}": 999})
    except Exception as error:
        pytest.fail(f"one GPU's failing call kept the sampler from starting: {error}")

    assert set(findings_after(sampler, 3)) <= ({"gpu_lost"} if function.startswith("nvmlDeviceGetHandle") else set())


def test_simulated_fleet_has_no_findings_for_an_hour():
    now = [0.0]
    samplers = {name: GpuSampler(Context(), SimulatedNvml(8, name, clock=lambda: now[0])) for name in ("n1", "n2")}
    facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
    for sampler in samplers.values():
        sampler.start()
    texts = set()
    for second in range(0, 3600, 3):
        now[0] = float(second)
        for name, sampler in samplers.items():
            ticked = [msgspec.convert({"kind": kind, **fields}, KINDS[kind]) for kind, fields in sampler.tick(now[0])]
            for record in ticked:
                record.node, record.mono = name, int(now[0] * 1e9)
            facts.add(ticked)
        texts |= {finding.text for finding in health_findings(facts, LIMITS)}
    for sampler in samplers.values():
        sampler.stop()

    assert texts == set()
