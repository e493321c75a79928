"""GPU records as reported by the driver (names follow nvml.h). `simulated` marks simulated data.

A MIG device has its own records, with its own uuid, the `index` of its GPU, and that GPU's uuid as `parent`. Values
that the driver does not support are None; `GpuInfo.unsupported` has the reasons. Error counters are the driver's
totals; `grown` has the counters that increased since the previous tick, with their gain.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, Int, Record
from .event import Severity

GpuEventKind = Literal[
    "xid", "link_down", "link_up", "clocks_limited", "clocks_free", "lost", "back", "recovery_action"
]
GpuProcessType = Literal["compute", "graphics", "mps"]


class GpuInfo(Record, tag="gpu_info", kw_only=True):
    """Identity and limits of a GPU, at the start and on change."""

    index: Count
    uuid: str
    name: str | None = None
    parent: str | None = None  # of a MIG device: the uuid of its GPU
    mig_index: Count | None = None  # of a MIG device: its number on that GPU
    gpu_instance: Count | None = None
    compute_instance: Count | None = None
    pci_bus_id: str | None = None
    serial: str | None = None
    mem_total_bytes: Count | None = None
    power_limit_w: float | None = None  # effective
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    power_limit_default_w: float | None = None
    max_sm_clock_mhz: float | None = None
    max_mem_clock_mhz: float | None = None
    max_video_clock_mhz: float | None = None
    pcie_gen: Count | None = None  # current; lower when idle
    pcie_width: Count | None = None
    pcie_gen_max: Count | None = None  # maximum of GPU and slot
    pcie_width_max: Count | None = None
    nvlinks: Count | None = None  # number of links, up or down
    numa_node: Int | None = None
    cpu_affinity: str | None = None  # CPUs near the GPU: "0-51,104-155"
    compute_capability: str | None = None  # "9.0"
    mig_mode: bool | None = None
    mig_devices: tuple[str, ...] = ()  # their uuids
    driver: str | None = None
    cuda_driver: str | None = None  # newest supported CUDA: "12.8"
    vbios: str | None = None
    fabric_state: str | None = None  # not_supported, not_started, in_progress, completed
    fabric_clique: Count | None = None  # GPUs of one cluster and clique reach each other over NVLink
    fabric_cluster: str | None = None
    ecc_mode: bool | None = None
    persistence: bool | None = None
    compute_mode: str | None = None  # default, prohibited, exclusive_process
    lost: str | None = None  # why the driver cannot reach it; None while reachable
    unsupported: dict[str, str] = msgspec.field(default_factory=dict)  # field of this record or of `gpu`: why
    simulated: bool = False


class Gpu(Record, tag="gpu", kw_only=True):
    """Metrics of one GPU at one tick. Unsupported values are None. Rates are since the previous tick."""

    index: Count
    uuid: str
    util_pct: float | None = None  # share of the driver's last sample period with a kernel running
    mem_util_pct: float | None = None  # share of that period in which memory was read or written
    encoder_pct: float | None = None
    decoder_pct: float | None = None
    mem_used_bytes: Count | None = None
    bar1_used_bytes: Count | None = None
    power_w: float | None = None
    energy_j: float | None = None  # since the driver was loaded
    temp_c: float | None = None
    mem_temp_c: float | None = None
    fan_pct: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    video_clock_mhz: float | None = None
    pstate: Count | None = None  # 0 is the fastest
    clocks_event_reasons: tuple[str, ...] = ()  # why clocks are below maximum, the driver's names
    clocks_event_share_pct: dict[str, float] = msgspec.field(default_factory=dict)  # since the last tick
    sm_pct: float | None = None  # busy SMs (GPM)
    sm_occupancy_pct: float | None = None  # resident warps of the maximum (GPM)
    tensor_pct: float | None = None  # time in which tensor cores were active (GPM)
    dram_pct: float | None = None  # of the maximum memory bandwidth (GPM)
    pcie_rx_bytes_s: float | None = None
    pcie_tx_bytes_s: float | None = None
    nvlink_rx_bytes_s: float | None = None  # all links together, payload
    nvlink_tx_bytes_s: float | None = None
    ecc_corrected_volatile: Count | None = None  # since the driver was loaded
    ecc_uncorrected_volatile: Count | None = None
    ecc_corrected_aggregate: Count | None = None  # over the GPU's lifetime
    ecc_uncorrected_aggregate: Count | None = None
    remapped_rows_corrected: Count | None = None
    remapped_rows_uncorrected: Count | None = None
    remap_pending: bool | None = None  # rows are remapped at the next reset
    remap_failed: bool | None = None
    retired_pages_corrected: Count | None = None  # before Ampere: pages instead of rows
    retired_pages_uncorrected: Count | None = None
    retire_pending: bool | None = None
    pcie_replays: Count | None = None
    nvlink_crc_errors: Count | None = None
    nvlink_replay_errors: Count | None = None
    nvlink_recovery_errors: Count | None = None
    grown: dict[str, int] = msgspec.field(default_factory=dict)  # counter: gain since the previous tick
    recovery_action: str | None = None  # required by the driver: none, gpu_reset, node_reboot, …
    simulated: bool = False


class Digest(msgspec.Struct, frozen=True):
    """Statistics of one metric over one second."""

    min: float
    mean: float
    max: float
    last: float


class GpuDigest(Record, tag="gpu_digest", kw_only=True):
    """Statistics of one GPU over one second with several samples (`sample_interval_ms` below 1000).

    Spikes of 100 ms are kept without sending more than one record per second. Unsupported values are None.
    """

    index: Count
    uuid: str
    samples: Count  # number of samples
    util_pct: Digest | None = None
    mem_used_bytes: Digest | None = None
    power_w: Digest | None = None
    temp_c: Digest | None = None
    sm_clock_mhz: Digest | None = None
    clocks_event_reasons: tuple[str, ...] = ()  # of any sample
    simulated: bool = False


class GpuLink(Record, tag="gpu_link", kw_only=True):
    """One NVLink of one GPU, every 10 s. Error counters are totals."""

    index: Count
    uuid: str
    link: Count
    up: bool | None = None
    version: Count | None = None
    speed_bytes_s: float | None = None  # one direction, as reported by the driver
    rx_bytes_s: float | None = None  # payload, since the previous record
    tx_bytes_s: float | None = None
    crc_errors: Count | None = None
    replay_errors: Count | None = None
    recovery_errors: Count | None = None
    grown: dict[str, int] = msgspec.field(default_factory=dict)  # counter: gain since the previous record


class GpuEvent(Record, tag="gpu_event", kw_only=True):
    """An event of a GPU. `uuid` is "" for a GPU that never reported it."""

    index: Count | None = None  # None if the kernel's PCI address matches no GPU of NVML
    uuid: str = ""
    pci_bus_id: str | None = None
    event: GpuEventKind
    severity: Severity
    text: str
    try_: str = ""
    source: Literal["nvml", "kernel"] = "nvml"
    xid: Count | None = None
    sub_code: str | None = None  # the kernel's sub-code of the XID
    link: Count | None = None
    reason: str | None = None  # of a clock event


class GpuProcess(Record, tag="gpu_process", kw_only=True):
    """One process on one GPU, on start, change and end.

    `rank_source` is how the rank was identified: `pid` (the process is the rank), `parent` (an ancestor is), `ns_pid`
    (the driver reported a container's pid), `device` (pid not visible, and one rank is assigned to this GPU).
    """

    index: Count
    uuid: str
    pid: Count  # as reported by the driver
    type: GpuProcessType
    start_ticks: Count | None = None  # None if the process is not visible
    comm: str | None = None
    mem_used_bytes: Count | None = None
    sm_pct: float | None = None
    job: str | None = None
    attempt: Count | None = None
    rank: Count | None = None
    rank_source: Literal["pid", "parent", "ns_pid", "device"] | None = None
    gone: bool = False
