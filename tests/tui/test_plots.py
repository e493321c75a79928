"""Curves, lanes, trees and progress: what they draw and what their keys do."""

from __future__ import annotations

import numpy as np
import pytest
from textual.app import ComposeResult
from textual.widget import Widget

from gconsole.present.spans import Line, Span, TreeNode, as_text
from gconsole.text.cells import width_of
from gconsole.tui.base_app import BaseApp
from gconsole.tui.gallery import curve, lanes, stacks
from gconsole.tui.models.plot import (
    Axis,
    Lane,
    Plot,
    axis_of,
    bar,
    braille,
    columns,
    heading,
    round_up,
    short,
    ticks,
    time_axis,
)
from gconsole.tui.widgets.bars import Progress
from gconsole.tui.widgets.line_view import LineView
from gconsole.tui.widgets.plots import HistoryPlot, Lanes, Sparkline
from gconsole.tui.widgets.rank_tree import RankTree, unfolded

NAN = float("nan")
FIGURES = ["–", "0", "0.5", "100", "1980", "81.9G"]
HOSTILE = "[bold]\x1b[31m" + "e\u0301" * 30 + "שלום" + "漢字" + "x" * 4096


class PlotApp(BaseApp):
    """One widget on a screen of its own."""

    CSS_PATH = "../../console/tui/console.tcss"

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.messages: list[str] = []

    def compose(self) -> ComposeResult:
        yield self.widget

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        self.messages.append("opened")

    def on_progress_cancelled(self, event: Progress.Cancelled) -> None:
        self.messages.append("cancelled")


def lines_of(widget: Widget) -> list[str]:
    """The lines of a widget as text, each checked to be exactly as wide as the widget."""
    strips = [widget.render_line(y) for y in range(widget.size.height)]
    assert {strip.cell_length for strip in strips} <= {widget.size.width}
    return [strip.text.rstrip() for strip in strips]


class TestHeading:
    def test_figures_that_do_not_fit_are_left_out_whole_and_the_newest_last(self):
        plot = Plot("memory", "GiB", np.array([64.7, 66.1]), high=80.0)
        whole = "memory GiB  now 66.1  min 64.7  avg 65.4  max 66.1"
        cases = {
            50: whole, 49: "memory GiB  now 66.1  min 64.7  max 66.1", 39: "memory GiB  now 66.1  max 66.1",
            29: "memory GiB  now 66.1", 5: "memory GiB  now 66.1",
        }  # fmt: skip
        for width, text in cases.items():
            assert as_text([Line(tuple(heading(plot, with_now=True, width=width)))]) == text


class TestBraille:
    def test_braille_draws_a_rising_line_from_corner_to_corner(self):
        assert braille(np.array([0.0, 1, 2, 3]), 2, 1, 0, 3) == ["⡠⠊"]

    def test_braille_draws_low_values_at_the_bottom_and_high_at_the_top(self):
        assert braille(np.array([0.0, 0]), 1, 2, 0, 1) == [" ", "⣀"]
        assert braille(np.array([1.0, 1]), 1, 2, 0, 1) == ["⠉", " "]

    def test_unknown_values_leave_a_gap_in_the_line(self):
        assert braille(np.array([0.0, 0, NAN, NAN, 0, 0]), 3, 1, 0, 1) == ["⣀ ⣀"]

    def test_braille_draws_nothing_when_no_value_is_known(self):
        assert braille(np.full(10, NAN), 4, 2, 0, 1) == ["    ", "    "]
        assert braille(np.array([]), 4, 1, 0, 1) == ["    "]

    def test_few_values_are_aligned_right_at_the_present(self):
        assert braille(np.array([0.0]), 3, 1, 0, 1) == ["  ⢀"]

    def test_one_second_spike_survives_downsampling(self):
        values = np.zeros(300)
        values[137] = 100
        least, most = columns(values, 20)
        assert most.max() == 100
        assert least.max() == 0
        assert braille(values, 10, 4, 0, 100)[0].strip()

    def test_values_outside_the_range_are_clamped_to_its_ends(self):
        assert braille(np.array([-5.0, 9]), 1, 1, 0, 1) == braille(np.array([0.0, 1]), 1, 1, 0, 1)

    @pytest.mark.parametrize(("width", "height"), [(0, 3), (-1, 1), (4, 0)])
    def test_braille_without_room_returns_empty_lines(self, width: int, height: int):
        assert all(line == "" for line in braille(np.ones(5), width, height, 0, 1))


