"""The Events and the Nodes view, and marks, on a screen: every key of theirs, following, drilling in, climbing out."""

from __future__ import annotations

import time

import pytest
from clusters import busy_cluster, demo, pod
from fake_cluster import FakeCluster
from pictures import assert_rectangular
from running import running
from textual.widgets import Input
from waiting import frames, screen, settle, shows, until

from gconsole.records import Host, Log
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.dialog import DetailDialog
from gconsole.tui.dialogs.prompts import Prompt
from gconsole.tui.views.events.view import EventsView
from gconsole.tui.views.nodes.view import NodesView

SIZE = (80, 24)


def events_of(app: ConsoleApp) -> EventsView:
    assert isinstance(app.view, EventsView)
    return app.view


def nodes_of(app: ConsoleApp) -> NodesView:
    assert isinstance(app.view, NodesView)
    return app.view


def log(cluster: FakeCluster, *texts: str) -> None:
    cluster.publish(*(Log(node="node1", source="agent", text=text) for text in texts))


class TestEvents:
    async def test_newest_event_is_at_the_bottom_and_followed(self):
        cluster = demo()
        async with running(cluster.app(), "8") as pilot:
            await shows(pilot, "following")
            log(cluster, *(f"line {i}" for i in range(50)))
            await shows(pilot, "line 49")
            assert "line 49" in screen(pilot.app).splitlines()[-2]

    @pytest.mark.parametrize("key", ["k", "up", "pageup", "ctrl+u", "g", "home"])
    async def test_scrolling_up_pauses_following_and_G_resumes_it(self, key: str):
        cluster = demo()
        log(cluster, *(f"line {i}" for i in range(50)))
        async with running(cluster.app(), "8", key) as pilot:
            await shows(pilot, "G follow")
            before = [line[:70].rstrip() for line in screen(pilot.app).splitlines()[4:-1]]
            log(cluster, "line 50")
            await shows(pilot, "1 newer" if key in ("k", "up") else "newer")
            assert [line[:70].rstrip() for line in screen(pilot.app).splitlines()[4:-1]] == before
            await pilot.press("G")
            await shows(pilot, "line 50")
            await shows(pilot, "following")

    async def test_mouse_wheel_scroll_pauses_following(self):
        cluster = demo()
        log(cluster, *(f"line {i}" for i in range(50)))
        app = cluster.app()
        async with running(app, "8") as pilot:
            await shows(pilot, "line 49")
            events_of(app).initial_focus().scroll_relative(y=-5, animate=False, immediate=True)
            await shows(pilot, "newer")
            log(cluster, "line 50")
            await frames(pilot)
            assert "line 50" not in screen(app)

    async def test_visible_events_stay_in_place_while_the_oldest_are_dropped(self):
        cluster = demo()
        log(cluster, *(f"line {i}" for i in range(10_900)))
        app = cluster.app()
        async with running(app, "8", *["pageup"] * 3) as pilot:
            await shows(pilot, "G follow")
            before = screen(app).splitlines()[5:-1]
            log(cluster, *(f"more {i}" for i in range(1_200)))
            await until(pilot, lambda: events_of(app)._frame.events.first > 0)
            await pilot.pause()
            after = screen(app).splitlines()[5:-1]
            assert [line[:70].rstrip() for line in after] == [line[:70].rstrip() for line in before]

    async def test_enter_shows_event_details(self):
        cluster = demo()
        cluster.publish(Log(node="node3", source="kernel", severity="error", text="Xid 79", try_="reset the GPU"))
        async with running(cluster.app(), "8", "enter") as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, DetailDialog))
            for text in ("kernel  node3", "reset the GPU", "2023-11-15 12:00:00.000", "node time"):
                await shows(pilot, text)

    async def test_R_reconnects_the_node_of_the_event(self):
        cluster = demo()
        log(cluster, "x")
        async with running(cluster.app(), "8", "R") as pilot:
            await until(pilot, lambda: cluster.calls == [("reconnect", "node1")])

    async def test_paused_events_view_shows_new_events_only_after_resuming(self):
        cluster = demo()
        async with running(cluster.app(), "8", "space") as pilot:
            log(cluster, "too late")
            await pilot.press("1", "8", "g", "G")
            await frames(pilot)
            assert "too late" not in screen(pilot.app)
            await pilot.press("space")
            await shows(pilot, "too late")

    async def test_empty_events_view_shows_no_events_yet(self):
        async with FakeCluster().app().run_test(size=SIZE) as pilot:
            await settle(pilot)
            await pilot.press("8")
            await shows(pilot, "no events yet")

    async def test_event_columns_depend_on_the_width(self):
        shown_columns = {}
        for width in (60, 80, 120):
            app = busy_cluster().app()
            async with running(app, "8", size=(width, 24)) as pilot:
                await pilot.pause()
                shown_columns[width] = events_of(app).initial_focus().shown_columns
        assert shown_columns[60] == ["time", "severity", "node", "text"]
        assert shown_columns[80] == ["time", "age", "severity", "node", "text"]
        assert shown_columns[120] == ["time", "node_time", "age", "severity", "node", "kind", "text"]

    async def test_refresh_with_ten_thousand_events_stays_under_16_ms(self):
        cluster = demo()
        log(cluster, *(f"line {i}" for i in range(10_000)))
        app = cluster.app()
        async with running(app, "8", size=(120, 40)) as pilot:
            await shows(pilot, "line 9999")
            view = events_of(app)
            durations_s = []
            for number in range(20):
                log(cluster, f"new {number}")
                frame = app.frames.builder.build()
                began = time.perf_counter()
                view.show_snapshot(frame)
                durations_s.append(time.perf_counter() - began)
            assert sorted(durations_s)[10] < 0.016, durations_s


