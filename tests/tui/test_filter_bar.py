"""Filtering on the screen: the bar in the Ranks view, its keys, its words, and what stays of the list."""

from __future__ import annotations

import json

import pytest
from clusters import demo, pod
from fake_cluster import FakeCluster
from running import running
from textual import events
from textual.pilot import Pilot
from waiting import accept, screen, settle, shows, until

from gconsole.records import NodeState
from gconsole.tui.app import ConsoleApp
from gconsole.tui.models.job_ranks import RankListRow
from gconsole.tui.views.ranks.model import RANKS
from gconsole.tui.views.ranks.view import RanksView

SIZE = (80, 24)


def ranks(pilot: Pilot[None]) -> RanksView:
    app = pilot.app
    assert isinstance(app, ConsoleApp) and isinstance(app.view, RanksView)
    return app.view


def listed_ranks(pilot: Pilot[None]) -> list[int | None]:
    return [row.number for row in ranks(pilot)._grid.rows if isinstance(row, RankListRow)]


async def type_filter(pilot: Pilot[None], text: str) -> None:
    await settle(pilot)
    await pilot.press("2", "slash", *text)
    await until(pilot, lambda: ranks(pilot)._filter._line.value == text)


class TestTyping:
    async def test_filter_applies_while_typing_and_shows_the_match_count(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "state:idle")
            await until(pilot, lambda: listed_ranks(pilot) == [138])
            await shows(pilot, "1 of 512 ranks")
            await shows(pilot, "1 shown")

    async def test_enter_keeps_the_filter_and_focuses_the_list(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "rank:0-2")
            await pilot.press("enter", "j")
            assert ranks(pilot)._grid.has_focus
            assert listed_ranks(pilot) == [0, 1, 2]
            assert "/ rank:0-2" in screen(pilot.app)

    async def test_escape_clears_the_filter_before_it_leaves_the_view(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "rank:0")
            await pilot.press("escape")
            await until(pilot, lambda: len(listed_ranks(pilot)) == 512)
            assert "/ rank" not in screen(pilot.app)
            await pilot.press("slash", *"rank:1", "enter", "escape")
            await until(pilot, lambda: len(listed_ranks(pilot)) == 512)
            assert ranks(pilot).id == "ranks"
            await pilot.press("escape")
            assert isinstance(pilot.app, ConsoleApp) and pilot.app.view.id == "overview"

    async def test_filter_error_is_shown_at_its_position_and_the_last_filter_stays(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "rank:0 stat:x")
            await shows(pilot, "╰ unknown field stat; did you mean state?")
            lines = screen(pilot.app).splitlines()
            line_number = next(y for y, line in enumerate(lines) if line.startswith("/ "))
            assert lines[line_number + 1].index("╰") == lines[line_number].index("stat:x")
            assert listed_ranks(pilot) == [0]
            await pilot.press("enter")
            assert ranks(pilot)._filter.is_open, "what is no filter is not kept"

    async def test_unfinished_term_is_an_error_only_after_enter(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "util:")
            await shows(pilot, "util: utilisation of its GPU in %")
            assert "╰" not in screen(pilot.app)
            await pilot.press("enter")
            await shows(pilot, "╰ missing value for util")

    async def test_partial_field_name_is_not_applied_until_enter(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "rank:7 wch")
            assert listed_ranks(pilot) == [7]
            await pilot.press("enter")
            await until(pilot, lambda: listed_ranks(pilot) == [])

    async def test_pasted_filter_applies_up_to_its_unfinished_last_term(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "")
            pilot.app.post_message(events.Paste("state:idle node:"))
            await until(pilot, lambda: listed_ranks(pilot) == [138])
            await shows(pilot, "1 of 512 ranks")

    async def test_line_is_as_wide_as_the_view_until_there_is_a_count(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "")
            assert ranks(pilot)._filter._line.size.width == SIZE[0] - 2
            await pilot.press(*"rank:0")
            await shows(pilot, "1 of 512 ranks")
            await pilot.press("ctrl+u")
            await until(pilot, lambda: "of 512 ranks" not in screen(pilot.app))

    async def test_typed_letters_do_not_trigger_key_bindings(self):
        async with demo().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "q o R 1 ?")
            assert pilot.app.is_running and ranks(pilot).id == "ranks"

    async def test_no_match_is_reported_and_escape_restores_the_list(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "nonsense")
            await shows(pilot, "No matching ranks.")
            await shows(pilot, "0 of 512 ranks")
            await pilot.press("escape")
            await shows(pilot, "▾ llama-70b")

    async def test_filter_applies_to_arriving_data(self):
        cluster = demo()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "state:stopped")
            await shows(pilot, "No matching ranks")
            cluster.sample_rank("demo-ring", 3, "node2", "stopped")
            await until(pilot, lambda: listed_ranks(pilot) == [3])

    async def test_palette_opens_the_filter_and_the_footer_shows_its_keys(self):
        async with running(demo().app(), "2", "ctrl+p", *"filter rows") as pilot:
            await accept(pilot, "Filter rows")
            await until(pilot, lambda: ranks(pilot)._filter._line.has_focus)
            await shows(pilot, "Tab complete")
            await shows(pilot, "^r previous")


