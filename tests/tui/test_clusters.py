"""Several clusters on one screen: each keeps its view, filter and selection; a line has the worst finding of each."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters import demo, pod
from fake_cluster import FakeCluster
from running import running
from textual.pilot import Pilot
from tmux import Tmux
from waiting import screen, shows, until

from gconsole.cli.main import gconsole
from gconsole.config import load
from gconsole.records import NodeState
from gconsole.tui.app import ConsoleApp
from gconsole.tui.ui_state import UiStateFile


def two(**changes: object) -> tuple[ConsoleApp, FakeCluster, FakeCluster]:
    first, second = demo(), pod()
    return first.app(others=[second.source(**changes)]), first, second


async def switched(pilot: Pilot[None], app: ConsoleApp, name: str) -> None:
    await until(pilot, lambda: app.clusters.current.source.cluster == name and app.view.is_attached)
    await pilot.pause()


async def test_line_has_the_worst_finding_of_the_cluster_that_is_not_shown():
    app, first, _ = two()
    async with running(app, size=(120, 30)) as pilot:
        await shows(pilot, "^n h100-pod  62/64 nodes  ✖ rank_blocked: rank 137 sleeps")
        await pilot.press("ctrl+n")
        await switched(pilot, app, "h100-pod")
        await shows(pilot, "^n demo  4/4 nodes  ● no findings")
        first.finding("gpu_hot", "warning", "node2 gpu3 has 91 °C", ["node2:gpu3"])
        await shows(pilot, "▲ gpu_hot: node2 gpu3 has 91 °C")


async def test_cluster_with_a_node_that_does_not_report_is_not_shown_as_ok():
    app, first, _ = two()
    async with running(app, "ctrl+n", size=(120, 30)) as pilot:
        await switched(pilot, app, "h100-pod")
        first.publish(NodeState(node="node2", state="lost"))
        await shows(pilot, "^n demo  3/4 nodes  ◌ no findings, but 1 node not reporting")


async def test_each_cluster_keeps_view_filter_order_and_selection():
    app, *_ = two()
    async with running(app, "2", "j", "j", size=(120, 30)) as pilot:
        selected = app.view.selected_node, app.view._grid.selected
        await pilot.press("ctrl+n", "n", "slash", *"node00", "enter", "O")
        await switched(pilot, app, "h100-pod")
        assert app.view.id == "nodes" and app.view.arrangement.filter == "node00"
        await pilot.press("ctrl+n")
        await switched(pilot, app, "demo")
        assert app.view.id == "ranks" and not app.view.arrangement.filter
        assert (app.view.selected_node, app.view._grid.selected) == selected
        await app.run_action("clusters.previous")
        await switched(pilot, app, "h100-pod")
        assert app.view.id == "nodes" and app.view.arrangement.filter == "node00" and app.view.arrangement.reverse
        await shows(pilot, "node009")


async def test_actions_reach_the_cluster_that_is_shown():
    app, first, second = two()
    async with running(app, "ctrl+n", "M", *"from here", "enter") as pilot:
        await until(pilot, lambda: ("mark", "from here") in second.calls)
        assert ("mark", "from here") not in first.calls


async def test_click_on_a_line_shows_its_cluster():
    app, *_ = two()
    async with running(app, size=(120, 30)) as pilot:
        await shows(pilot, "h100-pod")
        await pilot.click(".cluster", offset=(6, 0))
        await switched(pilot, app, "h100-pod")


async def test_quit_asks_once_for_recordings_of_all_clusters():
    app, first, second = two()
    async with running(app, toasts=True) as pilot:
        await first.recordings.start("a")
        await second.recordings.start("b")
        await pilot.press("q")
        await shows(pilot, "press q again")
        assert app.is_running and not app._exit
        await pilot.press("q")
        await until(pilot, lambda: app._exit)


async def test_lines_that_do_not_fit_are_counted():
    others = [FakeCluster("n", cluster=f"c{number}").source() for number in range(2, 8)]
    app = demo().app(others=others)
    async with running(app, size=(80, 24)) as pilot:
        await shows(pilot, "+3 clusters")
        assert "c4 " in screen(app) and "c5 " not in screen(app)
        await pilot.resize_terminal(30, 8)
        await shows(pilot, "+5 clusters")
        for name in ("c2", "c3", "c4", "c5", "c6", "c7", "demo"):
            await pilot.press("ctrl+n")
            await switched(pilot, app, name)


async def test_arrangement_is_kept_in_the_file_of_its_cluster(tmp_path: Path):
    app, *_ = two(ui_state=UiStateFile(tmp_path / "pod.json"))
    async with running(app, "ctrl+n", "6", "o") as pilot:
        await switched(pilot, app, "h100-pod")
        await pilot.press("ctrl+n")
        await switched(pilot, app, "demo")
        await until(pilot, (tmp_path / "pod.json").exists)
    assert UiStateFile(tmp_path / "pod.json").read()[0].view == "gpus"


async def test_only_the_cluster_that_is_shown_is_wanted_at_its_full_rate():
    app, *clusters = two()
    async with running(app, "ctrl+n") as pilot:
        await switched(pilot, app, "h100-pod")
        assert [cluster.is_hidden for cluster in clusters] == [True, False]
        await pilot.press("ctrl+n")
        await switched(pilot, app, "demo")
        assert [cluster.is_hidden for cluster in clusters] == [False, True]


async def test_single_cluster_has_neither_a_line_nor_the_key():
    app = demo().app()
    async with running(app, "ctrl+n") as pilot:
        assert not app.query(".cluster")
        await pilot.press("question_mark")
        assert app.clusters.palette_entries() == []


# -- the command -------------------------------------------------------------------------------------------------------

HOSTS = '[cluster]\nname = "{0}"\n[[nodes]]\nhosts = "{0}-node"\ntransport = "local"\nprocess_filter = "env:GCT=no"\n'


def test_named_cluster_is_read_from_the_configuration_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "gconsole/clusters"
    folder.mkdir(parents=True)
    (folder / "prod.toml").write_text(HOSTS.format("prod"))
    config = load("@prod", environ={})
    assert config.cluster == "prod" and config.path == folder / "prod.toml"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["bacth", "a.toml"], "no command bacth; did you mean gconsole batch?"),
        (["a.toml", "./a.toml"], "./a.toml is named twice"),
        (["a.toml", "b.toml", "c.toml"], "c.toml:1"),
    ],
)
def test_several_targets_that_are_wrong_are_all_reported(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "d"):
        (tmp_path / f"{name}.toml").write_text(HOSTS.format(name))
    (tmp_path / "b.toml").write_text("[cluster]\nnmae = 1\n")
    (tmp_path / "c.toml").write_text("[claster]\n")
    result = CliRunner().invoke(gconsole, words)
    assert result.exit_code == 2 and text in result.output and "Traceback" not in result.output
    if "c.toml" in words:
        assert "b.toml:2" in result.output


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_two_files_are_two_clusters_in_a_real_terminal(tmp_path: Path):
    for name in ("east", "west"):
        (tmp_path / f"{name}.toml").write_text(HOSTS.format(name))
    tmux = Tmux(f"cd {tmp_path} && exec {sys.executable} -m gconsole east.toml west.toml")
    try:
        tmux.until("^n west  1/1 nodes  ● no findings", "east-node")
        tmux.press("C-n")
        tmux.until("^n east  1/1 nodes", "west-node")
        tmux.press("q")
    finally:
        tmux.close()
