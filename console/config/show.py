"""Configuration and entries of a hosts.toml as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..text.cells import table
from ..text.format import plural
from ..text.secrets import shown_url
from .document import Entry
from .model import Config, Setting, one_line
from .nodeset import fold
from .schema import all_keys, written

#: Terminal cells. Longer values, such as lists of paths, do not widen the column.
_WIDEST_CELL = 48


def config_text(config: Config) -> str:
    """Every effective value with its origin: those for all nodes, then those of some nodes."""
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
    """`gconsole.config/1`: `settings` apply to all nodes, `node_settings` to the named ones (folded)."""
    return {
        "schema": "gconsole.config/1",
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
    """The [[nodes]] entries of a file, one per line: names, number, origin, and own values."""
    rows = []
    for entry in entries:
        own = (f"{setting.key.partition('.')[2]} = {_value(setting)}" for setting in entry.own.values())
        names = fold(host.name for host in entry.hosts)
        rows.append([one_line(cell) for cell in (names, str(len(entry.hosts)), str(entry.origin), ", ".join(own))])
    return "\n".join(table(rows, header=("HOSTS", "NODES", "FROM", "OWN VALUES"), widest=_WIDEST_CELL))


def entries_data(entries: Iterable[Entry]) -> dict[str, object]:
    """The same as a JSON object; values that are secret are not in it."""
    return {
        "schema": "gconsole.hosts/1",
        "entries": [
            {
                "hosts": [host.name for host in entry.hosts], "text": entry.text, "from": str(entry.origin),
                "own": {setting.key: _value(setting) for setting in entry.own.values()},
            }
            for entry in entries
        ],
    }  # fmt: skip


def _by_nodes(settings: Iterable[Setting]) -> dict[tuple[str, ...], list[Setting]]:
    by_nodes: dict[tuple[str, ...], list[Setting]] = {}
    for setting in settings:
        if setting.nodes:
            by_nodes.setdefault(setting.nodes, []).append(setting)
    return by_nodes


def _cells(setting: Setting) -> list[str]:
    return [one_line(cell) for cell in (setting.key, _value(setting), str(setting.origin))]


def _data(setting: Setting) -> dict[str, Any]:
    value = list(setting.value) if isinstance(setting.value, tuple) else _without_url_path(setting)
    origin = {"kind": setting.origin.kind, "place": setting.origin.place or None}
    return {"key": setting.key, "value": value, "origin": origin}


def _value(setting: Setting) -> str:
    return "unset" if setting.value is None else written(_without_url_path(setting))


def _without_url_path(setting: Setting) -> Any:
    """The value; of a URL, scheme and host alone, because its path may be a secret."""
    key = all_keys().get(setting.key)
    return shown_url(str(setting.value)) if key is not None and key.is_url and setting.value else setting.value
