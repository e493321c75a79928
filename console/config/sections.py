"""The sections of hosts.toml: the fields, their ranges, defaults and meaning stand here and nowhere else.

`schema` derives the table from these structs that reading, `config show` and `config init` work with. A new section is
one struct derived from `Section` and one field of `model.Config`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .fields import (
    Age,
    Command,
    Filter,
    Glob,
    Host,
    Interface,
    Jump,
    Limit,
    Line,
    LocalFolder,
    LocalPath,
    ModelText,
    Port,
    RemotePath,
    Tag,
    User,
    Variable,
)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section of hosts.toml. Its docstring's first line is the comment that `config init` writes above it."""


class ClusterConfig(Section, frozen=True):
    """What these nodes are, together."""

    name: Annotated[
        Line | None,
        Meta(
            description="the name shown on screens and in reports; the file's own name where unset",
            extra={"example": "h100-pod"},
        ),
    ] = None


class SshConfig(Section, frozen=True):
    """How the nodes are reached. The user's ~/.ssh/config applies; what is set here overrides it."""

    user: Annotated[User | None, Meta(description="login on the nodes", extra={"example": "ops"})] = None
    identity_file: Annotated[
        LocalPath | None, Meta(description="private key", extra={"example": "~/.ssh/id_ed25519"})
    ] = None
    known_hosts: Annotated[
        LocalPath | None, Meta(description="file of known host keys", extra={"example": "~/.ssh/known_hosts"})
    ] = None
    host_key_policy: Annotated[
        Literal["strict", "accept-new"],
        Meta(description="strict: host keys must be known; accept-new: keep a new host's, refuse a changed one"),
    ] = "strict"
    jump: Annotated[
        Jump | None,
        Meta(description='hosts to go through (ProxyJump), also chains "a,b"', extra={"example": "bastion"}),
    ] = None
    port: Annotated[Port | None, Meta(description="TCP port of the nodes' ssh server", extra={"example": 22})] = None
    transport: Annotated[
        Literal["asyncssh", "openssh", "local"],
        Meta(description="asyncssh: built in; openssh: your own ssh program; local: this machine, no SSH"),
    ] = "asyncssh"
    connect_timeout_s: Annotated[
        float, Meta(ge=0.1, le=3600, description="longest wait for a connection and its login, seconds")
    ] = 10.0
    max_connecting: Annotated[
        int, Meta(ge=1, le=1024, description="most logins in flight at once, over all nodes", extra={"global": True})
    ] = 32


class AgentConfig(Section, frozen=True):
    """The agent that runs on each node while the console is there."""

    python: Annotated[Command, Meta(description="Python (3.6 or newer) on the nodes")] = "python3"
    run_as: Annotated[
        Literal["self", "sudo"],
        Meta(description='self: the login user; sudo: root, by "sudo -n", to see the processes of others'),
    ] = "self"
    sample_interval_ms: Annotated[int, Meta(ge=100, le=60_000, description="time between samples, milliseconds")] = 1000
    linger_s: Annotated[
        float, Meta(ge=0, le=604_800, description="the agent outlives a lost connection so long, seconds; 0: it ends")
    ] = 0.0
    orphan_s: Annotated[
        float, Meta(ge=1, le=3600, description="silence of the console after which the agent ends, seconds")
    ] = 15.0
    buffer_bytes: Annotated[
        int, Meta(ge=65_536, le=1 << 40, description="memory for records while the connection is away, bytes")
    ] = 67_108_864
    cpu_budget_pct: Annotated[
        float, Meta(ge=0.1, le=100, description="most CPU of the agent, % of a core; it samples less above that")
    ] = 2.0
    cache_dir: Annotated[
        RemotePath,
        Meta(description='folder on the nodes for two binaries; "": /var/tmp, else /tmp, else the home folder'),
    ] = ""
    ephemeral: Annotated[bool, Meta(description="true: no file on the nodes, binaries stay in memory")] = False
    simulate_gpus: Annotated[int, Meta(ge=0, le=64, description="simulated GPUs per node, marked SIM; 0: none")] = 0


class WatchConfig(Section, frozen=True):
    """Variables of the training loop that are read from outside while the job runs, and shown beside each rank."""

    locals: Annotated[
        tuple[Variable, ...],
        Meta(
            max_length=16,
            description="names of variables of functions: shown per rank, read by py-spy; none: off",
            extra={"example": ["step", "epoch", "loss"], "global": True},
        ),
    ] = ()
    every_s: Annotated[
        float,
        Meta(
            ge=1,
            le=3600,
            description="each rank is read so often, seconds; less often where cpu_budget_pct says so",
            extra={"global": True},
        ),
    ] = 10.0


