"""What the program was told, checked and merged: each node with what applies to it, and where each value came from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from .exec_engine import Engine
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
)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One node with everything that applies to it, already merged (see `load` for what overrides what)."""

    name: str  # unique; as shown everywhere. "host:port" where a port was written with the name
    address: str | None = None  # what to connect to; None: `host`, as ssh resolves it
    engine: Engine | None = None  # what starts the agent there in place of SSH, where the site's own does
    tags: tuple[str, ...] = ()
    process_filter: tuple[str, str] | None = None  # (KEY, VALUE) in the environment of this node's processes
    ssh: SshConfig = SshConfig()
    agent: AgentConfig = AgentConfig()
    watch: WatchConfig = WatchConfig()

    @property
    def host(self) -> str:
        """The name to ask ssh's own configuration for: `name` without the port that was written with it."""
        return self.name.rpartition(":")[0] if self.name.count(":") == 1 else self.name


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from; as text it is the place a person would look at."""

    kind: Literal["default", "file", "environment", "flag", "target"]
    place: str = ""  # file: "hosts.toml:12"; environment: the variable; flag, target: ""

    def __str__(self) -> str:
        return self.place or self.kind


class Setting(msgspec.Struct, frozen=True):
    """One effective value and where it came from."""

    key: str  # "ssh.user"; for what only an entry can say "nodes.address"
    value: str | int | float | bool | tuple[str, ...] | None  # paths resolved; None: unset
    origin: Origin
    nodes: tuple[str, ...] = ()  # the nodes it holds for, where not for all


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the program was told, checked. Section fields hold what is common, `nodes` what applies to each."""

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
    path: Path | None = None  # of the file; None for a node set given on the command line
    warnings: tuple[str, ...] = ()  # one line each: unknown GCONSOLE_* variables
    settings: tuple[Setting, ...] = ()  # every effective value: global ones first, then what holds for some nodes only


class ConfigError(Exception):
    """Something in the configuration is wrong; as text one line, `file:line: key: what is wrong (did you mean X?)`."""

    def __init__(self, place: str, key: str, text: str, nearest: str = "") -> None:
        """`place` is "hosts.toml:12", "environment", "flag" or "target"; `key` and `nearest` may be empty."""
        self.place, self.key, self.text, self.nearest = (one_line(part) for part in (place, key, text, nearest))
        head = "".join(f"{part}: " for part in (self.place, self.key) if part)
        hint = f" (did you mean {self.nearest}?)" if nearest else ""
        super().__init__(f"{head}{self.text}{hint}")


def one_line(text: str) -> str:
    """`text` with control characters written as escapes: what a file holds must not steer a terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
