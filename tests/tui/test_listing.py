"""Nodes and Events are lists like Ranks: filtered, sorted, grouped and copied by the same keys; columns are chosen."""

from __future__ import annotations

import asyncio
import json

import pytest
from clusters import demo, pod
from fake_cluster import FakeCluster
from textual.pilot import Pilot
from waiting import accept, screen, settle, shows, until

from gconsole.records import Host, Log, Mark, NodeState
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.columns import ColumnsDialog
from gconsole.tui.keymap.file import OwnKeys
from gconsole.tui.models.filter_language import parse
from gconsole.tui.models.grouping import GroupHeader
from gconsole.tui.models.list_kind import Arrangement, arranged_rows, row_predicate
from gconsole.tui.models.numbered_log import LogFilter
from gconsole.tui.models.rows import SteadyOrder
from gconsole.tui.snapshot import ScreenSnapshot
from gconsole.tui.views.events.columns import EVENTS
from gconsole.tui.views.events.columns import KIND as EVENT_KIND
from gconsole.tui.views.events.view import EventsView
from gconsole.tui.views.list_view import ListView, row_context
from gconsole.tui.views.nodes.model import KIND as NODE_KIND
from gconsole.tui.views.nodes.model import NODES, node_rows
from gconsole.tui.views.ranks.model import KIND as RANK_KIND
from gconsole.tui.views.ranks.view import COLUMNS
from gconsole.tui.widgets.record_grid import as_arranged

SIZE = (80, 24)


def list_of(pilot: Pilot[None]) -> ListView:
    app = pilot.app
    assert isinstance(app, ConsoleApp) and isinstance(app.view, ListView)
    return app.view


def rows(pilot: Pilot[None]) -> list:
    return [row for row in list_of(pilot)._grid.rows if not isinstance(row, GroupHeader)]


def heads(pilot: Pilot[None]) -> list[str | None]:
    return [row.value for row in list_of(pilot)._grid.rows if isinstance(row, GroupHeader)]


async def open_list(pilot: Pilot[None], key: str, *keys: str) -> None:
    await settle(pilot)
    await pilot.press(key, *keys)


async def filter_by(pilot: Pilot[None], key: str, text: str) -> None:
    await open_list(pilot, key, "slash", *text)
    await until(pilot, lambda: list_of(pilot)._filter._line.value == text)


def racks() -> FakeCluster:
    """The pod in racks of 16, with a job on the first half of another one, and some trouble in the log."""
    cluster = pod()
    for number, name in enumerate(cluster.names):
        now = cluster.store.nodes[name]
        assert now.state is not None
        state = now.state
        cluster.publish(
            NodeState(node=name, state=state.state, attempt=1, error=state.error, tags=(f"rack{number // 16 + 1}",))
        )
    cluster.gpus("node064", count=9)
    cluster.publish(
        Log(node="node019", source="kernel", severity="error", text="NVRM: Xid 79, GPU has fallen off the bus"),
        Log(node="node020", source="kernel", severity="warning", text="NVRM: Xid 63, row remapping pending"),
        Log(node="node019", source="agent", text="py-spy staged"),
        Mark(text="switched the fabric over"),
    )
    cluster.rank("llama-70b", 9, "node002", 512, status="exited", reason="signal 9", pid=40009)
    return cluster


@pytest.fixture(scope="module")
def night() -> ScreenSnapshot:
    """Snapshot of `racks`."""
    return frame_of(racks())


def frame_of(cluster: FakeCluster) -> ScreenSnapshot:
    app = cluster.app()
    app.frames.job_fold.refresh(app.frames.builder.build(), asyncio.run)
    app.frames.builder.jobs = app.frames.job_fold.value
    return app.frames.builder.build()


