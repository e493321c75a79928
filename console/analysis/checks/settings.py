"""Checks of the settings of a node: services, modules, PCIe, RDMA ports, and those that differ from its class."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from ...records import NodeSetting
from ...text.format import number, plural
from .result import Absent, Measured, NodeCheck, NodeFacts, SettingKey, Usual

#: Units that need what a node may not have; a unit that is not here is needed wherever it is enabled.
_TIME_UNITS: Final = frozenset({"chrony", "chronyd", "ntpd"})
#: NVLinks of a GPU from which on they go through switches, which the fabric manager configures.
_SWITCHED_LINKS: Final = 6
#: Gb/s from which a port carries the traffic of collectives.
_FAST_GBITS: Final = 100.0
#: Drivers under which powersave follows the load; under others it is the lowest frequency.
_SELF_GOVERNED: Final = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
_BOOTS_IN_A_DAY: Final = 4
#: Judged by a check of their own, or different on every node.
_NOT_COMPARED: Final = frozenset(
    {"service", "memory_errors", "boots_in_a_day", "pci_width", "nic_rate", "nic_pkey", "pci_no_driver"}
)
#: Nodes of a class from which on a majority says something, and differences that are listed.
_LEAST_NODES, _MOST_LISTED = 3, 8
_DEVICES: Final = {"gpu": "GPUs", "accelerator": "accelerators", "network": "network controllers",
                   "nvme": "NVMe controllers"}  # fmt: skip
_WIDTH = re.compile(r"x([0-9]{1,3}) of x([0-9]{1,3})\Z")
_GBITS = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec")


def usual_settings(
    classes: Mapping[str, object], settings: Iterable[NodeSetting]
) -> dict[object, dict[SettingKey, Usual]]:
    """By class: the value of each setting that more than half of its nodes share, of at least three.

    `classes` has the class of each node; nodes of one class have the same hardware.
    """
    sizes = Counter(classes.values())
    values: dict[object, dict[SettingKey, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for setting in settings:
        if setting.node in classes:
            values[classes[setting.node]][setting.name, setting.subject][setting.value] += 1
    usual: dict[object, dict[SettingKey, Usual]] = {}
    for of, keys in values.items():
        if sizes[of] >= _LEAST_NODES:
            counted = {key: counts.most_common(1)[0] for key, counts in keys.items()}
            usual[of] = {key: Usual(value, count, sizes[of]) for key, (value, count) in counted.items()
                         if 2 * count > sizes[of]}  # fmt: skip
    return usual


def _services(facts: NodeFacts) -> Measured:
    states = {subject: value for (name, subject), value in facts.settings.items() if name == "service"}
    if not states:
        return None
    stopped = [unit for unit, state in sorted(states.items()) if state == "enabled" and _is_needed(unit, facts)]
    if any(states.get(unit) == "active" for unit in _TIME_UNITS):
        stopped = [unit for unit in stopped if unit not in _TIME_UNITS]
    return [f"{unit}.service is enabled but does not run" for unit in stopped]


def _is_needed(unit: str, facts: NodeFacts) -> bool:
    if unit == "nvidia-fabricmanager":
        return any((info.nvlinks or 0) >= _SWITCHED_LINKS for info, _ in facts.gpus)
    if unit == "nvidia-imex":
        return any((info.fabric_cluster or "").strip("0-") for info, _ in facts.gpus)
    return unit != "nvidia-persistenced" or bool(facts.gpus)


def _gpudirect(facts: NodeFacts) -> Measured | Absent:
    loaded = _modules(facts)
    if isinstance(loaded, Absent):
        return loaded
    if "efa" in loaded or loaded & {"nvidia_peermem", "nv_peer_mem"} or facts.setting("nvidia_modules") == "open":
        return []
    if facts.setting("nvidia_modules") is None:
        return None
    return ["nvidia_peermem is not loaded, and the proprietary driver modules offer no DMA-BUF"]


def _modules(facts: NodeFacts) -> set[str] | Absent:
    """Loaded modules of a node where network ports may reach the memory of NVIDIA GPUs."""
    loaded = {subject for subject, value in facts.settings_of("module").items() if value != "absent"}
    if "nvidia" not in loaded:
        return Absent("no NVIDIA driver module")
    if not any((gbits(rate) or 0.0) >= _FAST_GBITS for rate in facts.settings_of("nic_rate").values()):
        return Absent(f"no RDMA port of {number(_FAST_GBITS)} Gb/s")
    return loaded


def _iommu(facts: NodeFacts) -> Measured | Absent:
    if facts.setting("virtual_machine") == "yes":
        return Absent("a virtual machine, whose host decides")
    if facts.about is not None and facts.about.arch != "x86_64":
        return Absent(f"not judged on {facts.about.arch}")
    loaded, value = _modules(facts), facts.setting("iommu")
    if isinstance(loaded, Absent):
        return loaded
    if value is None:
        return None
    types = value.split(", ")
    return [f"IOMMU of type {value}"] if "identity" not in types and any(it.startswith("DMA") for it in types) else []


def _pci_devices(facts: NodeFacts) -> Measured:
    if not facts.settings:
        return None
    words, counts = [], facts.settings_of("pci_devices")
    for word, name in _DEVICES.items():
        usual, count = facts.usual.get(("pci_devices", word)), counts.get(word, "0")
        if not facts.gpus or usual is None or not (count.isdigit() and usual.value.isdigit()):
            continue  # nodes without GPUs have many roles
        if int(count) < int(usual.value):
            words.append(f"{count} {name}, {usual.value} on {usual.count} of {usual.nodes} nodes of its class")
    without = facts.settings_of("pci_no_driver")
    return words + [f"{address} has no driver, {others}" for address, others in sorted(without.items())]


def _access_control(facts: NodeFacts) -> Measured | Absent:
    if facts.setting("virtual_machine") == "yes":
        return Absent("a virtual machine, whose host decides")
    value = facts.setting("acs")
    return None if value is None else [f"ACS {value}"] if value.startswith("redirects") else []


def _governor(facts: NodeFacts) -> Measured:
    governor, driver = facts.setting("governor"), facts.setting("cpu_driver")
    if governor is None or driver is None:
        return None
    is_slow = "powersave" in governor.split(", ") and driver not in _SELF_GOVERNED
    return [f"governor powersave with {driver}: the lowest frequency"] if is_slow else []


def _pci_width(facts: NodeFacts) -> Measured | Absent:
    if facts.setting("virtual_machine") == "yes":
        return Absent("a virtual machine, whose PCIe links are emulated")
    widths = {device: _WIDTH.match(value) for device, value in facts.settings_of("pci_width").items()}
    usable = {device: match for device, match in widths.items() if match is not None}
    narrow = [f"{device} {match[0]} lanes" for device, match in sorted(usable.items()) if int(match[1]) < int(match[2])]
    return narrow if usable else None


def _memory_errors(facts: NodeFacts) -> Measured:
    counts = facts.settings_of("memory_errors")
    broken = {name: value for name, value in sorted(counts.items()) if value.isdigit() and int(value)}
    return [f"{value} uncorrected errors on {name}" for name, value in broken.items()] if counts else None


def _boots(facts: NodeFacts) -> Measured:
    count = facts.setting("boots_in_a_day")
    if count is None or not count.isdigit():
        return None
    return [f"{count} boots in the last 24 h"] if int(count) >= _BOOTS_IN_A_DAY else []


def _pkey(facts: NodeFacts) -> Measured | Absent:
    keys = facts.settings_of("nic_pkey")
    if not keys:
        return Absent("no InfiniBand port that is up")
    limited = []
    for port, key in sorted(keys.items()):
        if not re.fullmatch(r"0x[0-9a-fA-F]{1,4}", key):
            return None
        if not int(key, 16) & 0x8000:
            limited.append(f"{port} has PKey {key} at index 0, a limited member")
    return limited


def _nic_rate(facts: NodeFacts) -> Measured | Absent:
    rates = facts.settings_of("nic_rate")
    if not rates:
        return Absent("no RDMA port that is up")
    slow = []
    for port, rate in sorted(rates.items()):
        usual = facts.usual.get(("nic_rate", port))
        ours, theirs = gbits(rate), gbits(usual.value) if usual is not None else None
        if usual is not None and ours is not None and theirs is not None and ours < theirs:
            slow.append(f"{port} runs at {rate}, {usual.value} on {usual.count} of {usual.nodes} nodes of its class")
    return slow


def gbits(rate: str) -> float | None:
    """Gb/s of the kernel's text, such as "400 Gb/sec (4X NDR)"; None for another text."""
    match = _GBITS.match(rate)
    return float(match[1]) if match is not None else None


