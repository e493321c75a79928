"""Reloads hosts.toml when it is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .model import Config

#: Modification time (ns), size in bytes and inode of a file.
_FileState = tuple[int, int, int]


class HostsFile:
    """Detects that the file at `path` was saved; `read` loads it again, with the flags of this run."""

    def __init__(self, path: Path, read: Callable[[], Config]) -> None:
        self.read = read
        self._path = path
        self._known = self._last = self._state()

    def is_saved(self) -> bool:
        """True once after each save, when the file has not changed between two calls.

        An editor may truncate or remove a file before it writes the new one: that is not a save.
        """
        state = self._state()
        is_stable, self._last = state == self._last, state
        if state is None or state == self._known or not is_stable:
            return False
        self._known = state
        return True

    def _state(self) -> _FileState | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)
