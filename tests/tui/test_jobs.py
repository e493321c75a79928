"""The Jobs view: started jobs, their state on each node, the output of their ranks, and stopping them."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import jobs_cluster
from fake_cluster import FakeCluster
from textual.pilot import Pilot
from waiting import frames, screen, settle, shows, until

from gconsole.launch.state import JobNodeStatus, JobStatus, PendingStops
from gconsole.records import Job, Log, Node
from gconsole.tui.dialogs.dialog import LinesDialog
from gconsole.tui.dialogs.prompts import Confirm
from gconsole.tui.models.numbered_log import LogFilter
from gconsole.tui.views.hang.view import HangView
from gconsole.tui.views.jobs.page_model import FOLD_S, KEPT, JobLog
from gconsole.tui.views.jobs.view import JobsView

SIZE = (120, 40)
SLACK = KEPT // 10
ALL = "node1,node2,node3,node4"


async def open_jobs(pilot: Pilot[None], *pressed: str) -> JobsView:
    await settle(pilot)
    await pilot.press("0", "g", *pressed)
    await settle(pilot)
    view = pilot.app.view  # type: ignore[attr-defined]
    assert isinstance(view, JobsView)
    return view


def log(rank: int, *lines: str, job: str = "t", node: str = "n") -> Log:
    return Log(node=node, source="job", job=job, rank=rank, text="\n".join(lines))


def status(ranks: int) -> JobStatus:
    ordered = Job(
        node="n", job="t", command=("t.py",), launcher="env", nodes=("n",), procs_per_node=ranks, gpus_per_node=0,
        world_size=ranks, master_addr="", master_port=1, created=1,
    )  # fmt: skip
    return JobStatus(ordered, (JobNodeStatus("n", 0, None),), "running")


class TestTheList:
    async def test_started_jobs_are_listed_before_discovered_ones(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            view = await open_jobs(pilot)
            labels = [(row.word, row.name) for row in view.all_rows(pilot.app.frame)]  # type: ignore[attr-defined]
        assert labels == [("running", "train-3f9a1c"), ("failed", "eval-77aa02"), ("stopped", "sweep-0b1c2d"),
                          ("found", "demo-ring@10.1.0.9:29500")]  # fmt: skip

    async def test_started_job_and_its_ranks_share_one_row(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            view = await open_jobs(pilot)
            row = view.chosen_row
            assert row is not None and row.ranks is not None
            assert (row.ranks.discovered, row.ranks.step, row.reason) == (32, 812, "1 stopped")

    async def test_failed_job_row_has_the_node_and_the_reason(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            row = (await open_jobs(pilot, "j")).chosen_row
            assert row is not None
            assert row.reason.startswith("node4: rank 5 (local rank 1) ended with signal 9; the kernel's OOM killer")

    async def test_worst_state_of_the_ranks_comes_first_in_the_status_detail(self):
        cluster = jobs_cluster()
        cluster.job("slow@10.1.0.7:29500", 4, per_node=1, states={0: "waiting", 1: "waiting", 2: "stopped"})
        async with cluster.app().run_test(size=SIZE) as pilot:
            view = await open_jobs(pilot)
            [row] = [row for row in view.all_rows(pilot.app.frame) if row.name.startswith("slow")]  # type: ignore[attr-defined]
        assert row.reason == "1 stopped, 2 waiting"

    async def test_jobs_view_without_jobs_shows_how_to_start_one(self):
        cluster = FakeCluster("node1")
        cluster.up()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_jobs(pilot)
            assert "gconsole run start hosts.toml --nodes 4 -- train.py" in screen(pilot.app)

    async def test_job_filter_lists_only_matching_jobs(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            await open_jobs(pilot, "slash", *"state:failed", "enter")
            assert "eval-77aa02" in screen(pilot.app)
            assert "train-3f9a1c" not in screen(pilot.app)


class TestThePage:
    async def test_job_output_is_streamed_only_while_its_page_is_open(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_jobs(pilot, "enter")
            await until(pilot, lambda: ("watch", f"train-3f9a1c on {ALL}") in cluster.calls)
            await pilot.press("escape")
            await frames(pilot)
            await until(pilot, lambda: ("watch no more", f"train-3f9a1c on {ALL}") in cluster.calls)

    async def test_equal_lines_of_many_ranks_are_folded_and_new_lines_appear(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            output = (await open_jobs(pilot, "enter"))._page.output
            await until(pilot, lambda: len(output.rows) == 5)
            assert (output.rows[0].who, output.rows[0].text) == ("0-31", "step 811 loss 2.33")
            for rank in range(32):
                cluster.write_output("train-3f9a1c", cluster.names[rank // 8], rank, "step 813 loss 2.29")
            await until(pilot, lambda: ("0-31", "step 813 loss 2.29") in [(row.who, row.text) for row in output.rows])
            await shows(pilot, "step 813 loss 2.29")

    async def test_scrolling_up_pauses_the_output_and_G_resumes_following(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            view = await open_jobs(pilot, "enter")
            await until(pilot, lambda: len(view._page.output.rows) == 5)
            await pilot.press("g")
            await frames(pilot)
            assert "G follow" in screen(pilot.app)
            await pilot.press("G")
            await frames(pilot)
            assert " following " in screen(pilot.app)

    async def test_filter_on_a_job_page_applies_to_its_output(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            view = await open_jobs(pilot, "enter")
            await until(pilot, lambda: len(view._page.output.rows) == 5)
            await pilot.press("slash", *"rank:9 -811", "enter")
            await shows(pilot, "2 of 5 lines")
            assert [row.text for row in view._page.output.rows] == ["a slow batch", "step 812 loss 2.31"]
            await pilot.press("escape")  # clears the filter; the page stays
            await until(pilot, lambda: len(view._page.output.rows) == 5)
            assert view.is_paged

    async def test_reconnected_node_streams_again_and_is_noted_in_the_output(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_jobs(pilot, "enter")
            await until(pilot, lambda: ("watch", f"train-3f9a1c on {ALL}") in cluster.calls)
            cluster.publish(Node(node="node3", agent="another", hostname="node3", boot_id="b", kernel="5",
                                 arch="x86_64", python="3.10", os="x", cpus=8, mem_total_bytes=1, uid=1, user="ops",
                                 pid=1, sample_interval_ms=1000))  # fmt: skip
            await until(pilot, lambda: ("watch", "train-3f9a1c on node3") in cluster.calls)
            await shows(pilot, "node3 reconnected")

    async def test_enter_on_a_node_of_a_job_opens_the_node_page(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            view = await open_jobs(pilot, "enter")
            view._page.plan.focus()
            await pilot.press("G", "enter")
            await until(pilot, lambda: pilot.app.view.id == "nodes")  # type: ignore[attr-defined]
            assert pilot.app.view.selected_node == "node4"  # type: ignore[attr-defined]

    async def test_job_output_can_be_copied_and_exported(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            view = await open_jobs(pilot, "enter")
            await until(pilot, lambda: len(view._page.output.rows) == 5)
            await pilot.press("y")
            assert "a warning with" in pilot.app.clipboard
            assert next(sheet.name for sheet in view.export_tables()) == "lines"


class TestFromAJob:
    async def test_d_diagnoses_the_selected_job_in_the_hang_view(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_jobs(pilot)
            await pilot.press("d")
            await settle(pilot)
            view = pilot.app.view  # type: ignore[attr-defined]
            assert isinstance(view, HangView)
            assert view._job == "train-3f9a1c@10.1.0.1:29517"
            await until(pilot, lambda: any(call == "capture" for call, _ in cluster.calls))

    async def test_4_shows_the_skew_of_the_job_and_escape_of_all_jobs(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            await open_jobs(pilot)
            await pilot.press("4")
            await shows(pilot, "only job train-3f9a1c@10.1.0.1:29517")
            await pilot.press("escape")
            await until(pilot, lambda: "only job train" not in screen(pilot.app))
            assert pilot.app.view.id == "skew"  # type: ignore[attr-defined]

    async def test_x_stops_the_job_after_a_confirmation_and_shows_the_result(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        cluster = jobs_cluster()
        cluster.lose("node2")
        async with cluster.app().run_test(size=SIZE) as pilot:
            await open_jobs(pilot, "x")
            assert isinstance(pilot.app.screen, Confirm)
            await pilot.press("y")
            await until(pilot, lambda: isinstance(pilot.app.screen, LinesDialog))
            await shows(pilot, "node1  stopped: 8 processes ended, nothing left")
            assert "node2  unknown: no word for 3 s" in screen(pilot.app)
            assert "pending: the next gconsole run" in screen(pilot.app)
        assert PendingStops.of_cluster("h100-pod").orders == {"train-3f9a1c": ("node2",)}
        assert ("stop job", f"train-3f9a1c on {ALL}") in cluster.calls

    async def test_read_only_console_refuses_to_stop_a_job(self):
        cluster = jobs_cluster()
        cluster.read_only = True
        async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
            await open_jobs(pilot, "x")
            await shows(pilot, "[console] read_only is true: stop the job")
        assert not any(call == "stop job" for call, _ in cluster.calls)

    async def test_finished_or_discovered_job_cannot_be_stopped(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            for steps in (["j"], ["G"]):
                await open_jobs(pilot, *steps, "x")
                assert not isinstance(pilot.app.screen, Confirm)
        assert not any(call == "stop job" for call, _ in cluster.calls)


class TestTheLines:
    def test_line_missing_from_some_ranks_is_held_until_the_fold_timeout(self):
        output = JobLog(status(2))
        output.add([log(0, "a", "b"), log(1, "a")], 0.0)
        assert [(line.who, line.text) for line in output.items] == [("0-1", "a")]
        output.add([], FOLD_S)
        assert [(line.who, line.text) for line in output.items] == [("0-1", "a"), ("0", "b")]

    def test_output_excludes_lines_of_other_jobs_and_nodes(self):
        output = JobLog(status(1))
        output.add([log(0, "ours"), log(0, "theirs", job="u"), log(0, "forged", node="m")], 0.0)
        assert [line.text for line in output.items] == ["ours"]

    def test_oldest_lines_are_dropped_from_the_output_and_its_filter(self):
        output = JobLog(status(1))
        sieve = LogFilter(lambda line: line.key % 2 == 0)
        output.add([log(0, *map(str, range(KEPT)))], 0.0)
        assert len(sieve.update(output)) == KEPT // 2
        output.add([log(0, *map(str, range(SLACK)))], 0.0)
        passing = sieve.update(output)
        assert (output.first, len(output.items), passing[0], sieve.gone) == (SLACK, KEPT, SLACK, SLACK // 2)
