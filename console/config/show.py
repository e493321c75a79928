"""A Config, and the entries of a hosts.toml, as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..text.format import plural
from .document import Entry
from .model import Config, Setting, one_line
from .nodeset import fold
from .schema import written


def config_text(config: Config) -> str:
    """Every effective value and where it came from: what holds for all nodes, then what some have of their own."""
    everywhere = [setting for setting in config.settings if not setting.nodes]
    lines = _columns([(setting.key, _value(setting), str(setting.origin)) for setting in everywhere])
    names = [node.name for node in config.nodes]
    lines += ["", f"{plural(len(names), 'node')}: {fold(names)}"]
    for nodes, settings in _by_nodes(config.settings).items():
        lines += ["", f"{fold(nodes)} ({plural(len(nodes), 'node')})"]
        rows = _columns([(setting.key, _value(setting), str(setting.origin)) for setting in settings])
        lines += [f"  {row}" for row in rows]
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
    rows = [("HOSTS", "NODES", "FROM", "OWN VALUES")]
    for entry in entries:
        own = (f"{setting.key.partition('.')[2]} = {_value(setting)}" for setting in entry.own.values())
        names = fold(host.name for host in entry.hosts)
        rows.append((names, str(len(entry.hosts)), str(entry.origin), ", ".join(own)))
    return "\n".join(map(one_line, _columns(rows)))


def _by_nodes(settings: Iterable[Setting]) -> dict[tuple[str, ...], list[Setting]]:
    found: dict[tuple[str, ...], list[Setting]] = {}
    for setting in settings:
        if setting.nodes:
            found.setdefault(setting.nodes, []).append(setting)
    return found


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with their columns aligned; one very long value does not push everybody's next column away."""
    widths = [min(max(map(len, column)), 48) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _data(setting: Setting) -> dict[str, Any]:
    value = list(setting.value) if isinstance(setting.value, tuple) else setting.value
    origin = {"kind": setting.origin.kind, "place": setting.origin.place or None}
    return {"key": setting.key, "value": value, "origin": origin}


def _value(setting: Setting) -> str:
    return "unset" if setting.value is None else written(setting.value)
