"""A list whose rows have a page each, shown over the list."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Generic, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.widget import Widget

from ...present.spans import Span
from ...text.cells import clean
from ..models.grouping import GroupHeader
from ..snapshot import ScreenSnapshot
from ..widgets.bars import Bar
from ..widgets.line_view import LineReport, LineView
from ..widgets.record_grid import GridRow, RecordGrid
from .base import BACK, EDGE, ConsoleWidget, DetailProvider
from .list_view import ListView

R = TypeVar("R", bound=GridRow)
K = TypeVar("K", bound=Hashable)

#: Cells beside the text of a page: a margin and the scrollbar.
BESIDE = 3
#: Actions of the list that a page disables.
_LIST_ACTIONS = ("sort", "sort_left", "sort_right", "reverse", "filter", "group", "copy", "copy_json", "columns")


class DetailPage(ConsoleWidget, Generic[R, K]):
    """Everything about one row, over its list. `key` is that of the row; None while the page is closed.

    Derived pages yield `_title` first and draw in `_write`; the first of `reports` gets the focus.
    """

    key: K | None = None
    #: Cells. From this width on the page has two columns.
    wide_from: ClassVar[int] = 0
    #: Title of the page once its row is gone.
    gone_text: ClassVar[str] = ""

    def __init__(self, *reports: LineReport, id: str) -> None:
        super().__init__(id=id)
        self._title = Bar(fill="─")
        self._reports = reports
        self._newest: tuple[ScreenSnapshot, R | None] | None = None
        self._shown: tuple[object, ...] = ()  # what was drawn

    def set_key(self, key: K | None) -> None:
        """Show another row's page from its top, or close the page."""
        self.key, self._shown, self._newest = key, (), None
        for report in self._reports:
            report.show(())
            report.scroll_home(animate=False, immediate=True)

    def initial_focus(self) -> Widget:
        """The widget that gets the focus when the page opens."""
        return self._reports[0]

    def detail_provider(self) -> DetailProvider | None:
        """Details of the line under the cursor."""
        return None

    def show_snapshot(self, frame: ScreenSnapshot, row: R | None) -> None:
        """Draw this frame if anything on the page changed; `row` is None once it is gone."""
        self._newest = (frame, row)
        if self.key is None or self.size.width <= 0:  # closed, or not laid out yet
            return
        basis = (self.key, self.size, row is None, *(self._basis(frame, row) if row is not None else ()))
        if basis != self._shown:
            self._shown = basis
            if row is not None:
                self._write(frame, row)
            else:
                name = self.key[0] if isinstance(self.key, tuple) else self.key
                self._title.show((EDGE, Span(clean(str(name)), "strong"), Span(f" {self.gone_text} ", "muted")))

    def _basis(self, frame: ScreenSnapshot, row: R) -> tuple[object, ...]:
        """Everything that `_write` depends on, besides key and size."""
        raise NotImplementedError

    def _write(self, frame: ScreenSnapshot, row: R) -> None:
        raise NotImplementedError

    def _write_title(self, name: str, state: Span) -> None:
        self._title.show((EDGE, Span(name, "accent"), state), BACK)

    @property
    def _is_wide(self) -> bool:
        return self.size.width >= self.wide_from

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(self._is_wide, "wide")
        self.call_after_refresh(self._show_again)

    def _show_again(self) -> None:
        self._shown = ()
        if self._newest is not None:
            self.show_snapshot(*self._newest)


class PagedListView(ListView[R], Generic[R, K]):
    """The grid, or the page of one of its rows. Enter opens a page, Escape closes it."""

    #: Actions that only pages have.
    page_actions: ClassVar[tuple[str, ...]] = ()

    def __init__(self, grid: RecordGrid[GroupHeader | R], page: DetailPage[R, K], *, id: str) -> None:
        super().__init__(grid, id=id)
        self._overlay = page
        self._overlay.display = False
        self._from_other_view = False  # the page was opened from another view; Escape leads back there

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self._overlay

    @property
    def is_paged(self) -> bool:
        """Whether a page is open."""
        return self._overlay.key is not None

    @property
    def selected_key(self) -> K | None:
        """The key of the page, or else of the row under the cursor."""
        if self._overlay.key is not None:
            return self._overlay.key
        row = self._grid.selected
        return None if row is None or isinstance(row, GroupHeader) else cast(K, row.key)

    def initial_focus(self) -> Widget:
        """The page if it is open, else the grid."""
        return self._overlay.initial_focus() if self.is_paged else self._grid

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Draw this frame on the page if it is open, else in the grid."""
        if self.is_paged:
            self._frame = frame
            self._overlay.show_snapshot(frame, self.row_of_page(frame))
        else:
            super().show_snapshot(frame)

    def redraw(self) -> None:
        """Draw the newest frame in another arrangement, if the grid is shown."""
        if not self.is_paged:
            super().redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Sorting, columns and filter are disabled on a page."""
        if action in _LIST_ACTIONS:
            return not self.is_paged and super().check_action(action, parameters)
        return self.is_paged if action in self.page_actions else True

    def open(self, key: K, *, from_other_view: bool = False) -> None:
        """Open the page of this row; Escape then leads back to the list, or to the other view it was opened from."""
        self._from_other_view = from_other_view
        self._set_key(key)

    def on_escape(self) -> bool:
        """Close the page, or clear the filter."""
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
            self.show_snapshot(self._frame)
        else:
            self.redraw()
        self.screen.set_focus(self.initial_focus())
        self.refresh_bindings()

    def row_of_page(self, frame: ScreenSnapshot) -> R | None:
        """The row of the page; None once it is gone."""
        return next((row for row in self.all_rows(frame) if row.key == self._overlay.key), None)

    def _chosen(self) -> list[R]:
        if not self.is_paged or self._frame is None:
            return super()._chosen()
        row = self.row_of_page(self._frame)
        return [row] if row is not None else []

    def detail_provider(self) -> DetailProvider | None:
        """Details of the line under the cursor of the page."""
        return self._overlay.detail_provider() if self.is_paged else None
