"""Identity and limits of a GPU."""

import ctypes

from ..proc.pci import kernel_address, numa_node
from .metrics import memory_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    from .call import NvmlDevice

#: nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: (shift, value, word) of what is wrong; each has two bits.
_FABRIC_FAULTS = (
    (0, 1, "degraded_bandwidth"),
    (2, 1, "route_recovery"),
    (4, 1, "route_unhealthy"),
    (6, 1, "access_timeout_recovery"),
    (14, 2, "fabric_manager_disconnected"),
)
#: The same of INCORRECT_CONFIGURATION, four bits from 8 on, whose values 2 to 8 are faults.
_FABRIC_CONFIG = (
    "wrong_system_guid",
    "wrong_chassis_serial",
    "no_partition",
    "insufficient_nvlinks",
    "incompatible_gpu_firmware",
    "invalid_location",
    "invalid_gpu_state",
)
_FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
#: Fields that are the result of one call, unchanged.
_DIRECT = (
    ("serial", "nvmlDeviceGetSerial"),
    ("vbios", "nvmlDeviceGetVbiosVersion"),
    ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
)
#: Limits of temperatures: (field, nvmlTemperatureThresholds_t).
_THRESHOLDS = (("temp_slowdown_c", 1), ("mem_temp_max_c", 2))
_GRAPHICS_CLOCK, _SM_CLOCK = 0, 1  # nvml.h, nvmlClockType_t
_CPU_WORDS = 32  # 64-bit words of the affinity mask


def describe(device: "NvmlDevice", sys: str = "/sys") -> "dict[str, Any]":
    """`gpu_info` fields of a whole GPU. `sys` is the root of sysfs. Raises GpuLost."""
    call = device.call
    info = common_fields(device)
    for field, name in _DIRECT:
        info[field] = call((field,), name)
    info["pci_bus_id"] = bus_id(device)
    address = kernel_address(info["pci_bus_id"] or "")
    info["numa_node"] = numa_node("%s/bus/pci/devices/%s" % (sys, address)) if address else None
    if info["numa_node"] is None:  # NVML reports it only where GPU memory itself is a NUMA node
        info["numa_node"] = call(("numa_node",), "nvmlDeviceGetNumaNodeId")
    info["power_limit_default_w"] = _watts(call(("power_limit_default_w",), "nvmlDeviceGetPowerManagementDefaultLimit"))
    limits = call(("power_limit_min_w", "power_limit_max_w"), "nvmlDeviceGetPowerManagementLimitConstraints")
    info["power_limit_min_w"], info["power_limit_max_w"] = map(_watts, limits) if limits else (None, None)
    for field, clock in (("max_sm_clock_mhz", 1), ("max_mem_clock_mhz", 2), ("max_video_clock_mhz", 3)):
        info[field] = call((field,), "nvmlDeviceGetMaxClockInfo", clock)
    info["app_sm_clock_default_mhz"] = _application_clock(
        device, "app_sm_clock_default_mhz", "nvmlDeviceGetDefaultApplicationsClock"
    )
    capability = call(("compute_capability",), "nvmlDeviceGetCudaComputeCapability")
    info["compute_capability"] = "%d.%d" % tuple(capability) if capability else None
    for field, threshold in _THRESHOLDS:
        info[field] = call((field,), "nvmlDeviceGetTemperatureThreshold", threshold)
    modes = call(("mig_mode",), "nvmlDeviceGetMigMode")
    info["mig_mode"] = bool(modes[0]) if modes else None
    info["compute_mode"] = _word(_COMPUTE_MODES, call(("compute_mode",), "nvmlDeviceGetComputeMode"))
    words = call(("cpu_affinity",), "nvmlDeviceGetCpuAffinity", _CPU_WORDS)
    info["cpu_affinity"] = cpu_list(words) if words is not None else None
    info.update(changeable(device))
    return {field: value for field, value in info.items() if value is not None}


def changeable(device: "NvmlDevice") -> "dict[str, Any]":
    """`gpu_info` fields that may change while the GPU works; None where unknown. Raises GpuLost."""
    call = device.call
    ecc = call(("ecc_mode",), "nvmlDeviceGetEccMode")
    persistence = call(("persistence",), "nvmlDeviceGetPersistenceMode")
    info = {
        "pcie_width": call(("pcie_width",), "nvmlDeviceGetCurrPcieLinkWidth"),
        "power_limit_w": _watts(call(("power_limit_w",), "nvmlDeviceGetEnforcedPowerLimit")),
        "app_sm_clock_mhz": _application_clock(device, "app_sm_clock_mhz", "nvmlDeviceGetApplicationsClock"),
        "ecc_mode": bool(ecc[0]) if ecc else None,
        "persistence": bool(persistence) if persistence is not None else None,
        "sram_threshold_exceeded": _is_sram_threshold_exceeded(device),
    }
    info.update(pcie_generation(device))
    return dict(info, **_fabric(device))


def pcie_generation(device: "NvmlDevice") -> "dict[str, Any]":
    """The `gpu_info` field that an idle GPU lowers; None where unknown. Raises GpuLost."""
    return {"pcie_gen": device.call(("pcie_gen",), "nvmlDeviceGetCurrPcieLinkGeneration")}


