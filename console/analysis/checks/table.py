"""The table of node checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...records import Gpu, GpuInfo
from ...text.format import number, size
from ..health.conditions import conditions
from . import resources, settings, since_boot
from .result import CheckResult, Measured, NodeCheck, NodeFacts

#: Memory of a GPU that a driver context may hold without a process, and that of a node that must be available.
_HELD_BYTES, _FREE_SHARE = 2 << 30, 0.05
#: Utilisation above which a GPU has a process, %; time in which all tasks waited for memory, %.
_USED_PCT, _MEMORY_STALL_PCT = 10.0, 10.0
#: Tasks per CPU that are running or waiting, on average over a minute.
_LOAD_PER_CPU: Final = 2.0


def run_checks(facts: NodeFacts) -> list[CheckResult]:
    """The result of every check on one node, in the order of the table."""
    return [check.run(facts) for check in CHECKS]


def _of_gpus(judge: Callable[[NodeFacts, GpuInfo, Gpu | None], str | None]) -> Callable[[NodeFacts], Measured]:
    """A measurement of each GPU: `judge` returns "" within the limit, words beyond it, None if unknown."""

    def measure(facts: NodeFacts) -> Measured:
        words = {info.index: judge(facts, info, gpu) for info, gpu in facts.gpus}
        reported = {index: text for index, text in words.items() if text is not None}
        return [f"gpu{index} {text}" for index, text in sorted(reported.items()) if text] if reported else None

    return measure


def _persistence(facts: NodeFacts, info: GpuInfo, gpu: Gpu | None) -> str | None:
    return None if info.persistence is None else "" if info.persistence else "persistence mode off"


def _hot(facts: NodeFacts, info: GpuInfo, gpu: Gpu | None) -> str | None:
    if gpu is None or gpu.temp_c is None:
        return None
    memory = f", memory {number(gpu.mem_temp_c)} °C" if gpu.mem_temp_c is not None else ""
    return f"{number(gpu.temp_c)} °C{memory}" if {"hot", "memory_hot"} & set(conditions(gpu, info)) else ""


def _held(facts: NodeFacts, info: GpuInfo, gpu: Gpu | None) -> str | None:
    if gpu is None or gpu.mem_used_bytes is None or "gpu_process.compute" in info.unsupported:
        return None
    is_held = gpu.mem_used_bytes > _HELD_BYTES and info.uuid not in facts.occupied and not info.mig_mode
    return f"{size(gpu.mem_used_bytes)} held by no process" if is_held else ""


def _application_clock(facts: NodeFacts, info: GpuInfo, gpu: Gpu | None) -> str | None:
    clock, default = info.app_sm_clock_mhz, info.app_sm_clock_default_mhz
    if clock is None or default is None:
        return None
    return f"application clock {number(clock)} MHz, default {number(default)} MHz" if clock < default else ""


def _busy(facts: NodeFacts, info: GpuInfo, gpu: Gpu | None) -> str | None:
    if gpu is None or gpu.util_pct is None or "gpu_process.compute" in info.unsupported:
        return None
    is_busy = gpu.util_pct >= _USED_PCT and info.uuid not in facts.occupied
    return f"{number(gpu.util_pct)} % busy without a process" if is_busy else ""


def _memory(facts: NodeFacts) -> Measured:
    total = facts.about.mem_total_bytes if facts.about is not None else None
    free = facts.host.mem_available_bytes if facts.host is not None else None
    if not total or free is None:
        return None
    return [f"{size(free)} of {size(total)} available"] if free < _FREE_SHARE * total else []


def _pressure(facts: NodeFacts) -> Measured:
    stall = facts.host.mem_stall_pct if facts.host is not None else None
    if stall is None:
        return None
    return [f"tasks waited for memory {number(stall)} % of the last 10 s"] if stall >= _MEMORY_STALL_PCT else []


def _load(facts: NodeFacts) -> Measured:
    load = facts.host.load_1m if facts.host is not None else None
    cpus = facts.about.cpus if facts.about is not None else None
    if load is None or not cpus:
        return None
    return [f"load {number(load)} on {cpus} CPUs"] if load > _LOAD_PER_CPU * cpus else []


def _gpu(id: str, what: str, source: str, limit: str, *findings: str, **traits: object) -> NodeCheck:
    fields = {"severity": "error", "owner": "operator", "needs": "gpu", "findings": findings, **traits}
    return NodeCheck(id=id, what=what, source=source, limit=limit, **fields)  # type: ignore[arg-type]


#: In the order in which they are shown.
CHECKS: Final[tuple[NodeCheck, ...]] = (
    _gpu("gpu_driver", "the driver of the GPUs answers", "NVML, sysfs", "no fault", "driver_broken", needs="driver"),
    _gpu("gpu_count", "the driver has every GPU that the kernel lists", "/sys/bus/pci, NVML", "all",
         "gpu_missing", needs="driver"),
    _gpu("gpu_reachable", "every call to a GPU succeeds", "NVML", "all", "gpu_lost", "gpu_unusable"),
    _gpu("gpu_xid", "XID errors and recovery actions of the driver", "NVML, kernel log", "none that needs an action",
         "gpu_xid"),
    _gpu("gpu_ecc", "uncorrected memory errors, SRAM errors, failed row remaps", "NVML", "none since driver load",
         "gpu_ecc", owner="vendor", fields=("ecc_uncorrected_volatile",)),
    _gpu("gpu_remap", "pending row remaps or page retirements", "NVML", "none", "gpu_remap_pending",
         severity="warning", fields=("remap_pending", "retire_pending")),
    _gpu("gpu_temperature", "temperature of GPU and memory", "NVML", "3 °C below the slowdown threshold; memory below "
         "its limit", severity="warning", measure=_of_gpus(_hot), own_remedy="Check cooling and airflow of the node."),
    _gpu("gpu_throttle", "clocks lowered by heat or hardware", "NVML", "[health] throttle_share_pct of busy time",
         "gpu_throttle", severity="warning", watch_s=20),
    _gpu("gpu_clock", "SM clock under load", "NVML", "60 % of the maximum, or a reason", "gpu_slow_clock",
         severity="warning", fields=("sm_clock_mhz",), watch_s=6),
    _gpu("gpu_straggler", "clock and power against the peers of the job", "NVML", "[health] straggler_clock_pct, "
         "straggler_power_pct", "gpu_straggler", severity="warning", watch_s=20),
    _gpu("gpu_persistence", "persistence mode", "NVML", "on", severity="warning", measure=_of_gpus(_persistence),
         own_remedy="Start nvidia-persistenced, or run nvidia-smi -pm 1."),
    _gpu("gpu_settings", "persistence, ECC mode and power cap against others of the model", "NVML", "equal",
         "gpu_settings", severity="warning", fields=("persistence", "ecc_mode", "power_limit_w")),
    _gpu("gpu_application_clock", "application clock of the SMs", "NVML", "not below the default", severity="warning",
         measure=_of_gpus(_application_clock), own_remedy="Reset it (nvidia-smi --reset-applications-clocks) unless it "
         "is meant."),
    _gpu("gpu_memory_held", "GPU memory in use without a process", "NVML", "2 GiB", severity="warning",
         measure=_of_gpus(_held), own_remedy="Find processes of other containers or zombies (fuser -v /dev/nvidia* "
         "/dev/kfd /dev/dri/* /dev/accel/*), "
         "or reset the GPU."),
    _gpu("gpu_busy_without_process", "utilisation without a process", "NVML", "10 %", severity="warning",
         measure=_of_gpus(_busy), own_remedy="Find processes of other containers (fuser -v /dev/nvidia* /dev/kfd "
         "/dev/dri/* /dev/accel/*)."),
    _gpu("pcie_link", "PCIe lanes, generation under load, replays", "NVML", "what GPU and slot support",
         "pcie_degraded", severity="warning", owner="vendor", fields=("pcie_width",), watch_s=11),
    _gpu("nvlink_state", "NVLinks that are up", "NVML", "as many as on the peers", "nvlink_down",
         needs="nvlink", watch_s=10),
    _gpu("nvlink_errors", "growing NVLink errors", "NVML", "[health] nvlink_crc_per_s, nvlink_errors_per_min",
         "nvlink_errors", severity="warning", owner="vendor", needs="nvlink", watch_s=20),
    _gpu("nvlink_fabric", "membership in the NVLink fabric and its health", "NVML", "completed, healthy",
         "nvlink_fabric", needs="nvlink", fields=("fabric_state",), watch_s=6),
    _gpu("nic_state", "network ports that were up", "sysfs", "up", "nic_down", needs="nic", watch_s=2),
    _gpu("nic_errors", "error counters and flaps of network ports", "sysfs", "[health] nic_errors_per_min",
         "nic_errors", severity="warning", needs="nic", watch_s=2),
    _gpu("topology", "devices and links against the node's class", "sysfs, NVML", "equal", "topology_differs",
         severity="warning", needs="peers"),
    _gpu("versions", "driver, CUDA, NCCL and kernel against the other nodes", "NVML, /proc", "equal", "version_skew",
         severity="warning", needs="peers"),
    _gpu("kernel_log", "faults in the kernel log of the last hour", "/dev/kmsg", "none that may concern a job",
         "kernel_fault", severity="warning", needs="node", missing="kernel_log", watch_s=3),
    _gpu("services", "services that jobs need, and the node in Slurm", "journal, scontrol", "no fault in the last hour",
         "service_fault", severity="warning", needs="node", missing="journal", watch_s=6),
    _gpu("reboot", "a reboot under a job", "/var/log/wtmp, journal", "none", "node_rebooted", needs="node", watch_s=6),
    _gpu("memory", "memory that is available", "/proc/meminfo", "5 %", severity="warning", owner="user", needs="node",
         measure=_memory, own_remedy="Find processes with much memory (gconsole ps); end those that are left over."),
    _gpu("memory_pressure", "time in which tasks wait for memory", "/proc/pressure", "10 %", severity="warning",
         owner="user", needs="node", measure=_pressure, own_remedy="Lower the memory use of the job, or its batch."),
    _gpu("load", "load average per CPU", "/proc/loadavg", "2", severity="warning", owner="user", needs="node",
         measure=_load, own_remedy="Find processes that are left over; lower the number of data loader workers."),
    _gpu("clock_step", "steps of the clock", "clocks of each tick", "none", "clock_step", severity="warning",
         needs="node", watch_s=2),
    *since_boot.CHECKS,
    *settings.CHECKS,
    *resources.CHECKS,
    _gpu("agent", "the agent could read the node", "agent", "no error", "agent_error", severity="warning",
         owner="user", needs="node"),
)  # fmt: skip
