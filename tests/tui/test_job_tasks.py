"""Starting, fetching and copying from the Jobs view: prompts, the plan, progress, results, and where it is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from clusters import demo, jobs_cluster
from fake_cluster import FakeCluster
from textual.pilot import Pilot
from textual.widgets import Input
from waiting import screen, settle, shows, until

from gconsole.records import Failure
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.prompts import Prompt
from gconsole.tui.dialogs.task import TaskDialog
from gconsole.tui.views.jobs.view import JobsView

SIZE = (120, 40)
START = "--nodes 2 --gpus-per-node 0 --procs-per-node 1 --launcher env -- python3 plain.py"


def app_of(pilot: Pilot[None]) -> ConsoleApp:
    assert isinstance(pilot.app, ConsoleApp)
    return pilot.app


async def press(pilot: Pilot[None], *pressed: str) -> None:
    """Press keys in the Jobs view, whose cursor is on the first job."""
    await settle(pilot)
    await pilot.press("0", "g", *pressed)
    await pilot.pause()


async def until_closed(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: len(pilot.app.screen_stack) == 1, "no dialog")


def started(cluster: FakeCluster) -> list[str]:
    return [text for call, text in cluster.calls if call == "start job"]


def texts_below(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}


class TestStart:
    async def test_plan_is_shown_and_started_only_after_the_confirmation(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "N", *START, "enter")
            await shows(pilot, "2 nodes × 1 = 2 ranks, no GPUs per node, env")
            await shows(pilot, " y start ")
            assert not started(cluster)
            await pilot.press("y")
            await shows(pilot, "started on node[1-2]")
            await pilot.press("escape")
            await until_closed(pilot)
            await shows(pilot, "plain-")
            view = app_of(pilot).view
            assert isinstance(view, JobsView)
            assert any(row.name.startswith("plain-") for row in view.all_rows(app_of(pilot).frame))
        assert started(cluster) == ["python3 plain.py on node1,node2"]

    async def test_escape_at_the_plan_starts_nothing(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "N", *START, "enter")
            await shows(pilot, " y start ")
            await pilot.press("escape")
            await until_closed(pilot)
            await app_of(pilot).workers.wait_for_complete()
        assert not started(cluster)

    async def test_problems_of_a_plan_are_shown_and_the_text_is_offered_again(self):
        cluster = jobs_cluster()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "N", *START.replace("--nodes 2", "--nodes 9"), "enter")
            await shows(pilot, "✖ 9 nodes needed, only 4 available")
            await pilot.press("y")
            assert isinstance(pilot.app.screen, TaskDialog)
            await pilot.press("escape")
            await until_closed(pilot)
            await pilot.press("N")
            await until(pilot, lambda: isinstance(pilot.app.focused, Input) and "--nodes 9" in pilot.app.focused.value)
        assert not started(cluster)

    @pytest.mark.parametrize(
        ("typed", "problem"),
        [("--nodes x -- a", "'x' is not a valid integer"), ("--sync /nowhere -- a", "/nowhere is not a folder"),
         ("a 'b", "No closing quotation"), ("--lr 1 a", "No such option"), ("--env 1=2 a", "is not NAME=VALUE")],
    )  # fmt: skip
    async def test_mistakes_are_named_as_on_the_command_line(self, typed: str, problem: str):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            await press(pilot, "N", *typed, "enter")
            await shows(pilot, problem)

    async def test_failed_start_names_the_node_and_what_is_left(self):
        cluster = jobs_cluster()
        cluster.job_failures = {"node2": Failure("disk_full", "no space left", "free some")}
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "N", *START, "enter")
            await shows(pilot, " y start ")
            await pilot.press("y")
            await shows(pilot, "✖ node2  disk_full: no space left")
            assert "was not started; no processes left" in screen(pilot.app)

    async def test_escape_cancels_a_start_that_waits_for_a_node(self):
        cluster = jobs_cluster()
        cluster.job_gate = asyncio.Event()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "N", *START, "enter")
            await shows(pilot, " y start ")
            await pilot.press("y")
            await until(pilot, lambda: started(cluster))
            await pilot.press("escape")
            await shows(pilot, "cancelled; what had started of plain-")
            await pilot.press("escape")
            await until_closed(pilot)

    async def test_folder_that_could_not_be_copied_starts_nothing(self, tmp_path: Path):
        cluster = jobs_cluster()
        cluster.job_failures = {"node1": Failure("sync_failed", "no space left")}
        (tmp_path / "train.sh").write_text("")
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "N", *f"--sync {tmp_path} {START}", "enter")
            await shows(pilot, " y start ")
            await pilot.press("y")
            await shows(pilot, "✖ node1  sync_failed: no space left")
            await shows(pilot, "was not started")
        assert not started(cluster)


class TestCopies:
    async def test_files_are_fetched_into_a_folder_per_node(self, tmp_path: Path):
        cluster = jobs_cluster()
        cluster.job_failures = {"node3": Failure("lost", "no word for 3 s")}
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "f")
            await shows(pilot, "/home/ops/llama")
            await pilot.press(*f"out {tmp_path}/got", "enter")
            await shows(pilot, "3 files, 9 B copied to")
            assert "✖ node3: no word for 3 s" in screen(pilot.app)
        assert texts_below(tmp_path) == {f"got/node{n}/out/train-3f9a1c.txt": str(n) * 3 for n in (1, 2, 4)}

    async def test_escape_cancels_a_copy_and_names_what_was_copied(self, tmp_path: Path):
        cluster = jobs_cluster()
        cluster.job_gate = asyncio.Event()
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "f", *f"out {tmp_path}/got", "enter")
            await shows(pilot, "0 files, 0 B copied to")
            await pilot.press("escape")
            await shows(pilot, "cancelled; 0 files, 0 B copied")
            await pilot.press("escape")
            await until_closed(pilot)

    async def test_folder_is_copied_to_the_nodes_of_the_job_after_a_confirmation(self, tmp_path: Path):
        cluster = jobs_cluster()
        (tmp_path / "train.py").write_text("pass")
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "u", *str(tmp_path), "enter")
            await shows(pilot, "1 file, 4 B of ")
            assert not [call for call, _ in cluster.calls if call == "sync"]
            await shows(pilot, " y copy ")
            await pilot.press("y")
            await shows(pilot, "up to 1 file changed per node")
        assert ("sync", "1 files to /home/ops/llama on node1,node2,node3,node4") in cluster.calls

    async def test_discovered_job_offers_neither_copy(self):
        async with jobs_cluster().app().run_test(size=SIZE) as pilot:
            await press(pilot, "G", "f", "u")
            assert not isinstance(pilot.app.screen, Prompt)


class TestRefused:
    @pytest.mark.parametrize("key", ["N", "u"])
    async def test_read_only_console_names_the_command_instead(self, key: str):
        cluster = jobs_cluster()
        cluster.read_only = True
        async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
            await press(pilot, key)
            await shows(pilot, "[console] read_only is true: set it to")
            await shows(pilot, "gconsole run start HOSTS")
            assert not isinstance(pilot.app.screen, Prompt)

    async def test_read_only_console_fetches(self):
        cluster = jobs_cluster()
        cluster.read_only = True
        async with cluster.app().run_test(size=SIZE) as pilot:
            await press(pilot, "f")
            assert isinstance(pilot.app.screen, Prompt)

    async def test_nothing_starts_on_simulated_nodes(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await press(pilot, "N")
            await shows(pilot, "not on nodes with simulated data (SIM)")

    @pytest.mark.parametrize("key", ["N", "f", "u"])
    async def test_replay_refuses(self, key: str):
        async with jobs_cluster().app(live=False).run_test(size=SIZE, notifications=True) as pilot:
            await press(pilot, key)
            await shows(pilot, "not available in replay: this is a recording")

    @pytest.mark.parametrize("key", ["N", "f", "u"])
    async def test_browser_refuses(self, key: str):
        async with jobs_cluster().app(job_source=None).run_test(size=SIZE, notifications=True) as pilot:
            await press(pilot, key)
            await shows(pilot, "not in a browser")
