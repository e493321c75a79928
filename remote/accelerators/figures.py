"""Fields of `gpu_info` and `gpu` that the driver of an accelerator reports in sysfs."""

import re

from ..proc.pci import numa_node
from ..proc.procfs import printable, read_text
from ..proc.settings import listed
from .devices import intel_memory_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Counters, Fields
    from .devices import SysfsGpu

_NOT_REPORTED = "not reported by the driver in sysfs"
_BY_TOOL = "not reported by the driver in sysfs; hl-smi of root reports it"
_BY_JOB = "only libtpu reports it, to the job itself"
_NO_REASONS = "the driver names no reasons in sysfs"
_SOME = "only ranks are known, by the device files that they have open"
#: Fields that a driver never reports in sysfs, and why.
_UNREPORTED = {
    "AMD": {"clocks_event_reasons": _NO_REASONS},
    "Intel": {"clocks_event_reasons": _NO_REASONS, "mem_used_bytes": _NOT_REPORTED, "gpu_process.compute": _SOME},
    "Habana": {"clocks_event_reasons": _NO_REASONS, "util_pct": _BY_TOOL, "mem_used_bytes": _BY_TOOL,
               "mem_total_bytes": _BY_TOOL, "ecc_uncorrected_volatile": _BY_TOOL, "gpu_process.compute": _SOME},
    "Google TPU": {"clocks_event_reasons": _NO_REASONS, "util_pct": _BY_JOB, "mem_used_bytes": _BY_JOB,
                   "mem_total_bytes": _BY_JOB, "power_w": _BY_JOB, "temp_c": _BY_JOB, "gpu_process.compute": _SOME},
}  # fmt: skip
#: Product of a TPU by its PCI device id, of the first two by that of its subsystem (tpu-info, device.py).
_TPUS = {"0x0027/0x004e": "v2", "0x0027/0x004f": "v3", "0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e",
         "0x006f": "v6e", "0x0076": "7x"}  # fmt: skip
_COUNTERS = ("ecc_corrected_volatile", "ecc_uncorrected_volatile", "ecc_corrected_aggregate",
             "ecc_uncorrected_aggregate", "retired_pages_uncorrected", "pcie_replays")  # fmt: skip
#: Errors of amdgpu's RAS blocks since the driver was loaded, and pages of memory that it replaced: state after address
#: and size, R for retired, P for pending, F for one that could not be (amdgpu_ras.c).
_RAS, _PAGE = re.compile(r"\b(ue|ce): ([0-9]{1,12})\b"), re.compile(r": ([RPF])\s*$", re.M)
_MOST_BLOCKS = 32


def info(gpu: "SysfsGpu", sys: str, place: "Fields", has_kfd: bool) -> "Fields":
    """Fields of `gpu_info`; `place` has those of its PCIe link, `has_kfd`: AMD's compute driver lists it."""
    version = read_text("%s/module/%s/version" % (sys, gpu.driver))
    fields: "Fields" = {
        "index": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.address, "serial": gpu.text("serial_number"),
        "name": gpu.product() or _model(gpu),
        "driver": "%s %s" % (gpu.driver, printable(version, 60)) if version else gpu.driver,
        "vbios": gpu.text("vbios_version"), "numa_node": numa_node(gpu.folder),
        "cpu_affinity": gpu.text("local_cpulist"), "mem_total_bytes": gpu.number("mem_info_vram_total"),
    }  # fmt: skip
    if "width" in place and "width_max" in place:
        fields.update(pcie_width=place["width"], pcie_width_max=place["width_max"])
    if gpu.vendor == "AMD":
        fields["temp_slowdown_c"] = gpu.temperature("junction", "crit")
        fields["mem_temp_max_c"] = gpu.temperature("mem", "crit")
        fields["power_limit_w"] = gpu.limit_w("power1_cap")
        fields["power_limit_max_w"] = gpu.limit_w("power1_cap_max")
        fields["power_limit_default_w"] = gpu.limit_w("power1_cap_default")
    elif gpu.vendor == "Intel":  # power1_cap of xe is its limit for bursts
        fields["mem_total_bytes"] = intel_memory_bytes(gpu)
        fields["max_sm_clock_mhz"] = min(gpu.gts("freq0/max_freq") + gpu.gts("rps_RP0_freq_mhz"), default=None)
        fields["power_limit_w"] = gpu.limit_w("power1_max", "power2_max")
        fields["power_limit_default_w"] = gpu.limit_w("power1_rated_max", "power2_rated_max")
    elif gpu.vendor == "Habana":
        fields["max_sm_clock_mhz"] = gpu.number("clk_max_freq_mhz")
        fields["power_limit_w"] = gpu.limit_w("power1_cap", "power1_max")
        status = gpu.text("status")
        if status is not None and "operational" not in status.lower():
            fields["unusable"] = "the driver reports: %s" % status
    fields = {name: value for name, value in fields.items() if value is not None}
    fields["unsupported"] = {name: why for name, why in _UNREPORTED[gpu.vendor].items() if fields.get(name) is None}
    if gpu.vendor == "AMD" and not has_kfd:
        fields["unsupported"]["gpu_process.compute"] = _NOT_REPORTED
    return fields


