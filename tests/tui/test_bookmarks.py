"""Bookmarks: a screen is kept by a name with filter, order and columns, per cluster, over restarts."""

from __future__ import annotations

from pathlib import Path

from clusters import busy_cluster, demo, pod
from running import running
from textual.pilot import Pilot
from waiting import shows, until

from gconsole.tui.dialogs.prompts import Confirm, Prompt
from gconsole.tui.ui_state import UiStateFile


async def name(pilot: Pilot[None], text: str) -> None:
    await pilot.press("B")
    await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
    await pilot.press(*text, "enter")
    await until(pilot, lambda: len(pilot.app.screen_stack) == 1)


async def test_bookmark_leads_back_to_filter_order_and_columns_after_a_restart(tmp_path: Path):
    file = UiStateFile(tmp_path / "pod.json")
    app = busy_cluster().app(ui_state=file)
    async with running(app, "2", "slash", *"node:node018", "enter", "o", "O", size=(120, 34)) as pilot:
        app.view.choose_columns(["rank", "state", "node", "pid"], ["node"])
        kept = app.view.arrangement
        await name(pilot, "mine")
        await until(pilot, lambda: "mine" in file.read()[0].bookmarks)
        await pilot.press("slash", "escape", "1")
    app = busy_cluster().app(ui_state=file)
    async with running(app, size=(120, 34)) as pilot:
        await name(pilot, "mine")
        await until(pilot, lambda: app.view.id == "ranks" and app.view.arrangement.filter == "node:node018")
        for field in ("sort", "reverse", "columns", "hidden"):
            assert getattr(app.view.arrangement, field) == getattr(kept, field)


async def test_bookmark_of_a_page_opens_the_page():
    app = busy_cluster().app()
    async with running(app, "n", "j", "enter", size=(120, 34)) as pilot:
        await until(pilot, lambda: app.view.is_paged)
        node = app.view.selected_node
        await name(pilot, "that node")
        await pilot.press("escape", "g", "1")
        await name(pilot, "that node")
        await until(pilot, lambda: app.view.id == "nodes" and app.view.is_paged and app.view.selected_node == node)


async def test_bookmarks_belong_to_their_cluster_and_can_be_removed():
    app = demo().app(others=[pod().source()])
    async with running(app, "2", toasts=True) as pilot:
        await name(pilot, "here")
        await shows(pilot, "kept as here")
        assert [entry.name for entry in app.bookmarks.palette_entries()] == ["Bookmark here", "Remove bookmark here"]
        await pilot.press("ctrl+n")
        await until(pilot, lambda: app.clusters.current.source.cluster == "h100-pod")
        assert app.bookmarks.palette_entries() == []
        await pilot.press("ctrl+n")
        await until(pilot, lambda: app.clusters.current.source.cluster == "demo")
        app.bookmarks.palette_entries()[1].run()
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: not app.bookmarks.palette_entries())


async def test_long_name_is_refused():
    app = demo().app()
    async with running(app, toasts=True) as pilot:
        await name(pilot, "x" * 41)
        await shows(pilot, "not kept: at most 40 characters")
        assert app.bookmarks.palette_entries() == []
