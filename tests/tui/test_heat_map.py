"""The heat map alone: its layout, what it repaints, where its cursor goes, and its quick rendering of bars."""

from __future__ import annotations

import random

import msgspec
import pytest
from textual.selection import Selection
from textual.strip import Strip

from gconsole.present.spans import Status
from gconsole.records.metrics import HeatScale
from gconsole.tui.models.heat_map import LEVELS, HeatCell, HeatRow, plan
from gconsole.tui.widgets.heat_map import HeatMap

from .widget_app import WidgetApp, lines_of, styles_of

pytestmark = pytest.mark.usefixtures("painted_at_every_change")


def rows_of(nodes: int, gpus: int) -> list[HeatRow]:
    return [
        HeatRow(f"node{node:03}", "ok", tuple(HeatCell(str(gpu), gpu % LEVELS) for gpu in range(gpus)))
        for node in range(1, nodes + 1)
    ]


class TestHeatMap:
    @pytest.mark.parametrize(
        ("nodes", "size", "cell", "columns"),
        [
            (4, (80, 10), 7, 1),  # room for figures
            (64, (60, 22), 1, 3),  # bars, full names cut to their numbers where need be
            (64, (100, 32), 4, 2),
            (64, (40, 8), 1, 2),  # more than fits: it scrolls
        ],
    )
    def test_heat_map_uses_the_widest_cells_that_fit_the_size(self, nodes: int, size, cell: int, columns: int):
        layout = plan(rows_of(nodes, 8), *size)
        assert (layout.cell, layout.columns) == (cell, columns)
        assert layout.columns * (layout.node_width + 2) - 2 <= size[0]

    def test_heat_map_layout_accepts_any_size(self):
        for width in range(0, 30):
            for height in range(0, 4):
                plan(rows_of(5, 8), width, height)
                plan([], width, height)

    async def test_heat_map_shows_numbers_when_wide_and_bars_when_narrow(self):
        heat = HeatMap()
        async with WidgetApp(heat).run_test(size=(80, 5)):
            heat.show(
                [HeatRow("node1", "ok", (HeatCell("0", 0), HeatCell("100", LEVELS - 1), HeatCell("–", None)))], "load"
            )
            assert lines_of(heat)[0].split() == ["node1", "0", "100", "–"]
        heat = HeatMap()
        async with WidgetApp(heat).run_test(size=(12, 5)):
            heat.show(
                [HeatRow("node1", "ok", (HeatCell("0", 0), HeatCell("100", LEVELS - 1), HeatCell("–", None)))], "load"
            )
            assert "▁▇·" in lines_of(heat)[0]

    async def test_cursor_moves_across_cells_and_node_columns(self):
        heat = HeatMap()
        async with WidgetApp(heat).run_test(size=(60, 8)) as pilot:
            heat.show(rows_of(16, 8), "load")
            heat.focus()
            await pilot.press("l", "j")
            assert heat.selected == ("node002", 1)
            await pilot.press(*["right"] * 7)
            assert heat.selected == ("node010", 0)
            await pilot.press("h")
            assert heat.selected == ("node002", 7)
            await pilot.press("G")
            assert heat.selected == ("node016", 7)
            await pilot.press("g", "k")
            assert heat.selected == ("node001", 0)

    async def test_click_selects_the_heat_map_cell_under_the_mouse(self):
        heat = HeatMap()
        async with WidgetApp(heat).run_test(size=(60, 8)) as pilot:
            heat.show(rows_of(16, 8), "load")
            line = lines_of(heat)[3]
            x = line.index("012") if "012" in line else line.index("12")
            bars = line.index("▁", x)
            await pilot.click(heat, offset=(bars + 2, 3))
            assert heat.selected == ("node012", 2)

    async def test_heat_map_repaints_only_changed_lines(self):
        heat = HeatMap()
        async with WidgetApp(heat).run_test(size=(80, 20)) as pilot:
            rows = rows_of(64, 8)
            heat.show(rows, "load")
            await pilot.pause()
            painted: list[int] = []
            original = heat.drawn

            def watched(y: int, width: int, selection: Selection | None) -> Strip:
                painted.append(y)
                return original(y, width, selection)

            heat.drawn = watched  # type: ignore[method-assign]
            heat.show([*rows], "load")
            await pilot.pause()
            assert painted == []
            rows[0] = msgspec.structs.replace(rows[0], cells=(HeatCell("9", 1), *rows[0].cells[1:]))
            heat.show(rows, "load")
            await pilot.pause()
            assert painted == [0]

    @pytest.mark.parametrize("size", [(24, 6), (60, 8), (200, 60)])
    @pytest.mark.parametrize("scale", ["load", "temperature"])
    async def test_fast_bar_rendering_matches_the_span_rendering(self, size: tuple[int, int], scale: HeatScale):
        chance = random.Random(f"{size}{scale}")
        states: list[Status] = ["ok", "ok", "warning", "stale", "failed", "unknown"]

        def row(number: int) -> HeatRow:
            levels = [chance.choice([None, 0, 0, 3, 3, 15]) for _ in range(chance.choice([0, 1, 8, 8, 8]))]
            cells = tuple(HeatCell("–", level, chance.choice(["", "", "", "", "", "", "▼"])) for level in levels)
            return HeatRow(f"node{number:04}", chance.choice(states), cells, "" if cells else "auth: key refused")

        heat = HeatMap()
        async with WidgetApp(heat).run_test(size=size) as pilot:
            for _ in range(4):
                heat.show([row(number) for number in range(chance.choice([20, 2000]))], scale)
                await pilot.press("right")
                for y in range(heat.line_count() + 3):
                    quick = heat.drawn(y, heat.size.width, None)
                    expected = heat.strip(heat.line(y) if y < heat.line_count() else (), heat.size.width)
                    assert (quick.text, quick.cell_length) == (expected.text, expected.cell_length)
                    assert styles_of(quick) == styles_of(expected)

    @pytest.mark.parametrize("name", ["gconsole-dark", "gconsole-terminal"])
    async def test_skipped_line_filters_do_not_change_the_rendering(self, name: str):
        heat = HeatMap()
        app = WidgetApp(heat)
        async with app.run_test(size=(60, 8)) as pilot:
            app.theme = name
            heat.show(rows_of(64, 8), "load")
            await pilot.pause()
            used_filters = heat.get_line_filters()
            for y in range(heat.line_count()):
                plain = heat.drawn(y, heat.size.width, None)
                fully_filtered = plain
                for line_filter in app.get_line_filters():
                    fully_filtered = fully_filtered.apply_filter(line_filter, heat.background_colors[1])
                for line_filter in used_filters:
                    plain = plain.apply_filter(line_filter, heat.background_colors[1])
                assert styles_of(plain) == styles_of(fully_filtered)

    async def test_failed_and_stale_nodes_have_a_state_glyph(self):
        heat = HeatMap()
        async with WidgetApp(heat).run_test(size=(80, 5)):
            heat.show([HeatRow("node1", "failed", note="auth"), HeatRow("node2", "stale", (HeatCell("5", 1),))], "load")
            lines = lines_of(heat)
            assert lines[0].split() == ["node1", "✖", "auth"]
            assert lines[1].split() == ["node2", "◐", "5"]
