"""GPUs, as their driver reports them (names follow nvml.h). `simulated` is true for figures that no GPU produced.

A MIG device is a row of its own: it has its own uuid, the `index` of the GPU it is a part of, and that GPU's uuid as
`parent`. A figure that the driver does not support is None, and `GpuInfo.unsupported` says why, once. Counters of
errors are totals as the driver has them; `grown` says which of them grew since the previous tick, and by how much.
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
    """Who a GPU is and what its limits are, at the start and on change."""

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
    power_limit_w: float | None = None  # in force
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    power_limit_default_w: float | None = None
    max_sm_clock_mhz: float | None = None
    max_mem_clock_mhz: float | None = None
    max_video_clock_mhz: float | None = None
    pcie_gen: Count | None = None  # now; an idle GPU may lower it
    pcie_width: Count | None = None
    pcie_gen_max: Count | None = None  # what GPU and slot can do
    pcie_width_max: Count | None = None
    nvlinks: Count | None = None  # links the GPU has, up or down
    numa_node: Int | None = None
    cpu_affinity: str | None = None  # CPUs near the GPU: "0-51,104-155"
    compute_capability: str | None = None  # "9.0"
    mig_mode: bool | None = None
    mig_devices: tuple[str, ...] = ()  # their uuids
    driver: str | None = None
    cuda_driver: str | None = None  # the newest CUDA the driver can run: "12.8"
    vbios: str | None = None
    fabric_state: str | None = None  # not_supported, not_started, in_progress, completed
    fabric_clique: Count | None = None  # GPUs of one cluster and clique reach each other over NVLink
    fabric_cluster: str | None = None
    ecc_mode: bool | None = None
    persistence: bool | None = None
    compute_mode: str | None = None  # default, prohibited, exclusive_process
    lost: str | None = None  # why the driver cannot reach it any more; None while it answers
    unsupported: dict[str, str] = msgspec.field(default_factory=dict)  # field of this record or of `gpu`: why
    simulated: bool = False


class Gpu(Record, tag="gpu", kw_only=True):
    """One GPU at one tick. A figure the driver does not support is None. Rates are over the time since the last one."""

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
    clocks_event_reasons: tuple[str, ...] = ()  # why the clocks are below maximum, the driver's own words
    clocks_event_share_pct: dict[str, float] = msgspec.field(default_factory=dict)  # since the last tick
    sm_pct: float | None = None  # share of the SMs that were busy (GPM)
    sm_occupancy_pct: float | None = None  # warps on the SMs, of those that fit (GPM)
    tensor_pct: float | None = None  # share of the time in which tensor cores worked (GPM)
    dram_pct: float | None = None  # memory bandwidth, of what the memory can do (GPM)
    pcie_rx_bytes_s: float | None = None
    pcie_tx_bytes_s: float | None = None
    nvlink_rx_bytes_s: float | None = None  # all links together, payload
    nvlink_tx_bytes_s: float | None = None
    ecc_corrected_volatile: Count | None = None  # since the driver was loaded
    ecc_uncorrected_volatile: Count | None = None
    ecc_corrected_aggregate: Count | None = None  # in the GPU's life
    ecc_uncorrected_aggregate: Count | None = None
    remapped_rows_corrected: Count | None = None
    remapped_rows_uncorrected: Count | None = None
    remap_pending: bool | None = None  # rows wait for a reset to be remapped
    remap_failed: bool | None = None
    retired_pages_corrected: Count | None = None  # before Ampere: pages in place of rows
    retired_pages_uncorrected: Count | None = None
    retire_pending: bool | None = None
    pcie_replays: Count | None = None
    nvlink_crc_errors: Count | None = None
    nvlink_replay_errors: Count | None = None
    nvlink_recovery_errors: Count | None = None
    grown: dict[str, int] = msgspec.field(default_factory=dict)  # counter: what it gained since the last tick
    recovery_action: str | None = None  # the driver's wish: none, gpu_reset, node_reboot, …
    simulated: bool = False


class Digest(msgspec.Struct, frozen=True):
    """What one figure did between two looks that are a second apart."""

    min: float
    mean: float
    max: float
    last: float


class GpuDigest(Record, tag="gpu_digest", kw_only=True):
    """What one GPU did in one second that was looked at several times (`sample_interval_ms` below 1000).

    So a spike of 100 ms is not lost, and the wire carries no more than at one look a second. A figure that the driver
    does not support is None.
    """

    index: Count
    uuid: str
    samples: Count  # looks that are in it
    util_pct: Digest | None = None
    mem_used_bytes: Digest | None = None
    power_w: Digest | None = None
    temp_c: Digest | None = None
    sm_clock_mhz: Digest | None = None
    clocks_event_reasons: tuple[str, ...] = ()  # that held at any of the looks
    simulated: bool = False


class GpuLink(Record, tag="gpu_link", kw_only=True):
    """One NVLink of one GPU, every 10 s. Error counters are totals."""

    index: Count
    uuid: str
    link: Count
    up: bool | None = None
    version: Count | None = None
    speed_bytes_s: float | None = None  # one direction, as the driver states it
    rx_bytes_s: float | None = None  # payload, over the time since the previous record
    tx_bytes_s: float | None = None
    crc_errors: Count | None = None
    replay_errors: Count | None = None
    recovery_errors: Count | None = None
    grown: dict[str, int] = msgspec.field(default_factory=dict)  # counter: what it gained since the previous record


class GpuEvent(Record, tag="gpu_event", kw_only=True):
    """Something that happened to a GPU. `uuid` is empty for a GPU that never told it."""

    index: Count | None = None  # None where the kernel names a PCI address that no GPU of NVML has
    uuid: str = ""
    pci_bus_id: str | None = None
    event: GpuEventKind
    severity: Severity
    text: str
    try_: str = ""
    source: Literal["nvml", "kernel"] = "nvml"
    xid: Count | None = None
    sub_code: str | None = None  # the kernel's word behind the number of an XID
    link: Count | None = None
    reason: str | None = None  # of the clocks


class GpuProcess(Record, tag="gpu_process", kw_only=True):
    """One process on one GPU, when it comes, changes and goes.

    `rank_source` says how the rank was found: `pid` (the process is the rank), `parent` (a process above it is),
    `ns_pid` (the driver spoke the pid of a container), `device` (unseen pid, and one rank says it has this GPU).
    """

    index: Count
    uuid: str
    pid: Count  # as the driver says it
    type: GpuProcessType
    start_ticks: Count | None = None  # None where the process cannot be seen
    comm: str | None = None
    mem_used_bytes: Count | None = None
    sm_pct: float | None = None
    job: str | None = None
    attempt: Count | None = None
    rank: Count | None = None
    rank_source: Literal["pid", "parent", "ns_pid", "device"] | None = None
    gone: bool = False