def _application_clock(device: "NvmlDevice", field: str, name: str) -> "Any":
    """Clock in MHz at which programs run: that of SMs, or of graphics, the same, where the driver has only that."""
    return device.call_first((field,), ((name, _SM_CLOCK), (name, _GRAPHICS_CLOCK)))


def _is_sram_threshold_exceeded(device: "NvmlDevice") -> "bool | None":
    struct = getattr(device.nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    if struct is None:
        device.mark_unsupported(("sram_threshold_exceeded",), "this binding has no nvmlDeviceGetSramEccErrorStatus")
        return None
    status = struct()
    call = device.call(("sram_threshold_exceeded",), "nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status))
    return None if call is None else bool(status.bThresholdExceeded)


def common_fields(device: "NvmlDevice") -> "dict[str, Any]":
    """`gpu_info` fields that GPUs and MIG devices share: name and memory. Raises GpuLost."""
    memory = memory_info(device, "mem_total_bytes")
    return {
        "name": device.call(("name",), "nvmlDeviceGetName"),
        "mem_total_bytes": memory.total if memory is not None else None,
    }


def describe_mig(device: "NvmlDevice") -> "dict[str, Any]":
    """`gpu_info` fields of a MIG device. Raises GpuLost."""
    info = common_fields(device)
    info["gpu_instance"] = device.call(("gpu_instance",), "nvmlDeviceGetGpuInstanceId")
    info["compute_instance"] = device.call(("compute_instance",), "nvmlDeviceGetComputeInstanceId")
    return {field: value for field, value in info.items() if value is not None}


def versions(nvml: "Any") -> "tuple[dict[str, str], dict[str, str]]":
    """({driver, cuda_driver} of the node, {field: why it is unknown})."""
    values, lacking = {}, {}
    formats: "Iterable[tuple[str, str, Any]]" = (
        ("driver", "nvmlSystemGetDriverVersion", str),
        ("cuda_driver", "nvmlSystemGetCudaDriverVersion", _cuda_version),
    )
    for field, name, form in formats:
        try:
            values[field] = form(getattr(nvml, name)())
        except AttributeError:
            lacking[field] = "this binding has no %s" % name
        except nvml.NVMLError as error:
            lacking[field] = str(error)
    return values, lacking


def _cuda_version(number: int) -> str:
    return "%d.%d" % (number // 1000, number % 1000 // 10)


def cpu_list(words: "Sequence[int]") -> str:
    """CPU list in the kernel's notation of a mask of 64-bit words: "0-51,104-155"."""
    cpus = [64 * index + bit for index, word in enumerate(words) if word for bit in range(64) if word >> bit & 1]
    parts: "list[list[int]]" = []
    for cpu in cpus:
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join("%d" % low if low == high else "%d-%d" % (low, high) for low, high in parts)


def _fabric(device: "NvmlDevice") -> "dict[str, Any]":
    fields = ("fabric_state", "fabric_clique", "fabric_cluster", "fabric_faults")
    struct = getattr(device.nvml, "c_nvmlGpuFabricInfoV_t", None)
    if struct is None:
        device.mark_unsupported(fields, "this binding has no nvmlDeviceGetGpuFabricInfoV")
        return {}
    fabric = struct()
    if device.call(fields, "nvmlDeviceGetGpuFabricInfoV", ctypes.byref(fabric)) is None:
        return dict.fromkeys(fields)
    state: "dict[str, Any]" = dict.fromkeys(fields)
    state["fabric_state"] = _word(_FABRIC_STATES, fabric.state & 0xFF)  # a char in nvml.h
    if state["fabric_state"] == "completed":
        state["fabric_faults"] = _fabric_faults(fabric)
        state["fabric_clique"] = fabric.cliqueId
        digits = bytes(bytearray(fabric.clusterUuid)).hex()
        state["fabric_cluster"] = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return state


def _fabric_faults(fabric: "Any") -> "list[str]":
    """What is wrong with the fabric of a GPU that has joined it."""
    mask = fabric.healthMask
    faults = [word for shift, value, word in _FABRIC_FAULTS if mask >> shift & 3 == value]
    config = (mask >> 8 & 15) - 2
    if 0 <= config < len(_FABRIC_CONFIG):
        faults.append(_FABRIC_CONFIG[config])
    if fabric.status:
        faults.append("error_%d" % fabric.status)
    return faults


def bus_id(device: "NvmlDevice") -> "str | None":
    """The PCI address in the driver's notation ("00000000:18:00.0"), or None. Raises GpuLost."""
    pci = device.call(("pci_bus_id",), "nvmlDeviceGetPciInfo")
    if pci is None:
        return None
    return pci_address(pci)


def pci_address(pci: "Any") -> str:
    """`busId` of an nvmlPciInfo_t as text."""
    address = pci.busId
    return address.decode("ascii", "replace") if isinstance(address, bytes) else str(address)


def _watts(milliwatts: "int | None") -> "float | None":
    return milliwatts / 1000.0 if milliwatts is not None else None


def _word(words: "Sequence[str]", number: "int | None") -> "str | None":
    if number is None:
        return None
    return words[number] if number < len(words) else "%d" % number