class ConsoleConfig(Section, frozen=True):
    """This program itself."""

    read_only: Annotated[
        bool,
        Meta(description="true: nothing changes a node or a job but the explicit gconsole run, which asks first"),
    ] = True
    history_bytes: Annotated[
        int, Meta(ge=16 << 20, le=1 << 40, description="memory for the history of figures, bytes")
    ] = 1 << 30
    clipboard: Annotated[
        Literal["osc52", "native", "both"],
        Meta(description="where copied text goes: osc52: the terminal, also through ssh; native: this machine; both"),
    ] = "both"


class SessionsConfig(Section, frozen=True):
    """Where recorded sessions are kept, and how much of them. Without limits nothing is ever deleted."""

    folder: Annotated[
        LocalPath | None,
        Meta(description="folder of the sessions; unset: your data folder", extra={"example": "~/gconsole-sessions"}),
    ] = None
    max_bytes: Annotated[
        Limit | None,
        Meta(
            description="all sessions together, bytes; beyond that the oldest closed ones go",
            extra={"example": 1 << 38},
        ),
    ] = None
    max_age: Annotated[
        Age | None,
        Meta(description="closed sessions go so long after their end: 90m, 12h, 30d, 8w", extra={"example": "30d"}),
    ] = None


class HangConfig(Section, frozen=True):
    """How captures and hangs are judged."""

    models: Annotated[
        tuple[ModelText, ...],
        Meta(
            description="what calls of your own framework mean: a class, a regex of the function, one of the file",
            extra={"example": [r"collective ring_reduce (^|/)mylib/comm\.py$"]},
        ),
    ] = ()
    nccl_logs: Annotated[
        tuple[Glob, ...],
        Meta(
            description="NCCL logs on the nodes (NCCL_DEBUG=INFO with COLL), read with each capture",
            extra={"example": ["/var/log/train/nccl.*.log"]},
        ),
    ] = ()
    inspector_logs: Annotated[
        tuple[Glob, ...],
        Meta(
            description="logs of NCCL Inspector on the nodes, read with each capture",
            extra={"example": ["/var/log/train/inspector/*.log"]},
        ),
    ] = ()
    min_frozen_s: Annotated[
        float, Meta(ge=0.5, le=3600, description="a job that has not changed for so long, seconds, is called hung")
    ] = 5.0


class ClockConfig(Section, frozen=True):
    """How the nodes' clocks are compared. The preset sets what is not set here; `presets` says to what."""

    enabled: Annotated[bool, Meta(description="false: no clock is read or compared")] = True
    preset: Annotated[
        Literal["low", "default", "high", "debug"],
        Meta(
            description="what is not set below; cadence and window: low 20 ms, 8 s; default 5 ms, 4 s; "
            "high 0.8 ms, 4 s; debug 1 ms, 2 s"
        ),
    ] = "default"
    probe_cadence_us: Annotated[
        int, Meta(ge=500, le=1_000_000, description="between two triples of probes, microseconds")
    ] = 5000
    duty: Annotated[
        Literal["auto", "continuous", "off"],
        Meta(description="auto: one window a minute, at 20 ms, while somebody looks or captures always; off: never"),
    ] = "auto"
    probe_window_s: Annotated[
        int, Meta(ge=1, le=60, description="one line through the clocks is drawn over so long, seconds")
    ] = 4
    packet_spacing_us: Annotated[
        int, Meta(ge=10, le=10_000, description="between the three packets of a triple, microseconds")
    ] = 100
    snapshot_period_ms: Annotated[
        int, Meta(ge=10, le=1000, description="a node's clocks are read against each other so often, milliseconds")
    ] = 100
    peers: Annotated[
        int, Meta(ge=2, le=16, description="other nodes that each is compared with, of more than 7; an even number")
    ] = 6
    cpu_cap_pct: Annotated[
        int, Meta(ge=1, le=100, description="of a core: probes that cost a node more come less often")
    ] = 15
    interface: Annotated[
        Interface, Meta(description='where probes leave: an address, or names as in NCCL_SOCKET_IFNAME; "": as ssh')
    ] = ""
    method: Annotated[
        Literal["auto", "probe", "ssh", "ntp", "ptp", "system"],
        Meta(
            description="auto: UDP probes, where those are blocked pings over SSH; probe, ssh: only these; "
            "ntp, ptp: what the nodes' own services claim; system: their clocks as they are"
        ),
    ] = "auto"
    gpu_clock: Annotated[
        bool,
        Meta(
            description="once a minute read every GPU's own timer, too: costs a CUDA context on each GPU (some hundred"
            " MB of its memory) for about a second"
        ),
    ] = False
    max_bound_us: Annotated[
        float, Meta(ge=1, le=1_000_000, description="a wider bound is a finding (clock_unsynced), microseconds")
    ] = 100.0
    output_dir: Annotated[
        LocalFolder, Meta(description='also write windows and nodes there, a line of JSON each; "": nowhere')
    ] = ""


