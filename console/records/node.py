"""Node records: connection state, identity, and metrics of the machine."""

from __future__ import annotations

from typing import Literal

import msgspec

from .base import Count, DigestibleRecord, Float, Int, Missing, Record

State = Literal["expected", "connecting", "ok", "lost", "failed", "removed"]


class Failure(msgspec.Struct, frozen=True):
    """Why a node or a request failed; `name` is stable and short (`auth`, `refused`, `no_python`, …)."""

    name: str
    text: str
    try_: str = msgspec.field(name="try", default="")


class NodeState(Record, tag="node_state", kw_only=True):
    """State of the connection to a node; a record of the console (`agent` is the console's id).

    `lost`: the node was `ok` and became silent or disconnected; `failed`: it could not be reached, or the agent could
    not be started. Both have `error`. `retry_at` is None if there is no automatic retry.
    """

    state: State  # expected, connecting, ok, lost, failed or removed
    error: Failure | None = None  # name, text and remedy, for lost and failed
    attempt: Count = 0  # connection attempts so far
    retry_at: Int | None = None  # console CLOCK_REALTIME ns of the next attempt
    tags: tuple[str, ...] = ()  # tags of the node in hosts.toml
    via: str = ""  # gateway whose own ssh reaches the node, and which checked its host key; "" for none


class Inventory(Record, tag="inventory", kw_only=True):
    """How many devices of one kind a node has, and why they cannot be read; at the start and on change.

    A set is complete when as many records as `count` have arrived. MIG devices are not counted.
    """

    of: Literal["gpu", "link", "nic"]  # the kind of record that is counted
    count: Count | None = None  # devices that have records, also lost ones; None if unknown
    installed: Count | None = None  # gpu: NVIDIA GPUs that the kernel lists; None if not readable
    missing: tuple[str, ...] = ()  # gpu: PCI addresses of those that the driver lacks; "index 3": cannot be opened
    fault: str | None = None  # stable name of the reason for which none can be read; None without one
    text: str = ""  # that state, in words
    try_: str = ""  # the remedy, or ""


class Node(Record, tag="node", kw_only=True):
    """Identity of a node, at the start of an agent."""

    hostname: str  # name that the node reports
    boot_id: str  # random id of this boot of the kernel
    init_start_ticks: Count | None = None  # start of process 1, of a container that of it, in clock ticks after boot
    kernel: str  # version of the kernel
    arch: str  # architecture: x86_64, aarch64
    python: str  # version of the interpreter the agent runs on
    os: str | None = None  # PRETTY_NAME of os-release
    cpus: Count | None = None  # logical CPUs the agent may run on
    mem_total_bytes: Count | None = None  # memory of the node
    uid: Count  # user id of the agent
    user: str | None = None  # user name of the agent
    pid: Count  # process id of the agent
    sample_interval_ms: Count  # configured sampling interval
    ptrace_scope: Count | None = None  # Yama; None if the kernel has no Yama
    capabilities: tuple[str, ...] = ()  # available: "psi", "cache", "simulate", …
    missing: tuple[Missing, ...] = ()  # what is not available on the node, with the reasons
    simulated: bool = False  # whether any data of this node is simulated


class Host(DigestibleRecord, tag="host", kw_only=True):
    """CPU, memory, pressure, disk and network of a node at one tick (from /proc).

    Rates are since the previous tick, None at the first.
    """

    cpu_pct: Float | None = None  # all CPUs together, 0 to 100
    load_1m: Float | None = None  # load average of one minute
    mem_used_bytes: Count | None = None  # total minus available
    mem_available_bytes: Count | None = None  # memory available without swapping
    swap_used_bytes: Count | None = None  # swap in use
    cpu_stall_pct: Float | None = None  # share of the last 10 s in which a task waited for a CPU (PSI)
    mem_stall_pct: Float | None = None  # share of the last 10 s in which a task waited for memory (PSI)
    io_stall_pct: Float | None = None  # share of the last 10 s in which a task waited for I/O (PSI)
    disk_read_bytes_s: Float | None = None  # whole physical disks
    disk_write_bytes_s: Float | None = None  # whole physical disks
    net_rx_bytes_s: Float | None = None  # traffic to physical interfaces; if there are none, to all but loopback
    net_tx_bytes_s: Float | None = None  # traffic from the same interfaces
    uptime_s: Float | None = None  # time since the node was started
    processes: Count | None = None  # processes visible to the agent
    unreadable: Count | None = None  # Python processes of other users that the agent may not read


class AgentCost(Record, tag="agent_cost", kw_only=True):
    """Cost of the agent on the node, each tick; the first record ends the agent's first full tick."""

    cpu_pct: Float | None = None  # CPU time of the agent, of one core, since the previous record
    rss_bytes: Count | None = None  # resident memory of the agent
    tx_bytes_s: Float | None = None  # sent to the console
    sample_interval_ms: Count  # effective interval; longer than configured while over the CPU budget
    hung: tuple[str, ...] = ()  # samplers whose last tick has not returned
    watch_cpu_pct: Float | None = None  # part of reading watched variables, over the last minute


class NodeSetting(Record, tag="setting", kw_only=True):
    """One setting of a node that its checks compare or judge; on discovery, and on change within a minute.

    `service` is `active`, `enabled` (it does not run) or `absent`; `module` is its version, `loaded` or `absent`;
    `pci_width` is the PCIe lanes in use and those that device and slot have. A setting that cannot be read has none.
    """

    name: str  # sysctl, service, module, governor, iommu, acs, nic_rate, …
    subject: str = ""  # what it belongs to: the variable, the unit, the device; "" for the node
    value: str = ""  # as the kernel prints it, at most 200 characters
    gone: bool = False  # True in the last record: it can no longer be read


class Capacity(Record, tag="capacity", kw_only=True):
    """Something that can fill up: a file system, or the memory limit of the ranks of a job.

    Every ten seconds, file systems of other machines each half minute. Those of images and of the kernel have none.
    """

    type: Literal["file_system", "cgroup_memory"]  # file_system or cgroup_memory
    path: str  # where it is mounted; the path of the cgroup
    fstype: str | None = None  # ext4, nfs4, lustre, …
    source: str | None = None  # the device, or server and path
    is_network: bool = False  # the data are on another machine
    is_writable: bool | None = None  # whether the kernel writes to it at all
    was_writable: bool | None = None  # whether it was mounted for writing; if it no longer is, the kernel saw an error
    total_bytes: Count | None = None  # size, or the limit
    available_bytes: Count | None = None  # to users who are not root; without what cached files of a cgroup use
    inodes: Count | None = None  # files that it can hold; None where that has no limit
    inodes_available: Count | None = None  # files that can still be created
    growth_bytes_s: Float | None = None  # by how much less is available, over up to 5 min; negative if more is
    stat_ms: Float | None = None  # how long statvfs() took
    hung_s: Float | None = None  # statvfs() has not returned for this long
    error: str | None = None  # why statvfs() failed
    requests_s: Float | None = None  # NFS: requests since the previous record
    retransmits_s: Float | None = None  # NFS: of them sent again
    queued_s: Float | None = None  # NFS: requests that waited for a free slot, summed at each request
    job: str | None = None  # cgroup_memory: job of its ranks
    gone: bool = False  # True in the last record: it is no longer there
