"""Who a GPU is, and what its limits are."""

import ctypes

from .metrics import memory_of

_FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
#: Fields that are the answer of one call as it is.
_DIRECT = (
    ("serial", "nvmlDeviceGetSerial"),
    ("vbios", "nvmlDeviceGetVbiosVersion"),
    ("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)
_CPU_WORDS = 32  # of 64 CPUs each


def describe(asker, sys="/sys"):
    """The fields of `gpu_info` that are known of a whole GPU. `sys` is the root of sysfs. Raises Lost."""
    ask = asker.ask
    found = of_any(asker)
    for field, name in _DIRECT:
        found[field] = ask((field,), name)
    found["pci_bus_id"] = bus_id(asker)
    found["numa_node"] = _numa_node(found["pci_bus_id"], sys)
    if found["numa_node"] is None:  # NVML knows it only where GPU memory itself is a NUMA node
        found["numa_node"] = ask(("numa_node",), "nvmlDeviceGetNumaNodeId")
    found["power_limit_w"] = _watts(ask(("power_limit_w",), "nvmlDeviceGetEnforcedPowerLimit"))
    found["power_limit_default_w"] = _watts(ask(("power_limit_default_w",), "nvmlDeviceGetPowerManagementDefaultLimit"))
    limits = ask(("power_limit_min_w", "power_limit_max_w"), "nvmlDeviceGetPowerManagementLimitConstraints")
    found["power_limit_min_w"], found["power_limit_max_w"] = map(_watts, limits) if limits else (None, None)
    for field, clock in (("max_sm_clock_mhz", 1), ("max_mem_clock_mhz", 2), ("max_video_clock_mhz", 3)):
        found[field] = ask((field,), "nvmlDeviceGetMaxClockInfo", clock)
    capability = ask(("compute_capability",), "nvmlDeviceGetCudaComputeCapability")
    found["compute_capability"] = "%d.%d" % tuple(capability) if capability else None
    modes = ask(("ecc_mode",), "nvmlDeviceGetEccMode")
    found["ecc_mode"] = bool(modes[0]) if modes else None
    modes = ask(("mig_mode",), "nvmlDeviceGetMigMode")
    found["mig_mode"] = bool(modes[0]) if modes else None
    persistence = ask(("persistence",), "nvmlDeviceGetPersistenceMode")
    found["persistence"] = bool(persistence) if persistence is not None else None
    found["compute_mode"] = _word(_COMPUTE_MODES, ask(("compute_mode",), "nvmlDeviceGetComputeMode"))
    words = ask(("cpu_affinity",), "nvmlDeviceGetCpuAffinity", _CPU_WORDS)
    found["cpu_affinity"] = cpu_list(words) if words is not None else None
    found.update(_fabric(asker))
    return {field: value for field, value in found.items() if value is not None}


def of_any(asker):
    """What a GPU and a MIG device both have: name and memory."""
    memory = memory_of(asker, "mem_total_bytes")
    return {
        "name": asker.ask(("name",), "nvmlDeviceGetName"),
        "mem_total_bytes": memory.total if memory is not None else None,
    }


def of_mig(asker):
    """The fields of `gpu_info` of a MIG device. Raises Lost."""
    found = of_any(asker)
    found["gpu_instance"] = asker.ask(("gpu_instance",), "nvmlDeviceGetGpuInstanceId")
    found["compute_instance"] = asker.ask(("compute_instance",), "nvmlDeviceGetComputeInstanceId")
    return {field: value for field, value in found.items() if value is not None}


def versions(nvml):
    """({driver, cuda_driver} of the node, {field: why it is not told})."""
    found, lacking = {}, {}
    for field, name, form in (
        ("driver", "nvmlSystemGetDriverVersion", str),
        ("cuda_driver", "nvmlSystemGetCudaDriverVersion", _cuda_version),
    ):
        try:
            found[field] = form(getattr(nvml, name)())
        except AttributeError:
            lacking[field] = "this binding has no %s" % name
        except nvml.NVMLError as error:
            lacking[field] = str(error)
    return found, lacking


def _cuda_version(number):
    return "%d.%d" % (number // 1000, number % 1000 // 10)


def cpu_list(words):
    """The kernel's notation of the CPUs whose bits are set in 64-bit words: "0-51,104-155"."""
    cpus = [64 * place + bit for place, word in enumerate(words) if word for bit in range(64) if word >> bit & 1]
    parts = []
    for cpu in cpus:
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join("%d" % low if low == high else "%d-%d" % (low, high) for low, high in parts)


def _fabric(asker):
    fields = ("fabric_state", "fabric_clique", "fabric_cluster")
    struct = getattr(asker.nvml, "c_nvmlGpuFabricInfoV_t", None)
    if struct is None:
        asker.refuse(fields, "this binding has no nvmlDeviceGetGpuFabricInfoV")
        return {}
    fabric = struct()
    if asker.ask(fields, "nvmlDeviceGetGpuFabricInfoV", ctypes.byref(fabric)) is None:
        return {}
    found = {"fabric_state": _word(_FABRIC_STATES, fabric.state & 0xFF)}  # a char in nvml.h
    if found["fabric_state"] == "completed":
        found["fabric_clique"] = fabric.cliqueId
        digits = bytes(bytearray(fabric.clusterUuid)).hex()
        found["fabric_cluster"] = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return found


def bus_id(asker):
    """The PCI address in the driver's notation ("00000000:18:00.0"), or None. Raises Lost."""
    pci = asker.ask(("pci_bus_id",), "nvmlDeviceGetPciInfo")
    if pci is None:
        return None
    return pci.busId.decode("ascii", "replace") if isinstance(pci.busId, bytes) else pci.busId


def _numa_node(address, sys):
    """The node whose CPUs and memory are nearest, as the kernel says it of the PCI device."""
    if not address:
        return None
    domain, _, rest = address.lower().partition(":")
    try:
        with open("%s/bus/pci/devices/%s:%s/numa_node" % (sys, domain[-4:], rest)) as f:
            node = int(f.read())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None  # -1: a machine without NUMA


def _watts(milliwatts):
    return milliwatts / 1000.0 if milliwatts is not None else None


def _word(words, number):
    if number is None:
        return None
    return words[number] if number < len(words) else "%d" % number
