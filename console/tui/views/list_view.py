"""A view that is a list: a grid of rows that can be filtered, sorted, grouped, copied and arranged in columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from textual.app import ComposeResult
from textual.widget import Widget

from ...present.spans import Line, plain
from ...text.cells import clean
from ..dialogs.columns import ColumnsDialog
from ..keymap.actions import Action, PaletteCommand, bindings, in_scope
from ..models.column import ColumnField
from ..models.export_table import ExportTable, rows_as_json, rows_as_text
from ..models.grouping import GroupHeader, RowContext, group_under
from ..models.list_kind import Arrangement, ListKind, arranged_rows, row_predicate
from ..models.rows import SteadyOrder
from ..snapshot import ScreenSnapshot
from ..widgets.filter_bar import FilterBar
from ..widgets.line_view import LineReport
from ..widgets.record_grid import GridColumn, GridRow, RecordGrid, as_arranged
from .base import View

R = TypeVar("R", bound=GridRow)


def column(
    field: ColumnField[R], width: int, drop: int = 0, *, grow: int = 0, right: bool = False, leads: bool = False
) -> GridColumn[R]:
    """The column that shows a field."""
    return GridColumn(field.key, field.title, width, field.span, drop, grow, "right" if right else "left", leads)


class ListView(View, Generic[R]):
    """Derived views declare `kind` and `columns`, and return their rows from `make_rows`."""

    BINDINGS = bindings(in_scope("list"))
    kind: ListKind[R]
    #: Whether all rows hold records of one kind; then CSV exports have a column for each field of these.
    exports_record_fields: ClassVar[bool] = True
    columns: tuple[GridColumn[Any], ...]

    def __init__(self, grid: RecordGrid[GroupHeader | R], *, id: str) -> None:
        super().__init__(id=id)
        self._grid = grid
        self._nothing = LineReport(classes="nothing")
        self._filter = FilterBar(self.kind.vocabulary, self._values, id=f"{self.kind.noun}-filter")
        self._arranged = Arrangement()
        self._steady: SteadyOrder[R] = SteadyOrder(time.monotonic)
        self._drawn_from: tuple[object, ...] = ()  # the dependencies of the rows on the screen
        self._rows: tuple[tuple[object, ...], Sequence[R]] = ((), ())  # the newest rows with their dependencies

    def compose(self) -> ComposeResult:
        yield self._filter
        yield self._grid
        yield self._nothing

    def initial_focus(self) -> Widget:
        """The grid."""
        return self._grid

    @property
    def actions(self) -> list[Action]:
        """Those of the view, and those of every list."""
        return [*super().actions, *in_scope("list")]

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """What the rows depend on: they are remade once one of these is another object, or another number."""
        raise NotImplementedError

    def make_rows(self, frame: ScreenSnapshot) -> Sequence[R]:
        """The rows of this frame, unfiltered, in their default order."""
        raise NotImplementedError

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[R]:
        """The same, remade only if the frame differs in a dependency."""
        basis = self.dependencies(frame)
        if not _same(basis, self._rows[0]):
            self._rows = (basis, self.make_rows(frame))
        return self._rows[1]

    def arranged_rows(self, frame: ScreenSnapshot) -> Sequence[GroupHeader | R]:
        """The rows, filtered, sorted and grouped."""
        context = row_context(frame)
        passes = row_predicate(self._filter.wanted, context)
        return arranged_rows(self.kind, self.all_rows(frame), self._arranged, context, passes, self._steady)

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        """Shown in place of the grid if there are no rows, whatever the filter."""
        return ()

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Draw this frame if its rows differ, or if rows may now change places."""
        if self._frame is not None and frame.now < self._frame.now:
            self._steady.forget()  # backwards in a replay
        self._frame = frame
        basis = self.dependencies(frame)
        if self._steady.is_due or not _same(basis, self._drawn_from):
            self._drawn_from = basis
            self._draw(frame)

    def redraw(self) -> None:
        """Draw the newest frame in another arrangement."""
        if self._frame is not None:
            self._drawn_from = self.dependencies(self._frame)
            self._draw(self._frame)

    def _draw(self, frame: ScreenSnapshot) -> None:
        rows = self.arranged_rows(frame)
        total = self.count(frame)
        self._grid.show(rows, self._sort, self._arranged.reverse)
        if self._filter.wanted:
            self._filter.count(sum(not isinstance(row, GroupHeader) for row in rows), total, f"{self.kind.noun}s")
        self._show_empty_text(rows, total, frame)

    def count(self, frame: ScreenSnapshot) -> int:
        """Number of rows, unfiltered."""
        return len(self.all_rows(frame))

    def _show_empty_text(self, rows: Sequence[object], total: int, frame: ScreenSnapshot) -> None:
        unmatched = total > 0 and not rows
        self._grid.display, self._nothing.display = total > 0, not rows
        self.set_class(unmatched, "unmatched")
        if not rows:
            self._nothing.show(unmatched_text(self.kind.noun) if unmatched else self.empty_text(frame))

    def node_of(self, row: R) -> str | None:
        """The node whose figures a row shows; None for none."""
        return None

    def row_name(self, row: R) -> str:
        """Identifies a row in links, also those of another console on the same nodes."""
        return clean("/".join(map(str, row.key)) if isinstance(row.key, tuple) else str(row.key))

    @property
    def selected_row(self) -> str:
        """The name of the row, or of the group, under the cursor; empty for none."""
        row = self._grid.selected
        return "" if row is None else self._name_of(row)

    def select_row(self, name: str) -> None:
        """Move the cursor to the row of that name as soon as it is listed."""
        self._grid.select(lambda row: self._name_of(row) == name)

    def _name_of(self, row: GroupHeader | R) -> str:
        return clean(f"{row.part}/{row.by}:{row.value}") if isinstance(row, GroupHeader) else self.row_name(row)

    @property
    def wanted_nodes(self) -> frozenset[str]:
        """The nodes of the rows on the screen and of one page around them, or that of the page over the list."""
        rows = self._grid.near if self._grid.display else ()
        nodes = {self.node_of(row) for row in rows if not isinstance(row, GroupHeader)}
        return super().wanted_nodes | {node for node in nodes if node is not None}

    @property
    def arrangement(self) -> Arrangement:
        """Sort order, grouping, columns, and the filter with its history."""
        earlier = tuple(self._filter.history)
        return msgspec.structs.replace(self._arranged, filter=self._filter.wanted.text, earlier=earlier)

    def restore(self, arrangement: Arrangement) -> None:
        """Apply a saved arrangement."""
        self._arranged = arrangement
        self._filter.put(arrangement.filter, arrangement.earlier)
        self._grid.set_columns(as_arranged(self.columns, arrangement.columns, arrangement.hidden))
        self._steady.forget()
        self.redraw()

    def _change(self, **changes: object) -> None:
        self._arranged = msgspec.structs.replace(self._arranged, **changes)
        self.redraw()

    def action_filter(self) -> None:
        """Edit the filter."""
        self._filter.open()

    def on_escape(self) -> bool:
        """Clear the filter."""
        if not self._filter.wanted:
            return False
        self._filter.clear()
        return True

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self.redraw()

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        self._grid.focus()

    def _values(self, field: str) -> Sequence[str]:
        frame = self._frame
        return self.kind.values_now(field, self.all_rows(frame), row_context(frame)) if frame is not None else ()

    @property
    def _sort(self) -> str:
        """Key of the column that rows are sorted by."""
        return self._arranged.sort if self._arranged.sort in self.kind.fields else self.kind.sort

    def action_sort(self) -> None:
        """Sort by the next shown column."""
        self._sort_by(self._beside(1))

    def action_sort_left(self) -> None:
        """Sort by the column left of the sorted one."""
        self._sort_figure(self._beside(-1))

    def action_sort_right(self) -> None:
        """Sort by the column right of the sorted one."""
        self._sort_figure(self._beside(1))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a replay < and > change its speed."""
        return self.console.is_live if action in ("sort_left", "sort_right") else True

    def _beside(self, by: int) -> str:
        """The shown column `by` places right of the sorted one; from the last one to the first."""
        # no column has room before the first layout, and where the terminal has no width
        shown = self._grid.shown_columns or [column.key for column in self._grid.columns]
        place = shown.index(self._sort) if self._sort in shown else min(0, -by)
        return shown[(place + by) % len(shown)]

    def _sort_figure(self, key: str) -> None:
        """Sort by a column, figures from the largest down, and go to the first row."""
        self._steady.forget()
        figures = (column.key for column in self._grid.columns if column.align == "right" and not column.leads)
        self._change(sort=key, reverse=key in figures)
        self._grid.action_top()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._steady.forget()
        self._change(reverse=not self._arranged.reverse)

    def _sort_by(self, key: str) -> None:
        self._steady.forget()
        self._change(sort=key, reverse=not self._arranged.reverse if key == self._sort else False)

    def on_record_grid_heading_clicked(self, event: RecordGrid.HeadingClicked) -> None:
        self._sort_by(event.column)

    def action_group(self) -> None:
        """Group by the next grouping."""
        names = [by.name for by in self.kind.groupings]
        present = self.kind.grouping(self._arranged.group).name
        self._group_by(names[(names.index(present) + 1) % len(names)])

    def _group_by(self, name: str) -> None:
        self._change(group=name)
        self.notify("not grouped" if name == "none" else f"grouped by {name}", timeout=2, markup=False)

    def palette_entries(self) -> Iterator[PaletteCommand]:
        """Sorting by each shown column, and each grouping."""
        for key in self._grid.shown_columns:
            title = self.kind.fields[key].title or key
            yield PaletteCommand(
                f"Sort by {title}", f"Sort the {self.kind.noun}s by {title}", partial(self._sort_by, key)
            )
        for by in self.kind.groupings:
            text = f"Group the {self.kind.noun}s by {by.name}" if by.value else "One list without groups"
            yield PaletteCommand(f"Group by {by.name}", text, partial(self._group_by, by.name))

    def action_columns(self) -> None:
        """Edit which columns are shown, and their order."""
        self.app.push_screen(ColumnsDialog(self))

    def choose_columns(self, columns: Sequence[str], hidden: Sequence[str]) -> None:
        """Show the columns in this order, except the hidden ones."""
        is_default = list(columns) == [column.key for column in self.columns]
        order = () if is_default else tuple(columns)
        self._arranged = msgspec.structs.replace(self._arranged, columns=order, hidden=tuple(hidden))
        self._grid.set_columns(as_arranged(self.columns, columns, hidden))

    @property
    def hidden_columns(self) -> frozenset[str]:
        """Keys of the hidden columns."""
        return frozenset(self._arranged.hidden)

    @property
    def all_columns(self) -> Sequence[GridColumn[R]]:
        """All columns in the user's order, hidden ones included."""
        return as_arranged(self.columns, self._arranged.columns, ())

    @property
    def columns_with_room(self) -> Sequence[str]:
        """Keys of the columns that fit on the screen."""
        return self._grid.shown_columns

    def action_copy_name(self) -> None:
        """Copy what the row under the cursor is called, or the names in the group, each once."""
        kind, rows, _ = self._copied()
        self.console.clip.copy_names(map(kind.name, rows))

    def action_copy(self) -> None:
        """Copy the row under the cursor, or the rows of the group, as text."""
        kind, rows, columns = self._copied()
        if rows:
            self.console.clip.copy(rows_as_text(kind, rows, columns), kind.counted(len(rows)))

    def action_copy_json(self) -> None:
        """Copy the same as JSON."""
        kind, rows, _ = self._copied()
        if rows:
            self.console.clip.copy(rows_as_json(kind, rows), kind.counted(len(rows)))

    def _copied(self) -> tuple[ListKind[Any], Sequence[Any], Sequence[str]]:
        """What is copied: rows of a kind, and their columns as text."""
        return self.kind, self._chosen(), self._grid.shown_columns

    def export_tables(self) -> Sequence[ExportTable]:
        """The listed rows, and the selected ones."""
        frame = self._frame
        if frame is None:
            return ()
        columns = self._grid.shown_columns or [column.key for column in self.columns]
        # the grid is not updated while a page covers it
        listed = [row for row in (self._grid.rows if self._grid.display else self.arranged_rows(frame))
                  if not isinstance(row, GroupHeader)]  # fmt: skip
        chosen, kind, total = self._chosen(), self.kind, self.count(frame)
        counted = kind.counted(total) if len(listed) == total else f"{len(listed)} of {kind.counted(total)}"
        title = f"{kind.noun[0].upper()}{kind.noun[1:]}s"
        sheets = ((f"{title}: {counted}, as listed", listed), (f"Selected: {kind.counted(len(chosen))}", chosen))
        flat = self.exports_record_fields
        return [ExportTable(text, kind, rows, columns, flat) for text, rows in sheets if rows]

    def _chosen(self) -> list[R]:
        return group_under(self._grid.rows, self._grid.selected)


def row_context(frame: ScreenSnapshot) -> RowContext:
    """The nodes, GPUs and jobs around the rows of a frame."""
    return RowContext(frame.fleet, frame.nodes, frame.gpus, frame.jobs)


def unmatched_text(noun: str) -> Sequence[Line]:
    """Shown where no row matches the filter."""
    return (plain(f"No matching {noun}s."), plain(""), plain("Esc clears the filter; / edits it.", "muted"))


def _same(left: Sequence[object], right: Sequence[object]) -> bool:
    """Whether all are the same objects or equal numbers; deep comparisons would take too long."""
    return len(left) == len(right) and all(
        a is b or (isinstance(a, int) and a == b) for a, b in zip(left, right, strict=True)
    )
