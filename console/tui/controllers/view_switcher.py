"""Views: each is created when it is first opened, one is on the screen, and keys and links switch between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from textual.app import App
from textual.containers import Container

from ..models.destination import Destination
from ..models.list_kind import DEFAULT_ARRANGEMENT, Arrangement
from ..views.base import View
from ..views.gpus.view import GpusView
from ..views.jobs.view import JobsView
from ..views.nodes.view import NodesView
from ..views.registry import VIEWS
from . import Controller


class ViewSwitcher(Controller):
    """Creates the views in a container, the stage, arranged as `stored`. `on_shown` is called with a view's name."""

    def __init__(
        self, app: App[Any], first: str, stored: Callable[[str], Arrangement], on_shown: Callable[[str], None]
    ) -> None:
        self._app, self._stored, self._on_shown = app, stored, on_shown
        self.current = first
        self._views: dict[str, View] = {}
        self._arrangements: dict[str, Arrangement] = {}  # of views over previous stores
        self.stage: Container | None = None

    @property
    def view(self) -> View:
        """The view on the screen."""
        return self._views[self.current]

    @property
    def opened(self) -> Mapping[str, View]:
        """The views that exist, by name."""
        return self._views

    @property
    def arrangements(self) -> dict[str, Arrangement]:
        """The arrangements of all views that were opened, by name."""
        return self._arrangements | {name: view.arrangement for name, view in self._views.items()}

    def get(self, name: str) -> View:
        """The view of that name, created if needed."""
        if name not in self._views:
            row = next(row for row in VIEWS if row.name == name)
            self._views[name] = row.view(id=row.name)
            self._views[name].display = name == self.current
            self._views[name].restore(self._arrangements.get(name) or self._stored(name))
        return self._views[name]

    def reset_arrangements(self) -> None:
        """Arrange every view as it is by default."""
        self._arrangements = {}
        for view in self._views.values():
            view.restore(DEFAULT_ARRANGEMENT)

    async def recreate(self, swap: Callable[[], object]) -> None:
        """Create all views anew, arranged as they were; `swap` exchanges what they show in between."""
        assert self.stage is not None
        self._arrangements = self.arrangements
        with self._app.batch_update():  # views that are being removed are not painted
            while self.stage.children:  # a mount may complete during the removal of the others
                await self.stage.remove_children()
            self._views = {}
            swap()
            await self.stage.mount(self.get(self.current))
            self.present(self.current)

    def present(self, name: str) -> None:
        """Put a mounted view on the screen and give it the focus."""
        self.view.display = False
        self.current = name
        self.view.display = True
        self._on_shown(name)
        self._app.screen.set_focus(self.view.initial_focus())
        self._app.refresh_bindings()

    async def action_show(self, name: str) -> None:
        """Open a view."""
        if self.stage is None or not self.stage.is_attached:
            return  # a key press that was queued when the app began to exit
        view, job = self.get(name), self.view.selected_job
        if not view.is_attached:
            await self.stage.mount(view)
            if self._views.get(name) is not view:  # all views were created anew meanwhile
                await self.action_show(name)
                return
        if job is not None:
            view.focus_job(job)
        self.present(name)

    async def action_back(self) -> None:
        """Close what is open in the view, else go back to the Overview."""
        if not self.view.on_escape() and self.current != VIEWS[0].name:
            await self.action_show(VIEWS[0].name)

    async def show_page(self, node: str, gpu: str | None = None) -> None:
        """Open the page of a node, or of one of its GPUs by uuid; Escape leads back."""
        await self.action_show("nodes" if gpu is None else "gpus")
        if gpu is None and isinstance(self.view, NodesView):
            self.view.open(node, from_other_view=True)
        elif gpu is not None and isinstance(self.view, GpusView):
            self.view.open((node, gpu), from_other_view=True)

    @property
    def place(self) -> Destination:
        """What is on the screen: the view with its filter, order and selection, or the page that is open in it."""
        view = self.view
        key = view.selected_key if isinstance(view, JobsView | NodesView | GpusView) and view.is_paged else None
        if isinstance(key, tuple):
            return Destination(self.current, node=key[0], gpu=key[1])
        if key is not None:
            return Destination(self.current, job=key) if self.current == "jobs" else Destination(self.current, node=key)
        arranged = view.arrangement
        return Destination(
            self.current,
            job=view.shown_job,
            filter=arranged.filter,
            sort=arranged.sort,
            reverse=arranged.reverse,
            group=arranged.group,
            metric=arranged.metric,
            row=view.selected_row,
        )

    async def open_place(self, place: Destination, *, is_whole: bool = False) -> None:
        """Go to a place: a view with its filter and order, a page in it, or the job that it shows.

        `is_whole`: it is a whole screen, of a link; what it does not name is as by default, not as the user left it.
        """
        if place.node and place.view in ("nodes", "gpus"):
            await self.show_page(place.node, place.gpu or None)
            return
        await self.action_show(place.view)
        view = self.view
        order = {"sort": place.sort, "reverse": place.reverse} if place.sort else {}
        changes = {**order, **({"group": place.group} if place.group else {})}
        if is_whole:
            changes = {
                "sort": place.sort, "reverse": place.reverse, "group": place.group, "metric": place.metric
            }  # fmt: skip
        if place.filter or changes:
            view.restore(replace(view.arrangement, filter=place.filter, **changes))
        if place.job and isinstance(view, JobsView):
            view.open(place.job, from_other_view=True)
        elif place.job:
            view.focus_job(place.job)
        if place.row:
            view.select_row(place.row)
