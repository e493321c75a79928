"""The Hang view: two keys from a hung job to the blocking line; navigation through verdict, tree, ranks, threads."""

from __future__ import annotations

import asyncio

import pytest
from clusters import pod
from fake_cluster import LOADER, SECOND, FakeCluster
from running import running
from textual.pilot import Pilot
from waiting import screen, settle, shows, until

from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.records import Collective, Finding, PgStatus, Stack, StackFrame, WaitTarget
from gconsole.tui.dialogs.dialog import LinesDialog
from gconsole.tui.views.hang.model import thread_lines
from gconsole.tui.views.hang.view import HangView

SIZE = (130, 42)


def hung() -> FakeCluster:
    """Two nodes, eight ranks; rank 5 reads a shard, the others wait for it."""
    cluster = FakeCluster("node1", "node2")
    cluster.up()
    cluster.job("llama", 8, per_node=4)
    cluster.rank_frames[5] = LOADER
    return cluster


def hang_of(pilot: Pilot[None]) -> HangView:
    view = pilot.app.view  # type: ignore[attr-defined]
    assert isinstance(view, HangView)
    return view


def focused(pilot: Pilot[None]) -> str:
    return str(pilot.app.focused.id if pilot.app.focused else None)


def go_to_verdict(pilot: Pilot[None]) -> None:
    hang_of(pilot)._go(hang_of(pilot)._verdict)


def go_to_tree(pilot: Pilot[None]) -> None:
    hang_of(pilot)._go(hang_of(pilot)._tree)


class TestFromTheKeyToTheLine:
    async def test_d_names_the_missing_rank_and_shows_its_source_line(self):
        cluster = hung()
        async with running(cluster.app(), "d", size=SIZE) as pilot:
            await shows(pilot, "rank_missing")
            await shows(pilot, "return open(path).read()")
            await shows(pilot, "dataset.py:88 load_shard")
            await shows(pilot, "[0-4,6-7]")

    async def test_tree_cursor_starts_on_the_culprit(self):
        async with running(hung().app(), "d", size=SIZE) as pilot:
            await shows(pilot, "THREADS of rank 5")

    async def test_s_captures_once_and_names_no_culprit(self):
        cluster = hung()
        async with running(cluster.app(), "s", size=SIZE) as pilot:
            await shows(pilot, "STACKS 8 ranks, 2 groups")
            await shows(pilot, "undecided")
        assert cluster.calls.count(("capture", "1")) == 1

    async def test_capital_s_prompts_for_a_sample_count_from_1_to_100(self):
        cluster = hung()
        async with running(cluster.app(), "S", size=SIZE, toasts=True) as pilot:
            await shows(pilot, "Capture stacks of all ranks")
            await pilot.press(*"500", "enter")
            await shows(pilot, "is not a number from 1 to 100")
            await pilot.press("S", *"4", "enter")
            await until(pilot, lambda: ("capture", "4") in cluster.calls)

    async def test_hang_view_without_a_capture_shows_which_key_to_press(self):
        async with running(hung().app(), "3") as pilot:
            await shows(pilot, "diagnose: sample until")

    async def test_diagnosis_without_any_rank_reports_no_readable_stack(self):
        cluster = FakeCluster("node1")
        cluster.up()
        async with running(cluster.app(), "d", size=SIZE, toasts=True) as pilot:
            await shows(pilot, "no rank with a readable stack")


class TestWalking:
    async def test_tab_cycles_through_all_panes_and_shift_tab_goes_back(self):
        async with running(hung().app(), "d", size=SIZE) as pilot:
            await shows(pilot, "rank_missing")
            go_to_verdict(pilot)
            focus_order = []
            for _ in range(4):
                await pilot.press("tab")
                focus_order.append(focused(pilot))
            assert focus_order == ["hang-tree", "hang-ranks", "hang-threads", "hang-verdict"]
            await pilot.press("shift+tab")
            assert focused(pilot) == "hang-threads"

    async def test_narrow_hang_view_shows_one_pane_at_a_time(self):
        app = hung().app()
        async with running(app, "d") as pilot:
            await shows(pilot, "rank_missing")
            go_to_tree(pilot)
            await shows(pilot, "STACKS")
            await pilot.press("tab")
            await shows(pilot, "─ RANKS")
            assert "STACKS" not in screen(app)
            await pilot.press("tab")
            await shows(pilot, "THREADS")
            await pilot.press("escape", "escape")
            await shows(pilot, "STACKS")

    async def test_enter_descends_the_panes_and_escape_returns_to_the_overview(self):
        async with running(hung().app(), "d", size=SIZE) as pilot:
            await shows(pilot, "rank_missing")
            go_to_verdict(pilot)
            await pilot.press("enter")
            assert focused(pilot) == "hang-tree"
            await pilot.press("enter", "enter")
            assert focused(pilot) == "hang-threads"
            await pilot.press(*["escape"] * 4)
            await shows(pilot, "FINDINGS")

    async def test_rank_pane_lists_the_ranks_of_the_selected_branch(self):
        async with running(hung().app(), "d", size=SIZE) as pilot:
            await shows(pilot, "THREADS of rank 5")
            go_to_tree(pilot)
            await pilot.press("g")
            await shows(pilot, "RANKS 8")
            await pilot.press("tab", "j", "j")
            await shows(pilot, "THREADS of rank 7")


