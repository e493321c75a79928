"""The checked configuration: nodes, settings with their origin, errors, and read-only mode."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Literal

import msgspec

from .. import GconsoleError
from .sections import (
    AgentConfig,
    ClockConfig,
    ConsoleConfig,
    HangConfig,
    HealthConfig,
    RunConfig,
    SessionsConfig,
    SkewConfig,
    SshConfig,
    WatchConfig,
    WatchRule,
)


class SlurmStep(msgspec.Struct, frozen=True, tag="slurm"):
    """A node of a Slurm job; the agent runs as a step of that job (srun)."""

    job: str  # as squeue shows it: 1234, or 1234_7 of an array


class PodExec(msgspec.Struct, frozen=True, tag="k8s"):
    """A pod; the agent runs as a process in its container (kubectl exec)."""

    namespace: str
    pod: str
    container: str


Engine = SlurmStep | PodExec


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One node with everything that applies to it, already merged (see `load` for what overrides what)."""

    name: str  # unique; "host:port" if written with a port
    address: str | None = None  # to connect to; None: `host`, resolved by ssh
    engine: Engine | None = None  # starts the agent instead of SSH; None: SSH
    tags: tuple[str, ...] = ()
    process_filter: tuple[str, str] | None = None  # (KEY, VALUE) in the environment of this node's processes
    ssh: SshConfig = SshConfig()
    agent: AgentConfig = AgentConfig()
    watch: WatchConfig = WatchConfig()

    @property
    def host(self) -> str:
        """The host name for ssh's configuration: `name` without its port."""
        return self.name.rpartition(":")[0] if self.name.count(":") == 1 else self.name


class Origin(msgspec.Struct, frozen=True):
    """Origin of a value; as text the place to look at."""

    kind: Literal["default", "file", "environment", "flag", "target"]
    place: str = ""  # file: "hosts.toml:12"; environment: the variable; flag, target: ""

    def __str__(self) -> str:
        return self.place or self.kind


class Setting(msgspec.Struct, frozen=True):
    """One effective value and where it came from."""

    key: str  # "ssh.user"; for keys of entries only: "nodes.address"
    value: str | int | float | bool | tuple[str, ...] | None  # paths resolved; None: unset
    origin: Origin
    nodes: tuple[str, ...] = ()  # nodes it applies to; (): all


class PlacedRule(msgspec.Struct, frozen=True):
    """A [[watch.rule]] entry, and where it stands for errors."""

    rule: WatchRule
    place: str = ""  # "hosts.toml:12"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The complete checked configuration: common sections, and the merged configuration of each node."""

    cluster: str  # name: [cluster] name, else the file's stem, else the target's text
    nodes: tuple[NodeConfig, ...]  # in the order of the file; never empty, names unique
    ssh: SshConfig = SshConfig()
    agent: AgentConfig = AgentConfig()
    console: ConsoleConfig = ConsoleConfig()
    sessions: SessionsConfig = SessionsConfig()
    hang: HangConfig = HangConfig()
    watch: WatchConfig = WatchConfig()
    health: HealthConfig = HealthConfig()
    clock: ClockConfig = ClockConfig()
    skew: SkewConfig = SkewConfig()
    run: RunConfig = RunConfig()
    rules: tuple[PlacedRule, ...] = ()  # [[watch.rule]], in the order of the file; names unique
    path: Path | None = None  # of the file; None for a node set given on the command line
    warnings: tuple[str, ...] = ()  # one line each: unknown GCONSOLE_* variables
    settings: tuple[Setting, ...] = ()  # every effective value, global ones first


class ConfigError(GconsoleError):
    """A configuration error; as text one line: `file:line: key: what is wrong (did you mean X?)`."""

    def __init__(self, place: str, key: str, text: str, nearest: str = "") -> None:
        """`place` is "hosts.toml:12", "environment", "flag", "--set" or "target"; `key` and `nearest` may be empty."""
        self.place, self.key, self.text, self.nearest = (one_line(part) for part in (place, key, text, nearest))
        head = "".join(f"{part}: " for part in (self.place, self.key) if part)
        hint = f" (did you mean {self.nearest}?)" if nearest else ""
        super().__init__(f"{head}{self.text}{hint}")


class ConfigErrors(ConfigError):
    """Several errors, a line each; its fields are those of the first one."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.place, first.key, first.text, first.nearest)
        self.args = ("\n".join(dict.fromkeys(map(str, errors))),)


def all_of(errors: Sequence[ConfigError]) -> ConfigError:
    """One error of one or several; those of a file by line."""
    if len(errors) == 1:
        return errors[0]
    files = list(dict.fromkeys(error.place.rpartition(":")[0] for error in errors))
    return ConfigErrors(sorted(errors, key=lambda error: _place(error, files)))


def _place(error: ConfigError, files: Sequence[str]) -> tuple[int, int]:
    """Where an error is in the order of files and lines; errors without a line keep theirs."""
    file, _, line = error.place.rpartition(":")
    return files.index(file), int(line) if line.isdigit() else 0


def one_line(text: str) -> str:
    """`text` with control characters escaped, so that file content cannot control the terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


class Change(Enum):
    """Every change that gconsole can make on a node: description and explicit command.

    Changes without a command require `read_only = false`. Records, captures, clock probes and bounded native reads
    change nothing and are always allowed.
    """

    START_JOB = ("starting a job", "gconsole run start")
    STOP_JOB = ("stopping a job", "gconsole run stop")
    ADD_NODE = ("connecting to more nodes", "gconsole api --allow-run")
    REMOVE_NODE = ("disconnecting a node", "gconsole api --allow-run")
    FLIGHT_PIPE = ("making ranks write their Flight Recorder dump", None)

    def __init__(self, words: str, command: str | None) -> None:
        self.words, self.command = words, command


class ReadOnly(ConfigError):
    """Refused by `[console] read_only`; the text names the key and the explicit command."""

    name = "read_only"

    def __init__(self, change: Change) -> None:
        self.change = change
        is_prompted = change in (Change.START_JOB, Change.STOP_JOB)
        command = f"{change.command}, which asks first," if is_prompted else change.command
        explicit = f"{command} or " if command else ""
        self.try_ = f"{explicit}console.read_only = false"
        super().__init__("", "console.read_only", f"{change.words} changes what runs on the nodes, which it forbids; "
                                                  f"use {self.try_}")  # fmt: skip


def refusal(console: ConsoleConfig, change: Change, *, explicit: bool = False) -> ReadOnly | None:
    """Why a change is refused; None if it is allowed. The only place that decides this.

    `explicit`: the user requested job changes by a command (`gconsole run`, `api --allow-run`); it permits only changes
    that have a command.
    """
    if not console.read_only or (explicit and change.command is not None):
        return None
    return ReadOnly(change)


def without_clock_probes(config: Config) -> Config:
    """The same configuration, by which no clock is probed."""
    return msgspec.structs.replace(config, clock=msgspec.structs.replace(config.clock, duty="off"))


def without_stacks(config: Config) -> Config:
    """The same configuration, by which no stacks are sampled."""
    nodes = tuple(
        msgspec.structs.replace(node, watch=msgspec.structs.replace(node.watch, sample_stacks=False))
        for node in config.nodes
    )
    return msgspec.structs.replace(config, nodes=nodes)
