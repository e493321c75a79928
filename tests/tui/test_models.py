"""View models without a screen: records in, models out."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from clusters import demo, pod
from fake_cluster import SECOND, FakeCluster
from msgspec.structs import replace

from gconsole.analysis.late_rank import StepLength
from gconsole.present.spans import Line
from gconsole.records import AgentCost, Finding, GpuInfo, Inventory, NodeState, RankStat
from gconsole.tui.derived import JobFold
from gconsole.tui.models.detail import gpu_detail, node_detail
from gconsole.tui.models.finding_fold import fold_findings
from gconsole.tui.models.header import header_spans
from gconsole.tui.models.heat_map import HEAT_METRICS, LEVELS, heat_row, host_row
from gconsole.tui.models.job_ranks import JobsSummary, JobSummary
from gconsole.tui.models.list_kind import Arrangement
from gconsole.tui.snapshot import ScreenSnapshot, SnapshotBuilder
from gconsole.tui.views.overview.model import finding_lines, job_lines, node_lines, verdict_lines
from gconsole.tui.views.overview.panels import event_lines
from gconsole.tui.views.ranks.model import rank_rows


def frame_of(cluster: FakeCluster, *, live: bool = True, staging=None, frozen: bool = False) -> ScreenSnapshot:
    """The snapshot that the screen would get now."""
    watch = SnapshotBuilder(cluster.store, cluster.cluster, cluster.names, live=live, now=cluster.now, staging=staging)
    fold = JobFold(cluster.store)
    fold.refresh(watch.build(), lambda work: asyncio.run(work))
    watch.jobs = fold.value
    frame = watch.build()
    return watch.build(frame.frozen_copy()) if frozen else frame


def header(cluster: FakeCluster, width: int = 200, **how) -> str:
    return "".join(span.text for span in header_spans(frame_of(cluster, **how).header, width))


def text(lines: tuple[Line, ...]) -> str:
    return "\n".join(line.text for line in lines)


def nodes_of(cluster: FakeCluster, width: int = 100) -> str:
    return text(node_lines(frame_of(cluster).fleet, width))


def jobs_of(cluster: FakeCluster, width: int = 100) -> str:
    frame = frame_of(cluster)
    return text(job_lines(frame.jobs, frame.settled, width))


def findings_of(cluster: FakeCluster, width: int = 100) -> str:
    frame = frame_of(cluster)
    folds = fold_findings(frame.findings, frame.fleet.by_name)
    return text(finding_lines(folds, frame.fleet, frame.jobs, frame.settled, width))


def test_jobs_are_unknown_where_no_node_reports():
    empty = JobsSummary()
    assert text(job_lines(empty, True, 80, reports=False)) == "jobs are unknown: no node reports"
    assert text(job_lines(empty, True, 80)) == "no jobs on these nodes"


def test_verdict_on_a_job_that_died_before_is_shown_whole_unless_a_job_hangs_now():
    died, hangs, slow, ended = (
        Finding(
            id=id, severity=severity, confidence="certain", culprits=(), victims=(), evidence=(), job=job,
            first_seen=0, text=f"{job}: " + "many words " * 9 + "and the end",
        )
        for id, severity, job in (
            ("exception", "warning", "past"), ("rank_missing", "error", "now"), ("slow", "warning", "other"),
            ("launcher", "warning", "cancelled"),
        )
    )  # fmt: skip
    assert "and the end" in text(verdict_lines([died, slow, ended], 60))
    assert "other:" not in text(verdict_lines([died, slow, ended], 60))
    assert "past:" not in text(verdict_lines([hangs, died], 60))
    assert verdict_lines([slow, ended], 60) == ()


class TestHeader:
    def test_header_counts_nodes_and_ranks_as_seen_of_expected(self):
        output = header(pod())
        assert "62/64 nodes" in output
        assert "496/512 ranks" in output

    def test_nodes_are_red_in_the_header_only_where_one_of_them_is_not_connected(self):
        def style_of_nodes(cluster: FakeCluster) -> str:
            spans = header_spans(frame_of(cluster).header, 200)
            return next(span.style for span, after in pairwise(spans) if after.text == " nodes")

        cluster = FakeCluster("node1", "node2")
        cluster.up("node1")
        cluster.finding("gpu_xid", "error", "XID 79", ["node1:gpu5"])
        assert style_of_nodes(cluster) == "warning"
        cluster.fail("node2", "auth", "no")
        assert style_of_nodes(cluster) == "failed"

    def test_header_shows_a_dash_instead_of_zero_for_unknown_counts(self):
        output = header(FakeCluster("node1", "node2"))
        assert "– GPUs" in output
        assert "– ranks" in output
        assert "0 ranks" not in output

    def test_gpu_total_is_unknown_until_every_node_has_reported(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up("node1")
        cluster.gpus("node1")
        assert "8/– GPUs" in header(cluster)

    def test_gpus_of_a_lost_node_count_as_expected_but_not_seen(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        cluster.gpus()
        cluster.lose("node2")
        assert "8/16 GPUs" in header(cluster)

    def test_lost_unusable_and_missing_gpus_and_those_of_a_broken_driver_are_not_seen(self):
        cluster = FakeCluster("node1", "node2", "node3")
        cluster.up()
        cluster.gpus("node1", "node2")
        cluster.publish(GpuInfo(node="node1", index=0, uuid="GPU-node1-0", lost="GPU is lost"))
        cluster.publish(GpuInfo(node="node1", index=1, uuid="GPU-node1-1", unusable="the GPU requires a reset"))
        cluster.publish(Inventory(node="node1", of="gpu", count=8, installed=9, missing=("0000:17:00.0",)))
        assert "14/17 GPUs" in header(cluster)
        cluster.publish(Inventory(node="node2", of="gpu", installed=8, fault="gpu_hung", text="no answer"))
        cluster.publish(Inventory(node="node3", of="gpu", installed=8, fault="gpu_driver_mismatch", text="mismatch"))
        assert "6/25 GPUs" in header(cluster)

    def test_gpus_that_a_broken_driver_never_reported_are_expected(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.publish(Inventory(node="node1", of="gpu", installed=8, fault="gpu_driver_mismatch", text="mismatch"))
        assert "0/8 GPUs" in header(cluster)

    def test_simulated_data_are_labelled_at_every_width(self):
        for width in (200, 80, 60, 20):
            assert " SIM " in header(demo(), width)
        assert " SIM " not in header(pod())

    def test_one_simulated_gpu_suffices_for_the_simulation_label(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        cluster.gpus("node2", count=1, simulated=True)
        assert " SIM " in header(cluster)

    def test_no_job_is_shown_only_after_every_node_has_reported_or_failed(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up("node1")
        assert "no job" not in header(cluster)
        cluster.fail("node2", "refused", "connection refused")
        assert "no job" in header(cluster)

    def test_ranks_of_several_jobs_are_counted_together(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        cluster.job("a", 8)
        cluster.job("b", 8, world_size=16)
        assert "2 jobs 16/24 ranks" in header(cluster)

    def test_staging_progress_is_shown_only_while_it_runs(self):
        assert "py-spy 3/64" in header(pod(), staging=lambda: (3, 64))
        assert "py-spy" not in header(pod(), staging=lambda: (64, 64))
        assert "py-spy" not in header(pod(), staging=lambda: (0, 0))

    def test_header_of_a_silent_fleet_shows_the_data_age(self):
        cluster = demo()
        cluster.advance(75)
        assert "◐ data 75 s old" in header(cluster)
        assert "0/4 nodes" in header(cluster)

    def test_paused_header_shows_the_time_of_the_pause(self):
        cluster = demo()
        assert "FROZEN 12:00:00" in header(cluster, frozen=True)

    def test_replay_header_shows_the_recorded_time(self):
        output = header(demo(), live=False)
        assert "REPLAY 12:00:00" in output
        assert "4/4 nodes" in output

    def test_narrow_header_keeps_node_counts_and_drops_job_names(self):
        output = header(pod(), 40)
        assert "62/64 nodes" in output
        assert "llama" not in output

    def test_hostile_job_name_is_escaped_in_the_header(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.job("[bold]\x1b[2Jx" + "y" * 4000, 1)
        output = header(cluster)
        assert "\x1b" not in output
        assert "[bold]␛[2Jx" in output


class TestNodes:
    def test_node_names_are_folded_and_states_are_counted(self):
        first = nodes_of(pod()).splitlines()[0]
        assert first.startswith("node[001-064]")
        assert "61 ●" in first
        assert "1 ▲" in first
        assert "2 ✖" in first

    def test_failed_node_shows_its_reason_and_hint(self):
        output = nodes_of(pod())
        assert "✖ node033  auth: the key was refused" in output
        assert "try ssh-add ~/.ssh/id_ed25519, or set identity_file in hosts.toml" in output

    def test_lost_node_shows_for_how_long(self):
        assert "✖ node044  lost 12 s ago: the connection ended" in nodes_of(pod())

    def test_equal_failures_are_folded_into_one_line(self):
        cluster = FakeCluster(*(f"node{i}" for i in range(1, 9)))
        for name in cluster.names:
            cluster.fail(name, "refused", f"{name} refused the connection on port 22", f"is sshd running on {name}?")
        output = nodes_of(cluster)
        assert "✖ node[1-8]  NODE refused the connection on port 22" in output
        assert "try is sshd running on NODE?" in output
        assert output.count("✖ node") == 1

    def test_finding_id_is_kept_on_a_node_whose_name_it_contains(self):
        cluster = FakeCluster("ecc", "xid")
        cluster.up()
        for name in cluster.names:
            cluster.finding(f"gpu_{name}", "error", "bad", [name])
        output = nodes_of(cluster)
        assert "✖ ecc  error: gpu_ecc" in output and "✖ xid  error: gpu_xid" in output

    def test_silent_node_is_stale_after_three_sample_intervals(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.advance(2.9)
        assert "1 ●" in nodes_of(cluster)
        cluster.advance(0.2)
        assert "◐ node1  no data for 3 s" in nodes_of(cluster)

    def test_agent_with_a_longer_sample_interval_is_stale_later(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.publish(AgentCost(node="node1", sample_interval_ms=5000))
        cluster.advance(14)
        assert "1 ●" in nodes_of(cluster)

    def test_hung_sampler_is_a_warning_with_its_name(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.publish(AgentCost(node="node1", sample_interval_ms=1000, hung=("host",)))
        assert "▲ node1  hung: host not responding" in nodes_of(cluster)

    def test_broken_driver_is_named_in_place_of_the_sampler_that_hangs(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.publish(AgentCost(node="node1", sample_interval_ms=1000, hung=("gpu",)))
        cluster.finding("driver_broken", "error", "node1: nvmlInit has not returned for 8 s", ["node1"])
        assert "✖ node1  error: driver_broken" in nodes_of(cluster)

    def test_node_has_the_severity_of_its_worst_finding(self):
        assert "▲ node019  finding: gpu_throttle" in nodes_of(pod())
        cluster = FakeCluster("node1", "node2", "node3")
        cluster.up()
        cluster.finding("gpu_hot", "warning", "hot", ["node2:gpu1"])
        cluster.finding("gpu_hot", "warning", "hot", ["node1:gpu1"])
        cluster.finding("gpu_xid", "error", "XID 79", ["node1:gpu5"])
        cluster.finding("version_skew", "info", "versions differ", ["node3"])
        assert nodes_of(cluster).splitlines() == [
            "node[1-3]".ljust(85) + "  1 ●  1 ▲  1 ✖", "✖ node1  error: gpu_xid", "▲ node2  finding: gpu_hot",
        ]  # fmt: skip

    def test_error_on_a_node_is_not_hidden_by_a_sampler_that_hangs(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.publish(AgentCost(node="node1", sample_interval_ms=1000, hung=("host",)))
        cluster.finding("gpu_xid", "error", "XID 79", ["node1:gpu5"])
        assert "✖ node1  error: gpu_xid" in nodes_of(cluster)

    def test_removed_node_is_dropped_from_the_expected_count(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        watch = SnapshotBuilder(cluster.store, "x", cluster.names, live=True, now=cluster.now, staging=None)
        watch.build()
        cluster.publish(NodeState(node="node2", state="removed"))
        assert watch.build().fleet.expected == 1

    def test_joining_node_is_expected(self):
        cluster = FakeCluster("node1")
        cluster.up()
        watch = SnapshotBuilder(cluster.store, "x", cluster.names, live=True, now=cluster.now, staging=None)
        watch.build()
        cluster.publish(NodeState(node="node2", state="connecting"))
        assert [node.word for node in watch.build().fleet.nodes] == ["ok", "connecting"]


class TestJobs:
    def test_job_states_are_counted_with_running_first(self):
        output = jobs_of(pod())
        assert "● 494 running  ▲ 1 waiting  ▲ 1 D state  ◐ 8 lost  ◌ 8 missing" in output

    def test_missing_ranks_are_listed_with_a_reason(self):
        output = jobs_of(pod())
        assert "◌ rank 256-263 not found; unreachable: node033, node044" in output
        assert "◌ rank 344-351 node node044 lost" in output

    def test_job_shows_the_median_step_and_the_ranks_behind(self):
        output = jobs_of(pod())
        assert "step 18,204 (median)" in output
        assert "at 18,203: 1" in output

    def test_job_whose_steps_show_in_traffic_says_how_long_they_take_and_where_from(self):
        job = JobSummary(
            "llama", 2, 2, counts={"progressing": 2}, step_length=StepLength(0.3694, "the traffic of rank 0")
        )
        output = text(job_lines(JobsSummary((job,)), True, 76))
        assert "  the traffic of rank 0 repeats every 369 ms" in output
        watched = replace(job, step=18_204, steps=((18_204, 2),), step_length=StepLength(12.44))
        output = text(job_lines(JobsSummary((watched,)), True, 76))
        assert "  step 18,204 (median)   12.4 s a step   at 18,204: 2" in output

    def test_job_without_steps_has_no_step_line(self):
        assert "step" not in jobs_of(demo())

    def test_rank_claimed_by_two_processes_is_reported(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        cluster.rank("a", 0, "node1", 1)
        cluster.rank("a", 0, "node2", 1, pid=7)
        assert "▲ rank 0 is claimed by 2 processes" in jobs_of(cluster)

    def test_crash_of_unknown_cause_is_called_crashed(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.finding("unknown", "error", "a: ranks 0-3 ended with exit code 3; the cause is unknown", job="a")
        frame = frame_of(cluster)
        shown = findings_of(cluster), text(verdict_lines(frame.findings, 100))
        assert all("✖ crashed" in part and "exit code 3" in part and "✖ unknown" not in part for part in shown)
        assert "crashed: a: ranks 0-3" in text(event_lines(frame.events, 10, 100))

    def test_ranks_that_each_have_a_reason_of_their_own_leave_room_for_the_rest(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        for number in range(512):
            if number < 256:
                cluster.rank("a", number, "node1", 512, status="exited", reason="signal 9", pid=1000 + number)
            else:
                for pid in (2000, 3000):
                    cluster.rank("a", number, "node2", 512, pid=pid + number)
        lines = jobs_of(cluster).splitlines()
        assert len(lines) < 15
        assert any("and 250 further ranks: see 2 Ranks" in line for line in lines)
        assert any("and 253 further ranks claimed by several processes" in line for line in lines)

    def test_job_list_shows_discovering_before_the_first_scan(self):
        assert "discovering ranks" in jobs_of(FakeCluster("node1"))

    def test_job_states_wrap_between_items_only(self):
        lines = jobs_of(pod(), width=38).splitlines()
        assert "  ▲ 1 D state  ◐ 8 lost  ◌ 8 missing" in lines
        assert all(len(line) <= 38 for line in lines)


class TestFindings:
    def test_findings_are_sorted_by_severity_worst_first(self):
        lines = findings_of(pod()).splitlines()
        assert lines[0].startswith("✖ rank_blocked")
        assert lines[1].startswith("▲ gpu_throttle")

    def test_no_alerts_message_counts_nodes_not_reporting(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up("node1")
        cluster.fail("node2", "dns", "no such host")
        assert findings_of(cluster) == "◌ no alerts, but 1 node not reporting"

    def test_no_alerts_message_is_shown_when_every_node_reports(self):
        assert findings_of(demo()) == "● no alerts · d checks the progress of the job"

    def test_cleared_finding_is_removed_from_the_list(self):
        cluster = demo()
        cluster.finding("slow", "warning", "rank 3 is slow", ["rank 3"])
        assert "slow" in findings_of(cluster)
        cluster.finding("slow", "warning", "rank 3 is slow", ["rank 3"], cleared_at=cluster.now_ns)
        assert findings_of(cluster) == "● no alerts · d checks the progress of the job"

    def test_findings_that_differ_in_their_node_only_are_one_line(self):
        cluster = FakeCluster(*(f"node{number:03}" for number in range(1, 41)))
        cluster.up()
        for number in range(17, 33):
            cluster.finding(
                "nvlink_down", "error", f"node{number:03}:gpu3: NVLink 4 is down", [f"node{number:03}:gpu3"]
            )
        cluster.finding("nvlink_down", "error", "node001:gpu5: NVLink 4 is down", ["node001:gpu5"])
        cluster.finding("rank_dead", "error", "rank 3 on node002 ended", ["rank 3", "node002"])
        assert findings_of(cluster, 120).splitlines() == [
            "✖ nvlink_down       node[017-032]:gpu3: NVLink 4 is down",
            "✖ nvlink_down       node001:gpu5: NVLink 4 is down",
            "✖ rank_dead         rank 3 on node002 ended",
        ]

    def test_storm_of_findings_is_one_line_per_cause(self):
        cluster = FakeCluster(*(f"node{number:03}" for number in range(1, 41)))
        cluster.up()
        for number in range(1, 38):
            name = f"node{number:03}:gpu0"
            cluster.finding("gpu_hot", "warning", f"{name}: {60 + number} °C", [name])
        cluster.finding("gpu_hot", "error", "node040:gpu1: 104 °C", ["node040:gpu1"])
        assert findings_of(cluster, 120).splitlines() == [
            "✖ gpu_hot           node040:gpu1: 104 °C",
            "▲ gpu_hot           node[001-037]:gpu0: 37 findings; the first: node001:gpu0: 61 °C",
        ]

    def test_findings_of_several_nodes_or_jobs_are_not_folded(self):
        cluster = FakeCluster("node1", "node2", "node3")
        cluster.up()
        for job in ("a", "b"):
            cluster.finding("straggler", "warning", "node1 is slow", ["node1"], job=job)
        for first, second in (("node1", "node2"), ("node2", "node3")):
            cluster.finding("nvlink_fabric", "warning", f"{first} and {second} differ", [first, second])
        assert len(findings_of(cluster).splitlines()) == 4


class TestRanks:
    def test_rank_rows_are_grouped_by_job(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        cluster.job("b", 2)
        cluster.job("a", 2)
        rows = rank_rows(frame_of(cluster).jobs)
        assert [row.banner is not None for row in rows] == [True, False, False, True, False, False]
        assert [row.job for row in rows if row.banner is None] == ["a", "a", "b", "b"]

    def test_missing_ranks_are_listed_in_rank_order(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.job("a", 3, absent=[1])
        states = [(row.number, row.state) for row in rank_rows(frame_of(cluster).jobs) if row.banner is None]
        assert states == [(0, "moving"), (1, "missing"), (2, "moving")]

    def test_ranks_sorted_by_state_start_with_the_worst(self):
        rows = rank_rows(frame_of(pod()).jobs, Arrangement("state"))
        assert [row.state for row in rows[1:4]] == ["idle", "uninterruptible", "lost"]

    def test_unknown_value_sorts_last_in_both_directions(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.job("a", 3, absent=[1])
        jobs = frame_of(cluster).jobs
        for reverse in (False, True):
            rows = rank_rows(jobs, Arrangement("cpu", reverse))
            assert rows[-1].number == 1

    def test_ranks_of_a_lost_node_keep_their_values_and_show_their_age(self):
        row = next(row for row in rank_rows(frame_of(pod()).jobs) if row.banner is None and row.number == 344)
        assert (row.state, row.status, row.silent) == ("lost", "stale", "12 s")
        assert row.stat is not None

    def test_unreadable_rank_shows_the_remedy(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.rank("a", 0, "node1", 1, status="no_permission", reason='belongs to uid 7; run_as = "sudo"')
        row = rank_rows(frame_of(cluster).jobs)[1]
        assert row.state == "no_permission"
        assert row.note is not None and "sudo" in row.note.text

    def test_row_version_changes_only_with_its_values(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.job("a", 2)
        before = rank_rows(frame_of(cluster).jobs)
        cluster.sample_rank("a", 1, "node1")
        after = rank_rows(frame_of(cluster).jobs)
        assert before[1].version == after[1].version
        assert before[2].version != after[2].version

    def test_four_thousand_ranks_are_folded_into_one_job(self):
        cluster = FakeCluster(*(f"node{i:03}" for i in range(512)))
        cluster.up()
        cluster.job("big", 4096)
        jobs = frame_of(cluster).jobs
        assert (jobs.discovered, jobs.world_size) == (4096, 4096)
        assert len(rank_rows(jobs, Arrangement("cpu", reverse=True))) == 4097


class TestHeat:
    def test_heat_map_cell_has_text_and_a_colour_level(self):
        frame = frame_of(demo())
        row = heat_row(frame.fleet.by_name["node1"], frame.gpus.of("node1"), HEAT_METRICS[0])
        assert [cell.text for cell in row.cells[:4]] == ["97", "3", "88", "100"]
        assert row.cells[3].level == LEVELS - 1
        assert row.cells[1].level == 0

    def test_unknown_heat_map_value_is_a_dash_without_level(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.gpus(count=1)
        gpu = cluster.store.gpus["node1", "GPU-node1-0"].gpu
        assert gpu is not None
        gpu.util_pct = None
        frame = frame_of(cluster)
        row = heat_row(frame.fleet.nodes[0], frame.gpus.of("node1"), HEAT_METRICS[0])
        assert row.cells == (("–", None, ""),)

    def test_gpus_are_ordered_by_index(self):
        cluster = FakeCluster("node1")
        cluster.up()
        cluster.gpus(count=12)
        assert [gpu.gpu.index for gpu in frame_of(cluster).gpus.of("node1") if gpu.gpu] == list(range(12))

    def test_every_heat_map_metric_formats_its_value(self):
        frame = frame_of(demo())
        texts = [
            heat_row(frame.fleet.nodes[0], frame.gpus.of("node1"), metric).cells[0].text for metric in HEAT_METRICS
        ]
        assert texts == ["97", "50", "663", "73", "2.0", "–", "–", "0"]

    def test_node_without_gpus_shows_its_cpu_in_the_heat_map(self):
        cluster = FakeCluster("node1")
        cluster.up()
        frame = frame_of(cluster)
        assert host_row(frame.fleet.nodes[0], frame.nodes["node1"]).cells[0].text == "61"

    def test_failed_node_shows_its_reason_in_the_heat_map(self):
        frame = frame_of(pod())
        assert heat_row(frame.fleet.by_name["node033"], (), HEAT_METRICS[0]).note == "auth"

    def test_row_of_a_node_with_an_error_is_red_and_its_cells_are_not_old(self):
        cluster = FakeCluster("node1", "node2")
        cluster.up()
        cluster.gpus("node1")
        for name in cluster.names:
            cluster.finding("gpu_xid", "error", "XID 79", [name])
        frame = frame_of(cluster)
        row, without = (heat_row(frame.fleet.by_name[name], frame.gpus.of(name), HEAT_METRICS[0])
                        for name in cluster.names)  # fmt: skip
        assert (row.status, row.is_old) == ("failed", False)
        assert (without.status, without.note) == ("failed", "")

    def test_gpus_of_a_removed_node_are_dropped(self):
        cluster = demo()
        watch = SnapshotBuilder(cluster.store, "x", cluster.names, live=True, now=cluster.now, staging=None)
        assert watch.build().gpus.total == 32
        cluster.publish(NodeState(node="node2", state="removed"))
        gpus = watch.build().gpus
        assert gpus.total == 24
        assert gpus.of("node2") == ()


class TestFreezing:
    def test_frozen_snapshot_is_unaffected_by_store_updates(self):
        cluster = demo()
        watch = SnapshotBuilder(cluster.store, "x", cluster.names, live=True, now=cluster.now, staging=None)
        frame = watch.build().frozen_copy()
        cluster.gpus("node1", util=[1.0])
        cluster.lose("node1")
        cluster.advance(60)
        rebuilt = watch.build(frame)
        assert rebuilt.gpus.of("node1")[0].gpu.util_pct == 97.0
        assert rebuilt.nodes["node1"].state.state == "ok"
        assert rebuilt.fleet == frame.fleet


class TestStories:
    def test_failed_node_details_show_error_message_hint_and_retry(self):
        frame = frame_of(pod())
        detail = node_detail(frame.fleet.by_name["node033"], frame.nodes["node033"])
        facts = {fact.label: fact.text for fact in detail.facts}
        assert facts["error"] == "auth"
        assert facts["message"] == "the key was refused"
        assert facts["try"].startswith("ssh-add")
        assert facts["next attempt"].startswith("not scheduled")

    def test_retried_node_details_show_the_next_attempt(self):
        frame = frame_of(pod())
        detail = node_detail(frame.fleet.by_name["node044"], frame.nodes["node044"])
        facts = {fact.label: fact.text for fact in detail.facts}
        assert facts["next attempt"] == "12:00:16"
        assert facts["last data"] == "12 s ago"

    def test_simulated_gpu_details_start_with_simulated(self):
        frame = frame_of(demo())
        detail = gpu_detail(frame.fleet.nodes[0], frame.gpus.of("node1")[0])
        assert detail.facts[0].label == "simulated"


def test_rank_stat_without_its_rank_record_creates_no_job():
    cluster = FakeCluster("node1")
    cluster.up()
    cluster.publish(RankStat(node="node1", job="a", rank=0, pid=1, start_ticks=1, state="moving"))
    assert frame_of(cluster).jobs.jobs == ()


def test_data_age_uses_console_time_despite_a_wrong_node_clock():
    cluster = FakeCluster("node1")
    cluster.up()
    cluster.advance(1)
    cluster.publish(AgentCost(node="node1", sample_interval_ms=1000))
    cluster.store.nodes["node1"].cost.t = cluster.now_ns - 3600 * SECOND  # type: ignore[union-attr]
    assert "1 ●" in nodes_of(cluster)
