"""The terminal's cursor is on what has the focus, where screen readers and magnifiers look for it."""

from __future__ import annotations

import pytest
from clusters import busy_cluster, clock_cluster, demo
from running import running
from textual.geometry import Offset
from textual.widgets import Input, TextArea
from waiting import screen, until

from gconsole.tui.app import ConsoleApp
from gconsole.tui.views.registry import VIEWS


def text_at_cursor(app: ConsoleApp) -> str:
    """The line of the screen from the cursor on."""
    x, y = app.cursor_position
    return screen(app).splitlines()[y][x:]


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 36), (200, 60)])
async def test_cursor_is_on_the_focused_widget_in_every_view(size: tuple[int, int]):
    app = clock_cluster().app()
    async with running(app, size=size) as pilot:
        for row in VIEWS:
            await pilot.press(row.key)
            await until(pilot, lambda row=row: app.views.current == row.name and app.focused is not None)
            app.frames.draw()
            await until(
                pilot,
                lambda: (app.focused.region or app.view.region).contains_point(app.cursor_position),
                f"a cursor in {row.name}, not at {app.cursor_position}",
            )


async def test_cursor_of_the_heat_map_is_on_the_chosen_cell():
    app = demo().app()
    async with running(app, size=(120, 36)) as pilot:
        before = app.cursor_position
        await pilot.press("j")
        await until(pilot, lambda: app.cursor_position == before + Offset(0, 1))
        await pilot.press("l")
        await until(pilot, lambda: app.cursor_position.x > before.x)
        node, gpu = app.view._heat.selected
        cell = next(row for row in app.view._heat.rows if row.node == node).cells[gpu]
        assert text_at_cursor(app).split()[0].startswith(app.view._heat._drawn(cell).strip())


async def test_cursor_follows_the_list_and_the_text_that_is_typed():
    app = busy_cluster().app()
    async with running(app, "n", "j", size=(80, 24)) as pilot:
        await until(pilot, lambda: "node002" in text_at_cursor(app))
        await pilot.press("slash", "o", "k")
        await until(pilot, lambda: isinstance(app.focused, Input) and app.focused.value == "ok")
        app.frames.draw()
        assert app.cursor_position == app.focused.cursor_screen_offset
        await pilot.press("escape", "9", "slash")
        await until(pilot, lambda: isinstance(app.focused, TextArea))
        app.frames.draw()
        assert app.cursor_position == app.focused.cursor_screen_offset
