"""The themes one person has: those of gconsole, those of their own folder, and the one they chose last.

The folder is looked at again and again: a file that is saved is drawn at once. A file that cannot be used is told in
one line, once, and the theme it held before stays. Nothing here raises for what stands in a person's files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ...text import format
from ...text.atomic_files import make_folder, write_atomically
from .themes import DEFAULT, ThemeError, ThemeFile, read_theme, theme_files, weaknesses

#: A theme is half a page; what is longer is something else.
_MOST_BYTES = 64 * 1024
#: Identifies what a file held: modification time in ns, size.
_Stamp = tuple[int, int]


@dataclass(frozen=True)
class ThemeChanges:
    """What one look at the folder found: names that are new, changed or gone, and lines for the person."""

    names: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.complaints)


class ThemeCatalog:
    """`folder` holds a person's own themes, `memory` is the file with the name of the one they chose; both may be None.

    A theme of the folder stands in the place of the one of gconsole that has its name.
    """

    def __init__(self, folder: Path | None = None, memory: Path | None = None) -> None:
        self._folder, self._memory = folder, memory
        self._own: dict[Path, ThemeFile] = {}
        self._stamps: dict[Path, _Stamp] = {}
        self._unreadable = ""  # why the folder could not be listed, as told

    @classmethod
    def of_this_user(cls) -> ThemeCatalog:
        """The shelf of whoever runs this."""
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
        """All of them, the default first, the person's own last."""
        found = {theme.name: theme for theme in theme_files()}
        for _, theme in sorted(self._own.items()):
            found[theme.name] = theme
        return tuple(found.values())

    def scan(self) -> ThemeChanges:
        """Read what is new in the folder since the last look. Blocks for as long as the disk takes."""
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
        """The theme files that are there; while the folder cannot be read, those of the last look."""
        assert self._folder is not None
        found: dict[Path, _Stamp] = {}
        try:
            for path in self._folder.glob("*.toml"):
                told = path.stat()
                found[path] = (told.st_mtime_ns, told.st_size)
        except FileNotFoundError:  # no folder, or a file that was moved away just now
            pass
        except OSError as error:
            why = f"{self._folder}: {error.strerror or error}; its themes stay as they were"
            if why != self._unreadable:
                complaints.append(why)
            self._unreadable = why
            return dict(self._stamps)
        self._unreadable = ""
        return found

    def _read(self, path: Path, complaints: list[str]) -> None:
        try:
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise ThemeError(f"{path.name}: larger than {format.size(_MOST_BYTES)}, which no theme is")
            theme = read_theme(data.decode(), path.name)
            twin = next((other for other, own in self._own.items() if other != path and own.name == theme.name), None)
            if twin is not None:
                raise ThemeError(f"{path.name}: {twin.name} is called {theme.name!r} already; give it another name")
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
                complaints.append(f"theme {path.name} is used, but {weak[0]}{more}")

    def _kept(self, path: Path) -> str:
        return "; it stays as it was before" if path in self._own else ""

    # -- the one they chose ------------------------------------------------------------------------------------------

    def chosen(self) -> str:
        """The name of the theme chosen last; the default where none was, or where it is gone."""
        try:
            name = self._memory.read_text(encoding="utf-8").strip() if self._memory else ""
        except (OSError, UnicodeDecodeError):  # never chosen, or not ours to read: the default is as good
            name = ""
        return name if any(theme.name == name for theme in self.themes) else DEFAULT

    def remember(self, name: str) -> str:
        """Keep the choice for the next time; why it could not be kept, else ""."""
        if self._memory is None:
            return ""
        try:
            make_folder(self._memory.parent)
            write_atomically(self._memory, f"{name}\n".encode())
        except OSError as error:
            return f"the theme is not remembered: {self._memory}: {error.strerror or error}"
        return ""