class TestPlot:
    def test_the_axis_ends_at_a_round_number(self):
        assert [round_up(value) for value in (0, 0.3, 1, 1.1, 7, 51, 812)] == [1, 0.5, 1, 2, 10, 100, 1000]
        assert Plot("x", "", np.array([3.0, 7, NAN])).top == 10
        assert Plot("x", "", np.array([NAN])).top == 1

    def test_current_value_is_unknown_when_the_newest_sample_is_unknown(self):
        assert Plot("x", "", np.array([3.0, NAN])).now is None
        assert Plot("x", "", np.array([])).now is None

    def test_numbers_are_formatted_with_few_characters(self):
        assert [short(value) for value in (None, 0.0, 0.5, 100.0, 1980.0, 81.9e9)] == FIGURES

    def test_the_time_axis_fills_its_width(self):
        assert time_axis(300, 20) == "5 min ago        now"
        assert all(len(time_axis(300, width)) == width for width in range(1, 40))


class TestSparkline:
    @pytest.mark.parametrize("width", [1, 8, 20, 60, 200])
    async def test_sparkline_fits_every_width(self, width: int):
        widget = Sparkline()
        async with PlotApp(widget).run_test(size=(width, 3)):
            widget.show(curve(), 1)
            lines_of(widget)

    async def test_sparkline_shows_title_value_and_unit(self):
        widget = Sparkline()
        async with PlotApp(widget).run_test(size=(60, 3)):
            widget.show(curve(), 1)
            (line,) = lines_of(widget)
            assert line.startswith("utilisation")
            assert line.endswith("95.8 %")

    async def test_sparkline_is_not_redrawn_for_the_same_version(self):
        widget = Sparkline()
        async with PlotApp(widget).run_test(size=(60, 3)):
            widget.show(curve(), 1)
            before = lines_of(widget)
            widget.show(Plot("other", "W", np.zeros(3)), 1)
            assert lines_of(widget) == before
            widget.show(Plot("other", "W", np.zeros(3)), 2)
            assert lines_of(widget) != before


class TestHistory:
    async def test_history_plot_shows_axes_units_and_statistics(self):
        widget = HistoryPlot()
        async with PlotApp(widget).run_test(size=(60, 8)) as pilot:
            widget.show(curve(), 1)
            await pilot.pause()
            lines = lines_of(widget)
        assert lines[0].startswith("utilisation %  now 95.8  min 1.0  avg")
        assert lines[1].startswith("   100 ┤")
        assert lines[5].startswith("     0 ┤")
        assert lines[-1].endswith("now")
        assert "5 min ago" in lines[-1]

    @pytest.mark.parametrize("size", [(1, 1), (5, 2), (12, 5), (60, 8), (200, 60)])
    async def test_history_plot_fits_every_size(self, size: tuple[int, int]):
        widget = HistoryPlot()
        async with PlotApp(widget).run_test(size=size) as pilot:
            widget.show(curve(), 1)
            await pilot.pause()
            lines_of(widget)
            await pilot.resize_terminal(40, 10)
            await pilot.pause()
            lines_of(widget)

    async def test_keys_scroll_a_history_plot_taller_than_its_room(self):
        widget = HistoryPlot()
        async with PlotApp(widget).run_test(size=(40, 5)) as pilot:
            widget.styles.height, widget.styles.min_height = 3, 3
            widget.show(curve(), 1)
            await pilot.pause()
            widget.focus()
            await pilot.press("j")
            await pilot.pause()
            assert widget.scroll_offset.y == 1
            await pilot.press("k")
            await pilot.pause()
            assert widget.scroll_offset.y == 0


