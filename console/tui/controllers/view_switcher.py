"""An app of views: each is made once, one of them is on the screen, and a key or a name in another leads to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from textual.containers import Container

from ..models.list_kind import Arrangement
from ..snapshot import Frame
from ..ui_state.app import PersonalApp
from ..views.base import GpuPageRequested, NodePageRequested, View
from ..views.gpus.view import GpusView
from ..views.nodes.view import NodesView
from ..views.registry import VIEWS
from ..widgets.tab_bar import TabBar


class ViewsApp(PersonalApp, inherit_bindings=False):
    """App of views. Subclasses compose `_stage` and `_tabs` and pass each frame to `view.show_snapshot`."""

    frame: Frame  # what the views show; while it is frozen, of the instant at which they stood still
    _stage: Container
    _tabs: TabBar

    def __init__(self, *personal: Any, on_shown: Callable[[str], object]) -> None:
        """`on_shown` is told which view is on the screen from now on; the other arguments are those of PersonalApp."""
        super().__init__(*personal)
        self._on_shown = on_shown
        self._current = self.keeping.first_view([row.name for row in VIEWS])
        self._views: dict[str, View] = {}
        self._arranged: dict[str, Arrangement] = {}  # of views that stood over another store

    @property
    def is_frozen(self) -> bool:
        """Whether the picture stands still."""
        raise NotImplementedError

    @property
    def view(self) -> View:
        return self._views[self._current]

    @property
    def opened_views(self) -> Mapping[str, View]:
        return self._views

    @property
    def has_every_view(self) -> bool:
        """Whether all are there: the first paint does not wait for those that it does not show."""
        return all(row.name in self._views and self._views[row.name].is_mounted for row in VIEWS)

    def _view(self, name: str) -> View:
        if name not in self._views:
            row = next(row for row in VIEWS if row.name == name)
            self._views[name] = row.make(row)
            self._views[name].display = name == self._current
            self._views[name].restore(self._arranged.get(name) or self.keeping.remembered.of(name))
        return self._views[name]

    async def _mount_rest(self) -> None:
        """The other views, after the first paint: opening one is then a matter of showing it."""
        views = [self._view(row.name) for row in VIEWS]
        await self._stage.mount_all(view for view in views if not view.is_attached)

    async def _renew_views(self, look_elsewhere: Callable[[], object]) -> None:
        """Make all of them anew, arranged as they were; `look_elsewhere` changes what they show meanwhile."""
        self._arranged = {name: view.arrangement for name, view in self._views.items()}
        with self.batch_update():  # nothing paints a view that is on its way out
            while self._stage.children:  # one of the old may have come while others went
                await self._stage.remove_children()
            self._views = {}
            look_elsewhere()
            await self._stage.mount(self._view(self._current))
            self._present(self._current)

    def _present(self, name: str) -> None:
        self.view.display = False
        self._current = name
        self.view.display = True
        self._tabs.show(name)
        self._on_shown(name)
        if not self.is_frozen:
            self.view.show_snapshot(self.frame)
        home = self.view.initial_focus()
        self.screen.set_focus(home)
        self.refresh_bindings()

    # -- from one to another -----------------------------------------------------------------------------------------

    async def action_show(self, name: str) -> None:
        """Open a view."""
        if not self._stage.is_attached:
            return  # a key that was still waiting when the app was told to leave
        view, job = self._view(name), self.view.selected_job
        if not view.is_attached:
            await self._stage.mount(view)
        if job is not None:
            view.focus_job(job)
        self._present(name)

    async def action_back(self) -> None:
        """Climb out: of what is open in the view, then back to the Overview."""
        if not self.view.on_escape() and self._current != VIEWS[0].name:
            self._present(VIEWS[0].name)

    async def on_node_page_requested(self, event: NodePageRequested) -> None:
        """Open the page of a node; Escape leads back."""
        await self.action_show("nodes")
        if isinstance(self.view, NodesView):
            self.view.open(event.node, from_other_view=True)

    async def on_gpu_page_requested(self, event: GpuPageRequested) -> None:
        """Open the page of a GPU; Escape leads back."""
        await self.action_show("gpus")
        if isinstance(self.view, GpusView):
            self.view.open((event.node, event.uuid), from_other_view=True)
