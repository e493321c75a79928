"""GPUs and accelerators of AMD, Intel, Habana and Google, from sysfs alone: no library of a vendor is loaded.

Files and units are those of the kernel's documentation: amdgpu (Documentation/gpu/amdgpu, hwmon), xe and i915
(Documentation/ABI/testing/sysfs-driver-intel-*), habanalabs (sysfs-driver-habanalabs), KFD (kfd_topology.c,
kfd_process.c). What a driver does not report is None, with the reason.
"""

import os
import re

from ..nvml.processes import RankMatcher
from ..proc.pci import PciTree, numa_node
from ..proc.procfs import ProcFs, printable, read_number, read_text
from ..proc.settings import listed
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .base import Context, Fact, Fields

#: Vendor: its name, drivers, and PCI classes (display: VGA, 3D, other; accelerators; Google's also undefined ones).
VENDORS = {
    "0x1002": ("AMD", ("amdgpu",), ("0x0300", "0x0302", "0x0380", "0x1200")),
    "0x8086": ("Intel", ("xe", "i915"), ("0x0300", "0x0302", "0x0380")),
    "0x1da3": ("Habana", ("habanalabs",), ("0x1200",)),
    "0x1ae0": ("Google TPU", (), ("0x1200", "0x0880", "0xff00")),
}
#: Bytes of memory of its own from which on a GPU of AMD is not part of a processor for desktops.
LEAST_MEMORY = 3 << 30
INFO_S, PROCESSES_S = 60.0, 2.0
MOST, MOST_PROCESSES = 64, 512
_NOT_REPORTED = "not reported by the driver in sysfs"
_BIG = 1 << 62


class SysfsGpu(object):
    """One device: where its files are, and its number among those of the node."""

    def __init__(self, folder: str, vendor: str, driver: "str | None") -> None:
        self.folder, self.driver = folder, driver
        self.vendor = VENDORS[vendor][0]
        self.address = os.path.basename(folder)
        self.index = 0
        serial = self.text("unique_id")  # of AMD: 64 bits, hex
        self.uuid = "amd-" + serial if serial and re.match(r"[0-9a-f]{4,16}\Z", serial) else "pci-" + self.address
        monitors = listed(folder + "/hwmon")
        self.hwmon = "hwmon/%s/" % monitors[0] if monitors else ""
        self.kfd_id: "str | None" = None
        self.idle: "tuple[float, int] | None" = None

    def text(self, name: str) -> "str | None":
        """A file of the device; None if it is absent, empty or longer than a value."""
        value = read_text("%s/%s" % (self.folder, name))
        return printable(value, 120) if value is not None and len(value) <= 4096 else None

    def number(self, name: str) -> "int | None":
        """A count of such a file; None for anything else."""
        value = read_number("%s/%s" % (self.folder, name))
        return value if value is not None and 0 <= value < _BIG else None

    def scaled(self, names: "tuple[str, ...]", unit: float, most: float) -> "float | None":
        """The first of these files of hwmon, in another unit; None beyond what is possible."""
        for name in names if self.hwmon else ():
            value = self.number(self.hwmon + name)
            if value is not None:
                return round(value * unit, 3) if value * unit <= most else None
        return None

    def share(self, name: str) -> "float | None":
        """Percent of a file."""
        value = self.number(name)
        return float(value) if value is not None and value <= 100 else None

    def temperature(self, label: str, kind: str = "input") -> "float | None":
        """°C of the sensor with that label."""
        for number in range(1, 9) if self.hwmon else ():
            if self.text("%stemp%d_label" % (self.hwmon, number)) == label:
                return self.scaled(("temp%d_%s" % (number, kind),), 0.001, 300.0)
        return None


