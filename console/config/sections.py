"""The sections of hosts.toml: keys with ranges, defaults and help, declared only here.

`schema` derives the key table from these structs. A new section is a struct derived from `Section` and a field of
`model.Config`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..text.timespec import DURATION_PATTERN
from .host_types import Gateway, GatewayCommand, Gateways, Host, Jump, User

# Patterns end in `\Z`: `$` also matches before a final newline.
# `extra` keys: "form": description of the pattern; "path": a path on the console's machine, `~` and relative paths
# are resolved.
LocalPath = Annotated[str, Meta(pattern=r"^[^\x00-\x1f]+\Z", extra={"form": "a path", "path": True})]
Port = Annotated[int, Meta(ge=1, le=65535)]
Command = Annotated[str, Meta(pattern=r"^[^\s\x00-\x1f-][^\x00-\x1f]*\Z", extra={"form": "a command"})]
#: As LocalPath, and "" for none.
LocalFolder = Annotated[str, Meta(pattern=r"^[^\x00-\x1f]*\Z", extra={"form": 'a folder, or ""', "path": True})]
Interface = Annotated[
    str,
    Meta(
        pattern=r"^([=^]?[A-Za-z0-9_.:%-]{1,64}(,[A-Za-z0-9_.-]{1,15})*)?\Z",
        extra={"form": 'an address, interface names separated by commas, or ""'},
    ),
]
RemotePath = Annotated[str, Meta(pattern=r"^(/[^\x00-\x1f]*)?\Z", extra={"form": 'an absolute path, or ""'})]
Line = Annotated[str, Meta(pattern=r"^\S([^\x00-\x1f]*\S)?\Z", extra={"form": "one line of text"})]
Tag = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:=/-]*\Z", extra={"form": "a word without spaces"})]
Filter = Annotated[str, Meta(pattern=r"^env:[A-Za-z_][A-Za-z0-9_]*=[^\x00-\x1f]*\Z", extra={"form": "env:KEY=VALUE"})]

Limit = Annotated[int, Meta(ge=1 << 20, le=1 << 60)]
#: Above zero: "0s" would delete every closed session.
Age = Annotated[
    str,
    Meta(pattern=r"(?!^[0.]+[a-z])" + DURATION_PATTERN, extra={"form": "a duration above 0, like 12h, 30d or 8w"}),
]

ModelText = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9_]+ \S+( \S+)?\Z", extra={"form": "a class and one or two regexes, separated by spaces"}),
]

Glob = Annotated[str, Meta(pattern=r"^/[^\x00-\x1f]+\Z", extra={"form": "an absolute path, may contain * and ?"})]

#: A secret is written as `env:NAME` or `file:PATH`: a URL that contains one (Slack, healthchecks.io) is better kept so.
SecretRef = r"env:[A-Za-z_][A-Za-z0-9_]{0,127}|file:[^\x00-\x1f]{1,4096}"
Url = Annotated[
    str,
    Meta(
        pattern=rf"^({SecretRef}|https?://[\x21-\x7e]{{1,2048}})\Z",
        extra={"form": "https://…, env:NAME or file:PATH", "url": True},
    ),
]
Secret = Annotated[str, Meta(pattern=rf"^({SecretRef})\Z", extra={"form": "env:NAME or file:PATH"})]
Period = Annotated[str, Meta(pattern=DURATION_PATTERN, extra={"form": "a duration, like 90s, 30m or 2h"})]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z", extra={"form": "a word without spaces"})]
Pattern = Annotated[str, Meta(pattern=r"^[^\x00-\x1f]{0,256}\Z", extra={"form": "a glob pattern on one line"})]
Argument = Annotated[str, Meta(pattern=r"^[^\x00]*\Z", extra={"form": "an argument without NUL"})]
EnvName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z", extra={"form": "the name of an environment variable"})
]

Variable = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){0,7}\Z",
        max_length=128,
        extra={"form": "the name of a variable, or of an attribute: self.step"},
    ),
]


def _about(description: str, *, example: object = None, is_global: bool = False, **bounds: Any) -> Meta:
    """Help text and bounds of a key; `example` is shown in the starter file, `is_global` forbids it in [[nodes]]."""
    extra = {"example": example} if example is not None else {}
    return Meta(description=description, extra=extra | ({"global": True} if is_global else {}), **bounds)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section of hosts.toml. `config init` writes the docstring's first line above it."""


class ClusterConfig(Section, frozen=True):
    """The cluster as a whole."""

    name: Annotated[
        Line | None, _about("name shown on screens and in reports; unset: the file name", example="h100-pod")
    ] = None


