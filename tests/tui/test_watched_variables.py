"""Watched variables on the screen: a sortable column each beside the step, and details with Enter."""

from __future__ import annotations

from fake_cluster import SECOND, FakeCluster
from waiting import settle, shows

from gconsole.tui.views.list_view import ListView


def watched(**per_rank: list[int | float | str]) -> FakeCluster:
    """Two ranks, of which these variables were read 4 s ago."""
    cluster = FakeCluster("node1")
    cluster.up()
    cluster.job("llama", 2)
    for number in range(2):
        values = {name: values[number] for name, values in per_rank.items()}
        cluster.sample_rank(
            "llama", number, "node1", "moving", 18204, watched=values, watched_at=cluster.now_ns - 4 * SECOND
        )
    return cluster


def listed(app: object) -> list[int | None]:
    view = app.view  # type: ignore[attr-defined]
    assert isinstance(view, ListView)
    return [row.number for row in view._grid.rows if hasattr(row, "number")]


async def test_watched_variable_has_a_sortable_column_beside_the_step() -> None:
    app = watched(step=[18204, 18204], loss=[0.5, 0.0123456], phase=["eval", "train"]).app()
    async with app.run_test(size=(130, 30)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await shows(pilot, "loss")
        await shows(pilot, "0.01235")
        view = app.view
        assert isinstance(view, ListView)
        keys = [column.key for column in view.all_columns]
        assert keys[keys.index("step") :][:3] == ["step", "watched:loss", "watched:phase"]
        assert listed(app) == [0, 1]
        view._sort_by("watched:loss")
        await settle(pilot)
        assert listed(app) == [1, 0]


async def test_enter_shows_watched_values_and_their_age() -> None:
    app = watched(epoch=[3, 3], note=["[b]x[/b]\x1b[31m", "y"]).app()
    async with app.run_test(size=(130, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await shows(pilot, "epoch")
        await pilot.press("enter")
        await shows(pilot, "[b]x[/b]")
        await shows(pilot, "4 s ago (from stack frames)")


async def test_numbers_and_text_of_one_watched_variable_sort_separately() -> None:
    app = watched(loss=["<Tensor>", 0.5]).app()
    async with app.run_test(size=(130, 30)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await shows(pilot, "<Tensor>")
        view = app.view
        assert isinstance(view, ListView)
        view._sort_by("watched:loss")
        await settle(pilot)
        assert listed(app) == [1, 0]


async def test_narrow_screen_with_a_watched_variable_keeps_the_step_rather_than_the_pid() -> None:
    app = watched(loss=[0.5, 0.25]).app()
    async with app.run_test(size=(60, 20)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await shows(pilot, "loss")
        view = app.view
        assert isinstance(view, ListView)
        assert {"rank", "node", "step", "watched:loss"} <= set(view._grid.shown_columns)
        assert "pid" not in view._grid.shown_columns
