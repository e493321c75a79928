"""The GPUs view: every figure in a grid, one GPU on a page with its curves, and the way there from the heat map."""

from __future__ import annotations

import json

from clusters import pod
from fake_cluster import GIB, FakeCluster
from running import running
from waiting import screen, shows, until

from gconsole.core.store import Store
from gconsole.present.spans import as_text
from gconsole.records import Gpu, GpuEvent, GpuInfo, GpuLink, GpuProcess
from gconsole.records.base import DigestibleRecord
from gconsole.tui.app import ConsoleApp
from gconsole.tui.models.heat_map import HEAT_METRICS, peer_range
from gconsole.tui.snapshot import ScreenSnapshot, SnapshotBuilder
from gconsole.tui.views.gpus.model import GpuRows, ranks_on
from gconsole.tui.views.gpus.page_model import _FIELDS, GpuPageData, labels_of, page_lines
from gconsole.tui.views.gpus.view import COLUMNS, GpusView
from gconsole.tui.widgets.heat_map import HeatMap

UTIL = HEAT_METRICS[0]


def frame_of(cluster: FakeCluster) -> ScreenSnapshot:
    return SnapshotBuilder(cluster.store, "x", cluster.names, live=True, now=cluster.now, staging=None).build()


def pointed(app: ConsoleApp) -> str:
    """The cell under the cursor of the map, as its heading names it."""
    return "".join(span.text for span in app.view._under_cursor(app.frames.frame))


def rows_of(cluster: FakeCluster):
    frame = frame_of(cluster)
    ranks = ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus)
    return {row.name: row for row in GpuRows().rows(frame.fleet, frame.gpus, ranks, frame.findings)}


def one_node(**gpu: object) -> FakeCluster:
    cluster = FakeCluster("node1")
    cluster.up()
    cluster.gpus(count=2)
    cluster.publish(Gpu(node="node1", index=0, uuid="GPU-node1-0", **gpu))  # type: ignore[arg-type]
    return cluster


def with_curves() -> FakeCluster:
    """A cluster that keeps history, with two minutes of one GPU in it."""
    cluster = FakeCluster("node1")
    cluster.store = Store(history_bytes=1 << 26)
    cluster.up()
    cluster.gpus(count=2)
    for second in range(120):
        cluster.advance(1)
        cluster.publish(Gpu(node="node1", index=0, uuid="GPU-node1-0", util_pct=50.0 + second % 40, power_w=400.0))
    cluster.up()
    return cluster


async def test_broken_drivers_are_named_where_there_is_no_gpu():
    names = [f"node{number:02}" for number in range(1, 15)]
    cluster = FakeCluster(*names)
    cluster.up()
    for name in names:
        cluster.finding("driver_broken", "error", f"{name}: NVML failed to start: Unknown Error", [name])

    app = cluster.app()
    async with running(app, "6", size=(120, 36)) as pilot:
        await shows(pilot, "No GPU can be read on these nodes.")
        text = screen(app)
        assert "✖ node01: NVML failed to start: Unknown Error" in text
        assert "and 2 more" in text and "No GPUs found" not in text


async def test_overview_has_no_current_figures_of_gpus_whose_calls_hang():
    cluster = FakeCluster("node1", "node2")
    cluster.up()
    cluster.gpus(util=[40.0] * 8)

    app = cluster.app()
    async with running(app, size=(120, 40)) as pilot:
        await shows(pilot, "GPU util     40 % median")
        cluster.advance(10)
        cluster.up()  # the nodes report, their GPUs do not
        await until(pilot, lambda: "GPU util  " not in screen(app).partition("RESOURCES")[2])
        rows = [row for _, row in app.view._rows.values()]
        assert [row.status for row in rows] == ["stale", "stale"]
        cluster.gpus("node2", util=[30.0] * 8)
        await shows(pilot, "GPU util     30 % median")
        await until(pilot, lambda: [row.status for _, row in app.view._rows.values()] == ["stale", "ok"])