class SkewConfig(Section, frozen=True):
    """When a rank is late."""

    max_ms: Annotated[
        float, Meta(ge=0.001, le=60_000, description="a rank that arrives later is a straggler, milliseconds")
    ] = 10.0


class HealthConfig(Section, frozen=True):
    """When a figure is a finding. DCGM: the limit of NVIDIA DCGM's own health checks; ours: chosen here."""

    window_s: Annotated[
        float, Meta(ge=3, le=3600, description="how far back shares, averages and rates look, seconds (ours)")
    ] = 60.0
    clear_s: Annotated[
        float, Meta(ge=0, le=3600, description="a finding is cleared once it was not true for so long, seconds (ours)")
    ] = 15.0
    busy_pct: Annotated[
        float, Meta(ge=1, le=100, description="from this utilisation on a GPU works, and is not idle (ours)")
    ] = 50.0
    throttle_share_pct: Annotated[
        float, Meta(ge=0.1, le=100, description="share of its work that heat or hardware may slow down (ours)")
    ] = 10.0
    xid_s: Annotated[
        float, Meta(ge=1, le=604_800, description="an XID that needs no reset is told for so long, seconds (ours)")
    ] = 3600.0
    ecc_corrected_per_min: Annotated[
        float, Meta(ge=0, le=1e9, description="most corrected memory errors of a GPU in a minute (DCGM: provisional)")
    ] = 10.0
    pcie_replays_per_min: Annotated[
        float, Meta(ge=0, le=1e9, description="most PCIe replays of a GPU in a minute (DCGM)")
    ] = 8.0
    nvlink_crc_per_s: Annotated[
        float, Meta(ge=0, le=1e9, description="most NVLink CRC errors of a GPU in a second; replays: none (DCGM)")
    ] = 100.0
    nic_errors_per_min: Annotated[
        float, Meta(ge=0, le=1e9, description="most errors of one sort that a port counts in a minute (ours)")
    ] = 10.0
    memory_imbalance_pct: Annotated[
        float, Meta(ge=1, le=100, description="of the card's memory: how much more a rank may hold at its peak (ours)")
    ] = 15.0
    straggler_clock_pct: Annotated[
        float, Meta(ge=0.1, le=100, description="how far below its peers' clock a GPU of one job may be (ours)")
    ] = 8.0
    straggler_power_pct: Annotated[
        float, Meta(ge=1, le=100, description="how far from its peers' power a GPU of one job may be (ours)")
    ] = 30.0
    peers: Annotated[int, Meta(ge=3, le=100_000, description="so many ranks at least are compared (ours)")] = 4


class RunConfig(Section, frozen=True):
    """What `gconsole run` takes where its options say nothing."""

    select: Annotated[
        Line | None, Meta(description="choose among these nodes only; unset: any", extra={"example": "node[01-04]"})
    ] = None
    nodes: Annotated[
        Annotated[int, Meta(ge=1, le=16_384)] | None,
        Meta(description="how many; unset: all of select, else one", extra={"example": 2}),
    ] = None
    gpus_per_node: Annotated[
        Annotated[int, Meta(ge=0, le=1024)] | None,
        Meta(description="0: jobs for CPUs; unset: all of the node that has most", extra={"example": 8}),
    ] = None
    procs_per_node: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(description="ranks a node; unset: one for each GPU", extra={"example": 8}),
    ] = None
    launcher: Annotated[
        Literal["torchrun", "accelerate", "env"],
        Meta(description="what starts the ranks; env: each of them, with RANK, WORLD_SIZE and the like"),
    ] = "torchrun"
    workdir: Annotated[
        Line | None, Meta(description="folder on the nodes; unset: the home folder", extra={"example": "~/train"})
    ] = None


class NodeEntry(Section, frozen=True):
    """One [[nodes]] entry as written; beside these keys it takes every key of [ssh] and [agent] that is not global."""

    hosts: Annotated[
        str, Meta(description="names: node[001-064,071], @group, user@host:port, a,b", extra={"example": "node[01-04]"})
    ]
    address: Annotated[
        Host | None,
        Meta(description="where the one host of this entry is reached", extra={"example": "10.1.2.3"}),
    ] = None
    process_filter: Annotated[
        Filter | None,
        Meta(description="only processes with this in their environment", extra={"example": "env:TEAM=llm"}),
    ] = None
    tags: Annotated[tuple[Tag, ...], Meta(description="words to filter by", extra={"example": ["rack3"]})] = ()
