"""What a newer configuration changes for a console that runs."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from .model import Config, NodeConfig
from .sections import Section


@dataclass(frozen=True)
class Changes:
    """Nodes that came, went, or are to be reached or watched differently; and what has an effect at the next start."""

    added: tuple[NodeConfig, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[NodeConfig, ...] = ()
    next_start: tuple[str, ...] = ()  # full names of keys: "cluster.name"

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.next_start)


def difference(old: Config, new: Config) -> Changes:
    """From one configuration to another. A node is known by its name; its tags alone are a change, too."""
    before = {node.name: node for node in old.nodes}
    after = {node.name: node for node in new.nodes}
    kept = {
        "cluster.name": old.cluster != new.cluster,
        "ssh.max_connecting": old.ssh.max_connecting != new.ssh.max_connecting,
        **_each("console", old.console, new.console),
        **_each("sessions", old.sessions, new.sessions),
        **_each("health", old.health, new.health),
    }
    return Changes(
        added=tuple(node for node in new.nodes if node.name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(node for node in new.nodes if node.name in before and _differs(before[node.name], node)),
        next_start=tuple(name for name, differs in kept.items() if differs),
    )


def _each(section: str, old: Section, new: Section) -> dict[str, bool]:
    """By the full name of each key of a section, whether it differs."""
    return {f"{section}.{name}": value != getattr(new, name) for name, value in structs.asdict(old).items()}


def _differs(old: NodeConfig, new: NodeConfig) -> bool:
    """`max_connecting` stands in every node's section, and is none of the node's."""
    if old == new:
        return False
    return _own(old) != _own(new)


def _own(node: NodeConfig) -> NodeConfig:
    ssh = structs.replace(node.ssh, max_connecting=1)
    return structs.replace(node, ssh=ssh)
