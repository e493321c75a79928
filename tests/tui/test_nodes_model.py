"""The rows and the page of the Nodes view, without a screen."""

from __future__ import annotations

import asyncio

from clusters import demo, pod
from fake_cluster import NOON, FakeCluster

from gconsole.present.spans import wrapped
from gconsole.records import Host, Missing, Process
from gconsole.text.cells import width_of
from gconsole.tui.models.detail import PageItem
from gconsole.tui.models.rows import SteadyOrder
from gconsole.tui.views.nodes.model import FIELDS, NodeRow, node_rows
from gconsole.tui.views.nodes.page_model import NodePageData, facts_lines, list_lines, process_detail
from gconsole.tui.views.nodes.view import page_data


def rows_of(cluster: FakeCluster) -> list[NodeRow]:
    frame = frame_of(cluster)
    return node_rows(frame.fleet, frame.nodes, frame.gpus, frame.jobs)


def frame_of(cluster: FakeCluster):
    app = cluster.app()
    app.frames.job_fold.refresh(app.frames.builder.build(), asyncio.run)
    app.frames.builder.jobs = app.frames.job_fold.value
    return app.frames.builder.build()


def ordered(rows: list[NodeRow], sort: str, reverse: bool = False) -> list[NodeRow]:
    field = FIELDS[sort]
    return SteadyOrder(lambda: 0.0).sorted(rows, field.order, field.noise, reverse)


def texts(row: NodeRow) -> dict[str, str]:
    return {key: field.span(row).text for key, field in FIELDS.items()}


def page_of(cluster: FakeCluster, name: str) -> NodePageData:
    page = page_data(frame_of(cluster), name)
    assert page is not None
    return page


class TestRows:
    def test_node_row_shows_reported_values_and_a_dash_for_unknown_ones(self):
        cluster = pod()
        cluster.publish(Host(node="node002", mem_used_bytes=811 << 30, disk_read_bytes_s=3.5e6, net_tx_bytes_s=0.0))
        row = next(row for row in rows_of(cluster) if row.key == "node002")
        cells = texts(row)
        assert (cells["state"], cells["gpus"], cells["ranks"], cells["agent"]) == ("● ok", "8", "8", "0.4")
        assert (cells["mem"], cells["read"], cells["tx"], cells["rx"]) == ("40", "3.3M", "0B", "–")
        assert (cells["kernel"], cells["tags"], cells["io_stall"]) == ("5.15.0-107-generic", "–", "–")

    def test_connected_node_with_a_finding_is_not_ok(self):
        row = next(row for row in rows_of(pod()) if row.key == "node019")
        assert texts(row)["state"] == "▲ finding"
        assert row.summary.word == "ok", "its connection"

    def test_node_with_an_error_is_red_and_sorts_before_one_with_a_warning(self):
        cluster = FakeCluster("n1", "n2", "n3")
        cluster.up()
        cluster.finding("gpu_hot", "warning", "hot", ["n2:gpu0"])
        cluster.finding("gpu_xid", "error", "XID 79", ["n3:gpu0"])
        rows = ordered(rows_of(cluster), "state")
        states = [FIELDS["state"].span(row) for row in rows]
        assert [(row.key, state.text, state.style) for row, state in zip(rows, states, strict=True)] == [
            ("n3", "✖ finding", "failed"), ("n2", "▲ finding", "warning"), ("n1", "● ok", "ok"),
        ]  # fmt: skip
        assert [texts(row)["reason"] for row in rows[:2]] == ["error: gpu_xid", "finding: gpu_hot"]

    def test_node_that_never_connected_shows_its_failure_instead_of_metrics(self):
        row = next(row for row in rows_of(pod()) if row.key == "node033")
        assert row.note is not None and row.note.text == "auth: the key was refused"
        assert (texts(row)["gpus"], texts(row)["ranks"], texts(row)["cpu"]) == ("–", "–", "–")

    def test_stale_metrics_are_dimmed_and_the_node_state_shows_their_age(self):
        cluster = demo()
        cluster.advance(9)
        row = rows_of(cluster)[0]
        assert texts(row)["state"] == "◐ stale 9 s"
        assert FIELDS["cpu"].span(row).style == "stale"
        assert FIELDS["kernel"].span(row).style == "text"

    def test_node_without_the_metric_sorts_last_in_both_directions(self):
        cluster = pod()
        cluster.publish(Host(node="node002", cpu_pct=2.0), Host(node="node003", cpu_pct=99.0))
        rows = rows_of(cluster)
        up, down = ordered(rows, "cpu"), ordered(rows, "cpu", True)
        assert (up[0].key, down[0].key) == ("node002", "node003")
        assert up[-1].key == down[-1].key == "node033"

    def test_node_names_sort_naturally_and_states_sort_worst_first(self):
        cluster = FakeCluster("n10", "n9", "n1")
        cluster.up("n10", "n1")
        cluster.fail("n9", "auth", "no")
        rows = rows_of(cluster)
        assert [row.key for row in ordered(rows, "node")] == ["n1", "n9", "n10"]
        assert ordered(rows, "state")[0].key == "n9"

    def test_unchanged_row_keeps_its_version(self):
        cluster = demo()
        before = rows_of(cluster)
        assert [row.version for row in rows_of(cluster)] == [row.version for row in before]
        cluster.publish(Host(node="node2", cpu_pct=1.0))
        changed = [row.key for row, old in zip(rows_of(cluster), before, strict=True) if row.version != old.version]
        assert changed == ["node2"]