class TestProgress:
    async def test_progress_shows_its_count_and_escape_cancels_once(self):
        widget = Progress()
        app = PlotApp(widget)
        async with app.run_test(size=(80, 3)) as pilot:
            widget.show("captured", 371, 512, "ranks", 1.8)
            assert lines_of(widget)[0].startswith("captured 371/512 ranks  █")
            assert lines_of(widget)[0].endswith("Esc cancels")
            widget.focus()
            await pilot.press("escape", "escape")
            assert app.messages == ["cancelled"]
            assert lines_of(widget)[0].endswith("cancelling …")
            widget.show("captured", 0, 512, "ranks")
            assert not widget.is_cancelled

    async def test_unknown_total_is_shown_as_a_dash_without_a_bar(self):
        widget = Progress()
        async with PlotApp(widget).run_test(size=(80, 3)):
            widget.show("read", 12, None, "files")
            assert lines_of(widget)[0].startswith("read 12/– files  ···")

    @pytest.mark.parametrize("width", [1, 10, 24, 40, 300])
    @pytest.mark.parametrize("done", [0, 1, 512, 600])
    async def test_progress_fits_every_width_with_hostile_text(self, width: int, done: int):
        widget = Progress()
        async with PlotApp(widget).run_test(size=(width, 2)):
            widget.show("captured", done, 512, HOSTILE[:40], 3.0)
            lines_of(widget)


class TestRankTree:
    async def shown(self, widget: RankTree) -> None:
        widget.show([stacks()])
        widget.focus()

    async def test_ranks_are_aligned_in_one_column_at_the_right(self):
        widget = RankTree()
        async with PlotApp(widget).run_test(size=(100, 8)) as pilot:
            await self.shown(widget)
            await pilot.pause()
            lines = lines_of(widget)
        assert lines[0].startswith("▼ <module> train.py:212")
        assert lines[2].startswith("      all_reduce")
        assert "collective" in lines[2]
        assert len({line.index("[") for line in lines[:5]}) == 1
        assert lines[4].endswith("[137]")

    async def test_left_folds_or_selects_the_parent_and_right_unfolds_or_descends(self):
        widget = RankTree()
        async with PlotApp(widget).run_test(size=(100, 8)) as pilot:
            await self.shown(widget)
            await pilot.press("j")
            assert widget.selected == ("train_step", "train.py:150")
            await pilot.press("h")
            assert len(widget.rows) == 4
            assert "▶ train_step" in lines_of(widget)[1]
            await pilot.press("left")
            assert widget.selected == ("<module>", "train.py:212")
            await pilot.press("j", "l")
            assert len(widget.rows) == 5
            await pilot.press("right")
            assert widget.selected == ("all_reduce", "distributed_c10d.py:3252")
            await pilot.press("G")
            assert widget.selected == ("load_shard", "dataset.py:88")
            await pilot.press("g", "pagedown", "pageup", "k")
            assert widget.selected == ("<module>", "train.py:212")

    async def test_enter_and_double_click_open_and_a_click_on_the_marker_folds(self):
        widget = RankTree()
        app = PlotApp(widget)
        async with app.run_test(size=(100, 8)) as pilot:
            await self.shown(widget)
            await pilot.press("enter")
            assert app.messages == ["opened"]
            await pilot.click(RankTree, offset=(2, 1))
            assert len(widget.rows) == 4
            await pilot.click(RankTree, offset=(10, 2), times=2)
            assert app.messages == ["opened", "opened"]

    async def test_folds_and_cursor_are_kept_when_the_tree_is_replaced(self):
        widget = RankTree()
        async with PlotApp(widget).run_test(size=(100, 8)) as pilot:
            await self.shown(widget)
            await pilot.press("j", "h", "j")
            widget.show([stacks()])
            assert len(widget.rows) == 4
            assert widget.selected == ("next_batch", "loader.py:61")
            widget.show([])
            assert widget.selected is None
            await pilot.press("j", "h", "l", "enter", "G")

    @pytest.mark.parametrize("width", [1, 10, 30, 60, 200])
    async def test_hostile_frame_names_do_not_break_the_line_width(self, width: int):
        widget = RankTree()
        branch = TreeNode(1, (Span(HOSTILE),), "0-511," * 200, HOSTILE, (TreeNode(2, (Span("x"),)),))
        async with PlotApp(widget).run_test(size=(width, 5)) as pilot:
            widget.show([branch])
            await pilot.pause()
            lines_of(widget)

    def test_stack_of_ten_thousand_frames_unfolds_without_recursion(self):
        branch = TreeNode(0, (Span("f"),))
        for depth in range(1, 10_000):
            branch = TreeNode(depth, (Span("f"),), children=(branch,))
        rows = unfolded([branch], set())
        assert len(rows) == 10_000
        assert rows[-1].depth == 9_999