class SshConfig(Section, frozen=True):
    """SSH connections to the nodes. The user's ~/.ssh/config applies; keys set here override it."""

    user: Annotated[User | None, _about("login name on the nodes", example="ops")] = None
    identity_file: Annotated[LocalPath | None, _about("private key", example="~/.ssh/id_ed25519")] = None
    known_hosts: Annotated[LocalPath | None, _about("known_hosts file", example="~/.ssh/known_hosts")] = None
    host_key_policy: Annotated[
        Literal["strict", "accept-new"],
        _about("strict: host keys must be known; accept-new: store keys of new hosts, reject changed ones"),
    ] = "strict"
    jump: Annotated[Jump | None, _about('jump hosts (ProxyJump), also chains "a,b"', example="bastion")] = None
    gateway: Annotated[
        Gateways | None,
        _about(
            "hosts that reach the nodes by their own ssh, over one connection each; several share the nodes",
            example="login[1-2]",
        ),
    ] = None
    gateway_command: Annotated[
        GatewayCommand,
        _about("command on the gateway that runs a command on {node}: ssh, rsh, or srun --nodelist={node}"),
    ] = "ssh {node}"
    record_on: Annotated[
        Gateway,
        _about('the gateway that goes on without a console and keeps what its nodes send, for the next one; "": none'),
    ] = ""
    record_for_s: Annotated[
        float, _about("how long the gateway goes on without a console, seconds", ge=10, le=604_800)
    ] = 43_200.0
    record_mib: Annotated[
        int, _about("disk space on the gateway for all its nodes, MiB; each has its share", ge=16, le=1 << 20)
    ] = 1024
    port: Annotated[Port | None, _about("TCP port of the nodes' SSH server", example=22)] = None
    transport: Annotated[
        Literal["asyncssh", "openssh", "local"],
        _about("asyncssh: built in; openssh: the installed ssh program; local: this machine, no SSH"),
    ] = "asyncssh"
    connect_timeout_s: Annotated[float, _about("timeout of a connection and its login, seconds", ge=0.1, le=3600)] = (
        10.0
    )
    max_connecting: Annotated[int, _about("max. concurrent logins, over all nodes", ge=1, le=1024, is_global=True)] = 32


class AgentConfig(Section, frozen=True):
    """The agent that runs on each node while the console is connected."""

    python: Annotated[Command, _about("Python (3.6 or newer) on the nodes")] = "python3"
    run_as: Annotated[
        Literal["self", "sudo"],
        _about('self: the login user; sudo: root, by "sudo -n", to read processes of other users'),
    ] = "self"
    sample_interval_ms: Annotated[int, _about("sampling interval, milliseconds", ge=100, le=60_000)] = 1000
    linger_s: Annotated[
        float, _about("how long the agent survives a lost connection, seconds; 0: it ends", ge=0, le=604_800)
    ] = 0.0
    orphan_s: Annotated[
        float, _about("the agent ends when the console was silent this long, seconds", ge=1, le=3600)
    ] = 15.0
    buffer_bytes: Annotated[int, _about("memory for records while disconnected, bytes", ge=65_536, le=1 << 40)] = (
        67_108_864
    )
    cpu_budget_pct: Annotated[
        float, _about("max. CPU of the agent, % of a core; above it, it samples less often", ge=0.1, le=100)
    ] = 2.0
    cache_dir: Annotated[
        RemotePath, _about('cache folder on the nodes; "": /var/tmp, else /tmp, else the home directory')
    ] = ""
    ephemeral: Annotated[bool, _about("true: no files on the nodes, binaries are kept in memory")] = False
    wire: Annotated[
        Literal["rows", "readable"],
        _about("form of the records on the way: rows: arrays, a third of the bytes; readable: a JSON object per line"),
    ] = "rows"
    simulate_gpus: Annotated[int, _about("simulated GPUs per node, marked SIM; 0: none", ge=0, le=64)] = 0
    digest_s: Annotated[
        float,
        _about(
            "figures that nothing shows, records or asks for come as digests of this many seconds, at least 2; 0: off",
            ge=0, le=15,
        ),
    ] = 5.0  # fmt: skip
    allow_eval: Annotated[
        bool, _about("true: gconsole eval may evaluate expressions in ranks on these nodes, after a confirmation")
    ] = False


