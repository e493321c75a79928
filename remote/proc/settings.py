"""Settings of the node that its checks judge, from /proc, /sys and /etc: (name, subject, value) of each.

A setting that cannot be read is left out: the check that needs it is unknown then.
"""

import os
import re

from .procfs import read_number, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    #: (name, what it belongs to or "", value)
    Setting = tuple[str, str, str]

#: Units of systemd that jobs need. The state of a unit is that of its control group.
UNITS = ("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-imex", "slurmd", "munge", "chrony", "chronyd", "ntpd")
MODULES = ("nvidia", "nvidia_peermem", "nv_peer_mem", "gdrdrv", "nvidia_fs", "ib_uverbs", "mlx5_ib", "efa", "amdgpu",
           "xe", "i915", "habanalabs")  # fmt: skip
#: Files below /proc/sys and below /sys.
_SYSCTL = ("kernel/numa_balancing", "vm/zone_reclaim_mode", "vm/swappiness", "vm/overcommit_memory", "vm/max_map_count",
           "net/core/rmem_max", "net/core/wmem_max", "net/core/somaxconn", "kernel/pid_max")  # fmt: skip
_FILES = (
    ("cpus_online", "devices/system/cpu/online"),
    ("smt", "devices/system/cpu/smt/control"),
    ("turbo_off", "devices/system/cpu/intel_pstate/no_turbo"),
    ("boost", "devices/system/cpu/cpufreq/boost"),
    ("bios", "class/dmi/id/bios_version"),
    ("product", "class/dmi/id/product_name"),
)
#: Values of a kind at most.
MOST = 64
#: Extended capability of PCIe, its request and completion redirect, and the type of a port of a switch (PCIe 6.0).
_ACS, _REDIRECT, _SWITCH_PORT = 0x0D, 0x0C, 6


def settings(sys: str, proc: str, etc: str) -> "Iterator[Setting]":
    """Every setting that can be read. `sys`, `proc` and `etc` are the roots of those trees."""
    for part in (_kernel(sys, proc), _frequency(sys), _services(sys, etc), _modules(sys), _iommu(sys), _pci(sys),
                 _memory_errors(sys), _rdma(sys)):  # fmt: skip
        for name, subject, value in part:
            yield name, subject, value[:200]


def _kernel(sys: str, proc: str) -> "Iterator[Setting]":
    for name in _SYSCTL:
        value = read_text("%s/sys/%s" % (proc, name))
        if value:
            yield "sysctl", name.replace("/", "."), value
    for name, path in _FILES:
        value = read_text("%s/%s" % (sys, path))
        if value:
            yield name, "", value
    huge = re.search(r"\[(\w+)\]", read_text(sys + "/kernel/mm/transparent_hugepage/enabled") or "")
    if huge:
        yield "huge_pages", "", huge.group(1)
    cpu: "dict[str, str]" = {}
    for line in (read_text(proc + "/cpuinfo") or "")[:8192].splitlines():
        name, _, value = line.partition(":")
        cpu.setdefault(name.strip(), value.strip())
    for name, key in (("cpu_model", "model name"), ("microcode", "microcode")):
        if cpu.get(key):
            yield name, "", cpu[key]
    if cpu.get("flags"):
        yield "virtual_machine", "", "yes" if "hypervisor" in cpu["flags"].split() else "no"
    driver = read_text(proc + "/driver/nvidia/version")
    if driver:
        yield "nvidia_modules", "", "open" if "Open Kernel Module" in driver else "proprietary"


def _frequency(sys: str) -> "Iterator[Setting]":
    root = sys + "/devices/system/cpu/cpufreq"
    policies = [name for name in listed(root) if name.startswith("policy")]
    for name, file in (("governor", "scaling_governor"), ("cpu_driver", "scaling_driver")):
        values = {read_text("%s/%s/%s" % (root, policy, file)) for policy in policies} - {None}
        if values:
            yield name, "", ", ".join(sorted(value for value in values if value))


def _services(sys: str, etc: str) -> "Iterator[Setting]":
    """active, enabled (but not running) or absent, where systemd runs the node."""
    roots = [sys + "/fs/cgroup" + part + "/system.slice" for part in ("", "/systemd", "/unified")]
    roots = [root for root in roots if os.path.isdir(root)]
    folder = etc + "/systemd/system"
    wants = [name for name in listed(folder) if name.endswith((".wants", ".requires"))]
    for unit in UNITS if roots else ():
        name = unit + ".service"
        if any(os.path.isdir("%s/%s" % (root, name)) for root in roots):
            yield "service", unit, "active"
        else:
            is_enabled = any(os.path.lexists("%s/%s/%s" % (folder, want, name)) for want in wants)
            yield "service", unit, "enabled" if is_enabled else "absent"


def _modules(sys: str) -> "Iterator[Setting]":
    if not os.path.isdir(sys + "/module"):
        return
    for name in MODULES:
        folder = "%s/module/%s" % (sys, name)
        is_loaded = os.path.isdir(folder)
        yield "module", name, (read_text(folder + "/version") or "loaded") if is_loaded else "absent"


