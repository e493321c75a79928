"""The whole screen: at every size, with hostile text, with thousands of ranks, without colours, on a slow terminal."""

from __future__ import annotations

import signal

import pytest
from clusters import demo, pod
from fake_cluster import FakeCluster
from pictures import assert_rectangular
from rich.color import ColorType
from running import running
from waiting import frames, painted, screen, settle, shows, until

from gconsole.present.spans import GLYPHS
from gconsole.tui.controllers.frames import (
    PAINTS,
    QUICK_RUN,
    RATE_HZ,
    SHARE,
    SLOW_BACKLOG,
    SLOW_EVERY,
    SLOW_PAINT_S,
    FrameRateLimiter,
    write_backlog,
)

SIZES = [(60, 20), (80, 24), (120, 40), (200, 60), (30, 8), (20, 4), (300, 100)]
USUAL_SIZES = [(60, 20), (80, 24)]


class TestSizes:
    @pytest.mark.parametrize(
        ("cluster", "size"),
        [
            *(
                pytest.param(cluster, size, id=f"{cluster.__name__} {size}", marks=() if usual else pytest.mark.full)
                for size in SIZES
                for cluster, usual in ((demo, size[0] <= 200), (pod, size in USUAL_SIZES))
            ),
            pytest.param(lambda: FakeCluster("node1"), (80, 24), id="one node of which nothing is known"),
            pytest.param(FakeCluster, (80, 24), id="no node at all"),
        ],
    )
    async def test_views_fill_the_screen_exactly_at_every_size(self, cluster, size):
        app = cluster().app()
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            for key in ("1", "2", "3", "question_mark", "escape", "1", "enter", "escape"):
                await pilot.press(key)
                await pilot.pause()
                assert_rectangular(app)

    async def test_each_width_shows_its_fixed_set_of_rank_columns(self):
        columns = {}
        for width in (60, 80, 120, 200):
            app = pod().app()
            async with running(app, "2", size=(width, 24)) as pilot:
                await pilot.pause()
                columns[width] = app.view.initial_focus().shown_columns
        assert columns[60] == ["rank", "state", "node", "gpu", "pid", "step", "cpu"]
        assert columns[80] == ["rank", "state", "node", "gpu", "pid", "step", "cpu", "rss", "wchan"]
        assert set(columns[80]) < set(columns[120]) < set(columns[200])
        assert "job" in columns[200]

    async def test_a_resize_while_running_changes_the_layout(self):
        app = pod().app()
        async with running(app, size=(200, 60)) as pilot:
            for size in ((60, 20), (120, 40), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
                await until(pilot, lambda: "FINDINGS" in screen(app))
                assert_rectangular(app)

    async def test_paused_display_adapts_to_a_new_width(self):
        app = demo().app()
        async with running(app, "space") as pilot:
            await pilot.resize_terminal(60, 20)
            await until(pilot, lambda: app.size.width == 60)
            await until(
                pilot, lambda: any(line.endswith("4 ●") and len(line) >= 57 for line in screen(app).splitlines())
            )

    async def test_rule_below_the_tabs_is_hidden_on_a_short_screen(self):
        for height, rule in ((24, True), (20, False)):
            app = demo().app()
            async with running(app, size=(80, height)):
                assert ("━━" in screen(app).splitlines()[2]) is rule


class TestScale:
    async def test_four_thousand_ranks_update_live_on_overview_and_ranks(self):
        cluster = FakeCluster(*(f"node{i:03}" for i in range(512)))
        cluster.up()
        cluster.gpus()
        cluster.job("big", 4096)
        app = cluster.app()
        async with running(app, size=(120, 40)) as pilot:
            await shows(pilot, "4096/4096")
            await pilot.press("2", "G")
            await shows(pilot, "4095")
            cluster.sample_rank("big", 4095, "node511", "stopped")
            await shows(pilot, "✖ stopped")
            assert_rectangular(app)


class TestFrames:
    async def test_lost_node_is_shown_on_the_overview(self):
        cluster = demo()
        async with running(cluster.app(), size=(120, 30)) as pilot:
            cluster.lose("node3", "the connection ended")
            await shows(pilot, "✖ node3")
            await shows(pilot, "3/4 nodes")
            await shows(pilot, "◐ 2 lost")

    async def test_stale_data_are_marked_and_carry_their_age(self):
        cluster = demo()
        async with running(cluster.app(), size=(120, 30)) as pilot:
            cluster.advance(9)
            await shows(pilot, "no data for 9 s")
            await pilot.press("2")
            await shows(pilot, f"{GLYPHS['stale']} running 9 s")

    @pytest.mark.usefixtures("painted_at_every_change")
    async def test_frame_without_changes_repaints_no_heat_map_line(self):
        app = pod().app()
        async with running(app, size=(120, 40)) as pilot:
            await frames(pilot)
            painted: list[str] = []
            heat = app.view.initial_focus()
            original = heat.render_line
            heat.render_line = lambda y: (painted.append("heat"), original(y))[1]
            await frames(pilot)
            assert painted == []

    async def test_py_spy_upload_progress_is_shown_until_it_completes(self):
        progress = [(3, 64)]
        app = pod().app(staging=lambda: progress[0])
        async with running(app, size=(120, 40)) as pilot:
            await shows(pilot, "py-spy 3/64")
            progress[0] = (64, 64)
            await until(pilot, lambda: "py-spy" not in screen(app))


class TestColours:
    async def test_no_color_removes_all_colours_and_keeps_all_glyphs(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("NO_COLOR", "1")
        app = pod().app()
        async with running(app):
            for strip in painted(app):
                for segment in strip:
                    for color in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                        assert color is None or color.type is ColorType.DEFAULT
            assert {"●", "▲", "✖", "◌", "◐"} <= set(screen(app))

    @pytest.mark.parametrize("theme", ["textual-dark", "nord", "ansi-dark"])
    async def test_builtin_textual_themes_render_without_broken_lines(self, theme: str):
        app = demo().app()
        async with running(app) as pilot:
            app.theme = theme
            await pilot.press("2", "1")
            await pilot.pause()
            assert_rectangular(app)


class TestPace:
    @pytest.mark.parametrize(
        ("paint_s", "frames"),
        [(0.001, 8), (SHARE / RATE_HZ, 8), (0.02, 4), (0.03, 3), (0.05, 2), (0.5, 2)],
    )
    def test_frames_take_a_share_of_a_core_as_far_as_two_a_second_allow(self, paint_s: float, frames: int):
        pace = FrameRateLimiter()
        assert all(pace.is_due(0) for _ in range(RATE_HZ))
        for _ in range(PAINTS):
            pace.painted(paint_s, paint_s)
        assert sum(pace.is_due(0) for _ in range(3 * RATE_HZ)) == pytest.approx(3 * frames, abs=1)

    def test_one_paint_that_takes_long_changes_nothing(self):
        pace = FrameRateLimiter()
        for seconds in (0.001, 0.001, 0.5, 0.001):
            pace.painted(seconds, seconds)
        assert pace.every == 1

    def test_frames_are_few_while_paints_wait_for_a_core(self):
        pace = FrameRateLimiter()
        for _ in range(PAINTS):
            pace.painted(0.001, SLOW_PAINT_S)
        assert pace.every == SLOW_EVERY
        for _ in range(PAINTS):
            pace.painted(0.001, 0.9 * SLOW_PAINT_S)
        assert pace.every == 1

    def test_no_frame_is_due_while_the_write_backlog_is_large_and_few_after_it(self):
        pace = FrameRateLimiter()
        assert not any(pace.is_due(SLOW_BACKLOG) for _ in range(20))
        assert pace.every == SLOW_EVERY
        for _ in range(QUICK_RUN):
            pace.painted(0.001, 0.001)
        assert pace.every == 1

    def test_missing_driver_has_no_write_backlog(self):
        assert write_backlog(None) == 0


class TestLifeCycle:
    async def test_signal_handlers_are_restored_after_the_app_exits(self):
        async def press_q(pilot) -> None:
            await settle(pilot)
            await pilot.press("q")

        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
        await demo().app().run_async(headless=True, size=(80, 24), auto_pilot=press_q)
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before

    async def test_on_start_runs_in_the_apps_loop_and_on_stop_after_the_screen(self):
        order: list[str] = []
        cluster = demo()

        async def start() -> None:
            order.append("start")

        async def stop() -> None:
            order.append("running" if app.is_running else "stopped")

        async def press_q(pilot) -> None:
            await settle(pilot)
            await pilot.press("q")

        app = cluster.app(on_start=start, on_stop=stop)
        await app.run_async(headless=True, size=(80, 24), auto_pilot=press_q)
        assert order == ["start", "stopped"]
        assert app.return_code == 0

    async def test_an_error_stops_the_fleet_and_reaches_the_caller(self):
        stopped: list[bool] = []

        async def stop() -> None:
            stopped.append(True)

        app = demo().app(on_stop=stop)

        async def break_it(pilot) -> None:
            await settle(pilot)
            app.frames.builder = None  # type: ignore[assignment]

        with pytest.raises(AttributeError):
            await app.run_async(headless=True, size=(80, 24), auto_pilot=break_it)
        assert stopped == [True]

    async def test_app_exits_when_the_fleet_does_not_stop_in_time(self, capsys: pytest.CaptureFixture[str]):
        import asyncio

        async def stop() -> None:
            await asyncio.sleep(60)

        async def press_q(pilot) -> None:
            await settle(pilot)
            await pilot.press("q")

        app = demo().app(on_stop=stop)
        await asyncio.wait_for(app.run_async(headless=True, size=(80, 24), auto_pilot=press_q), 8)
        assert "closing connections" in capsys.readouterr().err