class TestNodes:
    @pytest.mark.parametrize(
        ("text", "count"),
        [("state:failed", 2), ("state:lost", 1), ("node:node0[1-3]*", 30), ("tag:rack3", 16),
         ("tag:rack1 -node:node001", 15), ("util:<20", 1),
         ("gpumem:>70G -state:failed node:node00*", 9), ("job:llama", 63), ("-job:llama", 1),
         ("class:H100", 63), ("class:none", 1), ("reason:auth", 1), ("cpu:60-62 tag:rack2", 16), ("mem:>90", 0),
         ("kernel:5.15", 63), ("gpus:>8", 1), ("simulated", 0), ("-simulated", 64), ('"key was refused"', 1)],
    )  # fmt: skip
    def test_filter_matches_the_expected_number_of_rows(self, night: ScreenSnapshot, text: str, count: int):
        listed = node_rows(night.fleet, night.nodes, night.gpus, night.jobs)
        passes = row_predicate(parse(text, NODES), row_context(night))
        assert passes is not None
        assert sum(map(passes, listed)) == count

    async def test_filter_applies_to_the_node_list_and_shows_the_match_count(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await filter_by(pilot, "n", "tag:rack1 -node:node001")
            await shows(pilot, "15 of 64 nodes")
            assert [row.key for row in rows(pilot)] == [f"node{i:03}" for i in range(2, 17)]

    async def test_filter_completes_tag_values_and_reports_unknown_fields(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await filter_by(pilot, "n", "ta")
            await pilot.press("tab")
            await shows(pilot, "rack1  rack2  rack3  rack4")
            await pilot.press("backspace", *"x:1")
            await shows(pilot, "╰ unknown field tagx; did you mean tag?")

    async def test_escape_clears_the_filter_before_leaving_and_ctrl_r_recalls_it(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await filter_by(pilot, "n", "tag:rack3")
            await pilot.press("enter", "escape")
            await until(pilot, lambda: len(rows(pilot)) == 64)
            await pilot.press("slash", "ctrl+r", "enter")
            await until(pilot, lambda: len(rows(pilot)) == 16)
            await pilot.press("escape", "escape")
            await shows(pilot, "FINDINGS")

    async def test_no_matching_node_is_reported(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await filter_by(pilot, "n", "nonsense")
            await shows(pilot, "No matching nodes.")
            await pilot.press("escape")
            await shows(pilot, "node001")

    async def test_node_page_hides_the_list_filter_and_disables_list_keys(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await filter_by(pilot, "n", "tag:rack3")
            await pilot.press("enter", "g", "enter")
            await shows(pilot, "node033 ✖ failed")
            assert "tag:rack3" not in screen(pilot.app).splitlines()[3]
            assert "/ filter" not in screen(pilot.app)
            await pilot.press("slash", "b", "o", "escape")
            await shows(pilot, "16 of 64 nodes")
            assert list_of(pilot).arrangement.group == ""

    async def test_b_cycles_node_grouping_by_state_class_tag_and_none(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "n", "b")
            await until(pilot, lambda: heads(pilot) == ["failed", "lost", "finding", "ok"])
            await pilot.press("b")
            await until(pilot, lambda: len(heads(pilot)) == 3)
            assert heads(pilot)[-1] is None, "node033 never told what it is built of"
            assert heads(pilot)[:2] == [f"{n}× NVIDIA H100 80GB HBM3, 192 CPUs, 2.0 TiB, x86_64" for n in (8, 9)]
            await pilot.press("b", "g")
            await shows(pilot, "▾ rack1  16 nodes   ● 16 ok")
            assert heads(pilot) == ["rack1", "rack2", "rack3", "rack4"]
            await pilot.press("b")
            await until(pilot, lambda: heads(pilot) == [])

    async def test_group_heading_counts_states_and_enter_on_it_opens_no_page(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "n", "b", "b", "b", *"g", "enter")
            await pilot.pause()
            assert list_of(pilot).selected_node is None
            await pilot.press("G", "enter")
            await shows(pilot, "node064 ● ok")

    async def test_Y_copies_a_node_group_as_text_and_ctrl_y_node_records(self):
        app = racks().app()
        async with app.run_test(size=SIZE, notifications=True) as pilot:
            await filter_by(pilot, "n", "tag:rack3")
            await pilot.press("enter", "b", "b", "b", "g", "Y")
            await shows(pilot, "16 nodes copied")
            lines = app.clipboard.splitlines()
            assert lines[0].split()[:4] == ["state", "node", "CPU", "%"] and len(lines) == 17
            assert "auth: the key was refused" in lines[1]
            await pilot.press("j", "j", "ctrl+y")
            [node] = json.loads(app.clipboard)
            assert (node["node"], node["state"], node["tags"]) == ("node034", "ok", ["rack3"])
            assert node["record"]["kernel"] == "5.15.0-107-generic" and node["host"]["cpu_pct"] == 61.4

    async def test_palette_sorts_and_groups_nodes_by_name(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "n", "ctrl+p", *"sort by mem")
            await accept(pilot, "Sort by mem %")
            await shows(pilot, "mem▲")
            await pilot.press("ctrl+p", *"group by tag")
            await accept(pilot, "Group the nodes by tag")
            await shows(pilot, "▾ rack1")


class TestEvents:
    @pytest.mark.parametrize(
        ("text", "count"),
        [("severity:error kind:kernel", 1), ("state:failed node:node019", 1), ("kind:mark", 1), ("node:console", 3),
         ("text:Xid", 2), ("xid -79", 1), ("tag:rack2 kind:kernel", 2), ("job:llama rank:9", 1), ("culprit:node019", 1),
         ("severity:warning kind:finding", 1), ('"fallen off"', 1), ("rank:>100", 0)],
    )  # fmt: skip
    def test_filter_matches_the_expected_number_of_rows(self, night: ScreenSnapshot, text: str, count: int):
        log = night.events
        passes = row_predicate(parse(text, EVENTS), row_context(night))
        assert passes is not None
        assert sum(map(passes, map(log.row, log.numbers))) == count
        assert len(LogFilter(passes).update(log)) == count

    async def test_filtered_event_stream_follows_matching_events(self):
        cluster = demo()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await filter_by(pilot, "8", "kind:kernel")
            await pilot.press("enter")
            await shows(pilot, "No matching events.")
            for number in range(40):
                cluster.publish(Log(node="node1", source="kernel", text=f"line {number}"))
                cluster.publish(Log(source="agent", text="noise"))
            await shows(pilot, "line 39")
            await shows(pilot, "following")
            assert "noise" not in screen(pilot.app)
            await pilot.press("g")
            await shows(pilot, "G follow")
            cluster.publish(Log(node="node1", source="kernel", text="line 40"))
            await shows(pilot, "41 of ")
            assert "line 40" not in screen(pilot.app)
            await pilot.press("escape")
            await shows(pilot, "noise")

    async def test_visible_filtered_events_stay_while_the_oldest_are_dropped(self):
        cluster = demo()
        for number in range(10_900):
            cluster.publish(Log(node="node1", source="kernel" if number % 2 else "agent", text=f"line {number}"))
        app = cluster.app()
        async with app.run_test(size=SIZE) as pilot:
            await filter_by(pilot, "8", "kind:kernel")
            await pilot.press("enter", *["pageup"] * 3)
            await shows(pilot, "G follow")
            before = [line[:70].rstrip() for line in screen(app).splitlines()[6:-1]]
            for number in range(1_200):
                cluster.publish(Log(node="node1", source="kernel", text=f"more {number}"))
            view = app.view
            assert isinstance(view, EventsView)
            await until(pilot, lambda: view._passing.gone > 0)
            await pilot.pause()
            assert [line[:70].rstrip() for line in screen(app).splitlines()[6:-1]] == before

    async def test_events_are_sorted_by_o_or_click_and_the_order_is_displayed(self):
        cluster = racks()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "8", "o", "o")
            await shows(pilot, "sorted by severity")
            await pilot.press("g")
            await until(pilot, lambda: "✖" in screen(pilot.app).splitlines()[5])
            await pilot.press("o")
            await shows(pilot, "node▲")
            cluster.publish(Log(node="node001", source="kernel", text="the newest of all"))
            await pilot.press("g")
            await until(pilot, lambda: any("the newest of all" in row.span.text for row in rows(pilot)))
            x = screen(pilot.app).splitlines()[4].index("time")
            await pilot.click("#stream", offset=(x, 0))
            await shows(pilot, "following")
            await pilot.press("O")
            await shows(pilot, "time▼")
            await until(pilot, lambda: rows(pilot)[0].key > rows(pilot)[-1].key)

    async def test_b_cycles_event_grouping_by_node_severity_kind_and_tag(self):
        async with racks().app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "8", "b")
            await until(pilot, lambda: "node019" in heads(pilot))
            await shows(pilot, "grouped by node, sorted by time")
            index = heads(pilot).index("node019")
            head = [row for row in list_of(pilot)._grid.rows if isinstance(row, GroupHeader)][index]
            assert "✖ 1 error" in "".join(span.text for span in head.banner)
            await pilot.press("b")
            await until(pilot, lambda: heads(pilot) == ["error", "warning", "info"])
            await pilot.press("b")
            await until(pilot, lambda: "kernel" in heads(pilot))
            await pilot.press("b")
            await until(pilot, lambda: heads(pilot) == ["rack1", "rack2", "rack3", "rack4", None])

    async def test_R_on_a_node_group_heading_reconnects_that_node(self):
        cluster = racks()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "8", "b", "G")
            await pilot.press("R")
            await until(pilot, lambda: cluster.calls == [("reconnect", "node064")])

    async def test_Y_copies_an_event_as_text_and_ctrl_y_as_json(self):
        app = racks().app()
        async with app.run_test(size=SIZE, notifications=True) as pilot:
            await filter_by(pilot, "8", "kind:kernel")
            await pilot.press("enter", "b", "b", "g", "Y")
            await shows(pilot, "1 event copied")
            assert "Xid 79" in app.clipboard
            await pilot.press("ctrl+y")
            [event] = json.loads(app.clipboard)
            assert (event["kind"], event["severity"], event["record"]["node"]) == ("kernel", "error", "node019")

    async def test_enter_on_a_group_heading_does_nothing_and_paused_list_is_unchanged(self):
        cluster = racks()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "8", "b", "b", "g", "enter")
            assert len(pilot.app.screen_stack) == 1
            await pilot.press("space")
            count = len(rows(pilot))
            cluster.publish(Log(node="node001", source="kernel", severity="error", text="too late"))
            await pilot.press("O", "slash", *"too", "enter")
            await shows(pilot, "No matching events")
            await pilot.press("escape")
            assert len(rows(pilot)) == count
            await pilot.press("space", "g")
            await until(pilot, lambda: len(rows(pilot)) == count + 1)

    async def test_filter_by_tag_follows_a_changed_node_tag(self):
        cluster = racks()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await filter_by(pilot, "8", "tag:moved")
            await until(pilot, lambda: not rows(pilot))
            cluster.publish(NodeState(node="node020", state="ok", attempt=1, tags=("moved",)))
            await until(pilot, lambda: any("Xid 63" in row.span.text for row in rows(pilot)))

    async def test_grouped_events_are_not_rearranged_without_new_events(self):
        cluster = demo()
        cluster.publish(*(Log(node=f"node{i % 4 + 1}", source="agent", text=f"line {i}") for i in range(10_000)))
        app = cluster.app()
        async with app.run_test(size=(120, 40)) as pilot:
            await filter_by(pilot, "8", "text:9")
            await pilot.press("enter", "b")
            await shows(pilot, "▾ node1  ")
            view = app.view
            assert isinstance(view, EventsView)
            before = view._entries
            for _ in range(5):
                view.show_snapshot(app.frames.builder.build())
            assert view._entries is before
            log = len(rows(pilot))
            cluster.publish(Log(node="node2", source="agent", text="line 9"))
            await until(pilot, lambda: len(rows(pilot)) == log + 1)


class TestColumns:
    def test_columns_follow_configured_order_and_visibility_with_rank_first(self):
        keys = [column.key for column in as_arranged(COLUMNS, ("wchan", "cpu", "rank"), ("node", "pid"))]
        assert keys[:4] == ["rank", "state", "wchan", "cpu"]
        assert "node" not in keys and "pid" not in keys and len(keys) == len(COLUMNS) - 2
        assert [column.key for column in as_arranged(COLUMNS, (), [column.key for column in COLUMNS])] == ["rank"]

    async def test_space_toggles_a_column_in_the_list(self):
        async with demo().app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "2", "C")
            await until(pilot, lambda: isinstance(pilot.app.screen, ColumnsDialog))
            await pilot.press("j", "j", "space")
            await shows(pilot, "○ node")
            assert "node" not in list_of(pilot)._grid.shown_columns
            await pilot.press("enter")
            await shows(pilot, "● node")
            assert "node" in list_of(pilot)._grid.shown_columns
            await pilot.press("escape")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)

    async def test_J_and_K_move_a_column_and_r_resets_the_columns(self):
        async with demo().app().run_test(size=SIZE) as pilot:
            await open_list(pilot, "2")
            first = list_of(pilot)._grid.shown_columns
            await pilot.press("C", "j", "j", "J", "J")
            assert list_of(pilot)._grid.shown_columns[2:5] == ["gpu", "node", "pid"]
            await pilot.press("K")
            assert [column.key for column in list_of(pilot).all_columns][2:5] == ["local", "node", "gpu"]
            await pilot.press("r")
            assert list_of(pilot)._grid.shown_columns == first
            await pilot.press("C")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)

    async def test_column_that_does_not_fit_is_noted_and_the_last_one_stays(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_list(pilot, "2", "C", "G")
            await shows(pilot, "does not fit")
            dialog = pilot.app.screen
            assert isinstance(dialog, ColumnsDialog)
            for _ in range(15):
                dialog.action_show()
                await pilot.press("k")
            await shows(pilot, "at least one column is shown")
            assert list_of(pilot)._grid.shown_columns == ["rank"]

    async def test_columns_dialog_shows_configured_keys(self):
        async with demo().app(keys=OwnKeys({"columns.reset": "F"})).run_test(size=SIZE) as pilot:
            await open_list(pilot, "2", "C")
            await shows(pilot, "F reset")
            await shows(pilot, "Space toggle")

    @pytest.mark.parametrize(
        ("theme", "size"),
        [
            pytest.param(theme, size, marks=marks, id=f"{theme}-{size[0]}x{size[1]}")
            for size in ((60, 20), (80, 24), (120, 40), (200, 60))
            for theme, marks in (("dark", ()), ("light", () if size == (80, 24) else pytest.mark.full))
        ],
    )
    def test_columns_dialog_matches_its_snapshot(self, snap_compare, theme: str, size: tuple[int, int]):
        async def open_it(pilot: Pilot[None]) -> None:
            assert isinstance(pilot.app, ConsoleApp)
            pilot.app.themes.use(theme)
            await open_list(pilot, "2", "C", "j", "j", "space", "j")
            await settle(pilot)

        assert snap_compare(demo().app(), terminal_size=size, run_before=open_it)

    async def test_last_line_of_the_columns_dialog_is_reachable_at_60x20(self):
        async with demo().app().run_test(size=(60, 20)) as pilot:
            await open_list(pilot, "2", "C", "G")
            await shows(pilot, "● job")


class TestKinds:
    @pytest.mark.parametrize("kind", [RANK_KIND, NODE_KIND, EVENT_KIND], ids=lambda kind: kind.noun)
    def test_list_kinds_have_unique_fields_a_sort_column_and_groupings(self, kind):
        names = [name for field in kind.vocabulary.fields for name in (field.name, *field.aliases)]
        assert len(names) == len(set(names))
        assert kind.sort in kind.fields
        assert len({by.name for by in kind.groupings}) == len(kind.groupings) > 2

    def test_documented_filter_fields_exist(self):
        for name in ("state", "node", "util", "tag", "job"):
            assert RANK_KIND.vocabulary.field(name) and NODES.field(name)
        for name in ("state", "node", "tag", "job"):
            assert EVENTS.field(name)


async def test_grouped_rows_of_a_live_column_are_stable_under_small_changes():
    cluster = demo()
    async with cluster.app().run_test(size=SIZE) as pilot:
        await open_list(pilot, "n", "b", "o", "O")
        await shows(pilot, "CPU▼")
        before = [row.key for row in rows(pilot)]
        cluster.publish(Host(node="node4", cpu_pct=62.9))
        await shows(pilot, "63")
        assert [row.key for row in rows(pilot)] == before, "1.5 % is noise"


def test_hostile_tag_is_escaped_in_a_group_heading():
    cluster = FakeCluster("node1")
    cluster.up()
    cluster.gpus("node1", count=1)
    cluster.publish(NodeState(node="node1", state="ok", attempt=1, tags=("[red]\x1b[31m",)))
    frame = frame_of(cluster)
    listed = node_rows(frame.fleet, frame.nodes, frame.gpus, frame.jobs)
    order: SteadyOrder = SteadyOrder(lambda: 0.0)
    head = arranged_rows(NODE_KIND, listed, Arrangement(group="tag"), row_context(frame), None, order)[0]
    assert isinstance(head, GroupHeader)
    assert "\x1b" not in "".join(span.text for span in head.banner)