def _iommu(sys: str) -> "Iterator[Setting]":
    groups = listed(sys + "/kernel/iommu_groups")
    types = {read_text("%s/kernel/iommu_groups/%s/type" % (sys, group)) for group in groups[:256]} - {None}
    if os.path.isdir(sys + "/kernel/iommu_groups"):
        yield "iommu", "", ", ".join(sorted(kind for kind in types if kind)) or ("on" if groups else "off")


def _pci(sys: str) -> "Iterator[Setting]":
    """Devices by class, links of NVMe and network controllers, and access control of the ports of PCIe switches."""
    counts: "dict[str, int]" = {}
    kinds: "dict[tuple[str | None, str | None], dict[str, str | None]]" = {}  # by product: drivers by address
    links, ports, redirecting = [], 0, []
    root = sys + "/bus/pci/devices"
    for address in listed(root):
        folder = "%s/%s" % (root, address)
        kind = (read_text(folder + "/class") or "")[:6]
        word = {"0x0108": "nvme", "0x0302": "gpu", "0x0380": "gpu", "0x1200": "accelerator", "0x0200": "network",
                "0x0207": "network"}.get(kind)  # fmt: skip
        if word and not os.path.lexists(folder + "/physfn"):  # virtual functions come and go
            counts[word] = counts.get(word, 0) + 1
            product = read_text(folder + "/vendor"), read_text(folder + "/device")
            driver = folder + "/driver"
            if None not in product:
                name = os.path.basename(os.path.realpath(driver)) if os.path.lexists(driver) else None
                kinds.setdefault(product, {})[address] = name
            if word in ("nvme", "network"):
                links.append((address, folder))
        if kind == "0x0604":
            redirects = acs_redirects(folder + "/config")
            if redirects is not None:
                ports += 1
                redirecting += [address] if redirects else []
    for word in sorted(counts):
        yield "pci_devices", word, "%d" % counts[word]
    for devices in kinds.values():
        drivers = sorted(driver for driver in devices.values() if driver)
        for address in sorted(devices) if drivers else ():
            if devices[address] is None:  # a product that nothing on the node uses needs no driver
                yield "pci_no_driver", address, "%s on %d of its kind" % (drivers[0], len(drivers))
    for address, folder in links[:MOST]:
        above = os.path.dirname(os.path.realpath(folder))
        now, most = read_number(folder + "/current_link_width"), read_number(folder + "/max_link_width")
        port = read_number(above + "/max_link_width")
        if now and most and port and now < 64:  # 63: the device is off the bus; 0: it has no link
            yield "pci_width", address, "x%d of x%d" % (now, min(most, port))
    if ports:
        yield "acs", "", "redirects on %s" % ", ".join(redirecting[:8]) if redirecting else "no redirects"


def acs_redirects(path: str) -> "bool | None":
    """Whether a downstream port of a PCIe switch sends traffic between devices up to the root; None for another one.

    Only root may read the capability.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(4096)
    except OSError:
        return None
    if len(data) < 4096 or _port_type(data) != _SWITCH_PORT:
        return None
    offset = 0x100
    for _ in range(96):  # the list of a faulty device may have a cycle
        head = int.from_bytes(data[offset : offset + 4], "little")
        if head & 0xFFFF == _ACS:
            return bool(int.from_bytes(data[offset + 6 : offset + 8], "little") & _REDIRECT)
        offset = head >> 20
        if offset < 0x100 or offset > 4088:
            return None
    return None


def _port_type(data: bytes) -> "int | None":
    """Device/port type of the PCI Express capability (id 0x10)."""
    offset = data[0x34] & 0xFC
    for _ in range(48):
        if offset < 0x40 or offset > 252:
            return None
        if data[offset] == 0x10:
            return data[offset + 2] >> 4
        offset = data[offset + 1] & 0xFC
    return None


def _memory_errors(sys: str) -> "Iterator[Setting]":
    root = sys + "/devices/system/edac/mc"
    for name in listed(root)[:MOST]:
        count = read_number("%s/%s/ue_count" % (root, name)) if re.match(r"mc[0-9]+$", name) else None
        if count is not None:
            yield "memory_errors", name, "%d" % count


def _rdma(sys: str) -> "Iterator[Setting]":
    root = sys + "/class/infiniband"
    for device in listed(root)[:MOST]:
        firmware = read_text("%s/%s/fw_ver" % (root, device))
        if firmware:
            yield "nic_firmware", device, firmware
        for port in listed("%s/%s/ports" % (root, device))[:2]:
            folder = "%s/%s/ports/%s" % (root, device, port)
            subject, is_up = "%s/%s" % (device, port), (read_text(folder + "/state") or "").startswith("4")
            rate, key = read_text(folder + "/rate"), read_text(folder + "/pkeys/0")
            if rate and is_up:
                yield "nic_rate", subject, rate
            if key and is_up and read_text(folder + "/link_layer") == "InfiniBand":
                yield "nic_pkey", subject, key


def listed(folder: str) -> "list[str]":
    """The sorted names in a folder; [] if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