class TestRows:
    def test_every_gpu_of_the_fleet_has_a_row(self):
        assert len(rows_of(pod())) == 63 * 8

    def test_gpu_row_shows_the_worst_known_state(self):
        cluster = one_node(util_pct=90.0)
        assert rows_of(cluster)["node1:gpu0"].row_state == ("ok", "ok")
        cluster.publish(Gpu(node="node1", index=0, uuid="GPU-node1-0", sm_clock_mhz=900.0,
                            clocks_event_share_pct={"hw_thermal_slowdown": 60.0}))  # fmt: skip
        assert rows_of(cluster)["node1:gpu0"].row_state == ("warning", "held down")
        cluster.finding("gpu_ecc", "error", "two uncorrected errors", ["node1:gpu0"])
        assert rows_of(cluster)["node1:gpu0"].row_state == ("failed", "ecc")
        cluster.publish(GpuInfo(node="node1", index=0, uuid="GPU-node1-0", lost="GPU is lost"))
        row = rows_of(cluster)["node1:gpu0"]
        assert row.row_state == ("failed", "lost")
        assert row.note is not None and row.note.text == "GPU is lost"

    def test_only_rows_of_nodes_that_changed_are_remade(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        cluster.gpus(count=2)
        builder = SnapshotBuilder(cluster.store, "x", cluster.names, live=True, now=cluster.now, staging=None)
        made, ranks = GpuRows(), {("node1", "GPU-node1-1"): [3]}

        def rows(ranks):
            frame = builder.build()
            return {row.name: row for row in made.rows(frame.fleet, frame.gpus, ranks, frame.findings)}

        first = rows(ranks)
        cluster.publish(Gpu(node="node1", index=0, uuid="GPU-node1-0", util_pct=7.0))
        second = rows(ranks)
        assert second["node1:gpu0"].gpu.util_pct == 7.0 and second["node1:gpu1"].ranks == (3,)
        assert all(second[name] is first[name] for name in ("node2:gpu0", "node2:gpu1"))
        assert rows({("node2", "GPU-node2-0"): [4]})["node2:gpu0"].ranks == (4,)

    def test_gpu_row_of_a_lost_node_has_state_lost(self):
        row = rows_of(pod())["node044:gpu0"]
        assert row.row_state == ("failed", "lost")

    def test_gpu_row_ranks_come_from_gpu_processes(self):
        cluster = one_node()
        cluster.job("train", 2, per_node=2)
        assert rows_of(cluster)["node1:gpu0"].ranks == ()  # no job is folded yet
        cluster.publish(
            GpuProcess(node="node1", index=0, uuid="GPU-node1-0", pid=7, type="compute", job="train", rank=5)
        )
        assert rows_of(cluster)["node1:gpu0"].ranks == (5,)


class TestPeers:
    def test_single_gpu_far_from_its_peers_is_marked(self):
        peers = peer_range(frame_of(pod()).gpus, UTIL)
        assert peers is not None
        assert [peers.side(value) for value in (12.0, 97.0, 99.0)] == ["▼", "", ""]

    def test_few_gpus_have_no_peer_range(self):
        assert peer_range(frame_of(one_node(util_pct=0.0)).gpus, UTIL) is None

    def test_half_idle_fleet_has_no_outliers(self):
        cluster = FakeCluster(*(f"node{i}" for i in range(8)))
        cluster.up()
        cluster.gpus(util=[0.0, 99.0])
        peers = peer_range(frame_of(cluster).gpus, UTIL)
        assert peers is not None
        assert peers.side(0.0) == peers.side(99.0) == ""

    def test_peer_range_is_reused_while_values_barely_change(self):
        frame = frame_of(pod())
        peers = peer_range(frame.gpus, UTIL)
        assert peer_range(frame.gpus, UTIL, peers) is peers


class TestTheGrid:
    async def test_gpus_view_lists_gpus_and_a_filter_finds_the_idle_one(self):
        app = pod().app()
        async with running(app, "6", size=(120, 40)) as pilot:
            await shows(pilot, "last minute")
            await pilot.press("slash", *"util:<50", "enter")
            await shows(pilot, "1 of 504 GPUs")
            assert "node019" in screen(app)

    async def test_every_column_sorts(self):
        app = pod().app()
        async with running(app, "6", size=(200, 24)) as pilot:
            for _ in app.view.initial_focus().shown_columns:  # type: ignore[union-attr]
                await pilot.press("o", "O")
            await until(pilot, lambda: "▲" in screen(app) or "▼" in screen(app))

    async def test_one_key_sorts_by_temperature(self):
        app = pod().app()
        async with running(app, "6", size=(200, 24)) as pilot:
            await pilot.press("T")
            await until(pilot, lambda: "°C▼" in screen(app))

    async def test_gpu_columns_depend_on_the_width(self):
        columns = {}
        app = pod().app()
        async with running(app, "6", size=(60, 24)) as pilot:
            for width in (60, 80, 120, 200):
                await pilot.resize_terminal(width, 24)
                await until(pilot, lambda width=width: app.view.initial_focus().size.width == width)  # type: ignore[misc, union-attr]
                columns[width] = app.view.initial_focus().shown_columns  # type: ignore[union-attr]
        assert columns[60] == ["state", "node", "gpu", "util", "mem", "power", "temp", "ranks"]
        assert columns[80] == ["state", "node", "gpu", "util", "curve", "mem", "power", "temp", "sm_clock", "ranks"]
        assert set(columns[80]) < set(columns[120]) < set(columns[200])
        assert "model" in columns[120]

    def test_every_gpu_field_has_a_column(self):
        assert {column.key for column in COLUMNS} == set(GpusView.kind.fields)

    async def test_copied_gpu_json_has_records_in_raw_units(self):
        app = pod().app()
        async with running(app, "6", "ctrl+y") as pilot:
            await until(pilot, lambda: app.clipboard)
            [copied] = json.loads(app.clipboard)
            assert copied["gpu_info"]["mem_total_bytes"] == 80 * GIB
            assert copied["gpu"]["power_w"] > 600


class TestThePage:
    async def test_enter_opens_the_gpu_page_and_escape_goes_back(self):
        app = with_curves().app()
        async with running(app, "6", "enter", size=(120, 40)) as pilot:
            await shows(pilot, "node1 gpu0")
            await shows(pilot, "GPU util %")
            assert "power W" in screen(app)
            assert "SM activity" not in screen(app)  # never reported
            await pilot.press("escape")
            await shows(pilot, "last minute")

    async def test_m_plots_the_next_metric_and_t_switches_to_one_hour(self):
        async with running(with_curves().app(), "6", "enter") as pilot:
            await shows(pilot, "5 min ago")
            await pilot.press("t")
            await shows(pilot, "60 min ago")
            await pilot.press("m")
            await shows(pilot, "memory GiB")

    async def test_enter_on_a_heat_map_cell_opens_its_gpu_page(self):
        async with running(pod().app(), "l", "enter", size=(120, 40)) as pilot:
            await shows(pilot, "node001 gpu1")
            await pilot.press("escape")
            await shows(pilot, "FINDINGS")

    async def test_gpu_page_shows_only_its_own_hints_processes_links_and_events(self):
        cluster = one_node(remap_pending=True, util_pct=3.0)
        gpu = {"node": "node1", "index": 0, "uuid": "GPU-node1-0"}
        cluster.publish(
            GpuProcess(**gpu, pid=4711, type="compute", comm="python", mem_used_bytes=GIB, rank=3, job="a"),
            GpuLink(**gpu, link=4, up=False),
            GpuEvent(**gpu, event="xid", severity="error", text="XID 79: the GPU has fallen off the bus", xid=79),
            GpuEvent(node="node1", index=1, uuid="GPU-node1-1", event="xid", severity="error", text="another's"),
        )
        app = cluster.app()
        async with running(app, "6", "enter", size=(120, 60)) as pilot:
            for text in ("gpu.remap_pending true", "rank 3", "down", "fallen off the bus"):
                await shows(pilot, text)
            assert "another's" not in screen(app)

    async def test_gpu_removed_while_its_page_is_open_is_reported(self):
        cluster = one_node()
        async with running(cluster.app(), "6", "enter") as pilot:
            await shows(pilot, "node1 gpu0")
            cluster.store.gpus.drop(("node1", "GPU-node1-0"), cluster.store.version + 1)
            cluster.advance(1)
            cluster.up()
            await shows(pilot, "GPU removed")


class TestUnknownFigures:
    def test_unknown_figures_of_a_gpu_are_named_on_one_line(self):
        cluster = FakeCluster("n1")
        cluster.up()
        cluster.publish(Gpu(node="n1", index=0, uuid="GPU-1", util_pct=40.0, sm_clock_mhz=1980.0, temp_c=0.0))
        cluster.publish(GpuInfo(node="n1", index=0, uuid="GPU-1", unsupported={"fan_pct": "not supported"}))
        frame = cluster.app().frames.builder.build()
        row = GpuRows().rows(frame.fleet, frame.gpus, {}, (), None, frame.nodes)[0]
        text = as_text(page_lines(GpuPageData(row), 200))
        assert "GPU util       40 %\n" in text and "clocks         SM 1980 MHz\n" in text
        assert "temperature    0 °C\n" in text, "zero is a figure"
        [missing] = [line for line in text.splitlines() if line.startswith("not reported")]
        assert "GPU util (SMs, occupancy, tensor)" in missing and "NVLink" in missing
        assert "temperature (fan): not supported" in text and "fan" not in missing, "each figure is named once"
        assert not any(line.rstrip().endswith("– %") for line in text.splitlines())

    def test_figures_without_a_function_in_the_binding_share_a_line(self):
        cluster = FakeCluster("n1")
        cluster.up()
        cluster.publish(Gpu(node="n1", index=0, uuid="GPU-1", util_pct=40.0))
        missing = {"serial": "this binding has no nvmlDeviceGetSerial", "fan_pct": "not supported",
                   "vbios": "this binding has no nvmlDeviceGetVbiosVersion"}  # fmt: skip
        cluster.publish(GpuInfo(node="n1", index=0, uuid="GPU-1", unsupported=missing))
        frame = cluster.app().frames.builder.build()
        row = GpuRows().rows(frame.fleet, frame.gpus, {}, (), None, frame.nodes)[0]
        lines = [line for line in as_text(page_lines(GpuPageData(row), 200)).splitlines() if "not available" in line]
        assert [line.partition("available")[2].strip() for line in lines] == [
            "driver (VBIOS), serial: this binding has no function for them", "temperature (fan): not supported",
        ]  # fmt: skip

    def test_every_field_without_a_value_has_the_label_of_its_line(self):
        others = ("index", "uuid", "unsupported", "simulated", "lost", "unusable", "grown", "clocks_event_share_pct")
        identity = {*others, *DigestibleRecord.__struct_fields__}
        for field in {*Gpu.__struct_fields__, *GpuInfo.__struct_fields__} - identity:
            [label] = labels_of([field])
            assert label.partition(" (")[0] in _FIELDS, field
        assert labels_of(["bar1_used_bytes", "mem_used_bytes", "dram_pct"]) == ["memory (also bandwidth, BAR1)"]
        shares = ["gpu_link.crc_errors", "clocks_event_share_pct.hw_slowdown"]
        assert labels_of(shares) == ["NVLinks (crc errors)", "throttle time (hw slowdown)"]


class TestTheHeatMap:
    async def test_heat_map_of_64_nodes_with_8_gpus_fits_120x40(self):
        app = pod().app()
        async with running(app, size=(120, 40)):
            heat = app.query_one(HeatMap)
            assert heat.line_count() <= heat.size.height
            assert all(row.node[-3:] in screen(app) for row in heat.rows)

    async def test_where_bars_of_all_gpus_do_not_fit_a_cell_is_a_node_and_enter_opens_its_gpus(self):
        cluster = FakeCluster(*(f"node{number:03}" for number in range(1, 301)))
        cluster.up()
        cluster.gpus(util=[97.0] * 8)
        cluster.gpus("node250", util=[97.0] * 7 + [3.0])
        cluster.lose("node120")
        app = cluster.app()
        async with running(app, size=(120, 30)) as pilot:
            heat = app.query_one(HeatMap)
            await until(pilot, lambda: sum(len(row.cells) for row in heat.rows) == 300)
            assert "node120" in pointed(app), "a lost node is the worst"
            await pilot.press("right")
            assert "node250 3 %" in pointed(app), "then one with a GPU that is far from the others"
            await pilot.press("enter")
            await until(pilot, lambda: heat.rows[0].node == "node250" and len(heat.rows[0].cells) == 8)
            await pilot.press(*["right"] * 7)
            assert "node250 gpu7 3 %" in pointed(app)
            await pilot.press("escape")
            await until(pilot, lambda: len(heat.rows[0].cells) > 8)
            assert "node250" in pointed(app)
            cluster.gpus("node030", util=[97.0] * 7 + [1.0])
            await until(pilot, lambda: heat.rows[0].cells[1:4].count(heat.rows[0].cells[1]) < 3)
            assert "node250" in pointed(app), "the cursor stays on its node when others become worse"
            await pilot.press("enter", "enter")
            await until(pilot, lambda: app.views.current == "gpus")

    async def test_outlier_gpu_has_a_glyph_in_the_heat_map(self):
        app = pod().app()
        async with running(app, size=(120, 40)):
            line = next(line for line in screen(app).splitlines() if "019 ▲ " in line)
            assert "▇▇▇▇▼▇▇▇" in line

    async def test_hovering_a_heat_map_cell_shows_its_values(self):
        app = pod().app()
        async with running(app, size=(120, 40)) as pilot:
            await pilot.hover("#heat", offset=(10, 2))
            await shows(pilot, "node003 gpu")
            await pilot.hover("#node-list")
            await until(pilot, lambda: "node003 gpu" not in screen(app))


def test_gpu_page_is_laid_out_even_with_negative_height():
    cluster = one_node(remap_pending=True)
    assert page_lines(GpuPageData(rows_of(cluster)["node1:gpu0"]), -3)
