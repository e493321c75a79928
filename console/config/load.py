"""Loads a TARGET, the environment and the flags into one `Config`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .clock_presets import check as check_clock
from .clock_presets import with_preset
from .document import Contents, Document, Entry, check, read, resolve_path
from .model import Config, ConfigError, NodeConfig, Origin, Setting, all_of
from .nodeset import NodeAddress, expand
from .nodeset_parser import BadNodeSet
from .schema import BadValue, Key, all_keys, keys, nearest, per_node_sections, sections, variables
from .sections import Section
from .strict_modes import require_agreement

_TARGET = Origin("target")
_PREFIX = "GCONSOLE_"
_NAMED_CLUSTER = re.compile(r"@[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
#: TARGET for this machine without SSH, and the transport of that name.
LOCAL = "local"


def load(
    target: str, *, flags: Mapping[str, object] = {}, environ: Mapping[str, str] = os.environ, name: str | None = None
) -> Config:
    """The complete configuration. Raises ConfigError.

    `target` is a file (see `is_file_target`), `@NAME` of one (see `named_cluster`), a node set, or `local`: this
    machine without SSH. `flags` maps full names to values, {"ssh.user": "ops"}; None is an absent flag, a text is
    parsed as the key's type. Precedence, lowest first: defaults, the file's sections, its [[nodes]] entry,
    `user@…:port` in `hosts`, the environment, flags, `user@host:port` in a TARGET that is a node set. An empty variable
    counts as unset; an unknown one is a warning.

    `name`: default name of the cluster of a node set. Relative paths in the file are relative to its folder, all others
    to the working directory.
    """
    errors: list[ConfigError] = []
    forced, warnings = _environment(environ, errors)
    forced |= _flags(flags, errors)
    target = str(named_cluster(target) or target)
    try:
        document = read(Path(target), target) if is_file_target(target) else None
        contents = check(document) if document is not None else Contents({}, (_target_entry(target),))
    except ConfigError as error:
        raise all_of([*errors, error]) from None
    if errors:
        raise all_of(errors)
    if document is not None:
        return configure(document, contents, forced, warnings)
    if target == LOCAL and "ssh.transport" not in forced:
        forced["ssh.transport"] = Setting("ssh.transport", LOCAL, _TARGET)
    return _assemble(contents, forced, cluster=name or target, path=None, warnings=warnings)


def more_nodes(config: Config, names: str) -> tuple[NodeConfig, ...]:
    """The nodes of a node set with the configuration of `config`; nodes that it contains are returned as they are.

    Raises ConfigError.
    """
    try:
        hosts = expand(names)
    except BadNodeSet as error:
        raise ConfigError("", "", error.text, error.nearest) from None
    by_name = {node.name: node for node in config.nodes}
    nodes = []
    for host in hosts:
        if host.name in by_name and host.user is None and host.port is None:
            nodes.append(by_name[host.name])
            continue
        user, port = host.user or config.ssh.user, host.port or config.ssh.port
        ssh = msgspec.structs.replace(config.ssh, user=user, port=port)
        nodes.append(NodeConfig(name=host.name, ssh=ssh, agent=config.agent, watch=config.watch))
    return tuple(nodes)


def named_cluster(target: str) -> Path | None:
    """The file of `@NAME` in the folder `clusters` of the user's configuration; None if there is none.

    Other targets that begin with @ are groups of nodes.
    """
    if _NAMED_CLUSTER.fullmatch(target) is None:
        return None
    import platformdirs  # only for such names

    file = platformdirs.user_config_path("gconsole") / "clusters" / f"{target[1:]}.toml"
    return file if file.is_file() else None


def is_file_target(target: str) -> bool:
    """Whether TARGET is a file: `@NAME` of one, or it ends in .toml, has a "/" outside brackets, or exists.

    A folder is not one.
    """
    if named_cluster(target) is not None:
        return True
    if target.endswith(".toml") or "/" in re.sub(r"\[[^\]]*\]", "", target):
        return True
    path = Path(target)
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # too long for a file name, or with a NUL: a node set
        return False


def target_key(target: str) -> str:
    """What identifies a TARGET among those of this machine: the resolved path of a file, else its text."""
    target = str(named_cluster(target) or target)
    return os.path.realpath(target) if is_file_target(target) else target


def configure(
    document: Document, contents: Contents, forced: Mapping[str, Setting], warnings: tuple[str, ...] = ()
) -> Config:
    """The Config of a checked document; `forced` has the overriding settings by full name.

    Raises ConfigError for a file that was found and lacks an agreement.
    """
    require_agreement(document, contents)
    return _assemble(contents, forced, cluster=document.path.stem, path=document.path, warnings=warnings)


def _target_entry(target: str) -> Entry:
    try:
        return Entry(0, target, expand(target), _TARGET, {})
    except BadNodeSet as error:
        raise ConfigError("target", "", error.text, error.nearest) from None


def _environment(environ: Mapping[str, str], errors: list[ConfigError]) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """Settings of GCONSOLE_* variables by full name, and a warning for each unknown one; adds to `errors`."""
    settings: dict[str, Setting] = {}
    warnings = []
    for name, text in sorted(environ.items()):
        if not name.startswith(_PREFIX):
            continue  # without any, the keys are not listed: 10 ms of each start
        key = variables().get(name)
        if key is not None and text:
            _force(settings, key, text, Origin("environment", name), "environment", name, errors)
        elif key is None:
            near = nearest(name, variables())
            hint = f" (did you mean {near}?)" if near else ""
            warnings.append(str(ConfigError("environment", name, f"unknown variable, ignored{hint}")))
    return settings, tuple(warnings)


def _flags(flags: Mapping[str, object], errors: list[ConfigError]) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for name, value in flags.items():
        if name not in all_keys():
            text = "unknown configuration key; gconsole config show TARGET prints all"
            errors.append(ConfigError("--set", name, text, nearest(name, all_keys())))
        elif value is not None:
            _force(settings, all_keys()[name], value, Origin("flag"), "flag", name, errors)
    return settings


def _force(
    settings: dict[str, Setting], key: Key, value: object, origin: Origin, place: str, name: str,
    errors: list[ConfigError],
) -> None:  # fmt: skip
    try:
        checked = key.parse(value) if isinstance(value, str) else key.check(value)
        settings[str(key)] = Setting(str(key), resolve_path(key, checked, Path.cwd()), origin)
    except BadValue as error:
        errors.append(ConfigError(place, name, error.text, error.nearest))


def _assemble(
    contents: Contents, forced: Mapping[str, Setting], *, cluster: str, path: Path | None, warnings: tuple[str, ...]
) -> Config:
    defaults = {str(key): Setting(str(key), key.default, Origin("default")) for key in all_keys().values()}
    shared = with_preset({**defaults, **contents.settings, **forced})
    if shared["cluster.name"].value is None:
        shared["cluster.name"] = Setting("cluster.name", cluster, Origin("default"))
    nodes: list[NodeConfig] = []
    partial: list[Setting] = []
    for entry in contents.entries:
        own = {name: setting for name, setting in entry.own.items() if name not in forced}
        _check_gateway({**shared, **own})
        partial += _for_entry(entry, own, forced)
        nodes += _nodes(entry, {**shared, **own}, forced)
    return Config(
        cluster=str(shared["cluster.name"].value), nodes=tuple(nodes), path=path, rules=contents.rules,
        warnings=(*warnings, *check_clock(shared)), settings=(*shared.values(), *partial),
        **{name: _section(name, shared) for name in sections() if name != "cluster"},
    )  # fmt: skip


def _check_gateway(settings: Mapping[str, Setting]) -> None:
    """Raise ConfigError for gateways that are not a node set, or a command that cannot be split into words."""
    gateway, command = settings["ssh.gateway"], settings["ssh.gateway_command"]
    try:
        if gateway.value is not None:
            expand(str(gateway.value))
    except BadNodeSet as error:
        raise ConfigError(str(gateway.origin), gateway.key, error.text, error.nearest) from None
    try:
        words = shlex.split(str(command.value))
    except ValueError as error:
        raise ConfigError(str(command.origin), command.key, f"cannot be split into words: {error}") from None
    if "{node}" in words[0]:
        raise ConfigError(str(command.origin), command.key, "the program must not depend on {node}")
    _check_record_on(settings)
    if gateway.value is not None and settings["ssh.transport"].value == LOCAL:
        raise ConfigError(str(gateway.origin), gateway.key, 'not possible with transport = "local"')


def _check_record_on(settings: Mapping[str, Setting]) -> None:
    """Raise ConfigError for a `record_on` that is not the only gateway, or whose agents would not outlive a loss."""
    record_on = settings["ssh.record_on"]
    if not record_on.value:
        return
    if record_on.value != settings["ssh.gateway"].value:
        text = "must be the same host as ssh.gateway, which must be one host"
    elif not settings["agent.linger_s"].value:
        text = "needs [agent] linger_s, at least 30: agents must outlive the change from one connection to the next"
    elif settings["agent.ephemeral"].value:
        text = "needs a cache folder: not possible with agent.ephemeral"
    else:
        return
    raise ConfigError(str(record_on.origin), record_on.key, text)


def _nodes(entry: Entry, settings: Mapping[str, Setting], forced: Mapping[str, Setting]) -> list[NodeConfig]:
    """The nodes of one entry; nodes that differ only in name share their sections."""
    common = {name: _section(name, settings) for name in per_node_sections()}
    about = {name: settings[f"nodes.{name}"].value for name in keys("nodes") if f"nodes.{name}" in settings}
    if isinstance(about.get("process_filter"), str):
        name, _, value = str(about["process_filter"]).removeprefix("env:").partition("=")
        about["process_filter"] = (name, value)
    nodes = []
    for host in entry.hosts:
        written = {key.partition(".")[2]: value for key, value in _written(host, entry, forced).items()}
        ssh = msgspec.structs.replace(common["ssh"], **written) if written else common["ssh"]
        fields: dict[str, Any] = {**common, "ssh": ssh, **about}
        nodes.append(NodeConfig(name=host.name, **fields))
    return nodes


def _written(host: NodeAddress, entry: Entry, forced: Mapping[str, Setting]) -> dict[str, str | int]:
    """User and port written in a name (`user@…:port`) by full name, unless overridden."""
    given = {"ssh.user": host.user, "ssh.port": host.port}
    return {
        name: value
        for name, value in given.items()
        if value is not None and (name not in forced or entry.origin.kind == "target")
    }


def _for_entry(entry: Entry, own: Mapping[str, Setting], forced: Mapping[str, Setting]) -> Iterator[Setting]:
    """Settings of one entry's nodes: its own keys, and the users and ports in its names."""
    by_name = {host.name: _written(host, entry, forced) for host in entry.hosts}
    for setting in own.values():
        names = tuple(name for name, written in by_name.items() if setting.key not in written)
        if names:
            yield msgspec.structs.replace(setting, nodes=names)
    with_names: dict[tuple[str, str | int], list[str]] = {}
    for name, written in by_name.items():
        for item in written.items():
            with_names.setdefault(item, []).append(name)
    for (key, value), names_of_value in with_names.items():
        yield Setting(key, value, entry.origin, tuple(names_of_value))


def _section(name: str, settings: Mapping[str, Setting]) -> Any:
    struct: type[Section] = sections()[name]
    return struct(**{key.name: settings[str(key)].value for key in keys(name).values()})
