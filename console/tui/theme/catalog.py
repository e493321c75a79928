"""The available themes: gconsole's own, those in the user's folder, and the one chosen last.

The folder is scanned periodically. An invalid file is reported once, and its theme stays as it was; nothing raises.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import platformdirs

from ...text import format
from ...text.atomic_files import make_folder, write_atomically
from .themes import DEFAULT, ThemeError, ThemeFile, read_theme, theme_files, weaknesses

#: Bytes. A theme file is half a page.
_MOST_BYTES = 64 * 1024
#: Identifies a file's content: modification time in ns, size.
_Stamp = tuple[int, int]


class ThemeChanges(msgspec.Struct, frozen=True):
    """Result of a scan: names of new, changed and removed themes, and problems to report."""

    names: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.complaints)


class ThemeCatalog:
    """`folder` has the user's themes, `memory` is the file with the name of the chosen one; both may be None.

    A user's theme replaces the one of gconsole with the same name.
    """

    def __init__(self, folder: Path | None = None, memory: Path | None = None) -> None:
        self._folder, self._memory = folder, memory
        self._own: dict[Path, ThemeFile] = {}
        self._stamps: dict[Path, _Stamp] = {}
        self._unreadable = ""  # why the folder could not be listed, as reported

    @classmethod
    def of_this_user(cls) -> ThemeCatalog:
        """The catalog of the current user."""
        return cls(
            platformdirs.user_config_path("gconsole") / "themes",
            platformdirs.user_state_path("gconsole") / "theme",
        )

    @property
    def has_folder(self) -> bool:
        """Whether there is a folder of user themes."""
        return self._folder is not None

    @property
    def themes(self) -> tuple[ThemeFile, ...]:
        """All themes, the default first, the user's last."""
        themes = {theme.name: theme for theme in theme_files()}
        for _, theme in sorted(self._own.items()):
            themes[theme.name] = theme
        return tuple(themes.values())

    def scan(self) -> ThemeChanges:
        """Read what changed in the folder since the last scan. Blocks on the disk."""
        if self._folder is None:
            return ThemeChanges()
        complaints: list[str] = []
        before = dict(self._own)
        present = self._listed(complaints)
        for path in self._stamps.keys() - present.keys():
            del self._stamps[path]
            self._own.pop(path, None)
        for path, stamp in sorted(present.items()):
            if self._stamps.get(path) != stamp:
                self._stamps[path] = stamp
                self._read(path, complaints)
        changed = {
            theme.name
            for path in before.keys() | self._own.keys()
            if before.get(path) != self._own.get(path)
            for theme in (before.get(path), self._own.get(path))
            if theme is not None
        }
        return ThemeChanges(tuple(sorted(changed)), tuple(complaints))

    def _listed(self, complaints: list[str]) -> dict[Path, _Stamp]:
        """The theme files in the folder; while it cannot be read, those of the last scan."""
        assert self._folder is not None
        stamps: dict[Path, _Stamp] = {}
        try:
            for path in self._folder.glob("*.toml"):
                stat = path.stat()
                stamps[path] = (stat.st_mtime_ns, stat.st_size)
        except FileNotFoundError:  # no folder, or a file removed during the scan
            pass
        except OSError as error:
            why = f"{self._folder}: {error.strerror or error}; its themes are unchanged"
            if why != self._unreadable:
                complaints.append(why)
            self._unreadable = why
            return dict(self._stamps)
        self._unreadable = ""
        return stamps

    def _read(self, path: Path, complaints: list[str]) -> None:
        try:
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise ThemeError(f"{path.name}: larger than {format.size(_MOST_BYTES)}, the limit for themes")
            theme = read_theme(data.decode(), path.name)
            twin = next((other for other, own in self._own.items() if other != path and own.name == theme.name), None)
            if twin is not None:
                raise ThemeError(f"{path.name}: name {theme.name!r} is already used by {twin.name}; choose another one")
        except ThemeError as error:
            complaints.append(f"theme {error}{self._kept(path)}")
        except (OSError, UnicodeDecodeError) as error:
            why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
            complaints.append(f"theme {path.name}: {why}{self._kept(path)}")
        else:
            self._own[path] = theme
            weak = list(weaknesses(theme))
            if weak:
                more = f", and {len(weak) - 1} more" if len(weak) > 1 else ""
                complaints.append(f"theme {path.name} is hard to read: {weak[0]}{more}")

    def _kept(self, path: Path) -> str:
        return "; its theme is unchanged" if path in self._own else ""

    def chosen(self) -> str:
        """Name of the theme chosen last, else the default."""
        try:
            name = self._memory.read_text(encoding="utf-8").strip() if self._memory else ""
        except (OSError, UnicodeDecodeError):  # never chosen, or unreadable
            name = ""
        return name if any(theme.name == name for theme in self.themes) else DEFAULT

    def remember(self, name: str) -> str:
        """Store the choice for later sessions; returns why that failed, else ""."""
        if self._memory is None:
            return ""
        try:
            make_folder(self._memory.parent)
            write_atomically(self._memory, f"{name}\n".encode())
        except OSError as error:
            return f"theme choice was not saved: {self._memory}: {error.strerror or error}"
        return ""