def sysfs_gpus(sys: str) -> "tuple[list[SysfsGpu], list[SysfsGpu]]":
    """(devices with a driver, compute devices without one), in the order of their addresses.

    Display units of processors and of the board's management controller are left out, virtual functions and devices
    that belong to a virtual machine, too. Nothing where the node also has GPUs of NVIDIA: NVML reports those.
    """
    bound, unbound = [], []
    root = sys + "/bus/pci/devices"
    for address in listed(root):
        folder = "%s/%s" % (root, address)
        vendor, kind = read_text(folder + "/vendor"), (read_text(folder + "/class") or "")[:6]
        if vendor == "0x10de" and kind in ("0x0300", "0x0302"):
            return [], []
        if vendor not in VENDORS or kind not in VENDORS[vendor][2] or os.path.lexists(folder + "/physfn"):
            continue
        has_driver = os.path.lexists(folder + "/driver")
        driver = os.path.basename(os.path.realpath(folder + "/driver")) if has_driver else None
        gpu = SysfsGpu(folder, vendor, driver)
        drivers = VENDORS[vendor][1]
        if driver is None and drivers and kind != "0x0300":
            unbound.append(gpu)
        elif (driver in drivers or (driver and not drivers)) and _is_discrete(gpu, kind):
            bound.append(gpu)
    for index, gpu in enumerate(bound):
        gpu.index = index
    return bound[:MOST], unbound[:MOST]


def _is_discrete(gpu: SysfsGpu, kind: str) -> bool:
    if gpu.vendor == "AMD":
        return kind != "0x0300" or (gpu.number("mem_info_vram_total") or 0) >= LEAST_MEMORY
    return gpu.vendor != "Intel" or kind != "0x0300" or bool(_intel_memory(gpu))


class SysfsGpuSampler(Sampler):
    """`gpu_info` on change, `gpu` each tick, `gpu_process` of AMD's compute driver, `link` once, `inventory`."""

    name = "gpu"

    def __init__(self, context: "Context", gpus: "list[SysfsGpu]", unbound: "list[SysfsGpu]") -> None:
        super(SysfsGpuSampler, self).__init__(context)
        self._gpus, self._unbound = gpus, unbound
        self._procfs = ProcFs(context.proc)
        self._infos: "dict[str, Fields]" = {}
        self._processes: "dict[tuple[str, int], Fields]" = {}
        self._info_due = self._processes_due = 0.0
        self._inventory: "Fields | None" = None

    def tick(self, now: float) -> "Iterator[Fact]":
        """Read every device."""
        if now >= self._info_due:
            self._info_due = now + INFO_S
            for fact in self._infos_and_links():
                yield fact
        for gpu in self._gpus:
            if os.path.isdir(gpu.folder):
                yield "gpu", metrics(gpu, now)
        inventory = self._count()
        if inventory != self._inventory:
            self._inventory = inventory
            self.context.shared["gpu_inventory"] = dict(inventory, log=(self._gpus or self._unbound)[0].driver or "gpu")
            yield "inventory", inventory
        if now >= self._processes_due:
            self._processes_due = now + PROCESSES_S - 0.1
            for fact in self._process_changes():
                yield fact

    def _count(self) -> "Fields":
        gone = [gpu.address for gpu in self._gpus if not os.path.isdir(gpu.folder)]
        without = [gpu.address for gpu in self._unbound if not os.path.lexists(gpu.folder + "/driver")]
        fields: "Fields" = {"of": "gpu", "count": len(self._gpus) - len(gone), "missing": gone + without}
        if without and not self._gpus:
            driver = VENDORS[read_text(self._unbound[0].folder + "/vendor") or "0x1002"][1][0]
            text = "the kernel driver %s is not loaded for %s" % (driver, ", ".join(without[:8]))
            fields.update(fault="gpu_driver_not_loaded", text=text, count=None, missing=[],
                          try_="run modprobe %s; if that fails, dmesg has the reason" % driver)  # fmt: skip
        return fields

    def _infos_and_links(self) -> "Iterator[Fact]":
        tree = PciTree(self.context.sys)
        kfd = kfd_ids(self.context.sys)
        for gpu in self._gpus:
            gpu.kfd_id = kfd.get(gpu.address)
            place, node, lacking = tree.locate(gpu.folder)
            fields = info(gpu, self.context.sys, place or {})
            if fields != self._infos.get(gpu.uuid):
                if gpu.uuid not in self._infos:
                    ends = {"a": {"kind": "gpu", "id": gpu.uuid},
                            "b": {"kind": "numa", "id": "" if node is None else "%d" % node}}  # fmt: skip
                    yield "link", dict(place or {}, type="pcie", unsupported=lacking, **ends)
                self._infos[gpu.uuid] = fields
                yield "gpu_info", fields

    def _process_changes(self) -> "Iterator[Fact]":
        """KFD lists the processes with a compute context: /sys/class/kfd/kfd/proc/PID/vram_GPUID."""
        root = self.context.sys + "/class/kfd/kfd/proc"
        by_id = {gpu.kfd_id: gpu for gpu in self._gpus if gpu.kfd_id is not None}
        snapshot = self.context.shared.get("processes")
        ranks = snapshot.ranks if snapshot is not None else ()
        present: "dict[tuple[str, int], Fields]" = {}
        for pid in [name for name in listed(root) if re.match(r"[0-9]{1,7}\Z", name)][:MOST_PROCESSES]:
            for name in listed("%s/%s" % (root, pid)):
                gpu = by_id.get(name[5:]) if name.startswith("vram_") else None
                used = read_number("%s/%s/%s" % (root, pid, name)) if gpu is not None else None
                if gpu is None or not used or not 0 < used < _BIG:
                    continue
                ticks, comm, rank, source = RankMatcher(ranks, self._procfs, gpu.index, gpu.uuid).match(int(pid))
                present[gpu.uuid, int(pid)] = {
                    "index": gpu.index, "uuid": gpu.uuid, "pid": int(pid), "type": "compute", "mem_used_bytes": used,
                    "start_ticks": ticks, "comm": comm, "rank_source": source, "job": rank.job if rank else None,
                    "attempt": rank.attempt if rank else None, "rank": rank.rank if rank else None,
                }  # fmt: skip
        for key in [key for key in self._processes if key not in present]:
            yield "gpu_process", dict(self._processes.pop(key), gone=True)
        for key, fields in present.items():
            if self._processes.get(key) != fields:
                self._processes[key] = fields
                yield "gpu_process", fields


