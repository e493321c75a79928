"""GPU records as reported by the driver (names follow nvml.h). `simulated` marks simulated data.

A MIG device has its own records, with its own uuid, the `index` of its GPU, and that GPU's uuid as `parent`. Values
that the driver does not support are None; `GpuInfo.unsupported` has the reasons. Error counters are the driver's
totals; `grown` has the counters that increased since the previous tick, with their gain.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, DigestibleRecord, Float, Int, Record
from .event import Severity

GpuEventKind = Literal[
    "xid", "link_down", "link_up", "clocks_limited", "clocks_free", "lost", "back", "recovery_action"
]
GpuProcessType = Literal["compute", "graphics", "mps"]


class GpuInfo(Record, tag="gpu_info", kw_only=True):
    """Identity and limits of a GPU, at the start and on change."""

    index: Count  # number of the GPU on its node, as in NVML
    uuid: str  # UUID of the GPU or MIG device
    name: str | None = None  # model
    parent: str | None = None  # of a MIG device: UUID of its GPU
    mig_index: Count | None = None  # of a MIG device: its number on that GPU
    gpu_instance: Count | None = None  # of a MIG device: its GPU instance
    compute_instance: Count | None = None  # of a MIG device: its compute instance
    pci_bus_id: str | None = None  # PCI address
    serial: str | None = None  # serial number of the board
    mem_total_bytes: Count | None = None  # GPU memory
    power_limit_w: Float | None = None  # effective
    power_limit_min_w: Float | None = None  # smallest limit that can be set
    power_limit_max_w: Float | None = None  # largest limit that can be set
    power_limit_default_w: Float | None = None  # limit after a reset
    max_sm_clock_mhz: Float | None = None  # maximum SM clock
    app_sm_clock_mhz: Float | None = None  # SM clock at which programs run, as an operator set it
    app_sm_clock_default_mhz: Float | None = None  # that clock unless one is set
    max_mem_clock_mhz: Float | None = None  # maximum memory clock
    max_video_clock_mhz: Float | None = None  # maximum video clock
    pcie_gen: Count | None = None  # current; lower when idle
    pcie_width: Count | None = None  # lanes in use
    pcie_gen_max: Count | None = None  # maximum of GPU and slot
    pcie_width_max: Count | None = None  # lanes that GPU and slot support
    nvlinks: Count | None = None  # number of links, up or down
    numa_node: Int | None = None  # nearest NUMA node; None if not reported
    cpu_affinity: str | None = None  # CPUs near the GPU: "0-51,104-155"
    compute_capability: str | None = None  # "9.0"
    mig_mode: bool | None = None  # True if MIG mode is on, also without MIG devices
    mig_devices: tuple[str, ...] = ()  # their uuids
    driver: str | None = None  # version of the driver
    cuda_driver: str | None = None  # newest supported CUDA: "12.8"
    vbios: str | None = None  # version of the VBIOS
    fabric_state: str | None = None  # not_supported, not_started, in_progress, completed
    fabric_clique: Count | None = None  # GPUs of one cluster and clique reach each other over NVLink
    fabric_cluster: str | None = None  # UUID of the NVLink fabric
    fabric_faults: tuple[str, ...] = ()  # of a GPU that has joined it: what is wrong, by the driver's health mask
    ecc_mode: bool | None = None  # True if ECC is on
    persistence: bool | None = None  # True if persistence mode is on
    temp_slowdown_c: Float | None = None  # GPU temperature at which the hardware lowers the clocks
    mem_temp_max_c: Float | None = None  # memory temperature at which the driver lowers the clocks
    sram_threshold_exceeded: bool | None = None  # True if uncorrected SRAM errors exceeded the vendor's threshold
    compute_mode: str | None = None  # default, prohibited, exclusive_process
    lost: str | None = None  # why the driver cannot reach it; None while reachable
    unusable: str | None = None  # why no call returns a value although the driver lists it; None while calls do
    unsupported: dict[str, str] = msgspec.field(default_factory=dict)  # field of this record or of `gpu`: why
    simulated: bool = False  # True for simulated data


class Gpu(DigestibleRecord, tag="gpu", kw_only=True):
    """Metrics of one GPU at one tick. Unsupported values are None. Rates are since the previous tick.

    Counters of errors, remaps, BAR1 memory, fan, video clock, encoder and decoder are read every 5 s and repeated.
    """

    index: Count  # number of the GPU on its node, as in NVML
    uuid: str  # UUID of the GPU or MIG device
    util_pct: Float | None = None  # share of the driver's last sample period with a kernel running
    mem_util_pct: Float | None = None  # share of that period in which memory was read or written
    encoder_pct: Float | None = None  # utilisation of the video encoder
    decoder_pct: Float | None = None  # utilisation of the video decoder
    mem_used_bytes: Count | None = None  # GPU memory in use
    bar1_used_bytes: Count | None = None  # memory mapped for access over PCIe
    power_w: Float | None = None  # power of the board; on most GPUs the driver's average over one second
    power_instant_w: Float | None = None  # instantaneous power of the GPU
    energy_j: Float | None = None  # energy used since the driver was loaded
    temp_c: Float | None = None  # temperature of the GPU
    mem_temp_c: Float | None = None  # temperature of the memory
    temp_margin_c: Float | None = None  # degrees below the nearest temperature at which clocks are lowered (T.Limit)
    fan_pct: Float | None = None  # speed of the fan, of its maximum
    sm_clock_mhz: Float | None = None  # clock of the multiprocessors
    mem_clock_mhz: Float | None = None  # clock of the memory
    video_clock_mhz: Float | None = None  # clock of the video engines
    pstate: Count | None = None  # performance state; 0 is the fastest
    clocks_event_reasons: tuple[str, ...] = ()  # why clocks are below maximum, the driver's names
    clocks_event_share_pct: dict[str, Float] = msgspec.field(default_factory=dict)  # share of the last tick, by reason
    sm_pct: Float | None = None  # busy SMs (GPM)
    sm_occupancy_pct: Float | None = None  # resident warps of the maximum (GPM)
    tensor_pct: Float | None = None  # time in which tensor cores were active (GPM)
    dram_pct: Float | None = None  # memory bandwidth in use, of the maximum (GPM)
    pcie_rx_bytes_s: Float | None = None  # PCIe traffic to the GPU
    pcie_tx_bytes_s: Float | None = None  # PCIe traffic from the GPU
    nvlink_rx_bytes_s: Float | None = None  # all links together, payload
    nvlink_tx_bytes_s: Float | None = None  # all links together, payload
    ecc_corrected_volatile: Count | None = None  # corrected memory errors since the driver was loaded
    ecc_uncorrected_volatile: Count | None = None  # uncorrected memory errors since the driver was loaded
    ecc_corrected_aggregate: Count | None = None  # over the GPU's lifetime
    ecc_uncorrected_aggregate: Count | None = None  # over the GPU's lifetime
    remapped_rows_corrected: Count | None = None  # memory rows replaced after corrected errors
    remapped_rows_uncorrected: Count | None = None  # memory rows replaced after uncorrected errors
    remap_pending: bool | None = None  # rows are remapped at the next reset
    remap_failed: bool | None = None  # a row could not be replaced
    retired_pages_corrected: Count | None = None  # before Ampere: pages instead of rows
    retired_pages_uncorrected: Count | None = None  # memory pages retired after uncorrected errors
    retire_pending: bool | None = None  # pages are retired at the next reset
    pcie_replays: Count | None = None  # retransmitted PCIe packets
    nvlink_crc_errors: Count | None = None  # CRC errors of all links
    nvlink_replay_errors: Count | None = None  # replayed packets of all links
    nvlink_recovery_errors: Count | None = None  # recoveries of all links
    grown: dict[str, Count] = msgspec.field(default_factory=dict)  # counter: gain since the previous tick
    recovery_action: str | None = None  # required by the driver: none, gpu_reset, node_reboot, …
    simulated: bool = False  # True for simulated data


class Digest(msgspec.Struct, frozen=True):
    """Statistics of one metric over one second."""

    min: Float
    mean: Float
    max: Float
    last: Float


class GpuDigest(Record, tag="gpu_digest", kw_only=True):
    """Statistics of one GPU over one second with several samples (`sample_interval_ms` below 1000).

    Spikes of 100 ms are kept without sending more than one record per second. Unsupported values are None.
    """

    index: Count  # number of the GPU on its node, as in NVML
    uuid: str  # UUID of the GPU or MIG device
    samples: Count  # number of samples
    util_pct: Digest | None = None  # min, mean, max and last utilisation
    mem_used_bytes: Digest | None = None  # min, mean, max and last memory in use
    power_w: Digest | None = None  # min, mean, max and last power, instantaneous where the driver has it
    temp_c: Digest | None = None  # min, mean, max and last temperature
    sm_clock_mhz: Digest | None = None  # min, mean, max and last SM clock
    clocks_event_reasons: tuple[str, ...] = ()  # clock event reasons of any sample
    simulated: bool = False  # True for simulated data


class GpuLink(Record, tag="gpu_link", kw_only=True):
    """One NVLink of one GPU: every 10 s, or once a minute while the node sends digests; within 5 s of a change of its
    state or its errors. Error counters are totals.

    CRC errors and replays are counted up to Hopper; Blackwell and newer count the fields from `malformed_packets` on.
    """

    index: Count  # number of the GPU on its node, as in NVML
    uuid: str  # UUID of the GPU or MIG device
    link: Count  # number of the link on the GPU
    up: bool | None = None  # True if the link is up
    version: Count | None = None  # NVLink generation
    speed_bytes_s: Float | None = None  # one direction, as reported by the driver
    rx_bytes_s: Float | None = None  # payload, in the 10 s before
    tx_bytes_s: Float | None = None  # payload, in the 10 s before
    crc_errors: Count | None = None  # CRC errors
    replay_errors: Count | None = None  # replayed packets
    recovery_errors: Count | None = None  # link recoveries
    malformed_packets: Count | None = None  # malformed packets received
    buffer_overruns: Count | None = None  # packets dropped because a receive buffer was full
    rx_errors: Count | None = None  # packets received with errors
    integrity_errors: Count | None = None  # times the local error count exceeded its threshold
    tx_discards: Count | None = None  # packets dropped before they were sent
    failed_recoveries: Count | None = None  # recoveries after which the link was down
    effective_errors: Count | None = None  # errors that remained after error correction
    symbol_errors: Count | None = None  # received symbols with errors, before correction
    grown: dict[str, Count] = msgspec.field(default_factory=dict)  # counter: gain since the previous record


class GpuEvent(Record, tag="gpu_event", kw_only=True):
    """An event of a GPU. `uuid` is "" for a GPU that never reported it."""

    index: Count | None = None  # number of the GPU; None if NVML has no GPU at the kernel's PCI address
    uuid: str = ""  # UUID of the GPU; "" if it was never reported
    pci_bus_id: str | None = None  # PCI address
    event: GpuEventKind  # xid, link_down, link_up, clocks_limited, clocks_free, lost, back or recovery_action
    severity: Severity  # error, warning or info
    text: str  # the message
    try_: str = ""  # the remedy, or ""
    source: Literal["nvml", "kernel"] = "nvml"  # nvml, or kernel (its log)
    xid: Count | None = None  # number of the XID error
    sub_code: str | None = None  # the kernel's sub-code of the XID
    action: str | None = None  # action in NVIDIA's XID catalogue, such as RESET_GPU; None if it has none
    owner: Literal["user", "operator", "vendor"] | None = None  # who takes the action; None if unknown
    link: Count | None = None  # number of the NVLink
    reason: str | None = None  # reason of a clock event


class GpuProcess(Record, tag="gpu_process", kw_only=True):
    """One process on one GPU, on start, change and end.

    `rank_source` is how the rank was identified: `pid` (the process is the rank), `parent` (an ancestor is), `ns_pid`
    (the driver reported a container's pid), `device` (pid not visible, and one rank is assigned to this GPU).
    """

    index: Count  # number of the GPU on its node, as in NVML
    uuid: str  # UUID of the GPU or MIG device
    pid: Count  # process id as reported by the driver
    type: GpuProcessType  # compute, graphics or mps
    start_ticks: Count | None = None  # start time of the process, in clock ticks after boot; None if it is not visible
    comm: str | None = None  # name of the process, at most 15 characters
    mem_used_bytes: Count | None = None  # GPU memory of the process
    sm_pct: Float | None = None  # SM utilisation by the process, since the previous reading
    job: str | None = None  # job of its rank, if it belongs to one
    attempt: Count | None = None  # attempt of that rank
    rank: Count | None = None  # the rank it belongs to
    rank_source: Literal["pid", "parent", "ns_pid", "device"] | None = None  # how the rank was identified
    gone: bool = False  # True in the last record: it has ended