class WatchConfig(Section, frozen=True):
    """Progress of jobs: variables of the training loop, read from outside, and jobs that stand still."""

    locals: Annotated[
        tuple[Variable, ...],
        _about(
            "local variables (step) and attributes (self.step, Trainer.state.global_step), shown per rank; none: off",
            max_length=16,
            example=["step", "epoch", "running_loss"],
            is_global=True,
        ),
    ] = ()
    every_s: Annotated[
        float,
        _about(
            "interval of reading each rank, seconds; longer if cpu_budget_pct requires it",
            ge=1,
            le=3600,
            is_global=True,
        ),
    ] = 10.0
    sample_stacks: Annotated[
        bool,
        _about(
            "the place of each rank's main thread is sampled by py-spy, every 10 seconds or more often if stall_s is"
            " short; ends by itself where it makes a job slower",
            is_global=True,
        ),
    ] = True
    stall_s: Annotated[
        float,
        _about(
            "a job without progress for this long is diagnosed by itself, seconds; longer where three steps take"
            " longer, 20 times as long while it starts, compiles or writes a checkpoint; 0: off",
            ge=0,
            le=86400,
            is_global=True,
        ),
    ] = 30.0

    heartbeat_url: Annotated[
        Url | None,
        _about(
            "gconsole watch requests this URL every heartbeat_s, only while it sees the nodes: https://…,"
            " env:NAME or file:PATH",
            example="env:HEARTBEAT_URL",
            is_global=True,
        ),
    ] = None
    heartbeat_file: Annotated[
        LocalPath | None,
        _about(
            "gconsole watch replaces this file under the same condition", example="~/gconsole.alive", is_global=True
        ),
    ] = None
    heartbeat_s: Annotated[float, _about("interval of the heartbeat, seconds", ge=1, le=86_400, is_global=True)] = 60.0
    heartbeat_nodes_pct: Annotated[
        float,
        _about("share of the nodes that must be seen for a heartbeat, %", ge=1, le=100, is_global=True),
    ] = 100.0


class WatchRule(Section, frozen=True):
    """One [[watch.rule]] entry: what `gconsole watch` does about which findings."""

    name: Annotated[Word, _about("name of the rule; unique", example="page")]
    on: Annotated[
        tuple[Word, ...],
        _about("severities (that or a worse one) and ids of findings", max_length=64, example=["error"]),
    ] = ("error",)
    confidence: Annotated[
        Literal["certain", "likely", "possible", "none"], _about("min. confidence of a finding; none: any")
    ] = "none"
    culprit: Annotated[Pattern, _about("glob pattern of a culprit, like rank 1* or node01:gpu*")] = "*"
    node: Annotated[Pattern, _about("glob pattern of a node of the culprits, like gpu-a*")] = "*"
    job: Annotated[Pattern, _about("glob pattern of the job, like llama*; findings without a job match only *")] = "*"
    after: Annotated[Period, _about("a finding counts when it has been open for this long")] = "0s"
    at_most_every: Annotated[
        Period, _about("min. time between two alerts about the same job, or the same finding without a job")
    ] = "30m"
    at_most_per_hour: Annotated[int, _about("max. alerts of this rule per hour", ge=1, le=100_000)] = 30
    on_clear: Annotated[bool, _about("true: also act when the findings of an alert have cleared")] = False
    keep: Annotated[bool, _about("true: keep the evidence, under a name with the time")] = False
    run: Annotated[
        tuple[Argument, ...],
        _about(
            "command and arguments, started without a shell; the alert is JSON on its standard input",
            max_length=64,
            example=["/usr/local/bin/page-me", "--urgent"],
        ),
    ] = ()
    run_timeout: Annotated[Period, _about("time limit of the command")] = "60s"
    run_env: Annotated[
        tuple[EnvName, ...],
        _about("environment variables passed to the command, beside PATH, HOME, USER and LANG", max_length=64),
    ] = ()
    post: Annotated[
        Url | None,
        _about("URL that the alert is posted to: https://…, env:NAME or file:PATH", example="env:SLACK_URL"),
    ] = None
    format: Annotated[
        Literal["json", "slack", "pagerduty"], _about("what is posted; pagerduty: Events API v2, needs routing_key")
    ] = "json"
    routing_key: Annotated[
        Secret | None, _about("integration key of PagerDuty: env:NAME or file:PATH", example="env:PAGERDUTY_KEY")
    ] = None
    allow_http: Annotated[bool, _about("true: post may be http:// to other machines than this one")] = False
    textfile: Annotated[
        LocalPath | None,
        _about("file for node_exporter, with the findings that this rule selects", example="/var/lib/node/gc.prom"),
    ] = None


