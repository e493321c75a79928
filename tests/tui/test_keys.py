"""Every key of the console does what the footer, `?` and the palette show."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from clusters import demo, pod
from fake_cluster import FakeCluster
from msgspec.structs import replace
from running import running
from textual.command import CommandList, CommandPalette
from textual.pilot import Pilot
from waiting import accept, frames, screen, settle, shows, until

from gconsole.records import Finding
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.columns import ColumnsDialog
from gconsole.tui.dialogs.dialog import KeysDialog
from gconsole.tui.dialogs.export import ExportDialog
from gconsole.tui.dialogs.prompts import Confirm, Prompt
from gconsole.tui.dialogs.task import TaskDialog
from gconsole.tui.diff_screen import DiffScreen
from gconsole.tui.gallery import Gallery
from gconsole.tui.keymap.actions import ACTIONS, NO_LISTS, in_scope
from gconsole.tui.replay_app import ReplayApp, ReplayController
from gconsole.tui.views.registry import VIEWS
from gconsole.tui.widgets.bars import Progress
from gconsole.tui.widgets.filter_bar import FilterLine
from gconsole.tui.widgets.line_view import LineView
from gconsole.tui.widgets.sql_editor import SqlText

SIZE = (80, 24)
#: Wide enough for every heading in full.
WIDE = (200, 60)


def title_of(pilot: Pilot[None]) -> str:
    """The tab that is present: the only one with its full title."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    return app.view.id or ""


class TestTheTable:
    def test_action_ids_are_unique(self):
        ids = [action.id for action in ACTIONS] + [row.action.id for row in VIEWS]
        assert len(ids) == len(set(ids))

    def test_key_bindings_are_unique_in_each_view(self):
        for scope in ("overview", "ranks", "nodes", "events"):
            lists = () if scope in NO_LISTS else ("list",)
            actions = [*in_scope(scope, *lists, "lines", "app"), *(row.action for row in VIEWS)]
            keys = [key for action in actions if action.keys for key in action.keys.split(",")]
            assert len(keys) == len(set(keys)), scope

    def test_view_keys_are_the_digits_and_n(self):
        assert "".join(row.key for row in VIEWS) == "1234567890n"

    async def test_every_bound_action_exists_on_its_target(self):
        app = demo().app()
        async with running(app, *(row.key for row in VIEWS), VIEWS[0].key):
            targets = {
                **{view.scope: view for view in app.views.opened.values()}, "app": app,
                "lines": app.view.initial_focus(), "list": app.views.opened["ranks"], "columns": ColumnsDialog,
                "prompt": Prompt, "confirm": Confirm, "task": TaskDialog, "filter": FilterLine, "progress": Progress,
                "gallery": Gallery, "export": ExportDialog, "replay": ReplayApp, "sql": SqlText, "diff": DiffScreen,
            }  # fmt: skip
            for action in [*ACTIONS, *(row.action for row in VIEWS)]:
                namespace, _, name = action.call.partition("(")[0].rpartition(".")
                target = KeysDialog if action.scope == "dialog" else targets[action.scope]
                if namespace and namespace != "app":
                    target = ReplayController if namespace == "replay" else getattr(app, namespace)
                assert hasattr(target, f"action_{name}"), action.id


class TestViews:
    @pytest.mark.parametrize("row", VIEWS, ids=lambda row: row.name)
    async def test_view_key_opens_its_view(self, row):
        async with running(demo().app(), row.key) as pilot:
            assert title_of(pilot) == row.name
            await shows(pilot, f"{row.key} {row.title}")

    async def test_click_on_a_tab_opens_its_view(self):
        async with running(demo().app()) as pilot:
            x = screen(pilot.app).splitlines()[1].index("2 Ranks")
            await pilot.click("#tabs", offset=(x + 3, 0))
            assert title_of(pilot) == "ranks"

    async def test_escape_returns_to_the_overview(self):
        async with running(demo().app(), "2", "escape") as pilot:
            assert title_of(pilot) == "overview"

    async def test_view_can_be_opened_during_startup(self):
        async def start() -> None:
            await app.views.action_show("ranks")

        app = demo().app(on_start=start)
        async with running(app) as pilot:
            await shows(pilot, "▾ demo-ring")
            await pilot.press("3", "1", "2")
            await shows(pilot, "▾ demo-ring")