class TestLanes:
    def test_error_bar_spans_the_error(self):
        text = "".join(span.text for span in bar(Lane(1, "1", "", 50, 20, "ok"), 11, Axis(100)))
        assert text == "···├─●─┤   "

    def test_unknown_error_is_drawn_as_a_question_mark(self):
        text = "".join(span.text for span in bar(Lane(1, "1", "", 50, None, "warning"), 11, Axis(100)))
        assert text == "·····▲?    "

    def test_unknown_value_is_not_drawn_at_zero(self):
        text = "".join(span.text for span in bar(Lane(1, "1", "", None, None, "unknown"), 11, Axis(100)))
        assert text == "◌ unknown  "

    @pytest.mark.parametrize("value", [None, -5.0, 0.0, 33.3, 100.0, 250.0])
    @pytest.mark.parametrize("error", [None, 0.0, 0.1, 40.0])
    @pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 17])
    def test_bar_fills_exactly_its_width(self, value: float | None, error: float | None, width: int):
        spans = bar(Lane(1, "1", "", value, error, "ok"), width, Axis(100))
        assert sum(width_of(span.text) for span in spans) == width

    def test_axis_covers_the_largest_value_plus_error(self):
        assert axis_of(tuple(lanes())) == Axis(50)
        assert axis_of(()) == Axis(1)
        assert ticks(30, Axis(50), "ms") == "0            25          50 ms"
        assert all(len(ticks(width, Axis(50), "ms")) == width for width in range(60))

    def test_axis_is_logarithmic_above_the_median_error_so_error_bars_stay_visible(self):
        late = (Lane(1, "1", "", 20.0, 0.06, "failed"), Lane(2, "2", "", 0.066, 0.08, "unknown"))
        axis = axis_of((*late, Lane(3, "3", "", 0.05, 0.07, "unknown")))
        assert axis == Axis(50, 0.07)
        bars = ["".join(span.text for span in bar(lane, 40, axis)) for lane in late]
        assert bars[1].startswith("├") and bars[1].index("◌") < bars[1].index("┤")
        assert bars[0].index("✖") > 30
        assert ticks(40, axis, "ms").split() == ["0", "0.1", "1", "log", "50", "ms"]
        assert ticks(60, axis, "ms").split() == ["0", "0.1", "1", "10", "log", "50", "ms"]
        assert all(len(ticks(width, axis, "ms")) == width for width in range(60))
        assert [axis.share(value) for value in (0, 50)] == pytest.approx([0, 1])
        assert axis.ticks == (0.1, 1, 10)

    async def test_keys_and_clicks_select_and_open_lanes(self):
        widget = Lanes("rank", "late", "ms")
        app = PlotApp(widget)
        async with app.run_test(size=(80, 8)) as pilot:
            widget.show(lanes())
            widget.focus()
            await pilot.press("j", "j", "enter")
            assert widget.selected == 12
            assert app.messages == ["opened"]
            await pilot.press("G")
            assert widget.selected == 99
            await pilot.press("g", "pagedown", "k", "pageup")
            assert widget.selected == 137
            await pilot.click(Lanes, offset=(3, 2), times=2)
            assert widget.selected == 40
            assert app.messages == ["opened", "opened"]
            widget.show(lanes()[::-1])
            assert widget.selected == 40

    async def test_only_visible_lanes_are_rendered(self):
        widget = Lanes("rank", "late", "ms")
        async with PlotApp(widget).run_test(size=(80, 8)) as pilot:
            widget.show([Lane(n, str(n), f"{n}.0 ms", n, 1.0, "ok") for n in range(4096)])
            await pilot.pause()
            assert len(widget._painted) <= 8
            assert lines_of(widget)[1].startswith("0 ")

    @pytest.mark.parametrize("width", [1, 10, 30, 200])
    async def test_hostile_lane_labels_do_not_break_the_line_width(self, width: int):
        widget = Lanes("rank", "late", "ms")
        async with PlotApp(widget).run_test(size=(width, 5)) as pilot:
            widget.show([Lane(1, HOSTILE, HOSTILE, 3.0, 1.0, "ok")])
            await pilot.pause()
            lines_of(widget)