class TestNodes:
    async def test_o_sorts_by_the_next_column_and_O_reverses_the_order(self):
        async with running(pod().app(), "n") as pilot:
            await shows(pilot, "node▲")
            await pilot.press("O")
            await shows(pilot, "node▼")
            await pilot.press("g")
            await until(pilot, lambda: "node064" in screen(pilot.app).splitlines()[4])
            await pilot.press("o")
            await shows(pilot, "CPU▲")

    async def test_click_on_the_state_title_sorts_failed_nodes_first(self):
        app = pod().app()
        async with running(app, "n") as pilot:
            await shows(pilot, "state")
            await pilot.click("#node-grid", offset=(4, 0))
            await shows(pilot, "state▲")
            await pilot.press("g")
            await until(pilot, lambda: "✖ failed" in screen(app).splitlines()[4])
            assert "auth: the key was refused" in screen(app).splitlines()[4]

    async def test_row_order_of_a_live_column_is_stable_between_samples(self):
        cluster = demo()
        app = cluster.app()
        async with running(app, "n", "o", "O") as pilot:
            await until(pilot, lambda: "CPU▼" in screen(app))
            cluster.publish(Host(node="node4", cpu_pct=99.0))
            await shows(pilot, "99")
            assert nodes_of(app).initial_focus().rows[0].key == "node1"
            cluster.advance(3)
            cluster.up("node1", "node2", "node3")
            cluster.publish(Host(node="node4", cpu_pct=99.0))
            await until(pilot, lambda: nodes_of(app).initial_focus().rows[0].key == "node4")

    async def test_enter_opens_the_node_page_and_escape_goes_back_one_level(self):
        app = busy_cluster().app()
        async with running(app, "n", *"jjjjjjjjjjjjjjjjj", "enter") as pilot:
            for text in ("pod-a-18.example.org", "kernel 5.15.0-107-generic", "(py-spy)", "yama.ptrace_scope=0"):
                await shows(pilot, text)
            await pilot.press("escape")
            await shows(pilot, "node▲")
            assert app.view.selected_node == "node018"
            await pilot.press("escape")
            await until(pilot, lambda: app.view.id == "overview")

    async def test_node_page_lists_are_reachable_and_enter_shows_details(self):
        cluster = busy_cluster()
        app = cluster.app()
        async with running(app) as pilot:
            await app.views.action_show("nodes")
            nodes_of(app).open("node018")
            await shows(pilot, "node018 ● ok")
            await pilot.press("G")
            await shows(pilot, "queued to connect")
            await pilot.press("enter")
            await shows(pilot, "console time")
            await pilot.press("escape", "k", "k", "enter")
            await shows(pilot, "process 40137  node018")
            await pilot.press("escape", "k", "k", "enter")
            await shows(pilot, "rank 143  running")
            await pilot.press("escape", *"kkkkkkkk", "enter")
            await shows(pilot, "GPU-node018-7")

    async def test_wide_node_page_shows_lists_beside_facts_and_tab_focuses_them(self):
        app = busy_cluster().app()
        async with running(app, size=(200, 60)) as pilot:
            await app.views.action_show("nodes")
            nodes_of(app).open("node018")
            await shows(pilot, "PROCESSES 2")
            first = screen(app).splitlines()[4]
            assert "attempts" in first and "CHECKS" in first
            assert "GPUs 8" in screen(app)
            await pilot.press("tab", "enter")
            await shows(pilot, "GPU-node018-0")
            await pilot.press("escape")
            await pilot.resize_terminal(80, 24)
            await until(pilot, lambda: "GPUs 8" not in screen(app).splitlines()[4])
            assert_rectangular(app)

    async def test_enter_on_a_node_of_the_overview_opens_its_page_and_escape_returns(self):
        app = pod().app()
        async with running(app, "shift+tab", "enter") as pilot:
            await shows(pilot, "node033 ✖ failed")
            assert app.view.id == "nodes"
            await pilot.press("escape")
            await until(pilot, lambda: app.view.id == "overview")
            await pilot.press("n")
            await shows(pilot, "node▲")

    async def test_node_page_updates_when_its_node_is_lost_or_removed(self):
        cluster = demo()
        async with running(cluster.app(), "n", "enter") as pilot:
            await shows(pilot, "node1 ● ok")
            cluster.lose("node1", "the connection ended")
            await shows(pilot, "node1 ✖ lost")
            await shows(pilot, "the connection ended")
            await cluster.remove_node("node1")
            await shows(pilot, "node was removed")

    async def test_R_on_a_page_reconnects_its_node(self):
        cluster = demo()
        async with running(cluster.app(), "n", "j", "enter", "R") as pilot:
            await until(pilot, lambda: cluster.calls == [("reconnect", "node2")])

    async def test_node_page_opened_while_paused_shows_no_newer_data(self):
        cluster = demo()
        async with running(cluster.app(), "n", "space", size=(80, 50)) as pilot:
            cluster.process("node1", 0, "python late.py")
            log(cluster, "too late")
            await pilot.press("enter")
            await shows(pilot, "PROCESSES 0")
            assert "too late" not in screen(pilot.app)

    async def test_node_columns_depend_on_the_width(self):
        shown_columns = {}
        for width in (60, 80, 200):
            app = pod().app()
            async with running(app, "n", size=(width, 24)) as pilot:
                await until(pilot, lambda app=app: app.view.id == "nodes" and app.view.initial_focus().shown_columns)
                shown_columns[width] = nodes_of(app).initial_focus().shown_columns
        assert shown_columns[60] == ["state", "node", "cpu", "mem", "gpus", "ranks", "agent"]
        assert shown_columns[80] == ["state", "node", "cpu", "mem", "io_stall", "rx", "tx", "gpus", "ranks", "agent"]
        assert len(shown_columns[200]) == 20


class TestMarks:
    async def test_M_prompts_for_a_note_and_enter_adds_it(self):
        cluster = demo()
        app = cluster.app()
        async with running(app, "8", "M", toasts=True) as pilot:
            await until(pilot, lambda: isinstance(app.screen, Prompt) and isinstance(app.focused, Input))
            await pilot.press(*"q [1]", "enter")
            await until(pilot, lambda: cluster.calls == [("mark", "q [1]")])
            await shows(pilot, "◆")
            await shows(pilot, "marker added; see Events")

    @pytest.mark.parametrize("keys", [["escape"], ["enter"], ["space", "enter"]])
    async def test_escape_and_an_empty_note_add_no_marker(self, keys: list[str]):
        cluster = demo()
        app = cluster.app()
        async with running(app, "M") as pilot:
            await until(pilot, lambda: isinstance(app.screen, Prompt))
            await pilot.press(*keys)
            await until(pilot, lambda: len(app.screen_stack) == 1)
            assert cluster.calls == []

    async def test_palette_offers_the_marker_action(self):
        app = demo().app()
        async with running(app):
            assert "app.mark" in {action.id for action, _ in app.guide.offered()}