class TestOverview:
    async def test_m_shows_the_next_heat_map_metric(self):
        async with running(demo().app(), size=WIDE) as pilot:
            titles = (
                "memory %", "power W", "temperature °C", "SM clock GHz", "NVLink RX + TX GB/s",
                "PCIe RX + TX GB/s", "throttling % of time", "util %",
            )  # fmt: skip
            for title in titles:
                await pilot.press("m")
                await shows(pilot, f"GPU {title}")

    async def test_cell_under_the_cursor_shows_its_node_gpu_and_value(self):
        async with running(demo().app(), "j", "l", "l") as pilot:
            await shows(pilot, "node2 gpu2 74 %")

    async def test_enter_on_a_heat_map_cell_opens_its_gpu_page(self):
        async with running(demo().app(), "l", "enter") as pilot:
            await shows(pilot, "node1 gpu1")
            await shows(pilot, "GPU-node1-1")
            await pilot.press("escape")
            await until(pilot, lambda: title_of(pilot) == "overview")

    async def test_enter_on_a_failed_node_shows_its_error_and_retry_state(self):
        async with running(pod().app(), "shift+tab", "enter") as pilot:
            await shows(pilot, "ssh-add ~/.ssh/id_ed25519, or set identity_file")
            await shows(pilot, "not scheduled; R reconnects now")

    async def test_enter_on_a_job_or_finding_shows_its_details(self):
        async with running(pod().app(), "shift+tab", "shift+tab", "shift+tab", "enter") as pilot:
            await shows(pilot, "496/512 discovered")
            await pilot.press("q", "tab", "enter")
            await shows(pilot, "confidence")

    async def test_open_details_update_with_new_data(self):
        cluster = demo()
        async with running(cluster.app(), "2", "enter") as pilot:
            await shows(pilot, "97 % of a core")
            cluster.sample_rank("demo-ring", 0, "node1", cpu_pct=41.0)
            await shows(pilot, "41 % of a core")


class TestRanks:
    async def test_o_sorts_by_the_next_column_and_O_reverses_the_order(self):
        async with running(pod().app(), "2", "o") as pilot:
            await shows(pilot, "state▲")
            await pilot.press("g", "j")
            await until(pilot, lambda: "waiting" in screen(pilot.app).splitlines()[5])
            await pilot.press("O")
            await shows(pilot, "state▼")

    async def test_click_on_a_column_title_sorts_and_a_second_click_reverses(self):
        async with running(pod().app(), "2") as pilot:
            await shows(pilot, "CPU %")
            x = screen(pilot.app).splitlines()[3].index("CPU %")
            await pilot.click("#grid", offset=(x, 0))
            await shows(pilot, "CPU▲")
            await pilot.click("#grid", offset=(x, 0))
            await shows(pilot, "CPU▼")

    async def test_enter_on_a_rank_shows_its_details_and_command(self):
        cluster = demo()
        cluster.process("node1", 1, "python train.py --config [large]")
        async with running(cluster.app(), "2", "j", "enter") as pilot:
            await shows(pilot, "rank 1  running")
            await shows(pilot, "python train.py --config [large]")

    async def test_enter_on_a_group_heading_shows_its_job(self):
        async with running(demo().app(), "2", "g", "enter") as pilot:
            await shows(pilot, "8/8 discovered")

    async def test_missing_ranks_are_listed_with_their_reason(self):
        async with running(pod().app(), "2", "o", "g", size=(120, 40)) as pilot:
            await shows(pilot, "256   ◌ missing")
            await shows(pilot, "not found; unreachable: node033, node044")

    async def test_ranks_view_without_jobs_shows_no_jobs_message(self):
        cluster = FakeCluster("node1")
        cluster.up()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await settle(pilot)
            await pilot.press("2")
            await shows(pilot, "No jobs on these nodes.")


