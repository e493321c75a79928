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
from gconsole_remote.samplers.base import Context, Unavailable
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


@pytest.mark.parametrize("machine", [scenarios.hgx_h100, scenarios.hgx_b200, scenarios.bridged, scenarios.pcie_only])
def test_healthy_node_has_no_findings(watch, machine):
    assert findings_after(watch(machine()), 25) == {}


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
    "gpu_hot": ({}, lambda s: {"gpu4.temp": 92 if s > 3 else 61}, "n1:gpu4: 92 °C, clocks are lowered at 95 °C"),
    "gpu_slow_clock": (
        {}, lambda s: {"gpu4.clock.1": 345 if s > 3 else 1980}, "n1:gpu4: SM clock 345 of 1,980 MHz under load",
    ),
    "nvlink_fabric": (
        {}, lambda s: {"gpu3.fabric": "2 0 0" if s > 3 else "3 1 0"}, "n1:gpu3: has not joined the NVLink fabric",
    ),
    "gpu_settings": (
        {}, lambda s: {"gpu6.persistence": int(s < 4), "gpu6.ecc_mode": "0 0" if s > 3 else "1 1"},
        "n1:gpu6: persistence mode off, 7 GPUs of its model on; ECC off, 7 GPUs of its model on",
    ),
    "nvlink_errors": ({"gpu7.field.59": 1}, lambda s: {"gpu7.field.59": 1 + s}, "recovery errors on its NVLinks"),
}  # fmt: skip


@pytest.mark.parametrize("id", FAULTS)
def test_each_gpu_fault_gives_exactly_its_own_finding(watch, id):
    lines, play, words = FAULTS[id]
    findings = findings_after(watch(scenarios.hgx_h100() | lines), 25, play)

    assert set(findings) == {id}
    assert words in findings[id].text


#: Faults that are seen within 10 s on a GPU that works: the change, the finding and its words.
CHANGES = (
    ({"gpu2.margin": 2}, "gpu_hot", "2 °C below the point at which clocks are lowered (T.Limit)"),
    ({"gpu2.margin": -5}, "gpu_hot", "5 °C above the point at which clocks are lowered (T.Limit)"),
    ({"gpu2.field.82": "u32:110"}, "gpu_hot", "memory 110 °C, the limit is 105 °C"),
    ({"gpu2.threshold.2": 0, "gpu2.field.82": "u32:110"}, "gpu_hot", "memory 110 °C, the limit is 105 °C"),
    ({"gpu2.sram_exceeded": 1}, "gpu_ecc", "SRAM errors exceed the vendor's threshold"),
    ({"gpu2.fabric": "3 1 0 1"}, "nvlink_fabric", "NVLink fabric: degraded bandwidth"),
    ({"gpu2.fabric": "3 1 0 1296"}, "nvlink_fabric", "NVLink fabric: route unhealthy, insufficient nvlinks"),
    ({"gpu2.fabric": "3 1 999"}, "nvlink_fabric", "NVLink fabric: error 999"),
    ({"gpu2.fabric": "1 0 0"}, "nvlink_fabric", "NVLink fabric (not started), 7 GPUs of its node did"),
    ({"gpu2.power_limit": 400_000}, "gpu_settings", "power limit 400 W, 7 GPUs of its model 700 W"),
    ({"gpu2.pcie_gen": 3}, "pcie_degraded", "PCIe gen 3 under load, GPU and slot support gen 5"),
    ({"gpu2.pcie_width": 8}, "pcie_degraded", "PCIe x8, GPU and slot support x16"),
)


@pytest.mark.parametrize(("lines", "id", "words"), CHANGES)
def test_fault_of_a_working_gpu_is_found_within_10_s_and_clears(watch, lines, id, words):
    sampler = watch(scenarios.hgx_h100())
    before = {key: sampler.scenario.lines.get(key.replace("gpu2", "gpu")) for key in lines}

    findings = findings_after(sampler, 22, lambda s: lines if s > 12 else {})

    assert set(findings) == {id}
    assert words in findings[id].text
    assert findings[id].culprits == ("n1:gpu2",)
    sampler.scenario.change(before)
    assert findings_after(sampler, 15) == {}


