"""Bookmarks: screens kept by a name, per cluster, each with its filter, order and columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ...text.cells import clean
from ..dialogs.prompts import Confirm, Prompt
from ..keymap.actions import PaletteCommand
from ..models.destination import Bookmark
from ..views.registry import VIEWS
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Characters of a name; bookmarks of one cluster.
LONGEST_NAME: Final = 40
MOST: Final = 100
#: Names that the prompt lists.
_LISTED: Final = 20


class BookmarkController(Controller):
    """Keeps the screen under a name, and goes to one that was kept. They are stored with the UI state."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app

    @property
    def _bookmarks(self) -> dict[str, Bookmark]:
        """Those of the cluster on the screen, by name."""
        return self._app.ui_state.bookmarks

    def action_open(self) -> None:
        """Prompt for a name: that of a bookmark leads there, a new one keeps this screen."""
        names = sorted(self._bookmarks)
        listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
        text = "A new name keeps this view with its filter, order and columns."
        text += f"\nThe name of a bookmark leads there: {listed}." if names else " Later the name leads back here."
        self._app.push_screen(Prompt("Bookmarks", text, enter="keep or go", hint="name"), self._keep_or_go)

    def _keep_or_go(self, text: str | None) -> None:
        name = clean((text or "").strip())
        if not name:
            return
        if name in self._bookmarks:
            self._app.run_worker(self._go(name), name="bookmark")
        elif len(name) > LONGEST_NAME or len(self._bookmarks) >= MOST:
            reason = f"at most {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else f"at most {MOST} bookmarks"
            self._app.notify(f"not kept: {reason}", severity="warning", markup=False)
        else:
            arrangement = msgspec.structs.replace(self._app.view.arrangement, earlier=())
            self._bookmarks[name] = Bookmark(self._app.views.place, arrangement)
            self._save()
            self._app.notify(f"kept as {name}; B and the palette lead here", timeout=4, markup=False)

    async def _go(self, name: str) -> None:
        bookmark, views = self._bookmarks[name], self._app.views
        if bookmark.place.view not in [row.name for row in VIEWS]:  # of another version
            self._app.notify(f"{name}: no view {clean(bookmark.place.view)}", severity="warning", markup=False)
            return
        await views.action_show(bookmark.place.view)
        earlier = views.view.arrangement.earlier
        views.view.restore(msgspec.structs.replace(bookmark.arrangement, earlier=earlier))
        await views.open_place(bookmark.place)
        self._app.frames.draw()

    def _save(self) -> None:
        """At once: other state waits for the next interval."""
        self._app.run_worker(self._app.ui_state.save(), name="UI state")

    def palette_entries(self) -> list[PaletteCommand]:
        """Going to each bookmark, and removing it."""
        entries = []
        for name, bookmark in sorted(self._bookmarks.items()):
            place = clean(f"{bookmark.place.view} {bookmark.place.node or bookmark.place.filter}".strip())
            entries.append(PaletteCommand(f"Bookmark {name}", f"Go to {place}", partial(self._go, name)))
            entries.append(PaletteCommand(f"Remove bookmark {name}", f"It leads to {place}", partial(self._ask, name)))
        return entries

    def _ask(self, name: str) -> None:
        def remove(yes: bool | None) -> None:
            if yes and self._bookmarks.pop(name, None) is not None:
                self._save()

        self._app.push_screen(Confirm("Remove the bookmark?", name, "remove"), remove)
