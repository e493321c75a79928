"""The text of a hosts.toml for nodes of a rig."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .node import Node

Table = Mapping[str, Any]


def hosts_toml(
    name: str,
    nodes: Iterable[Node],
    ssh: Table,
    sections: Mapping[str, Table],
    per_node: Mapping[str, Table],
    extra: str,
) -> str:
    """`sections` and `per_node` add to or replace the rig's own values; a value of None removes a key."""
    tables = {"cluster": {"name": name}, "ssh": ssh}
    for section, values in sections.items():
        tables[section] = {**tables.get(section, {}), **values}
    parts = [_table(f"[{section}]", values) for section, values in tables.items()]
    parts += [_table("[[nodes]]", {**entry(node, ssh), **per_node.get(node.name, {})}) for node in nodes]
    return "\n".join([*parts, extra]).rstrip() + "\n"


def entry(node: Node, ssh: Table) -> dict[str, Any]:
    """The [[nodes]] table of one node."""
    values: dict[str, Any] = {"hosts": node.name, "address": node.address, "port": node.port}
    if node.user != ssh.get("user"):
        values["user"] = node.user
    if node.behind is not None:
        values["jump"] = f"{node.behind.user}@{node.behind.address}:{node.behind.port}"
    if node.process_filter is not None:
        values["process_filter"] = node.process_filter
        values["cache_dir"] = str(node.folder / "cache")  # these nodes share /var/tmp; real ones do not
    return values


def _table(header: str, values: Table) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join([header, *lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Path):
        value = str(value)
    return json.dumps(value)  # strings, numbers and booleans are equal in JSON and TOML
