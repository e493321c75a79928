"""`RankTree`: a foldable tree with the ranks of each branch at the right.

▼ <module> train.py:212                                      [0-511]
  ▼ train_step train.py:150                                  [0-136,138-511]
      all_reduce distributed_c10d.py:3252      collective    [0-136,138-511]
  ▶ next_batch loader.py:61                                  [137]
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence

import msgspec
from textual import events

from ...present.spans import Span, TreeNode
from ...text.cells import clean, fit, width_of
from ..keymap.actions import bindings, in_scope
from .line_view import CursorView

_INDENT, _GAP = 2, 2
#: Maximum indentation depth, so that a recursion does not push names off the screen.
_DEEPEST = 24


class RankTree(CursorView):
    """`show` sets the roots. Left folds or moves to the parent, right unfolds or moves in, a click on ▼ toggles."""

    BINDINGS = bindings(action for action in in_scope("lines") if action.call in ("left", "right"))

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._roots: tuple[TreeNode, ...] = ()
        self._folded: set[Hashable] = set()
        self.rows: list[TreeRow] = []
        self._layout = (0, 0)  # cells of the notes, and of the ranks

    def show(self, roots: Sequence[TreeNode]) -> None:
        """Show this tree; the cursor stays on its key, folded branches stay folded."""
        self._roots = tuple(roots)
        self._arrange()

    @property
    def selected(self) -> Hashable | None:
        """The key under the cursor."""
        return self.rows[self._cursor].branch.key if self.rows else None

    def point(self, key: Hashable) -> None:
        """Move the cursor to the branch of that key, if it is visible."""
        index = next((index for index, row in enumerate(self.rows) if row.branch.key == key), None)
        if index is not None:
            self.place_cursor(index)

    def fold(self, key: Hashable, fold: bool = True) -> None:
        """Fold or unfold one branch."""
        (self._folded.add if fold else self._folded.discard)(key)
        self._arrange()

    def _arrange(self) -> None:
        key = self.selected
        self.rows = unfolded(self._roots, self._folded)
        index = next((index for index, row in enumerate(self.rows) if row.branch.key == key), None)
        self._cursor = min(self._cursor, max(0, len(self.rows) - 1)) if index is None else index
        self._measure()
        self.changed()

    def _measure(self) -> None:
        """Column widths: ranks at most two fifths, notes a fifth; longer text is cut."""
        width = self.size.width - 1
        ranks = max((width_of(row.branch.ranks) for row in self.rows), default=0)
        notes = max((width_of(clean(row.branch.note)) for row in self.rows), default=0)
        layout = (min(notes, width // 5) if width >= 60 else 0, min(ranks + 2, width * 2 // 5) if ranks else 0)
        if layout != self._layout:
            self._layout = layout
            self.forget()

    def on_resize(self, event: events.Resize) -> None:
        self._measure()

    def line_count(self) -> int:
        """Number of lines."""
        return len(self.rows)

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` looks different."""
        row = self.rows[y]
        return row.branch.text, row.branch.note, row.branch.ranks, bool(row.branch.children), row.depth, row.folded

    def line(self, y: int) -> Sequence[Span]:
        """Line `y`."""
        row, (notes, ranks) = self.rows[y], self._layout
        room = self.size.width - 1
        room -= sum(part + _GAP for part in (notes, ranks) if part)
        head = " " * (_INDENT * min(row.depth, _DEEPEST)) + self._sign(row)
        spans = [Span(fit(head, min(width_of(head), max(0, room))), "muted")]
        room -= width_of(spans[0].text)
        for span in row.branch.text:
            text = clean(span.text)
            text = fit(text, min(width_of(text), max(0, room)))
            spans.append(span._replace(text=text))
            room -= width_of(text)
        spans.append(Span(" " * max(0, room)))
        if notes:
            spans += [Span(" " * _GAP), Span(fit(clean(row.branch.note), notes), "muted")]
        if ranks:
            text = f"[{row.branch.ranks}]" if row.branch.ranks else ""
            spans += [Span(" " * _GAP), Span(fit(text, ranks), "strong")]
        return spans

    def _sign(self, row: TreeRow) -> str:
        if not row.branch.children:
            return "  "
        return "▶ " if row.folded else "▼ "

    def action_left(self) -> None:
        if not self.rows:
            return
        row = self.rows[self._cursor]
        if row.branch.children and not row.folded:
            self.fold(row.branch.key)
        elif row.parent >= 0:
            self.place_cursor(row.parent)

    def action_right(self) -> None:
        if not self.rows:
            return
        row = self.rows[self._cursor]
        if row.folded:
            self.fold(row.branch.key, False)
        elif row.branch.children:
            self.place_cursor(self._cursor + 1)

    def clicked(self, y: int, event: events.Click) -> None:
        """Move the cursor to what was clicked."""
        row = self.rows[y]
        sign = _INDENT * min(row.depth, _DEEPEST)
        if row.branch.children and sign <= event.x < sign + _INDENT:
            self.place_cursor(y)
            self.fold(row.branch.key, not row.folded)
        else:
            super().clicked(y, event)


class TreeRow(msgspec.Struct, frozen=True):
    """A branch where it stands; `parent` is the place of its parent's row, -1 for a root."""

    branch: TreeNode
    depth: int
    parent: int
    folded: bool


def unfolded(roots: Sequence[TreeNode], folded: Collection[Hashable]) -> list[TreeRow]:
    """The rows to draw, from the top. A tree may be thousands deep: nothing here recurs."""
    rows: list[TreeRow] = []
    waiting: list[tuple[Iterator[TreeNode], int]] = [(iter(roots), -1)]
    while waiting:
        branches, parent = waiting[-1]
        branch = next(branches, None)
        if branch is None:
            waiting.pop()
            continue
        is_folded = bool(branch.children) and branch.key in folded
        rows.append(TreeRow(branch, len(waiting) - 1, parent, is_folded))
        if branch.children and not is_folded:
            waiting.append((iter(branch.children), len(rows) - 1))
    return rows
