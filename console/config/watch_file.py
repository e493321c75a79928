"""A hosts.toml that is read again when it is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .model import Config

#: What tells one state of a file from another: when it was written, how long it is, which file it is.
_Look = tuple[int, int, int]


class HostsFile:
    """Says when the file at `path` has been saved; `read` reads it, and the flags that go with it, again."""

    def __init__(self, path: Path, read: Callable[[], Config]) -> None:
        self.read = read
        self._path = path
        self._known = self._last = self._look()

    def is_saved(self) -> bool:
        """Whether it was saved since the last time this was so, and has stood still since the last look.

        An editor may empty a file, or take it away, before it writes the new one: that is not yet a change.
        """
        look = self._look()
        stood_still, self._last = look == self._last, look
        if look is None or look == self._known or not stood_still:
            return False
        self._known = look
        return True

    def _look(self) -> _Look | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)
