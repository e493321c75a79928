"""A list of things that have a page each: the page of the one that was opened stands over the list.

A view derived from it declares its list as `Listing` has it, gives its page, and says how that page looks at a frame.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Generic, TypeVar, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from ..models.grouping import Head
from ..snapshot import Frame
from ..widgets.line_view import LineView
from ..widgets.record_grid import GridRow, RecordGrid
from .base import Teller
from .list_view import Listing

R = TypeVar("R", bound=GridRow)
K = TypeVar("K", bound=Hashable)

#: What has no meaning while a page stands over the list.
_OF_THE_LIST = ("sort", "reverse", "filter", "group", "copy", "copy_json", "columns")


class Page(Container, Generic[K]):
    """Everything known of one thing, over the list it is in. `key` is that of its row; None while none is open."""

    key: K | None = None

    def turn_to(self, key: K | None) -> None:
        """Another thing's page, from its top."""
        raise NotImplementedError

    def home(self) -> Widget:
        """The widget that has the focus when the page is opened."""
        raise NotImplementedError

    def teller(self) -> Teller | None:
        """The story of the line under the cursor."""
        raise NotImplementedError


class PagedListing(Listing[R], Generic[R, K]):
    """The grid, or the page of one of its rows over it. Enter opens it, Escape leads back."""

    #: Actions that have no meaning without a page.
    of_the_page: ClassVar[tuple[str, ...]] = ()

    def __init__(self, grid: RecordGrid[Head | R], page: Page[K], *, id: str) -> None:
        super().__init__(grid, id=id)
        self._over = page
        self._over.display = False
        self._visiting = False  # the page was opened from another view: the way out leads there

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._grid
        yield self._nothing
        yield self._over

    def look_at_page(self, frame: Frame) -> None:
        """Show this frame on the page, which is open."""
        raise NotImplementedError

    @property
    def is_paged(self) -> bool:
        """Whether a page stands over the list."""
        return self._over.key is not None

    @property
    def selected_key(self) -> K | None:
        """The key of the page, or else of the row under the cursor."""
        if self._over.key is not None:
            return self._over.key
        row = self._grid.selected
        return None if row is None or isinstance(row, Head) else cast(K, row.key)

    def home(self) -> Widget:
        return self._over.home() if self.is_paged else self._grid

    def look(self, frame: Frame) -> None:
        if self.is_paged:
            self._frame = frame
            self.look_at_page(frame)
        else:
            super().look(frame)

    def redraw(self) -> None:
        if not self.is_paged:
            super().redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A page has no order, no columns and no filter."""
        if action in _OF_THE_LIST:
            return not self.is_paged
        return self.is_paged if action in self.of_the_page else True

    # -- the way in and out ------------------------------------------------------------------------------------------

    def open(self, key: K, *, visiting: bool = False) -> None:
        """Show the page of that row; `visiting` from another view, to which Escape then leads back."""
        self._visiting = visiting
        self._turn_to(key)

    def climb(self) -> bool:
        if not self.is_paged:
            return super().climb()
        self._turn_to(None)
        return not self._visiting

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        row = self._grid.selected
        if event.view is self._grid and row is not None:
            event.stop()
            if not isinstance(row, Head):
                self.open(cast(K, row.key))

    def _turn_to(self, key: K | None) -> None:
        self._over.turn_to(key)
        self._over.display, self._grid.display = self.is_paged, not self.is_paged
        self.set_class(self.is_paged, "paged")
        if self.is_paged and self._frame is not None:
            self.look_at_page(self._frame)
        else:
            self.redraw()
        self.screen.set_focus(self.home())
        self.refresh_bindings()

    # -- what is chosen ----------------------------------------------------------------------------------------------

    def row_of_page(self, frame: Frame) -> R | None:
        """The row of what the page shows; None where it is not in the list any more."""
        return next((row for row in self.all_rows(frame) if row.key == self._over.key), None)

    def _chosen(self) -> list[R]:
        if not self.is_paged or self._frame is None:
            return super()._chosen()
        row = self.row_of_page(self._frame)
        return [row] if row is not None else []

    def teller(self) -> Teller | None:
        return self._over.teller() if self.is_paged else None