class TestCompleting:
    @pytest.mark.parametrize("key", ["tab", "right"])
    async def test_tab_and_right_insert_the_first_completion(self, key: str):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "sta")
            await shows(pilot, "  state:")
            await pilot.press(key)
            assert ranks(pilot)._filter._line.value == "state:"
            await shows(pilot, "D state")

    async def test_repeated_tab_cycles_through_values(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "state:")
            values = []
            for _ in range(3):
                await pilot.press("tab")
                values.append(ranks(pilot)._filter._line.value)
            assert len(set(values)) == 3 and all(text.startswith("state:") for text in values)

    async def test_current_node_names_are_offered_as_completions(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "node:node01")
            await shows(pilot, "node010  node011")

    async def test_arrow_keys_move_the_cursor_within_the_text(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "abc")
            await pilot.press("left", "left", "right")
            assert ranks(pilot)._filter._line.cursor_position == 2


class TestRecall:
    async def test_ctrl_r_recalls_earlier_filters_newest_first(self):
        async with pod().app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "rank:1")
            await pilot.press("enter", "escape", "slash", *"rank:2", "enter", "escape", "slash", "ctrl+r")
            assert ranks(pilot)._filter._line.value == "rank:2"
            await pilot.press("ctrl+r")
            assert ranks(pilot)._filter._line.value == "rank:1"
            await until(pilot, lambda: listed_ranks(pilot) == [1])


class TestVocabulary:
    async def test_ranks_are_filtered_by_node_gpu_memory_job_and_simulation(self):
        cluster = demo()
        cluster.rank("demo-ring", 9, "node2", 10, gpu="GPU-node2-1")
        async with cluster.app().run_test(size=SIZE) as pilot:
            for text, numbers in (
                ("node:node[2-3]", [2, 3, 4, 5, 9]), ("util:<10", [1, 7]), ("gpu_util:55 pid:40009", [9]),
                ("-simulated", []), ("simulated rank:0", [0]), ("job:ring rank:<1", [0]), ("state:ok gpu:none", []),
                ("mem:>44G rank:1", [1]),
            ):  # fmt: skip
                await type_filter(pilot, text)
                await until(pilot, lambda numbers=numbers: listed_ranks(pilot) == numbers, text)
                await pilot.press("escape")  # clears the filter

    async def test_failed_state_filter_matches_a_stopped_rank(self):
        cluster = demo()
        cluster.sample_rank("demo-ring", 3, "node2", "stopped")
        async with cluster.app().run_test(size=SIZE) as pilot:
            await type_filter(pilot, "state:failed")
            await until(pilot, lambda: listed_ranks(pilot) == [3])

    def test_rank_field_names_and_aliases_are_unique(self):
        names = [name for field in RANKS.fields for name in (field.name, *field.aliases)]
        assert len(names) == len(set(names))


async def test_hostile_job_name_does_not_break_completion():
    cluster = FakeCluster("node1")
    cluster.up()
    cluster.job('[red]\x1b[31m "x" ' + "y" * 4096, 1)
    async with cluster.app().run_test(size=SIZE) as pilot:
        await type_filter(pilot, "job:")
        await pilot.press("tab")
        await until(pilot, lambda: listed_ranks(pilot) == [0])
        assert all(len(line) <= 80 for line in screen(pilot.app).splitlines())