def kfd_ids(sys: str) -> "dict[str, str]":
    """PCI address: the id that KFD has for this GPU, by its topology."""
    ids: "dict[str, str]" = {}
    root = sys + "/class/kfd/kfd/topology/nodes"
    for node in listed(root)[:256]:
        number = read_text("%s/%s/gpu_id" % (root, node)) or ""
        properties = read_text("%s/%s/properties" % (root, node)) or ""
        words = dict(re.findall(r"^(domain|location_id) ([0-9]{1,10})$", properties, re.M))
        if number.isdigit() and number != "0" and "location_id" in words:
            place = int(words["location_id"])
            address = "%04x:%02x:%02x.%x" % (int(words.get("domain", 0)), place >> 8 & 255, place >> 3 & 31, place & 7)
            ids[address] = number
    return ids


def info(gpu: SysfsGpu, sys: str, place: "Fields") -> "Fields":
    """Fields of `gpu_info`; `place` has those of its PCIe link."""
    product = gpu.text("product_name") or gpu.text("device_type")
    version = read_text("%s/module/%s/version" % (sys, gpu.driver))
    fields: "Fields" = {
        "index": gpu.index, "uuid": gpu.uuid, "pci_bus_id": gpu.address, "serial": gpu.text("serial_number"),
        "name": product or "%s %s" % (gpu.vendor, (gpu.text("device") or "").replace("0x", "")),
        "driver": "%s %s" % (gpu.driver, printable(version, 60)) if version else gpu.driver,
        "vbios": gpu.text("vbios_version"), "numa_node": numa_node(gpu.folder),
        "cpu_affinity": gpu.text("local_cpulist"), "mem_total_bytes": gpu.number("mem_info_vram_total"),
        "power_limit_w": gpu.scaled(("power1_cap", "power1_max"), 1e-6, 20000.0),
        "power_limit_max_w": gpu.scaled(("power1_cap_max",), 1e-6, 20000.0),
        "power_limit_default_w": gpu.scaled(("power1_cap_default",), 1e-6, 20000.0),
    }  # fmt: skip
    if "width" in place and "width_max" in place:
        fields.update(pcie_width=place["width"], pcie_width_max=place["width_max"])
    if gpu.vendor == "AMD":
        fields["temp_slowdown_c"] = gpu.temperature("junction", "crit")
        fields["mem_temp_max_c"] = gpu.temperature("mem", "crit")
    elif gpu.vendor == "Intel":
        fields["mem_total_bytes"] = _intel_memory(gpu)
        fields["max_sm_clock_mhz"] = gpu.number("tile0/gt0/freq0/max_freq") or gpu.number("gt/gt0/rps_RP0_freq_mhz")
    elif gpu.vendor == "Habana":
        fields["max_sm_clock_mhz"] = gpu.number("clk_max_freq_mhz")
        status = gpu.text("status")
        if status is not None and "operational" not in status.lower():
            fields["unusable"] = "the driver reports: %s" % status
    fields = {name: value for name, value in fields.items() if value is not None}
    fields["unsupported"] = {} if gpu.kfd_id is not None else {"gpu_process.compute": _NOT_REPORTED}
    return fields


