"""What the tests themselves rely on: when a key or a new size has been dealt with, all of the screen is painted."""

from __future__ import annotations

import pytest
from clusters import busy_cluster
from waiting import settle

from gconsole.tui.widgets.line_view import LineView


@pytest.mark.parametrize("rounds", [2, pytest.param(5, marks=pytest.mark.full)])
@pytest.mark.parametrize("key", ["", "question_mark", "e", "ctrl+p"], ids=["view", "keys", "export", "palette"])
async def test_resized_view_is_laid_out_even_under_a_dialog(key: str, rounds: int):
    async with busy_cluster().app().run_test(size=(60, 20), notifications=True) as pilot:
        await settle(pilot)
        await pilot.press(*[key] * bool(key))
        view = pilot.app.screen_stack[0]
        for _ in range(rounds):
            for size in ((80, 24), (120, 40), (60, 20)):
                await pilot.resize_terminal(*size)
                await settle(pilot)
                assert not view._layout_required and not view._update_timer._active.is_set()
                shown = [lines for lines in view.query(LineView) if lines.region and lines.show_vertical_scrollbar]
                bars = [lines.vertical_scrollbar for lines in shown]
                assert bars or size == (120, 40)
                assert all(bar.region for bar in bars)
