"""The gallery in every theme, as SVG; and its keys."""

from __future__ import annotations

import pytest
from rich.color import ColorType
from textual.pilot import Pilot
from waiting import painted, until

from gconsole.present.spans import GLYPHS
from gconsole.tui.gallery import Gallery
from gconsole.tui.theme.themes import theme_files
from gconsole.tui.widgets.bars import Progress

SIZE = (90, 50)
NAMES = [theme.name for theme in theme_files()]


@pytest.mark.parametrize("theme", NAMES)
def test_gallery_matches_its_snapshot_in_every_theme(snap_compare, theme: str):
    async def run(pilot: Pilot[None]) -> None:
        assert isinstance(pilot.app, Gallery)
        pilot.app.themes.use(theme)
        await pilot.pause()

    assert snap_compare(Gallery(), terminal_size=SIZE, run_before=run)


async def test_t_cycles_through_the_themes():
    app = Gallery()
    async with app.run_test(size=SIZE) as pilot:
        for name in [*NAMES[1:], NAMES[0]]:
            await pilot.press("t")
            assert app.theme == f"gconsole-{name}"


async def test_tab_focuses_the_progress_bar_and_escape_cancels_it():
    app = Gallery()
    async with app.run_test(size=SIZE) as pilot:
        progress = app.query_one(Progress)
        for _ in range(3):
            await pilot.press("tab")
            if progress.has_focus:
                break
        assert progress.has_focus
        await pilot.press("escape")
        await until(pilot, lambda: progress.is_cancelled)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quit_keys_close_the_gallery(key: str):
    app = Gallery()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(key)
    assert app.return_code == 0


@pytest.mark.parametrize("theme", NAMES)
async def test_no_color_disables_colours_and_keeps_glyphs_in_every_theme(monkeypatch: pytest.MonkeyPatch, theme: str):
    monkeypatch.setenv("NO_COLOR", "1")
    app = Gallery()
    async with app.run_test(size=SIZE) as pilot:
        app.themes.use(theme)
        await pilot.pause()
        strips = painted(app)
        styles = [segment.style for strip in strips for segment in strip if segment.style]
        colors = [color for style in styles for color in (style.color, style.bgcolor) if color]
        assert {color.type for color in colors} <= {ColorType.DEFAULT}
        assert any(style.reverse for style in styles)  # the cursor is seen all the same
        assert set(GLYPHS.values()) <= set("".join(segment.text for strip in strips for segment in strip))