def _clock(facts: NodeFacts) -> Measured:
    clock = facts.clock
    if clock is None or clock.daemon is None or clock.synced is None:
        return None
    return [] if clock.synced else [f"{clock.daemon} is not synchronised" + (f": {clock.text}" if clock.text else "")]


def _differences(facts: NodeFacts) -> Measured | Absent:
    if not facts.usual:
        return Absent("fewer than three nodes of its class")
    differing = []
    for (name, subject), usual in sorted(facts.usual.items()):
        value = facts.settings.get((name, subject))
        if name not in _NOT_COMPARED and value != usual.value:
            shown = "not reported" if value is None else value or "empty"
            label = " ".join(word for word in (name, subject) if word)
            differing.append(f"{label}: {shown}, {usual.value} on {usual.count} of {usual.nodes} nodes of its class")
    more = len(differing) - _MOST_LISTED
    return differing[:_MOST_LISTED] + ([f"{plural(more, 'more difference')}"] if more > 0 else [])


def _check(id: str, what: str, source: str, limit: str, remedy: str, **traits: object) -> NodeCheck:
    fields = {"severity": "warning", "owner": "operator", "own_remedy": remedy, **traits}
    return NodeCheck(id=id, what=what, source=source, limit=limit, **fields)  # type: ignore[arg-type]