class TestEverywhere:
    async def test_R_reconnects_the_node_under_the_cursor(self):
        cluster = demo()
        async with running(cluster.app(), "j", "R") as pilot:
            await until(pilot, lambda: cluster.calls == [("reconnect", "node2")])
            await pilot.press("2", "G", "R")
            await until(pilot, lambda: cluster.calls[-1] == ("reconnect", "node4"))

    async def test_R_does_nothing_while_no_node_is_selected(self):
        cluster = demo()
        async with running(cluster.app(), "2", "g", "R") as pilot:
            await pilot.pause()
            assert cluster.calls == []

    async def test_R_works_in_the_details_of_a_failed_node(self):
        cluster = pod()
        async with running(cluster.app(), "shift+tab", "enter") as pilot:
            await shows(pilot, "node033 ✖ failed")
            await pilot.press("R")
            await until(pilot, lambda: cluster.calls == [("reconnect", "node033")])

    async def test_space_pauses_the_display_while_data_keeps_arriving(self):
        cluster = demo()
        async with running(cluster.app(), "space") as pilot:
            await shows(pilot, "FROZEN 12:00:00")
            before = screen(pilot.app)
            cluster.gpus("node1", simulated=True, util=[41.0])
            cluster.sample_rank("demo-ring", 0, "node1", "stopped")
            cluster.lose("node3")
            await frames(pilot)
            assert screen(pilot.app) == before
            await pilot.press("2")
            await shows(pilot, "demo-ring")
            assert "stopped" not in screen(pilot.app), "a view opened later shows the same instant"
            await pilot.press("1")
            await shows(pilot, "node1 gpu0 97 %")
            await pilot.press("m", "m", "m", "m", "space")
            await shows(pilot, "✖ node3")
            assert "FROZEN" not in screen(pilot.app)

    async def test_question_mark_lists_keys_of_the_current_view_first(self):
        async with running(demo().app(), "question_mark", size=(80, 60)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, KeysDialog))
            output = screen(pilot.app)
            assert output.index("Next heat-map metric") < output.index("Everywhere") < output.index("Quit")
            assert "which rank is blocking the job" in output
            await pilot.press("j", "k", "escape")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)

    @pytest.mark.parametrize("key", ["ctrl+p", "colon"])
    async def test_the_palette_opens_and_runs_an_action(self, key: str):
        async with running(demo().app(), key) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
            await pilot.press(*"which rank is blocking")
            await accept(pilot, "Hang")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
            await until(pilot, lambda: title_of(pilot) == "hang")

    async def test_every_palette_action_is_offered(self):
        app = demo().app()
        async with running(app):
            offered = {action.id for action, _ in app.guide.offered()}
            of_several = {"app.next_cluster", "app.previous_cluster"}
            assert offered >= {action.id for action in in_scope("app", "overview") if action.palette} - of_several
            assert offered >= {row.action.id for row in VIEWS}

    async def test_palette_removes_a_failed_node_after_confirmation(self):
        cluster = pod()
        app = cluster.app()
        async with running(app, "ctrl+p", *"remove node033") as pilot:
            await accept(pilot, "Remove node (data kept)")
            await until(pilot, lambda: isinstance(app.screen, Confirm))
            assert cluster.calls == []  # not before it is confirmed
            await pilot.press("y")
            await until(pilot, lambda: cluster.calls == [("remove", "node033")])
            await shows(pilot, "62/63 nodes")

    async def test_reconnecting_a_removed_node_shows_a_message(self):
        cluster = pod()
        app = cluster.app()
        async with running(app, toasts=True) as pilot:
            cluster.names.remove("node044")
            await app.nodes.reconnect(["node044"])
            await shows(pilot, "node044 was removed from the fleet")

    async def test_palette_switches_the_theme(self):
        app = demo().app()
        async with running(app, "ctrl+p", *"theme light") as pilot:
            await accept(pilot, "Use the light theme")
            await until(pilot, lambda: app.theme == "gconsole-light")
            app.themes.action_next()
            assert app.theme == "gconsole-high-contrast"


class TestLeaving:
    async def test_q_quits_with_exit_code_zero(self):
        app = demo().app()
        async with running(app, "q") as pilot:
            await until(pilot, lambda: not app.is_running)
        assert app.return_code == 0

    async def test_ctrl_c_quits_at_the_second_press(self):
        app = demo().app()
        async with running(app, "ctrl+c", toasts=True) as pilot:
            await shows(pilot, "press Ctrl-C again to quit")
            assert app.is_running
            await pilot.press("ctrl+c")
            await until(pilot, lambda: not app.is_running)

    async def test_ctrl_c_twice_quits_from_every_dialog(self):
        for opening in ("question_mark", "ctrl+p", "M"):
            app = demo().app()
            async with running(app, opening) as pilot:
                await until(pilot, lambda app=app: len(app.screen_stack) == 2)
                await pilot.press("ctrl+c", "ctrl+c")
                await until(pilot, lambda app=app: not app.is_running)

    async def test_ctrl_c_copies_the_selection_instead_of_quitting(self):
        app = demo().app()
        async with running(app) as pilot:
            await pilot.mouse_down("#node-list", offset=(0, 0))
            await pilot.hover("#node-list", offset=(8, 0))
            await pilot.mouse_up("#node-list", offset=(8, 0))
            await pilot.press("ctrl+c", "ctrl+c")
            assert app.clipboard == "node[1-4]"
            assert app.is_running

    async def test_cursor_move_after_quit_is_ignored(self):
        app = demo().app()
        async with running(app):
            moved = LineView.Moved(app.view.initial_focus())
        app.on_line_view_moved(moved)

    async def test_view_key_pressed_during_shutdown_opens_no_view(self):
        app = demo().app()
        async with running(app):
            await app.views.stage.remove()
            await app.views.action_show("ranks")
            assert app.is_running


