"""5 Topology: classes of identical nodes, the matrix of a class or a node, and its tree."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.widget import Widget

from ....analysis.topology.node import NodeTopology
from ....present.spans import Line, Span, plain
from ....topology.formats import ENDINGS, FORMATS
from ....topology.snapshot import TopologySnapshot
from ...keymap.actions import bindings, in_scope
from ...models.detail import Detail
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Bar
from ...widgets.line_view import LineReport, LineView
from ...widgets.matrix_grid import MatrixGrid
from ..base import EDGE, DetailProvider, View
from .model import (
    Pairs,
    TopologySelection,
    class_lines,
    drawing_lines,
    grid,
    head_text,
    pair_detail,
    pair_text,
    pairs_of,
    shown,
)

#: Lines. From this height on matrix and tree are shown together.
TALL = 30
_NOTHING = (
    plain("No topology reported yet."),
    plain(""),
    plain("Agents report it within seconds of connecting, and when it changes.", "muted"),
)


class TopologyView(View):
    """The classes, the matrix of the chosen class or node, and its tree below."""

    scope = "topology"
    BINDINGS = bindings(in_scope("topology"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._head, self._title = Bar(fill="─"), Bar(fill="─")
        self._list, self._below = LineReport(id="topo-classes"), LineReport(id="topo-drawing")
        self._matrix = MatrixGrid(id="topo-matrix")
        self._pair = Bar(id="topo-pair")
        self._unfolded: set[str] = set()
        self._drawing = False  # the tree in place of the matrix, if both do not fit
        self._pairs: tuple[NodeTopology | None, Pairs] = (None, ())
        self._listed: tuple[object, ...] = ()  # what the list of classes was drawn from
        self._drawn: tuple[object, ...] = ()  # what the matrix was drawn from

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._list
        yield self._title
        yield self._matrix
        yield self._pair
        yield self._below

    def initial_focus(self) -> Widget:
        """The list of classes."""
        return self._list

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Draw this frame."""
        self._frame = frame
        frame.topology.derived.refresh(lambda fold: self.run_worker(fold, name="fold topology"))
        self._draw()

    @property
    def _fleet(self) -> TopologySnapshot | None:
        return self._frame.topology.fleet if self._frame else None

    @property
    def _chosen(self) -> TopologySelection | None:
        key = self._list.selected
        return key if isinstance(key, TopologySelection) else None

    def _draw(self) -> None:
        fleet = self._fleet
        if fleet is None:
            return
        basis = (fleet.classes, frozenset(self._unfolded), self.size, self._drawing)
        if basis != self._listed:
            self._listed = basis
            self._head.show((EDGE, Span("TOPOLOGY", "accent"), Span(f"  {head_text(fleet)} ", "muted")))
            lines: tuple[Line, ...] = class_lines(fleet, self._unfolded, max(20, self.size.width - 3))
            self._list.show(lines or _NOTHING)
            self._lay_out()
        self._draw_chosen(fleet)

    def _draw_chosen(self, fleet: TopologySnapshot) -> None:
        """Draw the chosen class or node, if it changed or once per second."""
        chosen = self._chosen
        drawn = shown(fleet, chosen)
        second = self._frame.second if self._frame else 0
        basis = (fleet, chosen, self.size, self._matrix.selected, second)
        if basis == self._drawn:
            return
        self._drawn = basis
        for part in (self._title, self._matrix, self._pair, self._below):
            part.set_class(drawn is None, "-absent")
        if drawn is None or chosen is None:
            return
        topology, nodes = drawn
        sim = [Span(" SIM", "warning")] if topology.simulated else []
        name = f"class {chosen.name}" if chosen.kind == "class" else chosen.name
        model = f"  drawn from {topology.node}" if chosen.kind == "class" and len(nodes) > 1 else ""
        self._title.show((EDGE, Span(name, "accent"), *sim, Span(f"{model} ", "muted")))
        made = grid(fleet, topology, nodes)
        self._matrix.show(made)
        rows = len(made.rows) + 1
        self._matrix.styles.height = min(rows, self.size.height // 2) if self._is_tall else "1fr"
        self._matrix.styles.max_height = rows
        row, column = self._matrix.selected or (0, 0)
        self._pair.show((Span(pair_text(fleet, topology, row, column), "text"),))
        if self._pairs[0] is not topology:
            self._pairs = topology, pairs_of(topology)
        self._below.show(drawing_lines(fleet, topology, nodes, self._pairs[1], max(20, self.size.width - 3)))
        self._lay_out()

    def _lay_out(self) -> None:
        """Heights: the classes as needed, a third or what the chosen one leaves free; the chosen one the rest."""
        pictured = len(self._matrix.grid.rows) + 2  # with the heads of its columns and the line on the pair
        drawn = self._below.line_count()
        chosen = 1 + (pictured + drawn if self._is_tall else drawn if self._drawing else pictured)
        free = self.size.height - 1 - (chosen if self._chosen is not None else 0)
        self._list.styles.height = max(1, min(self._list.line_count(), max(self.size.height // 3, free)))
        matrix, drawing = self._is_tall or not self._drawing, self._is_tall or self._drawing
        self._matrix.display, self._pair.display, self._below.display = matrix, matrix, drawing

    @property
    def _is_tall(self) -> bool:
        return self.size.height >= TALL

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._draw)

    def action_picture(self) -> None:
        """Toggle between matrix and tree."""
        self._drawing = not self._drawing
        here = self.screen.focused
        self._draw()
        if self._is_tall or here in (self._matrix, self._below):
            (self._below if self._drawing else self._matrix).focus()

    def action_copy(self) -> None:
        """Copy the chosen node, or everything, as text."""
        self._copy("text")

    def action_copy_json(self) -> None:
        """Copy the same as JSON."""
        self._copy("json")

    def _copy(self, form: str) -> None:
        fleet = self._fleet
        if fleet is not None:
            self.console.clip.copy(FORMATS[form](fleet, self.selected_node), "topology")

    def action_save(self, form: str) -> None:
        """Write the chosen node, or everything, into a new file in the current folder."""
        fleet = self._fleet
        if fleet is not None:
            self.console.clip.save(FORMATS[form](fleet, self.selected_node), "gconsole-topology", ENDINGS[form])

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        fleet = self._fleet
        if fleet is not None:
            self._draw_chosen(fleet)

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        """Enter expands or collapses a class, and opens the page of a node."""
        chosen = self._chosen
        if event.view is not self._list or chosen is None:
            return
        event.stop()
        if chosen.kind == "node":
            self.open_page(chosen.name)
            return
        self._unfolded ^= {chosen.name}
        self._draw()

    def on_escape(self) -> bool:
        """Collapse all classes."""
        if not self._unfolded:
            return False
        self._unfolded.clear()
        self._draw()
        return True

    @property
    def selected_node(self) -> str | None:
        """The chosen node; None for a class."""
        chosen = self._chosen
        return chosen.name if chosen is not None and chosen.kind == "node" else None

    def detail_provider(self) -> DetailProvider | None:
        """Details of the pair of devices under the cursor."""
        chosen, cell = self._chosen, self._matrix.selected
        if not self._matrix.has_focus or cell is None:
            return None

        def detail(frame: ScreenSnapshot) -> Detail | None:
            drawn = shown(frame.topology.fleet, chosen)
            return pair_detail(frame.topology.fleet, drawn[0], *cell) if drawn else None

        return detail
