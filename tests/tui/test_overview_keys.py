"""Keys on the Overview that lead on: findings are opened, names and lines are copied; lists are sorted by one key."""

from __future__ import annotations

import pytest
from clusters import busy_cluster, pod
from running import running
from textual.pilot import Pilot
from waiting import screen, shows, until

from gconsole.tui.dialogs.dialog import DetailDialog


async def focus(pilot: Pilot[None], id: str) -> None:
    """Walk to a panel with Tab."""
    for _ in range(8):
        if pilot.app.focused is not None and pilot.app.focused.id == id:
            return
        await pilot.press("tab")
    raise AssertionError(f"Tab does not lead to {id}")


async def test_finding_is_opened_by_tab_and_enter():
    app = busy_cluster().app()
    async with running(app) as pilot:
        await focus(pilot, "finding-list")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, DetailDialog))
        await shows(pilot, "rank_blocked")


async def test_finding_is_opened_by_a_second_click():
    app = busy_cluster().app()
    async with running(app) as pilot:
        await pilot.click("#finding-list", offset=(5, 0))
        await pilot.click("#finding-list", offset=(5, 0), times=2)
        await until(pilot, lambda: isinstance(app.screen, DetailDialog))


@pytest.mark.parametrize(
    ("panel", "name", "line"),
    [
        ("heat", "node001", "node001 gpu0"),
        ("node-list", "node033", "node033  auth: the key was refused"),
        ("job-list", "llama-70b", "step 18,204"),
        ("finding-list", "rank 137", "rank 137 sleeps in"),
    ],
)
async def test_name_and_line_under_the_cursor_are_copied(panel: str, name: str, line: str):
    app = busy_cluster().app()
    async with running(app) as pilot:
        await focus(pilot, panel)
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard == name)
        await pilot.press("Y")
        await until(pilot, lambda: line in app.clipboard)


async def test_step_of_a_job_is_shown_on_the_smallest_overview():
    app = pod().app()
    async with running(app, size=(60, 20)) as pilot:
        await shows(pilot, "step 18,204")


async def test_angle_brackets_sort_by_the_columns_beside_and_figures_from_the_largest_down():
    app = busy_cluster().app()
    async with running(app, "2", size=(120, 30)) as pilot:
        columns = list(app.view.columns_with_room)
        await pilot.press("greater_than_sign")
        assert app.view.arrangement.sort == columns[columns.index("rank") + 1]
        await pilot.press("less_than_sign", "less_than_sign")
        assert app.view.arrangement.sort == columns[-1]
        while app.view.arrangement.sort != "cpu":
            await pilot.press("less_than_sign")
        assert app.view.arrangement.reverse
        await shows(pilot, "CPU▼")
        assert "101" in screen(app).splitlines()[5]