class TestFooter:
    async def test_footer_shows_the_keys_of_the_current_view(self):
        async with running(pod().app(), size=(120, 24)) as pilot:
            assert screen(pilot.app).splitlines()[-1].split("  ")[0].strip() == "m metric"
            assert "✖ 2 findings" in screen(pilot.app).splitlines()[-1]
            await pilot.press("2")
            await until(pilot, lambda: "o sort" in screen(pilot.app).splitlines()[-1])
            assert "m metric" not in screen(pilot.app).splitlines()[-1]

    async def test_help_and_quit_are_in_the_footer_at_every_width(self):
        for width in (40, 60, 80, 200):
            async with running(demo().app(), size=(width, 24)) as pilot:
                assert "? help  q quit" in screen(pilot.app).splitlines()[-1]

    @pytest.mark.parametrize(("width", "hints"), [
        (60, "s stacks  d diagnose  ? help  q quit"),
        (80, "s stacks  d diagnose  Tab next pane  ? help  q quit"),
    ])  # fmt: skip
    async def test_hang_footer_starts_with_capture_and_diagnose_keys(self, width: int, hints: str):
        async with running(demo().app(), "3", size=(width, 24)) as pilot:
            await until(pilot, lambda: screen(pilot.app).splitlines()[-1].startswith(f" {hints}  "), hints)

    async def test_footer_of_a_running_capture_starts_with_escape_to_cancel(self):
        cluster = demo()
        cluster.capture_gate = asyncio.Event()
        async with running(cluster.app(), "s", size=(60, 20)) as pilot:
            await until(pilot, lambda: screen(pilot.app).splitlines()[-1].startswith(" Esc cancel  s stacks"), "Esc")

    async def test_click_on_a_footer_hint_runs_its_action(self):
        async with running(demo().app()) as pilot:
            x = screen(pilot.app).splitlines()[-1].index("metric")
            await pilot.click("#footer", offset=(x, 0))
            await shows(pilot, "GPU memory")

    async def test_footer_shows_configured_keys(self):
        app = demo().app()
        async with running(app) as pilot:
            app.set_keymap({"app.quit": "x"})
            await pilot.press("2")
            await until(pilot, lambda: "x quit" in screen(app).splitlines()[-1])


async def test_commands_that_are_gathered_for_a_closed_palette_end_nothing():
    app = demo().app()
    async with running(app, "ctrl+p") as pilot:
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        palette = app.screen
        assert isinstance(palette, CommandPalette)
        await palette.query_one(CommandList).remove()  # as when it is closed between a key and its search
        worker = palette._gather_commands("node")
        await until(pilot, lambda: worker.is_finished)
        assert worker.error is None
        app.pop_screen()
        await shows(pilot, "Overview")


async def test_key_hints_are_listed_again_at_most_once_a_second_unless_what_is_shown_changed(monkeypatch):
    """To list them takes a tenth of a frame."""
    app, clock_s = demo().app(), 1_000.0
    async with running(app) as pilot:
        await settle(pilot)
        listed = []
        footer = app.guide.footer
        monkeypatch.setattr("gconsole.tui.app.time", SimpleNamespace(monotonic=lambda: clock_s))
        monkeypatch.setattr(app.guide, "footer", lambda: (listed.append(1), footer())[1])
        app.draw_bars(app.frame)
        listed.clear()
        for _ in range(5):
            app.draw_bars(app.frame)
        assert not listed
        died = Finding(id="rank_dead", severity="error", confidence="certain", text="rank 1 died", first_seen=0)
        worse = replace(app.frame, findings=(died,))
        app.draw_bars(worse)
        assert len(listed) == 1, "findings are at the right"
        clock_s += 1.0
        app.draw_bars(worse)
        assert len(listed) == 2, "keys may depend on data"
