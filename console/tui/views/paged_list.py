"""A list of things that have a page each: the page of the one that was opened stands over the list.

A view derived from it declares its list as `ListView` has it, gives its page, and says how that page looks at a frame.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Generic, TypeVar, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from ..models.grouping import GroupHeader
from ..snapshot import ScreenSnapshot
from ..widgets.line_view import LineView
from ..widgets.record_grid import GridRow, RecordGrid
from .base import DetailProvider
from .list_view import ListView

R = TypeVar("R", bound=GridRow)
K = TypeVar("K", bound=Hashable)

#: What has no meaning while a page stands over the list.
_LIST_ACTIONS = ("sort", "reverse", "filter", "group", "copy", "copy_json", "columns")


class DetailPage(Container, Generic[K]):
    """Everything known of one thing, over the list it is in. `key` is that of its row; None while none is open."""

    key: K | None = None

    def set_key(self, key: K | None) -> None:
        """Another thing's page, from its top."""
        raise NotImplementedError

    def initial_focus(self) -> Widget:
        """The widget that has the focus when the page is opened."""
        raise NotImplementedError

    def detail_provider(self) -> DetailProvider | None:
        """The story of the line under the cursor."""
        raise NotImplementedError


class PagedListView(ListView[R], Generic[R, K]):
    """The grid, or the page of one of its rows over it. Enter opens it, Escape leads back."""

    #: Actions that have no meaning without a page.
    page_actions: ClassVar[tuple[str, ...]] = ()

    def __init__(self, grid: RecordGrid[GroupHeader | R], page: DetailPage[K], *, id: str) -> None:
        super().__init__(grid, id=id)
        self._overlay = page
        self._overlay.display = False
        self._from_other_view = False  # the page was opened from another view: the way out leads there

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._grid
        yield self._nothing
        yield self._overlay

    def show_page(self, frame: ScreenSnapshot) -> None:
        """Show this frame on the page, which is open."""
        raise NotImplementedError

    @property
    def is_paged(self) -> bool:
        """Whether a page stands over the list."""
        return self._overlay.key is not None

    @property
    def selected_key(self) -> K | None:
        """The key of the page, or else of the row under the cursor."""
        if self._overlay.key is not None:
            return self._overlay.key
        row = self._grid.selected
        return None if row is None or isinstance(row, GroupHeader) else cast(K, row.key)

    def initial_focus(self) -> Widget:
        return self._overlay.initial_focus() if self.is_paged else self._grid

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        if self.is_paged:
            self._frame = frame
            self.show_page(frame)
        else:
            super().show_snapshot(frame)

    def redraw(self) -> None:
        if not self.is_paged:
            super().redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A page has no order, no columns and no filter."""
        if action in _LIST_ACTIONS:
            return not self.is_paged
        return self.is_paged if action in self.page_actions else True

    # -- the way in and out ------------------------------------------------------------------------------------------

    def open(self, key: K, *, from_other_view: bool = False) -> None:
        """Show the page of that row; `from_other_view` from another view, to which Escape then leads back."""
        self._from_other_view = from_other_view
        self._set_key(key)

    def on_escape(self) -> bool:
        if not self.is_paged:
            return super().on_escape()
        self._set_key(None)
        return not self._from_other_view

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        row = self._grid.selected
        if event.view is self._grid and row is not None:
            event.stop()
            if not isinstance(row, GroupHeader):
                self.open(cast(K, row.key))

    def _set_key(self, key: K | None) -> None:
        self._overlay.set_key(key)
        self._overlay.display, self._grid.display = self.is_paged, not self.is_paged
        self.set_class(self.is_paged, "paged")
        if self.is_paged and self._frame is not None:
            self.show_page(self._frame)
        else:
            self.redraw()
        self.screen.set_focus(self.initial_focus())
        self.refresh_bindings()

    # -- what is chosen ----------------------------------------------------------------------------------------------

    def row_of_page(self, frame: ScreenSnapshot) -> R | None:
        """The row of what the page shows; None where it is not in the list any more."""
        return next((row for row in self.all_rows(frame) if row.key == self._overlay.key), None)

    def _chosen(self) -> list[R]:
        if not self.is_paged or self._frame is None:
            return super()._chosen()
        row = self.row_of_page(self._frame)
        return [row] if row is not None else []

    def detail_provider(self) -> DetailProvider | None:
        return self._overlay.detail_provider() if self.is_paged else None
