"""Every figure that Prometheus gets: its name, unit, meaning, and where it stands in our records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

Kind = Literal["gauge", "counter", "info"]
Figure = int | float | None


@dataclass(frozen=True)
class Family:
    """One name. `unit` is its last part, "" for a number of things; a counter's samples get `_total`."""

    name: str
    help: str
    unit: str = ""
    kind: Kind = "gauge"

    @property
    def sample(self) -> str:
        """The name of its samples."""
        return self.name + {"gauge": "", "counter": "_total", "info": "_info"}[self.kind]


@dataclass(frozen=True)
class Column:
    """A family whose figure is a field of a record. `times` brings it to its base unit; `label` is one of its own."""

    family: Family
    field: str
    times: float | None = None
    label: str = ""

    @property
    def get(self) -> Callable[[Any], Figure]:
        return attrgetter(self.field)


def _column(field: str, name: str, help_: str, unit: str = "", times: float | None = None) -> Column:
    return Column(Family(f"gconsole_{name}", help_, unit), field, times)


def _share(field: str, name: str, help_: str) -> Column:
    """Percent of 100 become a ratio."""
    return _column(field, f"{name}_ratio", help_, "ratio", 0.01)


def _rate(field: str, name: str, help_: str) -> Column:
    return _column(field, f"{name}_bytes_per_second", help_, "bytes_per_second")


def _bytes(field: str, name: str, help_: str) -> Column:
    return _column(field, f"{name}_bytes", help_, "bytes")


def _counters(name: str, help_: str, label: str, **fields: str) -> tuple[Column, ...]:
    """One counter of several kinds, which a label tells apart."""
    family = Family(f"gconsole_{name}", help_, kind="counter")
    return tuple(Column(family, field, label=f'{label}="{value}"') for value, field in fields.items())


# -- GPUs: labels node, gpu, uuid --------------------------------------------------------------------------------------

GPU_UP: Final = Family("gconsole_gpu_up", "1 while the driver reaches the GPU, 0 once it is lost.")
GPU_INFO: Final = Family("gconsole_gpu", "Who a GPU is.", kind="info")
GPU_RANK: Final = Family("gconsole_gpu_rank", "1 for each rank that uses a GPU: join with it to have job and rank.")
GPU_LIMITED: Final = Family("gconsole_gpu_clocks_limited", "1 while that is a reason why its clocks are below maximum.")

#: Of `gpu`.
GPU: Final = (
    _share("util_pct", "gpu_utilization", "Share of the driver's last sample period with a kernel running."),
    _share("mem_util_pct", "gpu_memory_busy", "Share of that period in which memory was read or written."),
    _bytes("mem_used_bytes", "gpu_memory_used", "Memory in use."),
    _column("power_w", "gpu_power_watts", "Board power, averaged by the driver.", "watts"),
    Column(Family("gconsole_gpu_energy_joules", "Since the driver was loaded.", "joules", "counter"), "energy_j"),
    _column("temp_c", "gpu_temperature_celsius", "Temperature of the die.", "celsius"),
    _column("mem_temp_c", "gpu_memory_temperature_celsius", "Temperature of the memory.", "celsius"),
    _share("fan_pct", "gpu_fan", "Speed of the fan, of its maximum."),
    _column("sm_clock_mhz", "gpu_sm_clock_hertz", "Clock of the multiprocessors.", "hertz", 1e6),
    _column("mem_clock_mhz", "gpu_memory_clock_hertz", "Clock of the memory.", "hertz", 1e6),
    _share("sm_pct", "gpu_sm_active", "Share of the multiprocessors that were busy (GPM)."),
    _share("sm_occupancy_pct", "gpu_sm_occupancy", "Warps on the multiprocessors, of those that fit (GPM)."),
    _share("tensor_pct", "gpu_tensor_active", "Share of the time in which tensor cores worked (GPM)."),
    _share("dram_pct", "gpu_dram_active", "Memory bandwidth, of what the memory can do (GPM)."),
    _rate("pcie_rx_bytes_s", "gpu_pcie_receive", "PCIe traffic to the GPU."),
    _rate("pcie_tx_bytes_s", "gpu_pcie_transmit", "PCIe traffic from the GPU."),
    _rate("nvlink_rx_bytes_s", "gpu_nvlink_receive", "NVLink payload to the GPU, all links."),
    _rate("nvlink_tx_bytes_s", "gpu_nvlink_transmit", "NVLink payload from the GPU, all links."),
    *_counters("gpu_ecc_errors", "Memory errors in the GPU's life.", "type",
               corrected="ecc_corrected_aggregate", uncorrected="ecc_uncorrected_aggregate"),
    *_counters("gpu_remapped_rows", "Rows of memory that were replaced, by why.", "type",
               corrected="remapped_rows_corrected", uncorrected="remapped_rows_uncorrected"),
    *_counters("gpu_nvlink_errors", "Errors of all NVLinks of the GPU.", "type",
               crc="nvlink_crc_errors", replay="nvlink_replay_errors", recovery="nvlink_recovery_errors"),
    Column(Family("gconsole_gpu_pcie_replays", "PCIe packets that were sent again.", kind="counter"), "pcie_replays"),
)  # fmt: skip
#: Of `gpu_info`.
GPU_LIMITS: Final = (
    _bytes("mem_total_bytes", "gpu_memory", "Memory that the GPU has."),
    _column("power_limit_w", "gpu_power_limit_watts", "Power limit in force.", "watts"),
    _column("max_sm_clock_mhz", "gpu_sm_clock_max_hertz", "Highest clock of the multiprocessors.", "hertz", 1e6),
)

