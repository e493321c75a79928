"""A view that is a list: rows in a grid under a filter, sorted, grouped, copied, with the columns a person wants.

A view derived from it declares its kind of rows and its columns, and says what its rows are; the rest is here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec

from ...present.spans import Line, plain
from ..base_app import BaseApp
from ..dialogs.columns import ColumnsDialog
from ..keymap.actions import Action, bindings, in_scope
from ..models import table_export
from ..models.grouping import GroupHeader, group_under
from ..models.list_kind import Arrangement, ColumnField, ListKind, arranged_rows, row_predicate
from ..models.row_context import RowContext
from ..models.steady_order import SteadyOrder
from ..models.table_export import ExportTable
from ..snapshot import ScreenSnapshot
from ..widgets.filter_bar import FilterBar
from ..widgets.record_grid import GridColumn, GridRow, RecordGrid, as_arranged
from ..widgets.report import LineReport
from .base import PaletteEntry, View

R = TypeVar("R", bound=GridRow)


def column(
    field: ColumnField[R], width: int, drop: int = 0, *, grow: int = 0, right: bool = False, leads: bool = False
) -> GridColumn[R]:
    """The column that shows a field."""
    return GridColumn(field.key, field.title, width, field.span, drop, grow, "right" if right else "left", leads)


class ListView(View, Generic[R]):
    """`kind` and `columns` are declared by the view; `compose` has to yield `_filter`, `_grid` and `_nothing`."""

    BINDINGS = bindings(in_scope("list"))
    kind: ListKind[R]
    #: Whether the records within a row are of one kind, so that their fields can be columns of a CSV.
    flattens_records: ClassVar[bool] = True
    columns: tuple[GridColumn[Any], ...]  # their cells are asked of rows alone, never of heads

    def __init__(self, grid: RecordGrid[GroupHeader | R], *, id: str) -> None:
        super().__init__(id=id)
        self._grid = grid
        self._nothing = LineReport(classes="nothing")
        self._filter = FilterBar(self.kind.vocabulary, self._values, id=f"{self.kind.noun}-filter")
        self._arranged = Arrangement()
        self._steady: SteadyOrder[R] = SteadyOrder(time.monotonic)
        self._dependencies: tuple[object, ...] = ()  # what the rows on the screen were made of
        self._frame: ScreenSnapshot | None = None

    @property
    def actions(self) -> list[Action]:
        return [*super().actions, *in_scope("list")]

    # -- what the view says ------------------------------------------------------------------------------------------

    def dependencies(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        """What the rows are made of: while each of these is the same object, so are the rows."""
        raise NotImplementedError

    def all_rows(self, frame: ScreenSnapshot) -> Sequence[R]:
        """The rows before any filter, in the order they come."""
        raise NotImplementedError

    def arranged_rows(self, frame: ScreenSnapshot) -> Sequence[GroupHeader | R]:
        """The rows as the person arranged them."""
        context = row_context(frame)
        passes = row_predicate(self._filter.wanted, context)
        return arranged_rows(self.kind, self.all_rows(frame), self._arranged, context, passes, self._steady)

    def empty_text(self, frame: ScreenSnapshot) -> Sequence[Line]:
        """What stands in the place of rows while there is none, whatever the filter."""
        return ()

    # -- drawing -----------------------------------------------------------------------------------------------------

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        if self._frame is not None and frame.now < self._frame.now:
            self._steady.forget()  # a replay went back
        self._frame = frame
        basis = self.dependencies(frame)
        if self._steady.is_due or not _same(basis, self._dependencies):
            self._dependencies = basis
            self._draw(frame)

    def redraw(self) -> None:
        """The person arranged something: draw the last frame anew."""
        if self._frame is not None:
            self._dependencies = self.dependencies(self._frame)
            self._draw(self._frame)

    def _draw(self, frame: ScreenSnapshot) -> None:
        rows = self.arranged_rows(frame)
        of = self.count(frame)
        self._grid.show(rows, self._sort, self._arranged.reverse)
        if self._filter.wanted:
            self._filter.count(sum(not isinstance(row, GroupHeader) for row in rows), of, f"{self.kind.noun}s")
        self._show_empty_text(rows, of, frame)

    def count(self, frame: ScreenSnapshot) -> int:
        """How many rows there are before any filter."""
        return len(self.all_rows(frame))

    def _show_empty_text(self, rows: Sequence[object], of: int, frame: ScreenSnapshot) -> None:
        """Words in the place of rows: there is none, or the filter lets nothing through."""
        unmatched = of > 0 and not rows
        self._grid.display, self._nothing.display = of > 0, of == 0 or unmatched
        self.set_class(unmatched, "unmatched")
        if unmatched:
            message = plain(f"No matching {self.kind.noun}s.")
            self._nothing.show((message, plain(""), plain("Esc clears the filter; / edits it.", "muted")))
        elif of == 0:
            self._nothing.show(self.empty_text(frame))

    # -- what is remembered ------------------------------------------------------------------------------------------

    @property
    def arrangement(self) -> Arrangement:
        earlier = tuple(self._filter.history)
        return msgspec.structs.replace(self._arranged, filter=self._filter.wanted.text, earlier=earlier)

    def restore(self, arrangement: Arrangement) -> None:
        self._arranged = arrangement
        self._filter.put(arrangement.filter, arrangement.earlier)
        self._grid.set_columns(as_arranged(self.columns, arrangement.columns, arrangement.hidden))
        self._steady.forget()
        self.redraw()

    def _change(self, **changes: object) -> None:
        self._arranged = msgspec.structs.replace(self._arranged, **changes)
        self.redraw()

    # -- the filter --------------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Type a filter."""
        self._filter.open()

    def on_escape(self) -> bool:
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

    # -- the order and the groups ------------------------------------------------------------------------------------

    @property
    def _sort(self) -> str:
        """The key of the column that the rows are sorted by."""
        return self._arranged.sort if self._arranged.sort in self.kind.fields else self.kind.sort

    def action_sort(self) -> None:
        """Sort by the next column that is shown."""
        shown = self._grid.shown_columns
        place = shown.index(self._sort) if self._sort in shown else -1
        self._sort_by(shown[(place + 1) % len(shown)])

    def action_reverse(self) -> None:
        """Turn the order context."""
        self._steady.forget()
        self._change(reverse=not self._arranged.reverse)

    def _sort_by(self, key: str) -> None:
        self._steady.forget()
        self._change(sort=key, reverse=not self._arranged.reverse if key == self._sort else False)

    def on_record_grid_heading_clicked(self, event: RecordGrid.HeadingClicked) -> None:
        self._sort_by(event.column)

    def action_group(self) -> None:
        """Group by the next thing rows can have in common."""
        names = [by.name for by in self.kind.groupings]
        present = self.kind.grouping(self._arranged.group).name
        self._group_by(names[(names.index(present) + 1) % len(names)])

    def _group_by(self, name: str) -> None:
        self._change(group=name)
        self.notify("not grouped" if name == "none" else f"grouped by {name}", timeout=2, markup=False)

    def palette_entries(self) -> Iterator[PaletteEntry]:
        for key in self._grid.shown_columns:
            title = self.kind.fields[key].title or key
            yield PaletteEntry(
                f"Sort by {title}", f"Sort the {self.kind.noun}s by {title}", partial(self._sort_by, key)
            )
        for by in self.kind.groupings:
            tells = f"Group the {self.kind.noun}s by {by.name}" if by.value else "One list without groups"
            yield PaletteEntry(f"Group by {by.name}", tells, partial(self._group_by, by.name))

    # -- the columns -------------------------------------------------------------------------------------------------

    def action_columns(self) -> None:
        """Choose the columns, and their order."""
        self.app.push_screen(ColumnsDialog(self))

    def choose_columns(self, columns: Sequence[str], hidden: Sequence[str]) -> None:
        """Show the columns in this order, without those that are hidden."""
        at_first = [column.key for column in self.columns]
        order = () if list(columns) == at_first else tuple(columns)
        self._arranged = msgspec.structs.replace(self._arranged, columns=order, hidden=tuple(hidden))
        self._grid.set_columns(as_arranged(self.columns, columns, hidden))

    @property
    def hidden_columns(self) -> frozenset[str]:
        return frozenset(self._arranged.hidden)

    @property
    def all_columns(self) -> Sequence[GridColumn[R]]:
        """In the person's order, those that are hidden among them."""
        return as_arranged(self.columns, self._arranged.columns, ())

    @property
    def columns_with_room(self) -> Sequence[str]:
        return self._grid.shown_columns

    # -- copying -----------------------------------------------------------------------------------------------------

    def action_copy(self) -> None:
        """The row under the cursor, or those of the group, as text."""
        rows = self._chosen()
        text = table_export.rows_as_text(self.kind, rows, self._grid.shown_columns)
        self._copy(text, rows)

    def action_copy_json(self) -> None:
        """The same as JSON."""
        rows = self._chosen()
        self._copy(table_export.rows_as_json(self.kind, rows), rows)

    def export_tables(self) -> Sequence[ExportTable]:
        frame = self._frame
        if frame is None:
            return ()
        columns = self._grid.shown_columns or [column.key for column in self.columns]
        # under a page the grid stands still
        listed = [row for row in (self._grid.rows if self._grid.display else self.arranged_rows(frame))
                  if not isinstance(row, GroupHeader)]  # fmt: skip
        chosen, kind, of = self._chosen(), self.kind, self.count(frame)
        counted = kind.counted(of) if len(listed) == of else f"{len(listed)} of {kind.counted(of)}"
        everything = ExportTable(
            f"{_title(kind.noun)}: {counted}, as listed", kind, listed, columns, self.flattens_records
        )
        selection = ExportTable(f"Selected: {kind.counted(len(chosen))}", kind, chosen, columns, self.flattens_records)
        return [sheet for sheet in (everything, selection) if sheet.rows]

    def _chosen(self) -> list[R]:
        return group_under(self._grid.rows, self._grid.selected)

    def _copy(self, text: str, rows: Sequence[R]) -> None:
        if rows:
            cast(BaseApp, self.app).copy(text, self.kind.counted(len(rows)))


def row_context(frame: ScreenSnapshot) -> RowContext:
    """What is context the rows of that frame."""
    return RowContext(frame.fleet, frame.nodes, frame.gpus, frame.jobs)


def _title(noun: str) -> str:
    return f"{noun[0].upper()}{noun[1:]}s"


def _same(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
