"""The Topology view on a screen: the classes, the matrix, the drawing, every key of it, at every size."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
from fake_cluster import FakeCluster
from textual.pilot import Pilot
from topologies import hgx_facts, odd_pod, publish_topology, uuid
from waiting import accept, frames, screen, settle, shows, until

from gconsole.monitor import topology as fold
from gconsole.monitor.topology import TopologyFold
from gconsole.records import Gpu, NodeState, PgStatus
from gconsole.text.cells import width_of
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.dialog import DetailDialog
from gconsole.tui.keymap.actions import in_scope
from gconsole.tui.views.nodes.view import NodesView
from gconsole.tui.views.topology.model import TopologySelection, class_lines, drawing_lines, grid, pair_text, pairs_of
from gconsole.tui.views.topology.view import TopologyView
from gconsole.tui.widgets.matrix_grid import MatrixGrid

SIZES = [(60, 20), (80, 24), (120, 40), (200, 60)]


def fleet_of(cluster: FakeCluster):
    return updated(TopologyFold(cluster.store)).fleet


def updated(fold: TopologyFold) -> TopologyFold:
    fold.note()
    asyncio.run(fold.derived.update())
    return fold


async def open_topology(pilot: Pilot[None], *keys: str) -> TopologyView:
    await settle(pilot)
    await pilot.press("5", *keys)
    await settle(pilot)
    assert isinstance(pilot.app, ConsoleApp)
    view = pilot.app.view
    assert isinstance(view, TopologyView)
    return view


# -- the model ---------------------------------------------------------------------------------------------------------


class TestModel:
    def test_class_lines_list_every_class_and_every_difference(self):
        texts = [line.text for line in class_lines(fleet_of(odd_pod()), (), 120)]

        assert texts[0].startswith("▸ class A  5 nodes  node[001-005]  8 × NVIDIA H100")
        assert "    ▲ node003  NIC1 state down, the rest active" in texts
        assert "    ▲ GPU4–GPU5 PIX, class A NV18" in texts

    def test_unfolded_class_lists_its_nodes_with_their_differences(self):
        lines = class_lines(fleet_of(odd_pod()), ("A",), 120)

        assert [line.text.strip() for line in lines[:5]] == [
            "▾ class A  5 nodes  node[001-005]  8 × NVIDIA H100 80GB HBM3, 4 NICs", "node001", "node002", "node003",
            "▲ NIC1 state down, the rest active",
        ]  # fmt: skip
        assert lines[4].key == TopologySelection("node", "node003")

    @pytest.mark.parametrize("width", [20, 57, 77, 117])
    def test_no_topology_line_exceeds_the_width(self, width: int):
        fleet = fleet_of(odd_pod())
        lines = class_lines(fleet, ("A", "B"), width)
        for node in ("node001", "node044", "slow1"):
            lines += drawing_lines(fleet, fleet.nodes[node], [node], pairs_of(fleet.nodes[node]), width)

        assert max(width_of(line.text) for line in lines) <= max(width, 40)

    def test_cells_that_differ_from_the_class_are_marked(self):
        fleet = fleet_of(odd_pod())
        matrix = grid(fleet, fleet.nodes["node044"], ["node044"])

        marked = {(row, column) for row, cells in enumerate(matrix.rows) for column, cell in enumerate(cells)
                  if cell.differs}  # fmt: skip
        assert marked == {(4, index) for index in range(8) if index != 4} | {
            (index, 4) for index in range(8) if index != 4}  # fmt: skip
        assert matrix.rows[4][5].text == "PIX"

    def test_pair_text_names_the_relation_path_and_peer_access(self):
        fleet = fleet_of(odd_pod())

        assert pair_text(fleet, fleet.nodes["node044"], 4, 0) == (
            "GPU4–GPU0  SYS  at most 63 GB/s over PCIe, NUMA node 1, NUMA node 0, PCIe (PCIe 5 x16); "
            "peer access: read, write and atomics over PCIe")  # fmt: skip

    def test_only_nodes_with_changed_topology_are_rebuilt(self):
        cluster = odd_pod()
        fold = updated(TopologyFold(cluster.store))
        before = fold.fleet.nodes
        cluster.publish(Gpu(node="node001", index=0, uuid=uuid("node001", 0), util_pct=50.0))
        updated(fold)
        assert all(fold.fleet.nodes[node] is before[node] for node in before)

        port = msgspec.structs.replace(hgx_facts("node002").nics[0], node="node002", state="down")
        cluster.publish(port)
        updated(fold)
        changed = [node for node in before if fold.fleet.nodes[node] is not before[node]]
        assert changed == ["node002"]

    def test_removed_node_is_in_no_class(self):
        cluster = odd_pod()
        fold = updated(TopologyFold(cluster.store))
        cluster.publish(NodeState(node="slow1", state="removed"))

        updated(fold)

        assert [topology_class.name for topology_class in fold.fleet.classes] == ["A", "B"]


# -- the screen --------------------------------------------------------------------------------------------------------


class TestView:
    async def test_view_shows_the_classes_and_the_matrix_of_the_first_one(self):
        async with odd_pod().app().run_test(size=(120, 40)) as pilot:
            await open_topology(pilot)
            text = screen(pilot.app)
            assert "class A  5 nodes  node[001-005]" in text
            assert "GPU4–GPU5 PIX, class A NV18" in text
            assert "GPU7" in text
            assert "0,8,16,…32" in text
            assert "PCIe switch 0000:80:01.0" in text

    async def test_selecting_a_class_shows_its_matrix_with_marked_differences(self):
        async with odd_pod().app().run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "j", "j")
            await shows(pilot, "─ class B")
            assert "▲SYS" in screen(pilot.app)

    async def test_enter_unfolds_a_class_and_then_opens_the_page_of_a_node(self):
        app = odd_pod().app()
        async with app.run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "enter", "j")
            await shows(pilot, "─ node001")
            assert app.view.selected_node == "node001"
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.view, NodesView))

    async def test_escape_folds_the_class_and_then_leaves_the_view(self):
        app = odd_pod().app()
        async with app.run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "enter")
            await shows(pilot, "▾ class A")
            await pilot.press("escape")
            await shows(pilot, "▸ class A")
            assert isinstance(app.view, TopologyView)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.view, TopologyView))

    async def test_selected_cell_shows_its_pair_and_enter_shows_the_path(self):
        async with odd_pod().app().run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "tab", "l")
            await shows(pilot, "GPU0–GPU1  NV18  478 GB/s over NVSwitch")
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, DetailDialog))
            await shows(pilot, "18 × 26.6 GB/s, 478 GB/s (driver)")

    async def test_enter_on_the_diagonal_shows_the_device(self):
        async with odd_pod().app().run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "tab", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, DetailDialog))
            await shows(pilot, "NIC0 mlx5_0")

    async def test_parallel_groups_are_shown_in_the_view_once_a_capture_reports_them(self):
        cluster = odd_pod()
        async with cluster.app().run_test(size=(200, 60)) as pilot:
            await open_topology(pilot)
            await shows(pilot, "PARALLEL GROUPS")
            await shows(pilot, "none known; run a capture to read them")
            cluster.publish(*(
                PgStatus(node="node001", capture="c", source="worker_server", job="llama-70b", rank=rank,
                         process_group=(str(rank // 4), "tp"), ranks=tuple(range(rank // 4 * 4, rank // 4 * 4 + 4)))
                for rank in range(48)
            ))  # fmt: skip
            await shows(pilot, "12 groups of 4 ranks; each within one node")
            assert "none known" not in screen(pilot.app)
            await pilot.press("tab", "l")
            await shows(pilot, "tp ×5")
            await shows(pilot, "both in tp 0")
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, DetailDialog))
            await shows(pilot, "tp 0: node001 GPU0-3, NV18")

    async def test_columns_that_do_not_fit_scroll_into_view_with_the_cursor(self):
        async with odd_pod().app().run_test(size=(60, 20)) as pilot:
            await open_topology(pilot, "tab")
            assert "›" in screen(pilot.app)
            assert "NIC3" not in screen(pilot.app)
            await pilot.press(*["right"] * 11)
            await shows(pilot, "NIC3")
            assert "‹" in screen(pilot.app)

    async def test_m_toggles_between_matrix_and_drawing_when_both_do_not_fit(self):
        async with odd_pod().app().run_test(size=(80, 24)) as pilot:
            await open_topology(pilot)
            assert "NVSwitch ×4" not in screen(pilot.app)
            await pilot.press("m")
            await shows(pilot, "NVSwitch ×4")
            await pilot.press("m")
            await until(pilot, lambda: "NVSwitch ×4" not in screen(pilot.app))

    async def test_selected_node_is_copied_as_text_and_as_json(self):
        app = odd_pod().app()
        async with app.run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "j", "y")
            await until(pilot, lambda: "node003  class A of 5" in app.clipboard)
            await pilot.press("Y")
            await until(pilot, lambda: app.clipboard.startswith("{"))
            assert [node["node"] for node in json.loads(app.clipboard)["nodes"]] == ["node003"]

    async def test_palette_saves_the_topology_as_svg(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        async with odd_pod().app().run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "ctrl+p")
            await pilot.press(*("space" if letter == " " else letter for letter in "save as SVG"))
            await accept(pilot, "Save as SVG")
            await until(pilot, lambda: list(tmp_path.glob("gconsole-topology-*.svg")))
            (path,) = tmp_path.iterdir()
            ElementTree.fromstring(path.read_text())

    async def test_each_export_format_writes_its_own_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        async with odd_pod().app().run_test(size=(120, 40)) as pilot:
            view = await open_topology(pilot)
            for action in in_scope("topology"):
                if action.call.startswith("save"):
                    await pilot.app.run_action(action.call, view)
            assert {path.suffix for path in tmp_path.iterdir()} == {".txt", ".dot", ".json", ".svg"}
            assert all("GPU0" in path.read_text() for path in tmp_path.iterdir())

    async def test_save_into_an_unwritable_folder_is_reported(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("gconsole.tui.controllers.clipboard.save_new", _refuse)
        async with odd_pod().app().run_test(size=(120, 40)) as pilot:
            view = await open_topology(pilot)
            view.action_save("text")
            await until(pilot, lambda: len(pilot.app._notifications))
            messages = [notification.message for notification in pilot.app._notifications]
            assert messages == [f"not saved: Permission denied: {tmp_path}"]

    async def test_lost_nvlinks_move_the_node_to_another_class(self):
        cluster = odd_pod()
        async with cluster.app().run_test(size=(120, 40)) as pilot:
            await open_topology(pilot)
            publish_topology(cluster, hgx_facts("node005", dead=[7]))
            await shows(pilot, "class A  4 nodes")
            await shows(pilot, "GPU6–GPU7 PIX, class A NV18")

    async def test_paused_topology_does_not_change_until_resumed(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(fold, "EVERY_S", 0.0)
        cluster = odd_pod()
        async with cluster.app().run_test(size=(120, 40)) as pilot:
            await open_topology(pilot, "space")
            publish_topology(cluster, hgx_facts("node005", dead=[7]))
            await frames(pilot, 8)
            assert "class A  5 nodes" in screen(pilot.app)
            await pilot.press("space")
            await shows(pilot, "class A  4 nodes")

    async def test_view_opened_while_paused_shows_the_topology_of_the_pause(self):
        cluster = odd_pod()
        async with cluster.app().run_test(size=(120, 40)) as pilot:
            await settle(pilot)
            await pilot.press("space")
            publish_topology(cluster, hgx_facts("node005", dead=[7]))
            await pilot.press("5")
            await shows(pilot, "class A  5 nodes")

    async def test_fleet_without_devices_shows_that_no_topology_is_reported(self):
        cluster = FakeCluster("n1")
        async with cluster.app().run_test(size=(80, 24)) as pilot:
            await open_topology(pilot)
            await shows(pilot, "No topology reported yet.")

    @pytest.mark.parametrize("size", SIZES)
    async def test_topology_view_fits_every_screen_size(self, size):
        async with odd_pod().app().run_test(size=size) as pilot:
            await open_topology(pilot, "j", "j", "m", "m", "tab", "l", "j", "G", "g")
            lines = screen(pilot.app).splitlines()
            assert max(map(width_of, lines)) <= size[0]
            assert any("TOPOLOGY" in line for line in lines)


def _refuse(*_: object) -> Path:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_topology_view_matches_its_snapshot(snap_compare, size):
    async def run(pilot: Pilot[None]) -> None:
        await open_topology(pilot, "j", "j", "tab", "j", "j", "j", "j")

    assert snap_compare(odd_pod().app(), terminal_size=size, run_before=run)


def test_scrolling_a_matrix_without_columns_selects_nothing():
    matrix = MatrixGrid()
    matrix._scroll_to_column()
    assert matrix.selected is None
