"""The widgets alone: what they draw, how little they repaint, what the mouse can select."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection
from textual.widget import Widget

from gconsole.present.spans import Line, Span
from gconsole.tui.widgets.bars import Bar
from gconsole.tui.widgets.line_view import LineReport
from gconsole.tui.widgets.record_grid import GridColumn, RecordGrid, place

from .widget_app import WidgetApp, lines_of

pytestmark = pytest.mark.usefixtures("painted_at_every_change")


@dataclass(frozen=True)
class GridItem:
    key: int
    name: str
    version: int = 0
    banner: tuple[Span, ...] | None = None
    note: Span | None = None


def grid_items(count: int) -> list[GridItem]:
    return [GridItem(number, f"thing {number}") for number in range(count)]


COLUMNS = (
    GridColumn[GridItem]("key", "key", 5, lambda row: Span(str(row.key)), align="right", leads=True),
    GridColumn[GridItem]("name", "name", 10, lambda row: Span(row.name), drop=1, grow=10),
    GridColumn[GridItem]("twice", "twice", 8, lambda row: Span(str(2 * row.key)), drop=2, align="right"),
)


class TestColumns:
    def test_droppable_columns_are_dropped_first_and_required_ones_stay(self):
        def keys(width: int) -> list[str]:
            return [placed.column.key for placed in place(COLUMNS, width)]

        assert keys(80) == ["key", "name", "twice"]
        assert keys(20) == ["key", "name"]
        assert keys(12) == ["key"]
        assert keys(3) == ["key"]

    def test_columns_never_overlap_or_exceed_the_width(self):
        for width in range(20, 120):
            placed = place(COLUMNS, width)
            for left, right in pairwise(placed):
                assert left.x + left.width < right.x
            assert placed[-1].x + placed[-1].width <= width


class TestGrid:
    async def test_row_of_the_cursor_stays_visible_when_the_terminal_shrinks(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 10)) as pilot:
            grid.show(grid_items(30))
            grid.place_cursor(8)
            await pilot.resize_terminal(40, 4)
            await pilot.pause()
            assert [line.split()[0] for line in lines_of(grid)] == ["key", "6", "7", "8"]

    async def test_row_values_are_aligned_under_the_column_titles(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 6)):
            grid.show(grid_items(3))
            lines = lines_of(grid)
        assert lines[0].split() == ["key", "name", "twice"]
        assert lines[2].split() == ["1", "thing", "1", "2"]
        assert lines[2].index("thing 1") == lines[0].index("name")

    async def test_only_visible_rows_are_rendered(self):
        rendered_keys: list[int] = []

        def render_name(row: GridItem) -> Span:
            rendered_keys.append(row.key)
            return Span(row.name)

        grid: RecordGrid[GridItem] = RecordGrid([GridColumn("name", "name", 20, render_name)])
        async with WidgetApp(grid).run_test(size=(40, 10)) as pilot:
            grid.show(grid_items(100_000))
            await pilot.pause()
            await pilot.press("G")
            await pilot.pause()
            assert "thing 99999" in lines_of(grid)[-1]
        assert len(set(rendered_keys)) < 50

    async def test_only_the_changed_row_is_rendered_again(self):
        rendered_keys: list[int] = []

        def render_name(row: GridItem) -> Span:
            rendered_keys.append(row.key)
            return Span(row.name)

        grid: RecordGrid[GridItem] = RecordGrid([GridColumn("name", "name", 20, render_name)])
        async with WidgetApp(grid).run_test(size=(40, 20)) as pilot:
            rows = grid_items(4096)
            grid.show(rows)
            await pilot.pause()
            rendered_keys.clear()
            rows = [*rows]
            rows[7] = replace(rows[7], name="changed", version=1)
            grid.show(rows)
            await pilot.pause()
            assert rendered_keys == [7]
            assert any("changed" in line for line in lines_of(grid))

    async def test_the_cursor_stays_with_its_row_when_rows_move(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 12)) as pilot:
            grid.show(grid_items(100))
            grid.focus()
            await pilot.press("j", "j", "j")
            assert grid.selected == GridItem(3, "thing 3")
            grid.show(grid_items(100)[::-1])
            assert grid.selected == GridItem(3, "thing 3")

    @pytest.mark.parametrize(
        ("keys", "at"),
        [
            (["j"], 1), (["down", "down", "k"], 1), (["G"], 99), (["end", "up"], 98), (["G", "g"], 0),
            (["end", "home"], 0),
            (["pagedown"], 10), (["ctrl+d", "ctrl+u"], 0), (["k"], 0), (["G", "j"], 99), (["pagedown", "pageup"], 0),
        ],
    )  # fmt: skip
    async def test_keys_move_the_cursor_and_keep_it_visible(self, keys: list[str], at: int):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 12)) as pilot:
            grid.show(grid_items(100))
            grid.focus()
            await pilot.press(*keys)
            await pilot.pause()
            assert grid.selected is not None and grid.selected.key == at
            assert any(f"thing {at}" in line for line in lines_of(grid))

    async def test_click_moves_the_cursor_and_double_click_opens(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        app = WidgetApp(grid)
        async with app.run_test(size=(40, 12)) as pilot:
            grid.show(grid_items(100))
            await pilot.click(grid, offset=(8, 5))
            assert grid.selected is not None and grid.selected.key == 4
            await pilot.click(grid, offset=(8, 5), times=2)
            assert app.clicked == ["opened"]

    async def test_click_on_a_heading_posts_its_column(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        app = WidgetApp(grid)
        async with app.run_test(size=(40, 12)) as pilot:
            grid.show(grid_items(5))
            await pilot.click(grid, offset=(lines_of(grid)[0].index("name") + 1, 0))
            assert app.clicked == ["name"]

    async def test_heading_stays_visible_while_rows_scroll(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 12)) as pilot:
            grid.show(grid_items(100))
            await pilot.pause()
            grid.scroll_to(y=50, animate=False, immediate=True)
            await pilot.pause()
            lines = lines_of(grid)
            assert "name" in lines[0]
            assert "thing 50" in lines[1]

    async def test_note_replaces_the_values_of_its_row(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 6)):
            grid.show([GridItem(9, "gone", note=Span("node9 is lost", "unknown"))])
            assert lines_of(grid)[1].split() == ["9", "node9", "is", "lost"]

    async def test_banner_spans_the_whole_line_and_is_not_selected(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 6)):
            grid.show([GridItem(0, "", banner=(Span("the whole line"),)), GridItem(1, "x")])
            assert lines_of(grid)[1] == "the whole line"
            assert grid.selected == GridItem(1, "x"), "the cursor starts on a thing, not on a title"

    async def test_cursor_moves_to_the_last_row_when_its_row_disappears(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 12)) as pilot:
            grid.show(grid_items(100))
            grid.focus()
            await pilot.press("G")
            grid.show(grid_items(3))
            await pilot.pause()
            assert grid.selected == GridItem(2, "thing 2")
            grid.show([])
            await pilot.press("j", "enter")
            assert grid.selected is None

    async def test_selected_text_matches_the_rendered_text(self):
        grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
        async with WidgetApp(grid).run_test(size=(40, 12)):
            grid.show(grid_items(5))
            x = lines_of(grid)[0].index("name")
            selection = grid.get_selection(Selection(Offset(x, 2), Offset(x + 7, 2)))
            assert selection is not None and selection[0] == "thing 1"


class TestReport:
    LINES = (
        Line((Span("a heading"),)),
        Line((Span("one"),), "one"),
        Line((Span("  more of one"),), "one"),
        Line((Span("two"),), "two"),
    )

    async def test_cursor_moves_between_keys_not_lines(self):
        report = LineReport()
        async with WidgetApp(report).run_test(size=(40, 6)) as pilot:
            report.show(self.LINES)
            report.focus()
            assert report.selected == "one"
            await pilot.press("j")
            assert report.selected == "two"
            await pilot.press("j", "j", "k")
            assert report.selected == "one"

    async def test_cursor_stays_on_its_key_when_lines_are_inserted(self):
        report = LineReport()
        async with WidgetApp(report).run_test(size=(40, 6)) as pilot:
            report.show(self.LINES)
            report.focus()
            await pilot.press("j")
            report.show((Line((Span("zero"),), "zero"), *self.LINES))
            assert report.selected == "two"

    @pytest.mark.parametrize("key", ["line 4", "line 9"])
    async def test_cursor_line_stays_visible_when_the_terminal_shrinks(self, key: str):
        report = LineReport()
        async with WidgetApp(report).run_test(size=(40, 10)) as pilot:
            report.show([Line((Span(f"line {number}"),), f"line {number}") for number in range(30)])
            report.focus()
            while report.selected != key:
                await pilot.press("j")
            await pilot.resize_terminal(40, 3)
            await pilot.pause()
            assert len(lines_of(report)) == 3 and key in lines_of(report)

    async def test_cursor_line_stays_visible_when_lines_are_wrapped_anew_after_a_resize(self):
        report = LineReport()
        async with WidgetApp(report).run_test(size=(40, 10)) as pilot:
            report.show([Line((Span(f"line {number}"),), f"line {number}") for number in range(10)])
            report.focus()
            await pilot.press("G")
            await pilot.resize_terminal(20, 5)
            await pilot.pause()
            report.show(
                [
                    line
                    for number in range(10)
                    for line in (Line((Span(f"line {number}"),), f"line {number}"), Line((Span("more"),)))
                ]
            )
            await pilot.pause()
            assert report.selected == "line 9" and "line 9" in lines_of(report)

    @pytest.mark.parametrize("heights", [(5,), (3, 5), (8, 3, 4, 5)])
    async def test_place_after_a_resize_does_not_depend_on_the_sizes_in_between(self, heights: tuple[int, ...]):
        report = LineReport()
        async with WidgetApp(report).run_test(size=(40, 10)) as pilot:
            report.show([Line((Span(f"line {number}"),), f"line {number}") for number in range(30)])
            report.focus()
            while report.selected != "line 9":
                await pilot.press("j")
            for height in heights:
                await pilot.resize_terminal(40, height)
                await pilot.pause()
            assert lines_of(report) == [f"line {number}" for number in range(5, 10)]

    async def test_lines_scrolled_away_from_the_cursor_stay_where_they_are_when_the_terminal_shrinks(self):
        report = LineReport()
        async with WidgetApp(report).run_test(size=(40, 10)) as pilot:
            report.show([Line((Span(f"line {number}"),), f"line {number}") for number in range(30)])
            report.focus()
            report.scroll_to(y=15, animate=False, immediate=True, force=True)
            await pilot.pause()
            await pilot.resize_terminal(40, 3)
            await pilot.pause()
            assert report.selected == "line 0" and lines_of(report)[0] == "line 15"

    async def test_enter_opens_only_lines_with_a_key(self):
        report = LineReport()
        app = WidgetApp(report)
        async with app.run_test(size=(40, 6)) as pilot:
            report.focus()
            report.show(self.LINES[:1])
            await pilot.press("enter")
            assert app.clicked == []
            report.show(self.LINES)
            await pilot.press("enter")
            await pilot.pause()
            assert app.clicked == ["opened"]

    async def test_text_selected_with_the_mouse_can_be_copied(self):
        report = LineReport()
        async with WidgetApp(report).run_test(size=(40, 6)) as pilot:
            report.show(self.LINES)
            await pilot.mouse_down(report, offset=(0, 1))
            await pilot.hover(report, offset=(3, 3))
            await pilot.mouse_up(report, offset=(3, 3))
            await pilot.pause()
            assert pilot.app.screen.get_selected_text() == "one\n  more of one\ntwo"


class TestBar:
    async def test_bar_truncates_the_left_part_before_the_right(self):
        bar = Bar()
        async with WidgetApp(bar).run_test(size=(20, 3)):
            bar.show([Span("a very long left part")], [Span("right")])
            assert lines_of(bar)[0] == "a very long le…right"

    async def test_click_on_a_bar_runs_the_action_under_the_mouse(self):
        bar = Bar()
        app = WidgetApp(bar)
        async with app.run_test(size=(40, 3)) as pilot:
            bar.show([Span("one ", "text", "app.hit('one')"), Span("two", "text", "app.hit('two')")])
            await pilot.click(bar, offset=(5, 0))
            await pilot.click(bar, offset=(20, 0))
            assert app.clicked == ["two"]


async def test_wide_characters_keep_the_line_width():
    grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
    async with WidgetApp(grid).run_test(size=(40, 6)):
        grid.show([GridItem(1, "漢字漢字漢字漢字漢字漢字漢字"), GridItem(2, "plain")])
        assert all(grid.render_line(y).cell_length == 40 for y in range(6))


async def drag(pilot: Pilot[None], widget: Widget, start: tuple[int, int], end: tuple[int, int]) -> None:
    await pilot.mouse_down(widget, offset=start)
    await pilot.hover(widget, offset=end)
    await pilot.mouse_up(widget, offset=end)
    await pilot.pause()


async def test_selection_is_highlighted_and_survives_new_data():
    grid: RecordGrid[GridItem] = RecordGrid(COLUMNS)
    async with WidgetApp(grid).run_test(size=(40, 6)) as pilot:
        grid.show(grid_items(4))
        x = lines_of(grid)[0].index("name")
        await drag(pilot, grid, (x, 1), (x + 7, 2))
        ground = pilot.app.screen.get_component_rich_style("screen--selection").bgcolor
        grid.show([replace(row, version=1) for row in grid_items(4)])
        assert any(segment.style and segment.style.bgcolor == ground for segment in grid.render_line(1))
        assert (pilot.app.screen.get_selected_text() or "").startswith("thing 0")
