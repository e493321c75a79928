"""`e` exports the table as listed, the screen, the report and the stacks, without data loss."""

from __future__ import annotations

import csv
import io
import json
import resource
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clusters import demo, pod
from fake_cluster import NOON
from msgspec.structs import replace
from running import running
from textual.pilot import Pilot
from textual.widgets import Input
from waiting import DEADLINE_S, screen, settle, shows, until

from gconsole.core.store import Store
from gconsole.records import Stack, StackFrame
from gconsole.session.export.stacks import folded_stacks
from gconsole.text import atomic_files
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.export import ExportDialog
from gconsole.tui.dialogs.prompts import Confirm
from gconsole.tui.exports import ExportFormat, ExportItem
from gconsole.tui.models.export_table import ExportTable, as_csv
from gconsole.tui.views.ranks.model import KIND

SIZE = (80, 24)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def open_export(pilot: Pilot[None], *keys: str) -> ExportDialog:
    """The dialog, after these keys and `e`."""
    await settle(pilot)
    await pilot.press(*keys)
    await settle(pilot)
    await pilot.press("e")
    await until(pilot, lambda: isinstance(pilot.app.screen, ExportDialog))
    dialog = pilot.app.screen
    assert isinstance(dialog, ExportDialog)
    return dialog


async def choose(pilot: Pilot[None], item_name: str, format_name: str) -> None:
    """Select this item and this format, with the keys."""
    dialog = pilot.app.screen
    assert isinstance(dialog, ExportDialog)
    for key, is_selected in (("down", lambda: dialog.selected[0].what.startswith(item_name)),
                             ("tab", lambda: dialog.selected[1].name == format_name)):  # fmt: skip
        for _ in range(9):
            if is_selected():
                break
            await pilot.press(key)
        assert is_selected(), (item_name, format_name)


async def save_export(pilot: Pilot[None], folder: Path) -> str:
    """Press Enter, and read the one file in the folder."""
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, ExportDialog), "the dialog to close")
    await shows(pilot, "saved ")
    return only_file(folder).read_text()


def only_file(folder: Path) -> Path:
    [path] = folder.iterdir()
    return path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def path_input(app: ConsoleApp) -> Input:
    return app.screen.query_one(Input)


def a_stack(rank: int, *functions: str, **fields: Any) -> Stack:
    frames = tuple(StackFrame(name, "train.py", 10 + offset) for offset, name in enumerate(functions))
    defaults = {"capture": "c1", "sample": 0, "job": "demo-ring", "rank": rank, "pid": 40000 + rank, "status": "ok",
                "start_ticks": 1, "thread_name": "MainThread", "frames": frames, "path": rank}  # fmt: skip
    return Stack(node="node1", **(defaults | fields))


