"""UI state that persists between sessions: view, theme, filters, sort orders and columns, one JSON file per cluster.

An unreadable file is renamed to `*.broken` and reported once; the session then starts with the defaults.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import platformdirs

from ..records import Log
from ..text import format
from ..text.atomic_files import make_folder, write_atomically
from .controllers import Controller
from .dialogs.prompts import Confirm
from .models.destination import Bookmark
from .models.list_kind import DEFAULT_ARRANGEMENT, Arrangement
from .theme.themes import DEFAULT

if TYPE_CHECKING:
    from .app import ConsoleApp
    from .controllers.view_switcher import ViewSwitcher

#: Seconds between two checks for changes.
SAVE_EVERY_S = 1.0
#: Bytes. A state file is a few kilobytes; a larger one was not written by gconsole.
_MOST_BYTES = 1 << 20
#: Characters. Longer cluster names are cut and get a digest, to stay within the limit of file systems.
_LONGEST_NAME = 100


class UiState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of one cluster's file; empty fields are defaults."""

    view: str = ""
    theme: str = ""
    views: dict[str, Arrangement] = {}  # by view name; msgspec copies the default
    bookmarks: dict[str, Bookmark] = {}  # by name

    def of(self, view: str) -> Arrangement:
        """The arrangement of one view."""
        return self.views.get(view, DEFAULT_ARRANGEMENT)


class UiStateFile:
    """Reads and writes one file; without a path nothing is stored."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @classmethod
    def of_cluster(cls, cluster: str) -> UiStateFile:
        """The file for that cluster in the user's state folder."""
        name = quote(cluster, safe=" ")
        if len(name) > _LONGEST_NAME:
            name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(cluster.encode()).hexdigest()[:12]}"
        return cls(platformdirs.user_state_path("gconsole") / f"{name}.json")

    @property
    def has_path(self) -> bool:
        """Whether anything is stored at all."""
        return self._path is not None

    def read(self) -> tuple[UiState, str]:
        """The stored state, and what is wrong with the file, else ""."""
        if self._path is None:
            return UiState(), ""
        try:
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise ValueError(f"larger than {format.size(_MOST_BYTES)}")
            return msgspec.json.decode(data, type=UiState), ""
        except FileNotFoundError:
            return UiState(), ""
        except OSError as error:
            return UiState(), f"{self._path}: cannot be read ({error.strerror or error})"
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            return UiState(), f"{self._path}: {error}; {self._set_aside(self._path)}"

    def _set_aside(self, path: Path) -> str:
        aside = path.with_name(f"{path.name}.broken")
        try:
            path.replace(aside)
        except OSError as error:
            return f"it cannot be renamed either ({error.strerror or error})"
        return f"renamed to {aside.name}"

    def write(self, state: UiState) -> str:
        """Store the state; returns why that failed, else ""."""
        if self._path is None:
            return ""
        try:
            make_folder(self._path.parent)
            data = msgspec.json.format(msgspec.json.encode(state), indent=2)
            write_atomically(self._path, data + b"\n")
        except OSError as error:
            return f"{self._path}: cannot be written ({error.strerror or error})"
        return ""

    def remove(self) -> str:
        """Delete the file; returns why that failed, else ""."""
        try:
            if self._path is not None:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            return f"{self._path}: cannot be removed ({error.strerror or error})"
        return ""


class UiStateController(Controller):
    """Restores the UI state, saves changes, and resets it. `publish` puts a record into Events.

    `views` returns the views of the cluster; with `sets_theme` the stored theme is used.
    """

    def __init__(
        self, app: ConsoleApp, file: UiStateFile, publish: Callable[[Log], object], views: Callable[[], ViewSwitcher],
        *, sets_theme: bool,
    ) -> None:  # fmt: skip
        self._app, self._file, self._publish, self._views = app, file, publish, views
        self.stored, self._problem = file.read()
        self._written = self.stored
        self.bookmarks = dict(self.stored.bookmarks)
        self._first = ""  # the view shown by default
        self._is_writing = False
        self._is_reported = False  # that the file cannot be written
        if sets_theme and self.stored.theme in app.themes.names:
            app.themes.chosen = self.stored.theme
            app.themes.show(self.stored.theme)

    def report(self) -> None:
        """Publish what was wrong with the file. Call once mounted."""
        if self._problem:
            self._warn(f"stored UI state is lost: {self._problem}")

    def first_view(self, names: Sequence[str]) -> str:
        """The stored view if it is one of `names`, else the first of them."""
        self._first = names[0]
        return self.stored.view if self.stored.view in names else names[0]

    def _current(self) -> UiState:
        """The present state; of views that were not opened, the stored one."""
        views = self.stored.views | self._views().arrangements
        view = self._views().current
        return UiState(
            view if view != self._first else "", self._app.themes.chosen,
            {name: arrangement for name, arrangement in views.items() if arrangement != DEFAULT_ARRANGEMENT},
            dict(self.bookmarks),
        )  # fmt: skip

    async def save(self) -> None:
        """Write changes since the last call, in a thread: the state folder may be on an unreachable file server."""
        current = self._current()
        if not self._file.has_path or self._is_writing or current == self._written:
            return
        self._is_writing = True
        try:
            problem = await asyncio.to_thread(self._file.write, current)
        finally:
            self._is_writing = False
        self._written = current
        if problem and not self._is_reported:
            self._is_reported = True
            self._warn(f"UI state is not saved: {problem}")

    def close(self) -> None:
        """Write what changed since the last `save`."""
        if self._views().opened and self._file.has_path:
            current = self._current()
            if current != self._written:
                self._file.write(current)

    def action_reset(self) -> None:
        """Reset the UI state to the defaults, after a confirmation."""
        text = "Resets filters, sort orders, groups, columns and the theme chosen for this cluster."
        self._app.push_screen(Confirm("Reset layout?", text, "reset"), self._reset)

    def _reset(self, yes: bool | None) -> None:
        if not yes:
            return
        problem = self._file.remove()
        self.stored = self._written = UiState()
        if problem:
            self._warn(f"stored UI state was not reset: {problem}")
        self._app.themes.use(DEFAULT)
        self._app.themes.chosen = ""
        self._views().reset_arrangements()
        self._app.notify("layout reset", timeout=3, markup=False)

    def _warn(self, text: str) -> None:
        self._publish(Log(source="console", severity="warning", text=text))