class TestComparing:
    async def test_x_compares_two_branches_side_by_side(self):
        app = hung().app()
        async with running(app, "d", size=SIZE) as pilot:
            await shows(pilot, "THREADS of rank 5")
            go_to_tree(pilot)
            await pilot.press("x", "g", "j", "j", "x")
            await until(pilot, lambda: isinstance(app.screen, LinesDialog))
            assert "[0-4,6-7]" in screen(app)

    async def test_X_compares_stacks_with_the_previous_capture(self):
        cluster = hung()
        async with running(cluster.app(), "s", size=SIZE) as pilot:
            await shows(pilot, "capture 1 of 1")
            del cluster.rank_frames[5]
            await pilot.press("s")
            await shows(pilot, "capture 2 of 2")
            await pilot.press("X")
            await shows(pilot, "[5]  load_shard")
            await shows(pilot, "[0-4,6-7]  unchanged")
            lines = [line for line in screen(pilot.app).splitlines() if "next_batch" in line and "train_step" in line]
            assert any("│ train_step" in line for line in lines), "the calls then and now, side by side"

    async def test_brackets_switch_between_captures(self):
        cluster = hung()
        async with running(cluster.app(), "s", size=SIZE) as pilot:
            await shows(pilot, "capture 1 of 1")
            await pilot.press("s")
            await shows(pilot, "capture 2 of 2")
            await pilot.press("left_square_bracket")
            await shows(pilot, "capture 1 of 2")
            await pilot.press("right_square_bracket")
            await shows(pilot, "capture 2 of 2")


class TestWhileItReads:
    async def test_capture_shows_progress_and_escape_cancels_it(self):
        cluster = hung()
        cluster.capture_gate = asyncio.Event()
        app = cluster.app()
        async with running(app, "s", size=SIZE, toasts=True) as pilot:
            await shows(pilot, "captured 0/8 ranks")
            await pilot.press("escape")
            await shows(pilot, "cancelled; partial results kept")
            await until(pilot, lambda: "captured 0/8" not in screen(app))

    async def test_second_capture_is_refused_while_one_is_running(self):
        cluster = hung()
        cluster.capture_gate = asyncio.Event()
        async with running(cluster.app(), "s", size=SIZE, toasts=True) as pilot:
            await shows(pilot, "captured 0/8 ranks")
            await pilot.press("d")
            await shows(pilot, "a capture is already running")
            cluster.capture_gate.set()
            await shows(pilot, "STACKS 8 ranks")


class TestCollectives:
    async def test_c_shows_recorded_collectives_and_escape_goes_back(self):
        cluster = hung()
        world = tuple(range(8))
        for rank in world:
            last = 6 if rank == 5 else 7
            cluster.library_records.append(
                PgStatus(capture="", source="worker_server", job="llama", rank=rank, read_at=cluster.now_ns,
                         ranks=world, process_group=("0", "default_pg"), last_enqueued_collective=last,
                         oldest_record_id=0)
            )  # fmt: skip
            if rank != 5:
                cluster.library_records.append(
                    Collective(capture="", source="worker_server", job="llama", rank=rank, read_at=cluster.now_ns,
                               record_id=6, process_group=("0", "default_pg"), collective_seq_id=7,
                               input_numel=64, retired=False,
                               profiling_name="gloo:all_reduce", time_created_ns=cluster.now_ns - 60 * SECOND)
                )  # fmt: skip
        async with running(cluster.app(), "d", size=SIZE) as pilot:
            await shows(pilot, "rank_missing")
            await pilot.press("c")
            await shows(pilot, "FAULTS 1")
            await shows(pilot, "missing rank in all_reduce")
            await shows(pilot, "last entered #6")
            await pilot.press("escape")
            await shows(pilot, "STACKS")

    async def test_collectives_page_without_a_source_shows_no_data(self):
        async with running(hung().app(), "s") as pilot:
            await shows(pilot, "capture 1 of 1")
            await pilot.press("c")
            await shows(pilot, "No collective data.")


