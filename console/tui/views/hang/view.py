"""3 Hang: the blocking rank and its evidence: verdict, tree of stacks, ranks of a branch, threads of a rank."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.widget import Widget

from ....present.collectives import collective_lines
from ....present.spans import Span, as_text
from ....present.stacks import StackTree, shape_words, stacks_text, timing_words, tree_of
from ....present.verdict import NO_STACKS, VerdictLineKey
from ....text.format import plural
from ....text.sanitize import printable
from ...controllers.clipboard import MOST_BYTES
from ...derived import JobDiagnosis
from ...dialogs.dialog import LinesDialog
from ...keymap.actions import bindings, in_scope
from ...models.job_ranks import RankListRow, rank_values
from ...snapshot import ScreenSnapshot
from ...widgets.bars import Panel
from ...widgets.line_view import LineReport, LineView
from ...widgets.rank_tree import RankTree
from ..base import CaptureView
from .model import all_verdict_lines, culprits_of, moved, rank_lines, side_by_side, thread_lines, worst_first

#: Cells. From this width on ranks and threads are beside the tree; below it one part is shown at a time.
WIDE = 110
#: Shares of the height. Upper bounds on verdict and ranks.
_MOST_VERDICT = 0.45
_MOST_RANKS = 0.35


class HangView(CaptureView):
    """Verdict, tree of stacks, ranks of a branch and threads of a rank; Tab goes through them."""

    scope = "hang"
    footer_actions = ("hang.cancel", "app.capture", "app.diagnose")
    BINDINGS = bindings(in_scope("hang"))

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._verdict = LineReport(id="hang-verdict")
        self._tree = RankTree(id="hang-tree")
        self._ranks, self._threads = LineReport(id="hang-ranks"), LineReport(id="hang-threads")
        self._collectives = LineReport(id="hang-collectives")
        self._tree_panel = Panel("STACKS", self._tree, id="hang-tree-panel")
        self._ranks_panel = Panel("RANKS", self._ranks, id="hang-ranks-panel")
        self._threads_panel = Panel("THREADS", self._threads, id="hang-threads-panel")
        self._parts: tuple[LineView, ...] = (self._verdict, self._tree, self._ranks, self._threads)
        self._model = StackTree()
        self._of: JobDiagnosis | None = None  # of the drawn tree
        self._marked: Hashable | None = None  # key of the branch to compare with

    def compose(self) -> ComposeResult:
        yield self._verdict
        yield self._progress
        yield self._collectives
        with Container(id="hang-body"):
            yield self._tree_panel
            with Vertical(id="hang-side"):
                yield self._ranks_panel
                yield self._threads_panel

    def initial_focus(self) -> Widget:
        """The tree of stacks, or the verdict without any."""
        return self._tree if self._model.roots else self._verdict

    def show_snapshot(self, frame: ScreenSnapshot) -> None:
        """Draw this frame; the ranks also if no capture changed."""
        super().show_snapshot(frame)
        self._write_ranks(frame)

    def _basis(self, frame: ScreenSnapshot) -> tuple[object, ...]:
        return (frame.hang, frame.crashes, self.size)

    def _write(self, frame: ScreenSnapshot) -> None:
        margins = 3 if frame.hang else 6  # with a scroll bar
        lines = all_verdict_lines(frame.hang, frame.crashes, self.size.width - margins) or NO_STACKS
        self._verdict.show(lines)
        self.set_class(not frame.hang, "empty")
        room = int(self.size.height * _MOST_VERDICT) if frame.hang else self.size.height
        self._verdict.styles.height = max(3, min(len(lines), room))
        chosen = self._chosen(frame)
        self._grow_tree(chosen)
        self._collectives.show(collective_lines(chosen.communication if chosen else None, self.size.width - 3))

    def _chosen(self, frame: ScreenSnapshot) -> JobDiagnosis | None:
        """The job whose stacks are drawn: the chosen one, else the worst."""
        ordered = worst_first(frame.hang)
        return next((diagnosis for diagnosis in ordered if diagnosis.job == self._job), ordered[0] if ordered else None)

    def _grow_tree(self, seen: JobDiagnosis | None) -> None:
        if seen is self._of:
            return
        had_tree = bool(self._model.roots)
        self._of = seen
        self._model = tree_of(seen.fold, culprits_of(seen)) if seen and seen.fold else StackTree()
        self._tree.show(self._model.roots)
        if seen is not None and not had_tree:
            self._point_at(culprits_of(seen))
        self._head()

    def _point_at(self, ranks: tuple[int, ...]) -> None:
        """Move the cursor to the innermost branch of the first of these ranks."""
        if not ranks:
            return
        within = [key for key, members in self._model.ranks.items() if ranks[0] in members]
        if within:
            self._tree.point(max(within, key=lambda key: len(self._model.paths.get(key, ()))))

    def _head(self) -> None:
        seen = self._of
        if seen is None or seen.fold is None:
            self._tree_panel.head("STACKS")
            return
        fold = seen.fold
        groups = sum(group.role == "rank" for group in fold.groups)
        shape = shape_words(fold.shape)
        left = ", ".join((plural(len(fold.ranks), "rank"), plural(groups, "group"), *shape))
        right = [f"capture {seen.number} of {seen.captures}"]
        if not shape:  # there is no room for both
            right += timing_words(fold)
        right += [f"{seen.incomplete} stacks missing"] if seen.incomplete else []
        spans = (Span("  ".join(right), "warning" if seen.incomplete else "muted"),)
        self._tree_panel.head("STACKS", (Span(left, "muted"),), spans if self.size.width >= 80 else ())

    def _write_ranks(self, frame: ScreenSnapshot) -> None:
        """Draw the ranks of the branch under the cursor, and the threads of the chosen rank."""
        ranks = self._model.ranks.get(self._tree.selected, ())
        seen = self._of
        width = (self._ranks.size.width or self.size.width) - 2
        rows = _rows_of(frame, seen.job) if seen else {}
        self._ranks.show(rank_lines(ranks, rows, culprits_of(seen), width))
        self._ranks_panel.head("RANKS", (Span(str(len(ranks)), "muted"),))
        limit = max(3, int(self.size.height * _MOST_RANKS))
        if self.has_class("wide"):
            self._ranks_panel.styles.height = min(len(ranks) + 1, limit)
        rank = self._ranks.selected
        if seen is None or not isinstance(rank, int):
            self._threads.show(())
            return
        self._threads.show(thread_lines(seen.stacks, rank, (self._threads.size.width or self.size.width) - 2))
        self._threads_panel.head("THREADS", (Span(f"of rank {rank}", "muted"),))

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE, "wide")

    @property
    def _here(self) -> int:
        """Index of the part with the focus."""
        return next((index for index, part in enumerate(self._parts) if part.has_focus), 0)

    def action_walk(self) -> None:
        """Focus the next of verdict, tree, ranks, threads."""
        self._walk(1)

    def action_walk_back(self) -> None:
        """Focus the previous one."""
        self._walk(-1)

    def _walk(self, by: int) -> None:
        self._go(self._parts[(self._here + by) % len(self._parts)])

    def _go(self, part: LineView) -> None:
        """Show and focus a part; narrow screens hide the others."""
        for name in ("tree", "ranks", "threads"):
            self.set_class(part.id == f"hang-{name}", f"at-{name}")
        self.screen.set_focus(part)

    def on_escape(self) -> bool:
        """Back from the collectives, clear the mark, or back from threads to ranks to tree to verdict."""
        if self.has_class("at-collectives"):
            self.action_collectives()
            return True
        if self._marked is not None:
            self._marked = None
            self.notify("mark cleared", timeout=2, markup=False)
            return True
        if self._here == 0:
            return False
        self._walk(-1)
        return True

    def on_line_view_moved(self, event: LineView.Moved) -> None:
        if event.view is self._verdict and isinstance(self._verdict.selected, VerdictLineKey):
            self._job = self._verdict.selected.job
            if self._frame is not None:
                self._grow_tree(self._chosen(self._frame))
        if self._frame is not None:
            self._write_ranks(self._frame)

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        """Enter: from a verdict to the branch of its rank, then to the ranks and the threads."""
        event.stop()
        about = self._verdict.selected
        if event.view is self._verdict and isinstance(about, VerdictLineKey) and self._of is not None:
            self._point_at((about.rank,) if about.rank is not None else culprits_of(self._of))
        if event.view is not self._threads and self._model.roots:
            self._walk(1)

    def action_cancel(self) -> None:
        """Cancel the running capture."""
        self._progress.action_cancel()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a running capture can be cancelled, only several captures be browsed, only a tree be compared."""
        if action == "cancel":
            return self._frame is not None and self._frame.capturing is not None
        if action in ("earlier", "later"):
            return self._of is not None and self._of.captures > 1
        return bool(self._model.roots) if action in ("compare", "compare_captures", "threads", "granularity") else True

    def action_earlier(self) -> None:
        """Show the previous capture."""
        self.console.captures.choose(-1)

    def action_later(self) -> None:
        """Show the next capture."""
        self.console.captures.choose(1)

    def action_threads(self) -> None:
        """Fold the next of: main threads, those they wait for, all."""
        self.console.captures.next_threads()

    def action_granularity(self) -> None:
        """Group ranks by the next of: function, line, variables."""
        self.console.captures.next_granularity()

    def action_collectives(self) -> None:
        """Toggle between stacks and recorded collectives."""
        self.toggle_class("at-collectives")
        self.screen.set_focus(self._collectives if self.has_class("at-collectives") else self.initial_focus())

    def action_compare(self) -> None:
        """Mark the branch; with another one marked, compare the two."""
        key = self._tree.selected
        if self._marked is None or self._marked not in self._model.ranks or key is None or key == self._marked:
            self._marked = key
            self.notify("marked; press x on another branch to compare", timeout=4, markup=False)
            return
        lines = side_by_side(
            self._model.paths.get(self._marked, ()), self._model.ranks[self._marked],
            self._model.paths.get(key, ()), self._model.ranks[key], min(self.size.width, 110) - 8,
        )  # fmt: skip
        self._marked = None
        self.app.push_screen(LinesDialog("Compare branches", lines))

    def action_compare_captures(self) -> None:
        """Show what changed since the previous capture."""
        seen = self._of
        if seen is None or seen.fold is None or seen.before is None:
            self.notify("no earlier capture", timeout=3, markup=False)
            return
        lines = moved(seen.before, seen.fold, min(self.size.width, 110) - 8)
        self.app.push_screen(LinesDialog(f"Changes since capture {seen.number - 1}", lines))

    def action_copy(self) -> None:
        """Copy the verdicts and the drawn stacks as text; without the stacks where the terminal refuses so much."""
        if self._frame is None or not (self._frame.hang or self._frame.crashes):
            return
        text: str = as_text(all_verdict_lines(self._frame.hang, self._frame.crashes, 110))
        seen, what = self._of, "verdict"
        if seen is not None and seen.fold is not None:
            head = printable(f"capture {seen.number} of {seen.captures}  {seen.job}")
            whole = f"{text}\n\n{head}\n{stacks_text(seen.fold)}"
            if len(whole.encode()) <= MOST_BYTES:
                text, what = whole, "verdict and stacks"
            else:
                what = "verdict (e saves the stacks: too long)"
        self.console.clip.copy(text, what)

    @property
    def selected_node(self) -> str | None:
        """The node of the chosen rank."""
        rank = self._ranks.selected
        if self._frame is None or self._of is None or not isinstance(rank, int):
            return None
        row = _rows_of(self._frame, self._of.job).get(rank)
        return row.rank.node if row is not None and row.rank is not None else None

    @property
    def selected_values(self) -> Mapping[str, object]:
        """Those of the chosen rank."""
        rank = self._ranks.selected
        if self._frame is None or self._of is None or not isinstance(rank, int):
            return {"job": self.selected_job}
        row = _rows_of(self._frame, self._of.job).get(rank)
        return rank_values(row) if row is not None else {}


def _rows_of(frame: ScreenSnapshot, job: str) -> Mapping[int, RankListRow]:
    summary = next((candidate for candidate in frame.jobs.jobs if candidate.job == job), None)
    return {row.number: row for row in summary.rows if row.number is not None} if summary else {}
