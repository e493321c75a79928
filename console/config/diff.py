"""Reload of hosts.toml: detection of a saved file, and the differences between two configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import structs

from .model import Config, NodeConfig
from .sections import Section


class Changes(msgspec.Struct, frozen=True):
    """Nodes added, removed or changed; keys that take effect at once, and those that do at the next start."""

    added: tuple[NodeConfig, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[NodeConfig, ...] = ()
    next_start: tuple[str, ...] = ()  # full names of keys: "cluster.name"
    followed: tuple[str, ...] = ()  # keys of [watch] that the console and its agents follow without a reconnect

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.next_start or self.followed)


#: Keys of [watch] that take effect at once; another one would take effect at the next start.
_FOLLOWED = frozenset({"watch.locals", "watch.every_s", "watch.sample_stacks", "watch.stall_s"})


def difference(old: Config, new: Config) -> Changes:
    """Changes between two configurations; nodes are matched by name."""
    before = {node.name: node for node in old.nodes}
    after = {node.name: node for node in new.nodes}
    watch = {key for key, differs in _each("watch", old.watch, new.watch).items() if differs}
    kept = {
        "cluster.name": old.cluster != new.cluster,
        "ssh.max_connecting": old.ssh.max_connecting != new.ssh.max_connecting,
        **_each("console", old.console, new.console),
        **_each("sessions", old.sessions, new.sessions),
        **_each("health", old.health, new.health),
        "hang.models": old.hang.models != new.hang.models,
        "hang.min_frozen_s": old.hang.min_frozen_s != new.hang.min_frozen_s,
        "clock.gpu_clock": old.clock.gpu_clock != new.clock.gpu_clock,
        **dict.fromkeys(sorted(watch - _FOLLOWED), True),
    }
    return Changes(
        added=tuple(node for node in new.nodes if node.name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(node for node in new.nodes if node.name in before and _differs(before[node.name], node)),
        next_start=tuple(name for name, differs in kept.items() if differs),
        followed=tuple(sorted(watch & _FOLLOWED)),
    )


def _each(section: str, old: Section, new: Section) -> dict[str, bool]:
    """{full key name: whether it differs} of one section."""
    return {f"{section}.{name}": value != getattr(new, name) for name, value in structs.asdict(old).items()}


def _differs(old: NodeConfig, new: NodeConfig) -> bool:
    """Whether two nodes need another connection: not for `max_connecting` and for [watch], which agents follow."""
    ssh = structs.replace(new.ssh, max_connecting=old.ssh.max_connecting)
    return old != structs.replace(new, ssh=ssh, watch=old.watch)


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