class ConsoleConfig(Section, frozen=True):
    """The console."""

    read_only: Annotated[bool, _about("true: only gconsole run, which asks first, changes a node or a job")] = True
    history_bytes: Annotated[int, _about("memory for the metric history, bytes", ge=16 << 20, le=1 << 40)] = 1 << 30
    clipboard: Annotated[
        Literal["osc52", "native", "both"],
        _about("clipboard: osc52: of the terminal, also through ssh; native: of this machine; both"),
    ] = "both"
    black_box: Annotated[
        bool, _about("true: the last minutes of records are kept on this machine's disk, for gconsole record --last")
    ] = True
    black_box_bytes: Annotated[int, _about("disk space of a console's black box, bytes", ge=8 << 20, le=1 << 40)] = (
        64 << 20
    )
    black_box_s: Annotated[float, _about("length of the black box, seconds", ge=60, le=86_400)] = 900.0


class SessionsConfig(Section, frozen=True):
    """Folder and limits of recorded sessions. Without limits, nothing is deleted."""

    folder: Annotated[
        LocalPath | None, _about("folder of the sessions; unset: the user's data folder", example="~/gconsole-sessions")
    ] = None
    max_bytes: Annotated[
        Limit | None, _about("max. size of all sessions, bytes; the oldest closed ones are deleted", example=1 << 38)
    ] = None
    max_age: Annotated[
        Age | None, _about("closed sessions are deleted after this time: 90m, 12h, 30d, 8w", example="30d")
    ] = None


class HangConfig(Section, frozen=True):
    """Captures and hang analysis."""

    models: Annotated[
        tuple[ModelText, ...],
        _about(
            "classes of your framework's calls: class, regex of the function, regex of the file",
            example=[r"collective ring_reduce (^|/)mylib/comm\.py$"],
        ),
    ] = ()
    nccl_logs: Annotated[
        tuple[Glob, ...],
        _about(
            "NCCL logs on the nodes (NCCL_DEBUG=INFO with COLL), read with each capture",
            example=["/var/log/train/nccl.*.log"],
        ),
    ] = ()
    inspector_logs: Annotated[
        tuple[Glob, ...],
        _about(
            "logs of NCCL Inspector on the nodes, read with each capture", example=["/var/log/train/inspector/*.log"]
        ),
    ] = ()
    min_frozen_s: Annotated[float, _about("a job without progress for this long is hung, seconds", ge=0.5, le=3600)] = (
        5.0
    )


class ClockConfig(Section, frozen=True):
    """Clock comparison between nodes. Keys that are not set get the values of the preset."""

    enabled: Annotated[bool, _about("false: clocks are neither read nor compared")] = True
    preset: Annotated[
        Literal["low", "default", "high", "debug"],
        _about(
            "defaults of the keys below; cadence and window: low 20 ms, 8 s; default 5 ms, 4 s; "
            "high 0.8 ms, 4 s; debug 1 ms, 2 s"
        ),
    ] = "default"
    probe_cadence_us: Annotated[int, _about("interval of probe triples, microseconds", ge=200, le=1_000_000)] = 5000
    duty: Annotated[
        Literal["auto", "continuous", "off"],
        _about("auto: a window per minute at 20 ms, continuous while viewed or capturing; continuous; off"),
    ] = "auto"
    probe_window_s: Annotated[int, _about("length of the window of a clock estimate, seconds", ge=1, le=60)] = 4
    packet_spacing_us: Annotated[
        int, _about("interval of the three packets of a triple, microseconds", ge=10, le=10_000)
    ] = 100
    snapshot_period_ms: Annotated[
        int, _about("interval of clock snapshots on each node while probes run, milliseconds", ge=10, le=1000)
    ] = 100
    peers: Annotated[
        int, _about("nodes that each node is compared with, if there are more than 7; an even number", ge=2, le=16)
    ] = 6
    cpu_cap_pct: Annotated[
        int, _about("max. CPU of probing, % of a core; above it, the cadence is lengthened", ge=1, le=100)
    ] = 15
    interface: Annotated[
        Interface, _about('interface of probes: an address, or names as in NCCL_SOCKET_IFNAME; "": as ssh')
    ] = ""
    method: Annotated[
        Literal["auto", "probe", "ssh", "ntp", "ptp", "system"],
        _about(
            "auto: UDP probes, or pings over SSH if UDP is blocked; probe, ssh: only these; "
            "ntp, ptp: as reported by the nodes' time services; system: uncorrected clocks"
        ),
    ] = "auto"
    gpu_clock: Annotated[
        bool,
        _about(
            "also read every GPU's timer once a minute; needs a CUDA context on each GPU (some hundred"
            " MB of GPU memory) for about a second"
        ),
    ] = False
    max_bound_us: Annotated[
        float, _about("a wider error bound is a finding (clock_unsynced), microseconds", ge=1, le=1_000_000)
    ] = 100.0
    max_offset_ms: Annotated[
        float, _about("a clock further from most others is a finding (clock_offset), milliseconds", ge=0.001, le=1e9)
    ] = 1.0
    output_dir: Annotated[LocalFolder, _about('folder for windows and results as JSON lines; "": none')] = ""


