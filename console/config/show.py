"""A Config, and the entries of a hosts.toml, as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..text.format import plural
from ..text.table import table
from .document import Entry
from .model import Config, Setting, one_line
from .nodeset import fold
from .schema import written

#: Terminal cells. A longer value, such as a list of paths, does not push the origins of all others away.
_WIDEST_CELL = 48


def config_text(config: Config) -> str:
    """Every effective value and where it came from: what holds for all nodes, then what some have of their own."""
    everywhere = [setting for setting in config.settings if not setting.nodes]
    lines = table([_cells(setting) for setting in everywhere], widest=_WIDEST_CELL)
    names = [node.name for node in config.nodes]
    lines += ["", f"{plural(len(names), 'node')}: {fold(names)}"]
    for nodes, settings in _by_nodes(config.settings).items():
        lines += ["", f"{fold(nodes)} ({plural(len(nodes), 'node')})"]
        rows = [_cells(setting) for setting in settings]
        lines += table(rows, indent="  ", widest=_WIDEST_CELL)
    return "\n".join(map(one_line, lines))


def config_data(config: Config) -> dict[str, Any]:
    """The same for programs: `settings` holds for all nodes, `node_settings` for those it names (folded)."""
    return {
        "cluster": config.cluster,
        "path": str(config.path) if config.path else None,
        "nodes": [node.name for node in config.nodes],
        "settings": [_data(setting) for setting in config.settings if not setting.nodes],
        "node_settings": [
            {"nodes": fold(nodes), **_data(setting)}
            for nodes, settings in _by_nodes(config.settings).items()
            for setting in settings
        ],
        "warnings": list(config.warnings),
    }


def entries_text(entries: Iterable[Entry]) -> str:
    """The [[nodes]] entries of a file, one a line: names, how many, where, and what they set of their own."""
    rows = []
    for entry in entries:
        own = (f"{setting.key.partition('.')[2]} = {_value(setting)}" for setting in entry.own.values())
        names = fold(host.name for host in entry.hosts)
        rows.append([one_line(cell) for cell in (names, str(len(entry.hosts)), str(entry.origin), ", ".join(own))])
    return "\n".join(table(rows, header=("HOSTS", "NODES", "FROM", "OWN VALUES"), widest=_WIDEST_CELL))


def _by_nodes(settings: Iterable[Setting]) -> dict[tuple[str, ...], list[Setting]]:
    by_nodes: dict[tuple[str, ...], list[Setting]] = {}
    for setting in settings:
        if setting.nodes:
            by_nodes.setdefault(setting.nodes, []).append(setting)
    return by_nodes


def _cells(setting: Setting) -> list[str]:
    return [one_line(cell) for cell in (setting.key, _value(setting), str(setting.origin))]


def _data(setting: Setting) -> dict[str, Any]:
    value = list(setting.value) if isinstance(setting.value, tuple) else setting.value
    origin = {"kind": setting.origin.kind, "place": setting.origin.place or None}
    return {"key": setting.key, "value": value, "origin": origin}


def _value(setting: Setting) -> str:
    return "unset" if setting.value is None else written(setting.value)