#: In the order in which they are shown.
CHECKS: Final[tuple[NodeCheck, ...]] = (
    _check("service_state", "services that are enabled run: fabric manager, persistenced, imex, slurmd, munge, time",
           "control groups of systemd", "all", "systemctl status UNIT; journalctl -u UNIT.", measure=_services),
    _check("gpudirect_rdma", "network ports can reach GPU memory", "/sys/module, /proc/driver/nvidia",
           "nvidia_peermem, or open driver modules (DMA-BUF)", "modprobe nvidia_peermem, or install the open driver "
           "modules.", measure=_gpudirect, needs="gpu"),
    _check("pcie_acs", "traffic between GPUs and network ports stays in their PCIe switch", "/sys/bus/pci (root only)",
           "no redirects on a machine that is not virtual", "Disable ACS in the firmware or with setpci on the ports "
           "of the switches, unless virtual machines use the devices.", measure=_access_control, needs="gpu"),
    _check("iommu", "addresses between GPUs and network ports are not translated", "/sys/kernel/iommu_groups",
           "off or pass-through, beside RDMA ports on x86-64", "Boot with iommu=pt, as NVIDIA asks for GPUDirect RDMA "
           "and NCCL, unless virtual machines use the devices.", severity="info", measure=_iommu, needs="gpu"),
    _check("pci_devices", "GPUs, network and NVMe controllers on the PCI bus", "/sys/bus/pci",
           "as many as on the class; with a driver, if others of their kind have one", "Compare lspci -k with another "
           "node of the class; see dmesg for the address; reboot, or reseat the device.", measure=_pci_devices),
    _check("cpu_governor", "frequency governor of the CPUs", "/sys/devices/system/cpu", "not the lowest frequency",
           "cpupower frequency-set -g performance.", measure=_governor),
    _check("pcie_width", "PCIe lanes of network and NVMe controllers", "/sys/bus/pci", "what device and slot have",
           "Reseat the device; check the slot and riser.", owner="vendor", measure=_pci_width),
    _check("memory_errors", "uncorrected errors of the main memory", "/sys/devices/system/edac", "none since boot",
           "Drain the node and replace the memory module (edac-util -v, ipmitool sel list).", severity="error",
           owner="vendor", measure=_memory_errors),
    _check("boot_count", "boots in the last 24 h", "/var/log/wtmp", f"fewer than {_BOOTS_IN_A_DAY}",
           "Find why the node boots (ipmitool sel list, last -x); drain it until then.", measure=_boots),
    _check("ib_pkey", "partition key of InfiniBand ports", "/sys/class/infiniband", "full member",
           "Ask for full membership in the partition (opensm partitions, UFM).", measure=_pkey),
    _check("nic_rate", "rate of RDMA ports against the nodes of the class", "/sys/class/infiniband", "not lower",
           "Check cable, transceiver and switch port (mlxlink, ibdiagnet).", measure=_nic_rate),
    _check("clock_sync", "the time service is synchronised", "chronyc, ntpq, timedatectl", "synchronised",
           "chronyc sources; check the time servers and the way to them.", measure=_clock, watch_s=2),
    _check("settings_differ", "settings of kernel, CPU, firmware, modules and devices against the node's class",
           "/proc/sys, /sys", "as on most nodes of the class", "Compare the node's image and firmware with the others; "
           "ignore what is meant.", severity="info", measure=_differences),
)  # fmt: skip
