"""Accelerators of AMD, Intel, Habana and Google in sysfs: which there are, and their files.

Files and units are those of the kernel's documentation: amdgpu (Documentation/gpu/amdgpu, hwmon), xe and i915
(Documentation/ABI/testing/sysfs-driver-intel-*), habanalabs (sysfs-driver-habanalabs). What a driver does not report is
None.
"""

import os
import re

from ..proc.procfs import printable, read_number, read_text
from ..proc.settings import listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

#: Vendor: its name, drivers, and PCI classes (display: VGA, 3D, other; accelerators; Google's also undefined ones).
VENDORS = {
    "0x1002": ("AMD", ("amdgpu",), ("0x0300", "0x0302", "0x0380", "0x1200")),
    "0x8086": ("Intel", ("xe", "i915"), ("0x0300", "0x0302", "0x0380")),
    "0x1da3": ("Habana", ("habanalabs",), ("0x1200",)),
    "0x1ae0": ("Google TPU", (), ("0x1200", "0x0880", "0xff00")),
}
#: Bytes of memory of its own from which on a GPU of AMD is not part of a processor for desktops.
LEAST_MEMORY = 3 << 30
#: Devices of a node that are read, and the largest count that is believed.
MOST, _BIG = 64, 1 << 62


class SysfsGpu(object):
    """One device: where its files are, and its number among those of the node."""

    def __init__(self, folder: str, vendor: str, driver: "str | None") -> None:
        self.folder, self.driver = folder, driver
        self.vendor = VENDORS[vendor][0]
        self.address = os.path.basename(folder)
        self.index = 0
        self.home = next(self._homes(), "")
        serial = self.text("unique_id")  # of AMD: 64 bits, hex
        self.uuid = "amd-" + serial if serial and re.match(r"[0-9a-f]{4,16}\Z", serial) else "pci-" + self.address
        monitors = listed(folder + "/hwmon")
        self.hwmon = "hwmon/%s/" % monitors[0] if monitors else ""

    def _homes(self) -> "Iterator[str]":
        """Folders below the device's own, ending in a slash, in which its driver has its files if not in that."""
        for kind in ("accel", "habanalabs"):  # the class of newer and of older releases of habanalabs
            for name in listed("%s/%s" % (self.folder, kind)):
                if os.path.lexists("%s/%s/%s/status" % (self.folder, kind, name)):
                    yield "%s/%s/" % (kind, name)

    def text(self, name: str) -> "str | None":
        """A file of the device; None if it is absent, empty or longer than a value."""
        for folder in (self.folder + "/", "%s/%s" % (self.folder, self.home))[: 1 + bool(self.home)]:
            value = read_text(folder + name)
            if value is not None:
                return printable(value, 120) if len(value) <= 4096 else None
        return None

    def number(self, name: str) -> "int | None":
        """A count of such a file; None for anything else."""
        value = self.text(name)
        return int(value) if value is not None and re.match(r"[0-9]{1,18}\Z", value) else None

    def scaled(self, names: "tuple[str, ...]", unit: float, most: float) -> "float | None":
        """The first of these files of hwmon, in another unit; None beyond what is possible."""
        for name in names if self.hwmon else ():
            value = self.number(self.hwmon + name)
            if value is not None:
                return round(value * unit, 3) if value * unit <= most else None
        return None

    def limit_w(self, *names: str) -> "float | None":
        """A power limit; 0 is that of a limit that is off."""
        return next((limit for limit in (self.scaled((name,), 1e-6, 20000.0) for name in names) if limit), None)

    def product(self) -> "str | None":
        """The name of the product, of drivers that have one."""
        return self.text("product_name") or self.text("device_type")

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

    def gts(self, name: str) -> "list[int]":
        """That file of each tile's main graphics unit (xe), or of the only one (i915)."""
        tiles = ["tile%d/gt0/" % tile for tile in range(4)] + ["gt/gt0/"]
        values = [self.number(tile + name) for tile in tiles]
        return [value for value in values if value is not None]

    def device_files(self) -> "list[str]":
        """Files below /dev by which programs use it, as the kernel's documents name them."""
        paths = ["dri/" + name for name in listed(self.folder + "/drm") if name.startswith("renderD")]
        for name in listed(self.folder + "/accel"):
            paths += ["accel/" + name, name]  # drivers of the accel subsystem; Google's own before
        paths += listed(self.folder + "/habanalabs")
        if self.driver == "vfio-pci" and os.path.lexists(self.folder + "/iommu_group"):
            paths.append("vfio/" + os.path.basename(os.path.realpath(self.folder + "/iommu_group")))
        return paths


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
    return gpu.vendor != "Intel" or kind != "0x0300" or bool(intel_memory_bytes(gpu))


def intel_memory_bytes(gpu: SysfsGpu) -> "int | None":
    """Memory of an Intel GPU: of all its tiles (xe), or of the card (i915)."""
    cards = [name for name in listed(gpu.folder + "/drm") if re.match(r"card[0-9]+\Z", name)]
    sizes = [gpu.number("tile%d/physical_vram_size_bytes" % tile) or 0 for tile in range(4)]
    return sum(sizes) or (gpu.number("drm/%s/lmem_total_bytes" % cards[0]) if cards else None)


class KfdNode(object):
    """A GPU in the topology of KFD, AMD's compute driver: its number there, PCI address and id."""

    __slots__ = ("address", "gpu_id", "number")

    def __init__(self, number: int, address: str, gpu_id: str) -> None:
        self.number, self.address, self.gpu_id = number, address, gpu_id


def kfd_nodes(sys: str) -> "list[KfdNode]":
    """GPUs in the topology of KFD (kfd_topology.c); its CPUs have the id 0."""
    nodes: "list[KfdNode]" = []
    root = sys + "/class/kfd/kfd/topology/nodes"
    for name in listed(root)[:256]:
        gpu_id = read_text("%s/%s/gpu_id" % (root, name)) or ""
        words = properties("%s/%s/properties" % (root, name))
        if name.isdigit() and re.match(r"[0-9]{1,10}\Z", gpu_id) and gpu_id != "0" and "location_id" in words:
            place = words["location_id"]
            domain = words.get("domain", 0)
            address = "%04x:%02x:%02x.%x" % (domain, place >> 8 & 255, place >> 3 & 31, place & 7)
            nodes.append(KfdNode(int(name), address, gpu_id))
    return nodes


def properties(path: str) -> "dict[str, int]":
    """A file of lines of a name and a number."""
    text = (read_text(path) or "")[:65536]
    return {name: int(value) for name, value in re.findall(r"^(\w+) ([0-9]{1,18})$", text, re.M)}


def read_count(path: str) -> "int | None":
    """A number of a file that is not one of the device's own."""
    value = read_number(path)
    return value if value is not None and 0 <= value < _BIG else None