class TestThePage:
    def test_node_page_shows_the_failure_its_remedy_and_the_reconnect_schedule(self):
        output = "\n".join(line.text for line in facts_lines(page_of(pod(), "node033"), 78))
        assert "ssh-add ~/.ssh/id_ed25519" in output
        assert "not scheduled; R reconnects now" in output

    def test_node_page_shows_each_missing_source_with_its_reason_and_remedy(self):
        cluster = FakeCluster("node1")
        cluster.up(missing=[Missing("py-spy", "ptrace is restricted", "sysctl kernel.yama.ptrace_scope=0")])
        lines = [line.text for line in facts_lines(page_of(cluster, "node1"), 78)]
        line_number = next(y for y, line in enumerate(lines) if "(py-spy)" in line)
        assert "ptrace is restricted" in lines[line_number]
        assert "sysctl kernel.yama.ptrace_scope=0" in lines[line_number + 1]

    def test_node_page_lists_the_gpus_ranks_processes_and_events_of_the_node(self):
        cluster = demo()
        cluster.process("node2", 2, "python train.py")
        page = page_of(cluster, "node2")
        lines = list_lines(page, 78)
        kinds = [line.key.kind for line in lines if isinstance(line.key, PageItem)]
        assert {kind: kinds.count(kind) for kind in kinds} == {"gpu": 8, "rank": 2, "process": 1, "event": 2}
        assert "connected, receiving data" in next(line.text for line in lines if line.text.startswith("12:00:00"))

    def test_page_of_a_node_that_never_connected_omits_ranks_and_processes(self):
        output = "\n".join(line.text for line in list_lines(page_of(pod(), "node033"), 78))
        assert "RANKS" not in output
        assert "PROCESSES" not in output

    def test_no_line_of_the_node_page_exceeds_the_width(self):
        cluster = demo()
        cluster.process("node1", 0, "漢字" * 200)
        cluster.fail("node1", "auth", "漢字カタカナ" * 40, "x" * 300)
        page = page_of(cluster, "node1")
        for width in (20, 60, 78):
            lines = [*facts_lines(page, max(width, 26)), *list_lines(page, width)]
            assert max(width_of(line.text) for line in lines) <= max(width, 26)

    def test_long_text_wraps_at_spaces_without_losing_characters(self):
        assert wrapped("one two three", 8) == ["one two", "three"]
        assert "".join(wrapped("漢" * 7, 4)) == "漢" * 7
        assert wrapped("a  b", 9) == ["a  b"]

    def test_process_details_show_the_job_rank_and_unreadable_command_line(self):
        process = Process(node="n", pid=5, start_ticks=7, ppid=1, uid=0, comm="python", role="rank", job="j", rank=3)
        facts = {fact.label: fact.text for fact in process_detail(process).facts}
        assert (facts["job"], facts["command"]) == ("j, rank 3", "command line not readable")


def test_node_page_data_carries_the_time_of_its_frame():
    assert page_of(demo(), "node1").now == NOON