def metrics(gpu: SysfsGpu, now: float) -> "Fields":
    """Fields of `gpu`; without those that the driver does not report."""
    fields: "Fields" = {"index": gpu.index, "uuid": gpu.uuid}
    figures: "Fields" = {"power_w": gpu.scaled(("power1_average", "power1_input"), 1e-6, 20000.0)}
    if gpu.vendor == "AMD":
        errors = dict(re.findall(r"\b(ue|ce): ([0-9]{1,12})\b", read_text(gpu.folder + "/ras/umc_err_count") or ""))
        figures.update({
            "util_pct": gpu.share("gpu_busy_percent"), "mem_util_pct": gpu.share("mem_busy_percent"),
            "mem_used_bytes": gpu.number("mem_info_vram_used"), "bar1_used_bytes": gpu.number("mem_info_vis_vram_used"),
            "temp_c": gpu.temperature("junction") or gpu.temperature("edge"), "mem_temp_c": gpu.temperature("mem"),
            "sm_clock_mhz": gpu.scaled(("freq1_input",), 1e-6, 10000.0),
            "mem_clock_mhz": gpu.scaled(("freq2_input",), 1e-6, 20000.0),
            "ecc_uncorrected_volatile": int(errors["ue"]) if "ue" in errors else None,
            "ecc_corrected_volatile": int(errors["ce"]) if "ce" in errors else None,
        })  # fmt: skip
    elif gpu.vendor == "Intel":
        figures.update({
            "util_pct": _not_idle(gpu, now), "temp_c": gpu.temperature("pkg"), "mem_temp_c": gpu.temperature("vram"),
            "sm_clock_mhz": gpu.number("tile0/gt0/freq0/act_freq") or gpu.number("gt/gt0/rps_act_freq_mhz"),
        })  # fmt: skip
    elif gpu.vendor == "Habana":
        figures.update(temp_c=gpu.scaled(("temp1_input",), 0.001, 300.0), sm_clock_mhz=gpu.number("clk_cur_freq_mhz"))
    fields.update((name, value) for name, value in figures.items() if value is not None)
    return fields


def _not_idle(gpu: SysfsGpu, now: float) -> "float | None":
    """Share of the time since the last tick in which the engines of xe were powered."""
    idle_ms, before = gpu.number("tile0/gt0/gtidle/idle_residency_ms"), gpu.idle
    gpu.idle = (now, idle_ms) if idle_ms is not None else None
    if idle_ms is None or before is None or now <= before[0] or idle_ms < before[1]:
        return None
    return round(min(100.0, max(0.0, 100.0 - (idle_ms - before[1]) / 10.0 / (now - before[0]))), 1)


def _intel_memory(gpu: SysfsGpu) -> "int | None":
    cards = [name for name in listed(gpu.folder + "/drm") if re.match(r"card[0-9]+\Z", name)]
    sizes = [gpu.number("tile%d/physical_vram_size_bytes" % tile) or 0 for tile in range(4)]
    return sum(sizes) or (gpu.number("drm/%s/lmem_total_bytes" % cards[0]) if cards else None)