#: What healthy GPUs do.
HEALTHY = (
    {"gpu2.util": "0 0", "gpu2.pcie_gen": 1, "gpu2.clock.1": 210, "gpu2.pstate": 8, "gpu2.reasons": 1},
    {"gpu2.clock.1": 900, "gpu2.reasons": 4},  # power cap
    {"gpu2.clock.1": 900, "gpu2.reasons": 2},  # application clocks
    {"gpu2.util": "40 5", "gpu2.clock.1": 600, "gpu2.pcie_gen": 2},
    {"gpu2.temp": 88, "gpu2.margin": 5, "gpu2.field.82": "u32:98"},
    {"gpu.persistence": 0}, {"gpu.power_limit": 500_000}, {"gpu2.power_limit": 697_000},
    {"gpu.fabric": "0 0 0"}, {"gpu.fabric": "1 0 0"}, {"gpu2.threshold.1": 0}, {"gpu.reasons": "", "gpu2.clock.1": 345},
)  # fmt: skip


@pytest.mark.parametrize("lines", HEALTHY)
def test_idle_capped_warm_and_equally_set_gpus_have_no_findings(watch, lines):
    machine = {key: value for key, value in (scenarios.hgx_h100() | lines).items() if value != ""}

    assert findings_after(watch(machine), 25) == {}