def _model(gpu: "SysfsGpu") -> str:
    product = gpu.text("device") or ""
    if gpu.vendor == "Google TPU":
        version = _TPUS.get(product) or _TPUS.get("%s/%s" % (product, gpu.text("subsystem_device")))
        if version is not None:
            return "Google TPU %s" % version
    return "%s %s" % (gpu.vendor, product.replace("0x", ""))


class Figures(object):
    """Reads the figures of one device at each tick, with what is counted since the last one."""

    def __init__(self, gpu: "SysfsGpu", counters: "Counters") -> None:
        self._gpu, self._counters = gpu, counters

    def read(self, now: float, reported: "Fields") -> "Fields":
        """Fields of `gpu`; without those that neither the driver nor its tool reports. `reported` is of the tool."""
        gpu = self._gpu
        figures: "Fields" = {"power_w": self._power_w(now), "pcie_replays": self._replays()}
        if gpu.vendor == "AMD":
            figures.update(_amd(gpu))
        elif gpu.vendor == "Intel":
            figures.update(self._intel(now))
        elif gpu.vendor == "Habana":
            figures.update(
                temp_c=gpu.scaled(("temp1_input",), 0.001, 300.0), sm_clock_mhz=gpu.number("clk_cur_freq_mhz")
            )
        fields = dict(reported)
        fields.update((name, value) for name, value in figures.items() if value is not None)
        gains = [(name, self._counters.growth(name, fields[name], 64)) for name in _COUNTERS if name in fields]
        fields["grown"] = {name: gain for name, gain in gains if gain}
        return fields

    def _power_w(self, now: float) -> "float | None":
        """As reported, or of the energy since the last reading (Intel)."""
        power_w = self._gpu.scaled(("power1_average", "power1_input"), 1e-6, 20000.0)
        for name in ("energy1_input", "energy2_input") if power_w is None and self._gpu.hwmon else ():
            energy = self._gpu.number(self._gpu.hwmon + name)
            if energy is not None:
                power_w = self._counters.rate(name, energy, 64, now, 1e-6)
                return round(power_w, 1) if power_w is not None and power_w <= 20000.0 else None
        return power_w

    def _replays(self) -> "int | None":
        """PCIe packets sent again: of amdgpu all, else those that the device noticed (AER, of the kernel)."""
        count = self._gpu.number("pcie_replay_count")
        if count is None:
            errors = dict(re.findall(r"\b(Rollover|Timeout) ([0-9]{1,15})\b",
                                     read_text(self._gpu.folder + "/aer_dev_correctable") or ""))  # fmt: skip
            count = sum(map(int, errors.values())) if errors else None
        return count

    def _intel(self, now: float) -> "Fields":
        gpu = self._gpu
        package = gpu.temperature("pkg")
        memory = gpu.temperature("vram")
        if gpu.driver == "xe":
            package = package if package is not None else gpu.scaled(("temp2_input",), 0.001, 300.0)
            memory = memory if memory is not None else gpu.scaled(("temp3_input",), 0.001, 300.0)
        elif package is None:
            package = gpu.scaled(("temp1_input",), 0.001, 300.0)
        clocks = gpu.gts("freq0/act_freq") + gpu.gts("rps_act_freq_mhz")
        return {"util_pct": self._not_idle(now), "temp_c": package, "mem_temp_c": memory,
                "sm_clock_mhz": max(clocks, default=None)}  # fmt: skip

    def _not_idle(self, now: float) -> "float | None":
        """Share of the time since the last tick in which engines were powered: of the busiest tile."""
        shares = []
        for number, idle_ms in enumerate(self._gpu.gts("gtidle/idle_residency_ms") + self._gpu.gts("rc6_residency_ms")):
            idle = self._counters.rate(("idle", number), idle_ms, 64, now, 0.1)  # percent
            if idle is not None:
                shares.append(round(min(100.0, max(0.0, 100.0 - idle)), 1))
        return max(shares, default=None)


def _amd(gpu: "SysfsGpu") -> "Fields":
    errors = {"ue": 0, "ce": 0}
    blocks = [name for name in listed(gpu.folder + "/ras") if name.endswith("_err_count")][:_MOST_BLOCKS]
    counts = [pair for name in blocks for pair in _RAS.findall(read_text("%s/ras/%s" % (gpu.folder, name)) or "")]
    for kind, count in counts:
        errors[kind] += int(count)
    kinds = {kind for kind, _ in counts}
    pages = read_text(gpu.folder + "/ras/gpu_vram_bad_pages")
    states = _PAGE.findall(pages) if pages is not None and len(pages) < 1 << 20 else None
    return {
        "util_pct": gpu.share("gpu_busy_percent"), "mem_util_pct": gpu.share("mem_busy_percent"),
        "mem_used_bytes": gpu.number("mem_info_vram_used"), "bar1_used_bytes": gpu.number("mem_info_vis_vram_used"),
        "temp_c": gpu.temperature("junction") or gpu.temperature("edge"), "mem_temp_c": gpu.temperature("mem"),
        "sm_clock_mhz": gpu.scaled(("freq1_input",), 1e-6, 10000.0),
        "mem_clock_mhz": gpu.scaled(("freq2_input",), 1e-6, 20000.0),
        "ecc_uncorrected_volatile": errors["ue"] if "ue" in kinds else None,
        "ecc_corrected_volatile": errors["ce"] if "ce" in kinds else None,
        "retired_pages_uncorrected": states.count("R") if states is not None else None,
        "retire_pending": "P" in states if states is not None else None,
    }  # fmt: skip