class TestGrouping:
    async def test_b_cycles_grouping_by_job_node_state_class_tag_and_none(self):
        cluster = pod()
        cluster.publish(NodeState(node="node001", state="ok", attempt=1, tags=("rack1",)))
        async with running(cluster.app(), "2", "b") as pilot:
            await shows(pilot, "▾ node001  8 ranks   ● 8 running")
            await pilot.press("b", "g")
            await shows(pilot, "▾ D state  1 rank")
            await pilot.press("b", "g")
            await shows(pilot, "▾ 8× NVIDIA H100 80GB HBM3, 192 CPUs, 2.0 TiB, x86_64  504 ranks")
            await pilot.press("b", "g")
            await shows(pilot, "▾ rack1  8 ranks")
            await pilot.press("b", "g")
            await until(pilot, lambda: "▾" not in screen(pilot.app))
            await pilot.press("b", "g")
            await shows(pilot, "▾ llama-70b")

    async def test_node_groups_are_split_by_job(self):
        cluster = demo()
        cluster.job("other", 4, per_node=1)
        async with running(cluster.app(), "2", "b") as pilot:
            await shows(pilot, "▾ node1  demo-ring  2 ranks")
            await shows(pilot, "▾ node1  other  1 rank")

    async def test_node_group_heading_selects_that_node(self):
        async with running(demo().app(), "2", "b", "g") as pilot:
            await until(pilot, lambda: ranks(pilot).selected_node == "node1")
            await pilot.press("enter")
            await shows(pilot, "8/8 discovered")


class TestCopying:
    async def test_y_copies_names_alone(self):
        app = demo().app()
        async with running(app, "2", "g", "j", "y", toasts=True) as pilot:
            await shows(pilot, "rank 0 copied")
            assert app.clipboard == "rank 0"
            await pilot.press("g", "y")
            await shows(pilot, "8 names copied")
            assert app.clipboard.splitlines() == [f"rank {number}" for number in range(8)]
            await pilot.press("n", "y")
            await shows(pilot, "node1 copied")
            assert app.clipboard == "node1"
            await pilot.press("6", "y")
            await shows(pilot, "node1:gpu0 copied")

    async def test_Y_copies_the_rank_under_the_cursor_as_text(self):
        app = demo().app()
        async with running(app, "2", "g", "j", "Y", toasts=True) as pilot:
            await shows(pilot, "1 rank copied")
            heading, row = app.clipboard.splitlines()
            assert heading.split()[:3] == ["rank", "state", "node"]
            assert row.split()[:4] == ["0", "●", "running", "node1"]

    async def test_Y_on_a_group_heading_copies_its_filtered_ranks(self):
        app = demo().app()
        async with app.run_test(size=SIZE) as pilot:
            await type_filter(pilot, "rank:2-4")
            await pilot.press("enter", "g", "Y")
            assert [line.split()[0] for line in app.clipboard.splitlines()] == ["rank", "2", "3", "4"]

    async def test_ctrl_y_copies_json_with_the_records(self):
        app = demo().app()
        async with running(app, "2", "g", "j", "ctrl+y"):
            [rank] = json.loads(app.clipboard)
            assert (rank["job"], rank["rank"], rank["state"]) == ("demo-ring", 0, "moving")
            assert rank["record"]["node"] == "node1" and rank["stat"]["rss_bytes"] > 0

    async def test_copy_beyond_the_terminal_limit_is_refused_with_the_limit(self):
        app = pod().app()
        async with running(app, "2", "g", "ctrl+y", size=(120, 24), toasts=True) as pilot:
            await shows(pilot, "73.2 KiB")
            assert app.clipboard == ""

    async def test_a_missing_rank_is_copied_with_its_reason(self):
        app = pod().app()
        async with app.run_test(size=SIZE) as pilot:
            await type_filter(pilot, "rank:256")
            await pilot.press("enter", "g", "Y")
            assert "not found" in app.clipboard


class TestOrder:
    async def test_row_order_is_stable_under_small_changes_of_a_live_column(self):
        cluster = demo()
        async with running(cluster.app(), "2") as pilot:
            ranks(pilot)._sort_by("cpu")
            before = listed_ranks(pilot)
            for number in range(8):
                cluster.sample_rank("demo-ring", number, f"node{number // 2 + 1}", cpu_pct=98.9 - number % 5 / 9)
            await settle(pilot)
            assert listed_ranks(pilot) == before
            cluster.sample_rank("demo-ring", before[-1] or 0, f"node{(before[-1] or 0) // 2 + 1}", cpu_pct=1.0)
            await until(pilot, lambda: listed_ranks(pilot)[0] == before[-1])
