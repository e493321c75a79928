"""Reload of hosts.toml: detection of a saved file, and the differences between two configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import structs

from .model import Config, NodeConfig
from .sections import Section


class Changes(msgspec.Struct, frozen=True):
    """Nodes added, removed or changed; and keys that take effect at the next start."""

    added: tuple[NodeConfig, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[NodeConfig, ...] = ()
    next_start: tuple[str, ...] = ()  # full names of keys: "cluster.name"

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.next_start)


def difference(old: Config, new: Config) -> Changes:
    """Changes between two configurations; nodes are matched by name."""
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
    """{full key name: whether it differs} of one section."""
    return {f"{section}.{name}": value != getattr(new, name) for name, value in structs.asdict(old).items()}


def _differs(old: NodeConfig, new: NodeConfig) -> bool:
    """Whether two nodes differ in what their agents need: not in `max_connecting` and `stall_s`, the console's own."""
    ssh = structs.replace(new.ssh, max_connecting=old.ssh.max_connecting)
    watch = structs.replace(new.watch, stall_s=old.watch.stall_s)
    return old != structs.replace(new, ssh=ssh, watch=watch)


#: Modification time (ns), size in bytes and inode of a file.
_FileState = tuple[int, int, int]


class HostsFile:
    """Detects that the file at `path` was saved; `read` loads it again, with the flags of this run."""

    def __init__(self, path: Path, read: Callable[[], Config]) -> None:
        self.read = read
        self._path = path
        self._loaded = self._last = self._state()

    def is_saved(self) -> bool:
        """True once after each save, when the file has not changed between two calls.

        An editor may truncate or remove a file before it writes the new one: that is not a save.
        """
        state = self._state()
        is_stable, self._last = state == self._last, state
        if state is None or state == self._loaded or not is_stable:
            return False
        self._loaded = state
        return True

    def _state(self) -> _FileState | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)