# -- nodes: label node -------------------------------------------------------------------------------------------------

NODE_UP: Final = Family("gconsole_node_up", "1 while the node's agent is connected and speaks.")
NODE_INFO: Final = Family("gconsole_node", "Who a node is.", kind="info")
#: Of `host`.
HOST: Final = (
    _share("cpu_pct", "node_cpu_utilization", "All CPUs together."),
    _column("load_1m", "node_load1", "Load average of one minute."),
    _bytes("mem_used_bytes", "node_memory_used", "Total minus available."),
    _bytes("mem_available_bytes", "node_memory_available", "Available memory."),
    _bytes("swap_used_bytes", "node_swap_used", "Swap in use."),
    *(
        Column(Family("gconsole_node_pressure_ratio", "Share of the last 10 s in which some task waited (PSI).",
                      "ratio"), field, 0.01, f'resource="{resource}"')
        for resource, field in (("cpu", "cpu_stall_pct"), ("memory", "mem_stall_pct"), ("io", "io_stall_pct"))
    ),
    _rate("disk_read_bytes_s", "node_disk_read", "Whole physical disks."),
    _rate("disk_write_bytes_s", "node_disk_write", "Whole physical disks."),
    _rate("net_rx_bytes_s", "node_network_receive", "Physical interfaces."),
    _rate("net_tx_bytes_s", "node_network_transmit", "Physical interfaces."),
    _column("uptime_s", "node_uptime_seconds", "Since the node was started.", "seconds"),
    _column("unreadable", "node_unreadable_processes", "Python processes of others that the agent may not read."),
)  # fmt: skip
#: Of `agent_cost`.
AGENT: Final = (
    _share("cpu_pct", "agent_cpu", "What the agent takes of one core."),
    _bytes("rss_bytes", "agent_resident_memory", "What the agent takes of the node's memory."),
    _rate("tx_bytes_s", "agent_transmit", "What the agent writes to its console."),
)
#: Of `clock_node`, of the last window that is fit to be told.
CLOCK: Final = (
    _column("offset_ns", "clock_offset_seconds", "CLOCK_REALTIME of the node minus common time.", "seconds", 1e-9),
    _column("bound_ns", "clock_bound_seconds", "The error of common time is at most this.", "seconds", 1e-9),
    _column("drift_ppm", "clock_drift_ratio", "Rate of the node's clock in that of the common one, minus 1.", "ratio",
            1e-6),
)  # fmt: skip

# -- ports: labels node, device, port ----------------------------------------------------------------------------------

NIC_UP: Final = Family("gconsole_nic_up", "1 while the port is up.")
#: Of `nic`.
NIC: Final = (
    _rate("rx_bytes_s", "nic_receive", "Traffic to the port."),
    _rate("tx_bytes_s", "nic_transmit", "Traffic from the port."),
    _rate("rate_bytes_s", "nic_rate", "What the port can carry."),
)

# -- jobs and ranks ----------------------------------------------------------------------------------------------------

JOB_RANKS: Final = Family("gconsole_job_ranks", "Ranks of a job in each state.")
JOB_FOUND: Final = Family("gconsole_job_ranks_found", "Ranks of a job that are seen alive.")
JOB_SIZE: Final = Family("gconsole_job_ranks_expected", "Ranks that the job says it has.")
JOB_STATE: Final = Family("gconsole_job_state", "1 for the state of a job that gconsole started.")
#: Of `rank_stat`; labels job, rank, node.
RANK: Final = (
    _share("cpu_pct", "rank_cpu", "CPU of all threads of the rank, of one core."),
    _bytes("rss_bytes", "rank_resident_memory", "Memory of the rank's process."),
    _column("step", "rank_step", "The watched variable that counts steps."),
)

# -- the console -------------------------------------------------------------------------------------------------------

FINDINGS: Final = Family("gconsole_findings", "Open findings by id and severity.")
NODES: Final = Family("gconsole_nodes", "Nodes in each state.")
RECORDING: Final = Family("gconsole_recording_bytes", "Bytes of a session that is being recorded.", "bytes")
BUILD: Final = Family("gconsole_build", "Which gconsole this is.", kind="info")
LEFT_OUT: Final = Family("gconsole_series_left_out", "Series that were too many for one scrape.")
PROCESS_CPU: Final = Family("process_cpu_seconds", "CPU of the console.", "seconds", "counter")
PROCESS_MEMORY: Final = Family("process_resident_memory_bytes", "Memory of the console.", "bytes")