def test_load_after_idleness_with_a_lower_pcie_generation_has_no_finding(watch):
    idle = {"gpu2.util": "0 0", "gpu2.pcie_gen": 1, "gpu2.clock.1": 210}
    busy = {"gpu2.util": "99 9", "gpu2.pcie_gen": 5, "gpu2.clock.1": 1980}

    assert findings_after(watch(scenarios.hgx_h100()), 40, lambda s: busy if s // 7 % 2 else idle) == {}


def test_clocks_limited_on_all_gpus_alike_are_info(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu.clock.1": 1000})

    (finding,) = findings_after(sampler, 15).values()
    assert (finding.id, finding.severity) == ("gpu_slow_clock", "info")


#: Growth of a Blackwell counter of one link each 10 s: (field, gain), and the words, or None for no finding.
COUNTED = (
    (215, 1, "1 recovery error on NVLink 4"), (214, 1, "1 recovery failure on NVLink 4"),
    (211, 2, "2 link integrity errors on NVLink 4"), (206, 1, "1 malformed packet"), (207, 1, "1 buffer overrun"),
    (208, 500, "500 receive errors on NVLink 4"), (219, 500, "500 uncorrected errors"),
    (208, 2, None), (219, 2, None), (221, 10_000, None),
)  # fmt: skip


@pytest.mark.parametrize(("field", "gain", "words"), COUNTED)
def test_each_nvlink_counter_of_blackwell_is_judged_by_its_meaning(watch, field, gain, words):
    sampler = watch(scenarios.hgx_b200())

    findings = findings_after(sampler, 16, lambda s: {f"gpu2.field.{field}@4": gain if s > 5 else 0})

    assert set(findings) == ({"nvlink_errors"} if words else set())
    assert words is None or words in findings["nvlink_errors"].text


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


class TestBrokenGpus:
    """GPUs and drivers that return no data."""

    def test_gpu_whose_every_call_fails_is_unusable_and_clears_after_its_reset(self, watch):
        functions = [name for name in FUNCTIONS if name.startswith("nvmlDevice") and "Handle" not in name]
        broken = {f"gpu3.fail.{name}": 999 for name in functions if name != "nvmlDeviceGetUUID"}
        started = watch(scenarios.hgx_h100())
        facts_of = findings_after(started, 4, lambda second: broken if second > 1 else {})

        assert set(facts_of) == {"gpu_unusable"}
        assert facts_of["gpu_unusable"].culprits == ("n1:gpu3",)
        assert "no NVML call returns a value" in facts_of["gpu_unusable"].text
        started.scenario.change(drop=tuple(broken))
        assert findings_after(started, 4) == {}

    def test_gpu_that_requires_a_reset_is_unusable(self, watch):
        started = watch(scenarios.hgx_h100() | {"gpu1.fail.nvmlDeviceGetMemoryInfo_v2": 16})

        assert "n1:gpu1: the GPU requires a reset" in findings_after(started, 3)["gpu_unusable"].text

    def test_gpu_that_cannot_be_opened_is_lost_and_clears_after_its_reset(self, watch):
        started = watch(scenarios.hgx_h100() | {"gpu3.lost": 999})
        before = findings_after(started, 3)

        assert {name: finding.culprits for name, finding in before.items()} == {"gpu_lost": ("n1:gpu3",)}
        assert "the driver lists GPU 3 but cannot open it: Unknown Error" in before["gpu_lost"].text
        started = watch(scenarios.hgx_h100() | {"gpu3.lost": 999})
        assert findings_after(started, 12, lambda second: {"gpu3.lost": 999 if second < 3 else 0}) == {}

    def test_gpu_in_sysfs_that_the_driver_lacks_is_missing(self, watch, tmp_path):
        pci_devices(tmp_path, [f"0000:{0x10 + index:02x}:00.0" for index in range(8)])
        findings = findings_after(watch(scenarios.hgx_h100() | {"count": 7}), 2)

        assert set(findings) == {"gpu_missing"}
        assert "the driver has 7 of 8 GPUs; the kernel also lists 0000:17:00.0" in findings["gpu_missing"].text

    def test_gpus_of_other_containers_drivers_and_products_are_not_missing(self, watch, tmp_path):
        pci_devices(tmp_path, [f"0000:{0x10 + index:02x}:00.0" for index in range(8)], driver="nvidia")
        pci_devices(tmp_path, ["0000:20:00.0"], driver="vfio-pci")
        pci_devices(tmp_path, ["0000:21:00.0"], product="0x1cb1")  # needs an older driver
        (tmp_path / "proc" / "driver" / "nvidia" / "gpus" / "0000:10:00.0").mkdir(parents=True)
        started = watch(scenarios.hgx_h100() | {"count": 1}, proc=tmp_path / "proc")

        assert findings_after(started, 2) == {}

    @pytest.mark.parametrize(
        ("code", "fault"), [(18, "gpu_driver_mismatch"), (4, "gpu_no_permission"), (999, "gpu_nvml_failed")]
    )
    def test_driver_that_does_not_start_is_broken(self, tmp_path, code, fault):
        pci_devices(tmp_path, ["0000:10:00.0"])
        error = Unavailable("the driver does not start", "reboot", fault)

        findings = findings_of_absence(tmp_path, error)
        assert [(finding.id, finding.severity) for finding in findings] == [("driver_broken", "error")]
        assert "the driver does not start; the kernel lists 1 GPU" in findings[0].text

    @pytest.mark.parametrize("name", ["gpu_no_driver", "gpu_driver_not_loaded", "gpu_none"])
    def test_node_without_gpus_has_no_finding(self, tmp_path, name):
        (tmp_path / "sys" / "bus" / "pci" / "devices").mkdir(parents=True)

        assert findings_of_absence(tmp_path, Unavailable("none", name=name)) == []

    def test_driver_that_is_not_loaded_is_broken_only_where_the_kernel_lists_gpus(self, tmp_path):
        pci_devices(tmp_path, ["0000:10:00.0"])
        error = Unavailable("not loaded", name="gpu_driver_not_loaded")

        assert [finding.id for finding in findings_of_absence(tmp_path, error)] == ["driver_broken"]
        (tmp_path / "proc" / "driver" / "nvidia").mkdir(parents=True)
        (tmp_path / "proc" / "driver" / "nvidia" / "version").write_text("NVRM version\n")
        assert findings_of_absence(tmp_path, error) == [], "a container without GPUs on a machine with some"

    def test_driver_without_any_of_the_listed_gpus_misses_them(self, tmp_path):
        pci_devices(tmp_path, ["0000:10:00.0", "0000:11:00.0"])

        (finding,) = findings_of_absence(tmp_path, Unavailable("no GPU", name="gpu_none"))
        assert (finding.id, "0 of 2 GPUs" in finding.text) == ("gpu_missing", True)


def pci_devices(folder, addresses, driver=None, product="0x2330"):
    """NVIDIA GPUs in a sysfs tree, as the kernel lists them."""
    for address in addresses:
        device = folder / "sys" / "bus" / "pci" / "devices" / address
        device.mkdir(parents=True)
        for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", product)):
            (device / name).write_text(text + "\n")
        if driver is not None:
            (folder / "sys" / "bus" / "pci" / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(f"../../drivers/{driver}")


def findings_of_absence(folder, error):
    """Findings of a node whose GPU sampler could not start."""
    context = Context(proc=str(folder / "proc"))
    context.sys, context.dev = str(folder / "sys"), str(folder / "dev")
    facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
    for kind, fields in GpuSampler(context).absence(error):
        facts.add([msgspec.convert({"kind": kind, "node": "n1", **fields}, KINDS[kind])])
    return list(health_findings(facts, LIMITS))