class TestTheTable:
    async def test_csv_has_the_filtered_ranks_in_displayed_order_with_raw_units(self, folder: Path):
        async with pod().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2", "slash", *"node:node018", "enter", "O")
            rows = list(csv.DictReader(io.StringIO(await save_export(pilot, folder))))
        assert [row["rank"] for row in rows] == ["143", "142", "141", "140", "139", "138", "137", "136"]
        stuck = rows[6]
        assert (stuck["state"], stuck["record.node"], stuck["stat.wchan"]) == (
            "uninterruptible", "node018", "nfs_wait_bit_killable",
        )  # fmt: skip
        assert (stuck["stat.cpu_pct"], stuck["stat.rss_bytes"]) == ("0.0", str(int(3.125 * 2**30)))
        assert stuck["reason"] == ""
        assert only_file(folder).suffix == ".csv"

    async def test_json_has_ranks_with_their_full_records(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2")
            await choose(pilot, "Ranks", "JSON")
            rows = json.loads(await save_export(pilot, folder))
        assert [row["rank"] for row in rows] == list(range(8))
        assert rows[0]["record"]["kind"] == "rank" and rows[0]["stat"]["threads"] == 41

    async def test_text_export_matches_the_displayed_table(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2")
            await choose(pilot, "Ranks", "text")
            lines = (await save_export(pilot, folder)).splitlines()
        assert lines[0].split()[:4] == ["rank", "state", "node", "gpu"]
        assert "● running" in lines[1] and len(lines) == 9

    async def test_selection_exports_the_cursor_row_or_its_group(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2", "G")
            await choose(pilot, "Selected: 1 rank", "JSON")
            assert [row["rank"] for row in json.loads(await save_export(pilot, folder))] == [7]
            only_file(folder).unlink()
            await open_export(pilot, "b", "g")
            await choose(pilot, "Selected: 2 ranks", "JSON")
            assert [row["rank"] for row in json.loads(await save_export(pilot, folder))] == [0, 1]

    async def test_overview_nodes_and_events_export_tables(self, folder: Path):
        cluster = demo()
        await cluster.mark("here")
        async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
            for view, item_name, count, field, value in (
                ("1", "GPUs: 32 GPUs", 32, "index", 0), ("1", "Selected: 8 GPUs of node1", 8, "node", "node1"),
                ("n", "Nodes: 4 nodes", 4, "node", "node1"), ("n", "Selected: 1 node", 1, "node", "node1"),
                ("8", "Selected: 1 event", 1, "kind", "mark"), ("8", "Events: ", None, "kind", "node"),
            ):  # fmt: skip
                await open_export(pilot, view)
                await choose(pilot, item_name, "JSON")
                rows = json.loads(await save_export(pilot, folder))
                assert len(rows) == count if count else len(rows) > 4
                assert rows[0][field] == value
                only_file(folder).unlink()

    async def test_view_without_a_table_offers_only_general_exports(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            dialog = await open_export(pilot, "3")
            assert [item.name for item in dialog._items] == ["screen", "report", "page", "session", "session"]


class TestEverythingElse:
    async def test_screen_export_excludes_the_export_dialog(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot)
            await choose(pilot, "Screen", "SVG")
            svg = await save_export(pilot, folder)
        assert svg.startswith("<svg") and "FINDINGS" in svg
        assert "Export" not in svg

    async def test_report_export_has_the_batch_report_schema(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot)
            await choose(pilot, "Report", "JSON")
            report = json.loads(await save_export(pilot, folder))
        assert report["schema"] == "gconsole.report/1"
        assert len(report["ranks"]) == 8

    async def test_newest_capture_is_exported_as_folded_text_and_json(self, folder: Path):
        cluster = demo()
        cluster.publish(a_stack(0, "old", capture="c0"))
        cluster.publish(*(a_stack(rank, "main", "step") for rank in (0, 1)), a_stack(2, "main", "load"))
        async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
            for form, expected in (
                ("folded", "rank [0-1];MainThread;main (train.py:10);step (train.py:11) 2\n"),
                ("text", "STACKS  3 ranks, 2 groups"), ("JSON", '"capture": "c1"'),
            ):  # fmt: skip
                await open_export(pilot)
                await choose(pilot, "Stacks", form)
                text = await save_export(pilot, folder)
                assert expected in text and "c0" not in text and "old" not in text
                only_file(folder).unlink()

    async def test_stacks_export_is_absent_without_a_capture(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            dialog = await open_export(pilot)
            assert "stacks" not in [item.name for item in dialog._items]


class TestASessionThatNobodyRecorded:
    async def test_html_report_has_plots_of_the_displayed_data(self, folder: Path):
        cluster = demo()
        cluster.store = Store(history_bytes=1 << 26)
        for _ in range(5):
            cluster.advance(1)
            cluster.up(simulated=True)
            for name in cluster.names:
                cluster.gpus(name, simulated=True)
        async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot)
            await choose(pilot, "HTML report", "HTML")
            page = await save_export(pilot, folder)
        assert page.count("<svg") >= 4 and "util_pct" in page and "SIM" in page and page.endswith("</html>\n")

    async def test_in_memory_history_is_exported_as_one_json_session(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot)
            await choose(pilot, "Session: in-memory history", "json")
            assert path_input(pilot.app).value == "gconsole-demo-session-20231115-120000.json"
            document = json.loads(await save_export(pilot, folder))
        assert document["schema"] == "gconsole.session/1" and document["session"]["name"] == "demo-20231115-120000"
        assert {"gpu", "rank", "rank_stat", "node"} <= {record["kind"] for record in document["records"]}

    async def test_other_session_formats_are_written_or_report_why_not(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            for format_name, message in (
                ("perfetto", ""),
                ("gswarm", ""),
                ("speedscope", "no stacks were captured"),
            ):
                await open_export(pilot)
                await choose(pilot, "Session: in-memory history", format_name)
                await pilot.press("enter")
                if message:
                    await until(pilot, lambda message=message: message in " ".join(screen(pilot.app).split()), message)
                    await pilot.press("escape")
                await until(pilot, lambda: not isinstance(pilot.app.screen, ExportDialog), format_name)
        assert [name.rpartition("0.")[2] for name in names_in(folder)] == ["gswarm.json", "perfetto-trace"]

    async def test_table_export_needs_a_new_or_empty_folder(self, folder: Path):
        (folder / "kept").mkdir()
        (folder / "kept" / "precious").write_text("mine")
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot)
            await choose(pilot, "Tables: in-memory history", "csv")
            path_input(pilot.app).value = "kept"
            await pilot.press("enter")
            await until(
                pilot, lambda: "needs a new or empty folder" in " ".join(screen(pilot.app).split()), "a refusal"
            )
            path_input(pilot.app).value = "tables"
            await pilot.press("enter")
            await shows(pilot, "saved session as csv")
            await open_export(pilot)
            await choose(pilot, "Tables: in-memory history", "parquet")
            path_input(pilot.app).value = "no/such/tables"
            await pilot.press("enter")
            await until(pilot, lambda: "does not exist" in " ".join(screen(pilot.app).split()), "a refusal")
            await pilot.press("escape")
        assert names_in(folder) == ["kept", "tables"] and names_in(folder / "kept") == ["precious"]
        assert {"gpu.csv", "rank.csv"} <= set(names_in(folder / "tables"))
        assert next(csv.DictReader((folder / "tables" / "rank.csv").open()))["job"] == "demo-ring"

    async def test_active_recording_is_offered_for_export(self, folder: Path, tmp_path_factory: Any):
        path = tmp_path_factory.mktemp("sessions") / "evening.ndjson"
        path.write_text('{"kind":"mark","rx":7,"text":"hello"}\n')
        cluster = demo()
        cluster.recordings.path = path
        await cluster.recordings.start("evening")
        async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot)
            await choose(pilot, "Session: evening", "json")
            document = json.loads(await save_export(pilot, folder))
        assert [record["text"] for record in document["records"]] == ["hello"]

    async def test_click_selects_a_format_on_a_long_line(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            dialog = await open_export(pilot, "2")
            lines = screen(pilot.app).splitlines()
            y = next(y for y, line in enumerate(lines) if "Session: in-memory" in line)
            await pilot.click(offset=(lines[y].index("gswarm"), y))
            assert dialog.selected[1].name == "gswarm"


class TestThePath:
    async def test_proposed_name_follows_the_selected_item_and_format(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2")
            assert path_input(pilot.app).value.startswith("gconsole-demo-ranks-2")
            assert path_input(pilot.app).value.endswith(".csv")
            await pilot.press("tab")
            assert path_input(pilot.app).value.endswith(".json")
            await pilot.press("shift+tab")
            assert path_input(pilot.app).value.endswith(".csv")
            await pilot.press("up")
            assert path_input(pilot.app).value.startswith("gconsole-demo-session-2")

    async def test_proposed_name_has_the_displayed_instant_not_the_save_time(self):
        cluster = demo()
        async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2", "space")
            assert path_input(pilot.app).value == "gconsole-demo-ranks-20231115-120000.csv"
            await pilot.press("escape")
            cluster.advance(60)
            await open_export(pilot)
            assert path_input(pilot.app).value == "gconsole-demo-ranks-20231115-120000.csv"
            await pilot.press("escape", "space")
            await open_export(pilot)
            assert path_input(pilot.app).value == "gconsole-demo-ranks-20231115-120100.csv"

    async def test_proposed_name_gets_a_number_if_the_file_exists(self, folder: Path):
        (folder / "gconsole-demo-ranks-20231115-120000.csv").write_text("precious")
        (folder / "gconsole-demo-ranks-20231115-120000-2.csv").symlink_to("nowhere")
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2")
            assert path_input(pilot.app).value == "gconsole-demo-ranks-20231115-120000-3.csv"

    async def test_typed_name_is_kept_and_only_a_known_suffix_follows_the_format(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2")
            path_input(pilot.app).value = "mine.csv"
            await pilot.press("tab")
            assert path_input(pilot.app).value == "mine.json"
            path_input(pilot.app).value = "mine.dat"
            await pilot.press("tab")
            assert path_input(pilot.app).value == "mine.dat"

    async def test_click_selects_item_and_format(self):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            dialog = await open_export(pilot, "2")
            lines = screen(pilot.app).splitlines()
            y = next(y for y, line in enumerate(lines) if "Selected: 1 rank" in line)
            await pilot.click(offset=(lines[y].index("JSON"), y))
            assert dialog.selected[0].what == "Selected: 1 rank" and dialog.selected[1].name == "JSON"
            assert isinstance(pilot.app.focused, Input)

    async def test_existing_file_is_replaced_only_after_confirmation(self, folder: Path):
        (folder / "mine.csv").write_text("precious")
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2")
            for key, expected in (("escape", "precious"), ("y", "job,attempt,rank")):
                path_input(pilot.app).value = "mine.csv"
                await pilot.press("enter")
                await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
                await shows(pilot, "Replace the file?")
                await pilot.press(key)
                await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm))
                await pilot.app.workers.wait_for_complete()
                assert (folder / "mine.csv").read_text().startswith(expected)
            await shows(pilot, "saved ranks as CSV")

    async def test_export_error_is_shown_in_the_dialog_and_the_path_is_kept(self, folder: Path):
        (folder / "file").write_text("no folder")
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            dialog = await open_export(pilot, "2")
            for path, message in (
                ("no/such/folder/x.csv", "does not exist"), ("file/x.csv", "Not a directory"),
                ("", "no file name"), ("~no-such-user/x.csv", "home directory"),
                ("/dev/null", "/dev/null is not a regular file"), ("x" * 300, "File name too long"),
            ):  # fmt: skip
                path_input(pilot.app).value = path
                await pilot.press("enter")
                await until(pilot, lambda message=message: message in " ".join(screen(pilot.app).split()), message)
                assert "✖" in screen(pilot.app)
                assert pilot.app.screen is dialog and path_input(pilot.app).value == path
            path_input(pilot.app).value = "good.csv"
            await pilot.press("enter")
            await until(pilot, lambda: names_in(folder) == ["file", "good.csv"])

    async def test_entered_folder_gets_the_proposed_file_name(self, folder: Path):
        (folder / "there").mkdir()
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot, "2")
            path_input(pilot.app).value = "there"
            await pilot.press("enter")
            await shows(pilot, "that is a folder")
            assert path_input(pilot.app).value.startswith("there/gconsole-demo-ranks-")
            await pilot.press("enter")
            await until(pilot, lambda: not isinstance(pilot.app.screen, ExportDialog))
            assert names_in(folder / "there")
            await open_export(pilot)
            assert path_input(pilot.app).value.startswith("there/gconsole-demo-ranks-")  # the next one goes there, too

    async def test_escape_saves_nothing(self, folder: Path):
        async with demo().app().run_test(size=SIZE, notifications=True) as pilot:
            await open_export(pilot)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(pilot.app.screen, ExportDialog))
        assert names_in(folder) == []

    async def test_escape_during_a_slow_export_leaves_no_file(self, folder: Path):
        released = threading.Event()

        def slow() -> str:
            released.wait(DEADLINE_S)
            return "too late"

        app = demo().app()
        async with running(app, toasts=True) as pilot:
            offer = ExportItem("slow", "Slow: it takes its time", (ExportFormat("text", ".txt", lambda: slow),))
            app.push_screen(ExportDialog([offer], "demo", NOON))
            await shows(pilot, "Slow: it takes its time")
            await pilot.press("enter")
            await shows(pilot, "writing …")
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(pilot.app.screen, ExportDialog))
            released.set()
            await pilot.pause()
        assert names_in(folder) == []

    async def test_escape_at_the_instant_at_which_the_file_is_written_ends_nothing(self, folder: Path):
        app = demo().app()
        async with running(app, size=SIZE) as pilot:
            dialog = await open_export(pilot, "2")
            dialog.dismiss()
            await dialog._save(replace=False)  # as a worker that is not yet cancelled
            await until(pilot, lambda: len(app.screen_stack) == 1)

    async def test_export_dialog_fits_a_small_terminal(self):
        async with pod().app().run_test(size=(60, 20), notifications=True) as pilot:
            await open_export(pilot, "2")
            screen_text = screen(pilot.app)
            for text in ("Export", "Ranks: 512 ranks", "‹CSV›", "Report", "Enter", "Esc"):
                assert text in screen_text, screen_text


class TestTheFile:
    def test_new_file_has_mode_0600(self, folder: Path):
        atomic_files.write_new(folder / "x", b"1")
        assert stat.S_IMODE((folder / "x").stat().st_mode) == 0o600

    def test_write_new_never_replaces_an_existing_file(self, folder: Path):
        (folder / "x").write_text("precious")
        with pytest.raises(FileExistsError):
            atomic_files.write_new(folder / "x", b"1")
        assert (folder / "x").read_text() == "precious"

    @pytest.mark.parametrize("write", [atomic_files.write_new, atomic_files.write_atomically])
    def test_failed_write_leaves_no_partial_file(self, write: Callable[[Path, bytes], None], folder: Path):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # as a full disk does
        try:
            with pytest.raises(OSError, match="File too large"):
                write(folder / "x", b"1" * 5000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert names_in(folder) == []

    def test_csv_formula_text_is_escaped(self, folder: Path):
        hostile_name, odd = '=HYPERLINK("http://evil")', 'a,b\n"c"'
        rows = [hostile_name, "+1", "-1", "@SUM(A1)", "fine", odd, None, -1, True, ["a"], {"b": 1}]
        kind = replace(KIND, as_object=lambda row: {"text": row})
        sheet = ExportTable("x", kind, rows, ())
        read = [row["text"] for row in csv.DictReader(io.StringIO(as_csv(sheet)))]
        assert read[:6] == [f"'{hostile_name}", "'+1", "'-1", "'@SUM(A1)", "fine", odd]
        assert read[6:] == ["", "-1", "true", '["a"]', '{"b":1}']


def test_hostile_names_do_not_break_folded_stack_lines(folder: Path):
    text = folded_stacks([a_stack(0, "a;b\n", "[bold]"), a_stack(1, frames=None)])
    assert text == "rank [0];MainThread;a,b· (train.py:10);[bold] (train.py:11) 1\n"