class SkewConfig(Section, frozen=True):
    """Straggler detection."""

    max_ms: Annotated[
        float, _about("a rank that is later than this is a straggler, milliseconds", ge=0.001, le=60_000)
    ] = 10.0


class HealthConfig(Section, frozen=True):
    """Limits of health findings. DCGM: limit of NVIDIA DCGM's health checks; default: chosen by gconsole."""

    window_s: Annotated[float, _about("window of shares, averages and rates, seconds (default)", ge=3, le=3600)] = 60.0
    clear_s: Annotated[
        float, _about("a finding clears when its condition was false for this long, seconds (default)", ge=0, le=3600)
    ] = 15.0
    busy_pct: Annotated[float, _about("a GPU with this utilisation or more is busy (default)", ge=1, le=100)] = 50.0
    throttle_share_pct: Annotated[
        float, _about("max. share of busy time throttled by heat or hardware (default)", ge=0.1, le=100)
    ] = 10.0
    xid_s: Annotated[
        float, _about("an XID that needs no reset is reported for this long, seconds (default)", ge=1, le=604_800)
    ] = 3600.0
    ecc_corrected_per_min: Annotated[
        float, _about("max. corrected memory errors of a GPU per minute (DCGM: provisional)", ge=0, le=1e9)
    ] = 10.0
    pcie_replays_per_min: Annotated[float, _about("max. PCIe replays of a GPU per minute (DCGM)", ge=0, le=1e9)] = 8.0
    nvlink_crc_per_s: Annotated[
        float, _about("max. NVLink CRC errors of a GPU per second; replays: none (DCGM)", ge=0, le=1e9)
    ] = 100.0
    nvlink_errors_per_min: Annotated[
        float, _about("max. errors of one type of the NVLinks of a Blackwell GPU per minute (default)", ge=0, le=1e9)
    ] = 60.0
    nic_errors_per_min: Annotated[
        float, _about("max. errors of one type of a network port per minute (default)", ge=0, le=1e9)
    ] = 10.0
    memory_imbalance_pct: Annotated[
        float, _about("max. excess of a rank's peak GPU memory, % of the GPU's memory (default)", ge=1, le=100)
    ] = 15.0
    straggler_clock_pct: Annotated[
        float, _about("max. deficit of a GPU's clock against its peers in a job (default)", ge=0.1, le=100)
    ] = 8.0
    straggler_power_pct: Annotated[
        float, _about("max. difference of a GPU's power from its peers in a job (default)", ge=1, le=100)
    ] = 30.0
    peers: Annotated[int, _about("min. number of ranks to compare (default)", ge=3, le=100_000)] = 4


class RunConfig(Section, frozen=True):
    """Defaults of the options of `gconsole run`."""

    select: Annotated[Line | None, _about("select only among these nodes; unset: any", example="node[01-04]")] = None
    nodes: Annotated[
        Annotated[int, Meta(ge=1, le=16_384)] | None,
        _about("number of nodes; unset: all of select, else one", example=2),
    ] = None
    gpus_per_node: Annotated[
        Annotated[int, Meta(ge=0, le=1024)] | None,
        _about("0: CPU job; unset: the largest number of any node", example=8),
    ] = None
    procs_per_node: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None, _about("ranks per node; unset: one per GPU", example=8)
    ] = None
    launcher: Annotated[
        Literal["torchrun", "accelerate", "env"],
        _about("how ranks are started; env: each directly, with RANK, WORLD_SIZE etc. set"),
    ] = "torchrun"
    workdir: Annotated[
        Line | None, _about("working directory on the nodes; unset: the home directory", example="~/train")
    ] = None


class NodeEntry(Section, frozen=True):
    """One [[nodes]] entry; it also accepts every key of [ssh] and [agent] that is not global."""

    hosts: Annotated[str, _about("names: node[001-064,071], @group, user@host:port, a,b", example="node[01-04]")]
    address: Annotated[Host | None, _about("address of the single host of this entry", example="10.1.2.3")] = None
    process_filter: Annotated[
        Filter | None, _about("only processes with this environment variable", example="env:TEAM=llm")
    ] = None
    tags: Annotated[tuple[Tag, ...], _about("tags for filters", example=["rack3"])] = ()
