"""The arrangement of the screen is restored per cluster; a broken file only gives a message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from clusters import demo, pod
from running import running
from textual.pilot import Pilot
from waiting import accept, screen, settle, shows, until

from gconsole.tui.app import ConsoleApp
from gconsole.tui.models.list_kind import DEFAULT_ARRANGEMENT, Arrangement
from gconsole.tui.ui_state import UiState, UiStateFile
from gconsole.tui.views.list_view import ListView

SIZE = (80, 24)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "pod.json"


def app_of(pilot: Pilot[None]) -> ConsoleApp:
    assert isinstance(pilot.app, ConsoleApp)
    return pilot.app


def _break(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")


def _is_written(path: Path) -> bool:
    return path.exists()


class TestTheFile:
    def test_ui_state_round_trips_through_a_private_file(self, path: Path):
        state = UiState("nodes", "light", {"nodes": Arrangement(sort="cpu", hidden=("rx",), earlier=("cpu:>9",))})
        assert UiStateFile(path).write(state) == ""
        assert UiStateFile(path).read() == (state, "")
        assert path.stat().st_mode & 0o777 == 0o600

    def test_missing_file_yields_the_default_ui_state(self, path: Path):
        assert UiStateFile(path).read() == (UiState(), "")
        assert UiStateFile().read() == (UiState(), "")
        assert UiStateFile().write(UiState("nodes")) == ""

    @pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"view": 7}', b'{"views": {"x": 1}}', b"\xff", b"[" * 9999])
    def test_broken_file_is_renamed_and_reported_once(self, path: Path, data: bytes):
        path.parent.mkdir()
        path.write_bytes(data)
        remembered, trouble = UiStateFile(path).read()
        assert remembered == UiState()
        assert "renamed to pod.json.broken" in trouble
        assert path.with_name("pod.json.broken").read_bytes() == data
        assert UiStateFile(path).read() == (UiState(), "")

    def test_unknown_fields_of_a_later_version_are_ignored(self, path: Path):
        path.parent.mkdir()
        path.write_text('{"view": "nodes", "zoom": 3, "views": {"moon": {"sort": "phase", "phase": "full"}}}')
        remembered, trouble = UiStateFile(path).read()
        assert (remembered.view, remembered.of("moon").sort, trouble) == ("nodes", "phase", "")
        assert remembered.of("ranks") == DEFAULT_ARRANGEMENT

    def test_unusable_state_folder_is_reported_without_an_exception(self, tmp_path: Path):
        (tmp_path / "state").write_text("a file in the place of the folder")
        assert "cannot be written" in UiStateFile(tmp_path / "state" / "pod.json").write(UiState())
        assert "cannot be read" in UiStateFile(tmp_path).read()[1]

    @pytest.mark.parametrize("cluster", ["h100 pod", "node[1-64],@gpu", "../../etc", "a/b", "x" * 5000, ".", "ä"])
    def test_any_cluster_name_maps_to_one_file_in_the_state_folder(self, cluster: str, tmp_path: Path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        UiStateFile.of_cluster(cluster).write(UiState("nodes"))
        [state_file] = (tmp_path / "gconsole").iterdir()
        assert state_file.suffix == ".json"
        assert UiStateFile.of_cluster(cluster).read()[0].view == "nodes"

    def test_long_cluster_names_with_a_common_prefix_have_separate_files(self, tmp_path: Path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        UiStateFile.of_cluster("x" * 300 + "1").write(UiState("nodes"))
        assert UiStateFile.of_cluster("x" * 300 + "2").read()[0] == UiState()


class TestTheNextTime:
    async def test_view_sort_filter_group_columns_metric_and_theme_are_restored(self, path: Path):
        async with running(pod().app(ui_state=UiStateFile(path)), "m", "n", "o", "O", "b") as pilot:
            await pilot.press("slash", *"node:node01*", "enter", "C", "j", "j", "j", "space", "K", "escape")
            app_of(pilot).themes.use("light")
            await until(pilot, lambda: path.exists() and json.loads(path.read_text()).get("theme") == "light")
        app = pod().app(ui_state=UiStateFile(path))
        async with running(app) as pilot:
            assert (app.view.id, app.theme) == ("nodes", "gconsole-light")
            view = app.view
            assert isinstance(view, ListView)
            assert (view.arrangement.sort, view.arrangement.reverse) == ("cpu", True)
            assert view.arrangement.group == "state"
            assert view.hidden_columns == {"mem"}
            await shows(pilot, "/ node:node01*")
            await shows(pilot, "10 of 64 nodes")
            await shows(pilot, "CPU▼")
            await pilot.press("slash", "ctrl+a", "ctrl+k", "ctrl+r")
            await shows(pilot, "/ node:node01*")
            await pilot.press("enter", "1")
            await shows(pilot, "GPU memory")

    async def test_escape_leads_from_the_stored_view_to_the_overview(self, path: Path):
        UiStateFile(path).write(UiState("nodes"))
        app = demo().app(ui_state=UiStateFile(path))
        async with running(app, "escape") as pilot:
            await until(pilot, lambda: app.view.id == "overview")
            await shows(pilot, "NODES")

    async def test_session_without_layout_changes_writes_no_file(self, path: Path):
        async with running(demo().app(ui_state=UiStateFile(path)), "j", "question_mark", "escape") as pilot:
            await app_of(pilot).ui_state.save()
        app_of(pilot).shutdown.before_stop()
        assert not _is_written(path)

    async def test_changes_just_before_quitting_are_saved(self, path: Path):
        async def arrange_and_leave(pilot: Pilot[None]) -> None:
            await settle(pilot)
            await pilot.press("2", "O", "q")

        app = demo().app(ui_state=UiStateFile(path))
        app.ui_state.save = lambda: None  # type: ignore[method-assign]  # saved only at the end
        await app.run_async(headless=True, size=SIZE, auto_pilot=arrange_and_leave)
        assert UiStateFile(path).read()[0].of("ranks").reverse

    async def test_unknown_stored_names_fall_back_to_the_defaults(self, path: Path):
        UiStateFile(path).write(
            UiState("moon", "ultraviolet", {"ranks": Arrangement("phase", True, "orbit", "phase:full", (), ("x",))})
        )
        app = demo().app(ui_state=UiStateFile(path))
        async with running(app) as pilot:
            assert (app.view.id, app.theme) == ("overview", "gconsole-dark")
            await pilot.press("2")
            await shows(pilot, "rank▼")
            await shows(pilot, "▾ demo-ring")

    async def test_broken_ui_state_file_is_shown_as_an_event(self, path: Path):
        _break(path)
        async with running(demo().app(ui_state=UiStateFile(path)), "8", size=(120, 24)) as pilot:
            await shows(pilot, "stored UI state is lost")

    async def test_palette_resets_the_layout_after_confirmation(self, path: Path):
        UiStateFile(path).write(UiState("ranks", "light", {"ranks": Arrangement(sort="pid", filter="rank:1")}))
        app = demo().app(ui_state=UiStateFile(path))
        async with running(app) as pilot:
            await shows(pilot, "/ rank:1")
            await pilot.press("ctrl+p", *"reset layout")
            await accept(pilot, "Reset layout")
            await shows(pilot, "Reset layout?")
            await pilot.press("y")
            await until(pilot, lambda: app.theme == "gconsole-dark")
            await until(pilot, lambda: "/ rank:1" not in screen(app))
            await shows(pilot, "rank▲")
            await pilot.press("1")
            await app.ui_state.save()
        assert UiStateFile(path).read()[0] == UiState()