async def test_t_cycles_which_threads_are_grouped():
    async with running(hung().app(), "s", size=SIZE, toasts=True) as pilot:
        await shows(pilot, "capture 1 of 1")
        await pilot.press("t")
        await shows(pilot, "threads: main, or the thread it waits for")
        await shows(pilot, "groups, threads that block")
        await pilot.press("t")
        await shows(pilot, "threads: all")
        await shows(pilot, "groups, all threads")
        await pilot.press("t")
        await shows(pilot, "threads: main")


async def test_ranks_are_grouped_by_function_line_or_captured_variables():
    cluster = hung()
    app = cluster.app()
    async with running(app, "S", size=SIZE, toasts=True) as pilot:
        await shows(pilot, "Capture stacks of all ranks")
        await pilot.press(*"1 step,loss", "enter")
        await shows(pilot, "STACKS 8 ranks, 2 groups")
        assert cluster.variables == ("step", "loss")
        await pilot.press("v")
        await shows(pilot, "2 groups, by line")
        await pilot.press("v")
        await shows(pilot, "8 groups, by variables")
        await shows(pilot, "step = 1700")
        await pilot.press("v")
        await shows(pilot, "ranks grouped by function")


async def test_verdict_and_stacks_are_copied_as_text():
    app = hung().app()
    async with running(app, "d", size=SIZE) as pilot:
        await shows(pilot, "rank_missing")
        await pilot.press("y")
        await until(pilot, lambda: "rank 5" in app.clipboard)
        verdict, _, stacks = app.clipboard.partition("\ncapture ")
        assert "rank_missing" in verdict and "<module>" in stacks and "rank_missing" not in stacks


async def test_stacks_beyond_the_limit_of_a_terminal_are_not_copied_with_the_verdict(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gconsole.tui.views.hang.view.MOST_BYTES", 10)
    app = hung().app()
    async with running(app, "d", size=SIZE, toasts=True) as pilot:
        await shows(pilot, "rank_missing")
        await pilot.press("y")
        await shows(pilot, "e saves the stacks: too long")
        assert "rank 5" in app.clipboard and "<module>" not in app.clipboard


async def test_verdict_is_published_as_a_finding():
    cluster = hung()
    hub = Hub()
    hub.subscribe(cluster.store.apply)
    async with running(cluster.app(findings=FindingTracker(hub, HealthConfig())), "d", size=SIZE) as pilot:
        await shows(pilot, "rank_missing")
        await shows(pilot, "1 finding")
        await pilot.press("1")
        await shows(pilot, "rank_missing")


async def test_undecided_single_capture_publishes_no_finding():
    cluster = hung()
    hub = Hub()
    findings: list[Finding] = []
    hub.subscribe(lambda records: findings.extend(record for record in records if isinstance(record, Finding)))
    async with running(cluster.app(findings=FindingTracker(hub, HealthConfig())), "s", size=SIZE) as pilot:
        await shows(pilot, "undecided")
        await settle(pilot)
    assert findings == [], "nobody asked for a verdict"


async def test_capture_of_a_healthy_fleet_is_one_group():
    async with running(pod().app(), "s") as pilot:
        await shows(pilot, "504 ranks, 1 group")


class TestThreads:
    def test_thread_shows_what_its_system_call_waits_for(self):
        target = WaitTarget(
            kind="tcp", direction="read", fd=7, local="10.0.0.1 1", remote="10.0.0.2 41234\x1b[2J", pids=(9,)
        )
        stack = Stack(
            node="n", capture="c", sample=0, job="j", rank=3, pid=5, start_ticks=1, status="ok", thread_name="trainer",
            frames=(StackFrame("receive", "/job/peers.py", 4),), waits_for=(target, WaitTarget(kind="event")),
        )  # fmt: skip
        text = [line.text for line in thread_lines([stack], 3, 80)]
        assert any("waits for a TCP connection to 10.0.0.2:41234" in line and "(pid 9)" in line for line in text), text
        assert any("waits for an event" in line for line in text)
        assert not any("\x1b" in line for line in text)
