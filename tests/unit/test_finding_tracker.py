"""Findings over time: reported once, again on change, cleared when over, and kept in the report."""

from __future__ import annotations

from typing import get_args

import pytest

from gconsole.analysis.finding import IDS, FindingDraft
from gconsole.analysis.hang.verdict import Kind, State
from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.core.store import CLEARED_FINDINGS, Store
from gconsole.monitor import finding_tracker as module
from gconsole.monitor.finding_tracker import AGAIN_S, MANY, MOST_WAITING, FindingTracker
from gconsole.records import Finding, Gpu, GpuInfo, Log
from gconsole.report import exit_code, make_report, unknown_words
from gconsole.report.document import MAX_FINDINGS, summary
from gconsole.text import logs as log_file


class TrackedFindings:
    """A hub with a store and findings on a fake clock, with the published records."""

    def __init__(self, **limits):
        self.now = 100.0
        self.hub, self.store, self.records = Hub(), Store(), []
        self.hub.subscribe(self.store.apply)
        self.hub.subscribe(self.records.extend)
        self.findings = FindingTracker(self.hub, HealthConfig(**limits), clock=lambda: self.now)

    def put(self, *found, after=1.0, source="health"):
        """Advance the clock, report the current findings, and return the records published for them."""
        self.now += after
        before = len(self.records)
        self.findings.report(source, found)
        return self.records[before:]


def hot(share=50, severity="warning", gpu="n1:gpu0"):
    return FindingDraft("gpu_throttle", severity, "certain", (gpu,), f"{gpu}: {share} %", ("gpu.temp_c 91",))


def test_unchanged_finding_is_reported_once_with_its_evidence():
    board = TrackedFindings()
    (first,) = board.put(hot())

    assert (first.id, first.culprits, first.evidence, first.cleared_at) == (
        "gpu_throttle", ("n1:gpu0",), ("gpu.temp_c 91",), None)  # fmt: skip
    assert first.first_seen > 0
    assert board.put(hot()) == []


def test_changed_text_is_reported_at_intervals_and_changed_severity_immediately():
    board = TrackedFindings()
    (first,) = board.put(hot(50))

    assert board.put(hot(51)) == []
    (worse,) = board.put(hot(51, "error"))
    (again,) = board.put(hot(60, "error"), after=AGAIN_S)
    assert (worse.severity, worse.first_seen, again.first_seen) == ("error", first.first_seen, first.first_seen)
    assert "60 %" in again.text


def test_finding_clears_after_clear_s_and_a_flickering_one_stays_open():
    board = TrackedFindings(clear_s=10)
    (first,) = board.put(hot())

    flicker = [board.put() for _ in range(5)] + [board.put(hot())] + [board.put() for _ in range(10)]
    assert flicker == [[]] * 16
    (cleared,) = board.put()
    assert (cleared.first_seen, cleared.text) == (first.first_seen, first.text)
    assert cleared.cleared_at >= first.first_seen
    assert len(board.store.findings) == 1
    (anew,) = board.put(hot())
    assert (anew.cleared_at, anew.first_seen >= cleared.cleared_at) == (None, True)


async def test_withdrawn_finding_clears_after_clear_s_without_further_reports():
    board = TrackedFindings(clear_s=10)
    board.put(hot(), source="verdict")
    assert board.put(source="verdict") == []

    board.now += 9
    await board.findings.evaluate()
    assert [finding.cleared_at for finding in board.store.findings.values()] == [None]
    board.now += 1
    await board.findings.evaluate()
    assert [finding.cleared_at is not None for finding in board.store.findings.values()] == [True]


def test_one_source_does_not_clear_what_another_one_found():
    board = TrackedFindings(clear_s=0)
    board.put(hot())

    assert board.put(source="hang") == []
    assert len(board.put()) == 1


def test_cleared_findings_do_not_fill_the_memory():
    board = TrackedFindings(clear_s=0)
    for number in range(CLEARED_FINDINGS + 50):
        board.put(hot(gpu=f"n1:gpu{number}"))
        board.put()

    assert len(board.store.findings) == CLEARED_FINDINGS


def test_findings_over_the_open_limit_are_dropped_with_one_log_record(monkeypatch):
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    board = TrackedFindings()
    records = board.put(*(hot(gpu=f"n1:gpu{number}") for number in range(6)))

    assert [type(record) for record in records] == [Finding, Finding, Finding, Log]


async def test_evaluation_turns_records_into_findings_at_most_once_a_second():
    board = TrackedFindings()
    board.hub.publish([GpuInfo(node="n1", index=3, uuid="u", lost="GPU is lost")])

    assert board.findings.is_due
    await board.findings.evaluate()
    assert not board.findings.is_due
    assert [finding.id for finding in board.store.findings.values()] == ["gpu_lost"]
    board.now += 1.0
    assert board.findings.is_due


async def test_evaluation_of_a_large_fleet_finds_every_gpu_error():
    board = TrackedFindings()
    board.hub.publish([Gpu(node="n1", index=i, uuid=f"u{i}", ecc_uncorrected_volatile=1) for i in range(MANY)])

    await board.findings.evaluate()

    assert len(board.store.findings) == MANY


async def test_burst_of_records_keeps_the_pending_queue_bounded_and_loses_no_finding():
    board = TrackedFindings()
    for i in range(3 * MOST_WAITING):
        board.hub.publish([Gpu(node="n1", index=i, uuid=f"u{i}", ecc_uncorrected_volatile=1)])
        assert len(board.findings._pending) < MOST_WAITING

    await board.findings.evaluate()

    assert len(board.store.findings) == 3 * MOST_WAITING


async def test_failing_analysis_is_logged_once_and_the_others_still_run(monkeypatch):
    def broken(facts, limits):
        raise ZeroDivisionError("no such figure")

    monkeypatch.setitem(module.ANALYSES, "broken", broken)
    monkeypatch.setattr(log_file, "_path", "/state/own.log")
    board = TrackedFindings()
    board.hub.publish([GpuInfo(node="n1", index=3, uuid="u", lost="GPU is lost")])
    for _ in range(3):
        await board.findings.evaluate()

    logs = [record for record in board.records if isinstance(record, Log)]
    assert ["no such figure" in log.text for log in logs] == [True]
    assert "details in /state/own.log" in logs[0].text
    assert len(board.store.findings) == 1


@pytest.mark.parametrize(("fail_on", "code"), [
    (("error",), 4), (("warning",), 4), (("gpu_throttle",), 4)])  # fmt: skip
def test_exit_code_is_4_when_no_node_was_reached_despite_findings(fail_on, code):
    board = TrackedFindings()
    board.put(hot())

    assert exit_code(make_report(board.store), fail_on) == code


def test_fail_on_accepts_severities_and_ids_and_rejects_other_words():
    assert unknown_words(("error", "gpu_xid", "nvlink_down", "p2p_cycle")) == []
    assert unknown_words(("errors", "gpu_xyz")) == ["errors", "gpu_xyz"]


def test_the_report_has_open_errors_first_and_cleared_ones_last():
    board = TrackedFindings(clear_s=0)
    board.put(hot(gpu="n1:gpu7"))
    board.put(hot(gpu="n1:gpu1"), hot(gpu="n1:gpu2", severity="error"))

    lines = make_report(board.store).findings
    assert [(line.culprits[0], line.cleared_at is None) for line in lines] == [
        ("n1:gpu2", True), ("n1:gpu1", True), ("n1:gpu7", False)]  # fmt: skip


def test_the_summary_names_the_worst_and_counts_the_rest():
    board = TrackedFindings()
    board.put(*(hot(gpu=f"n1:gpu{number}") for number in range(MAX_FINDINGS + 9)), hot(gpu="n9:gpu1", severity="error"))
    lines = summary(make_report(board.store)).splitlines()

    assert lines[1] == "  ✖ gpu_throttle  n9:gpu1: 50 %"
    assert lines[-1] == "  … and 10 more findings; full list in the report (-o FILE)"
    assert len(lines) == MAX_FINDINGS + 2


def test_cleared_finding_is_marked_in_the_summary():
    board = TrackedFindings(clear_s=0)
    board.put(hot())
    board.put()

    assert summary(make_report(board.store)).splitlines()[1] == "  ○ gpu_throttle  n1:gpu0: 50 % (cleared)"


def test_every_verdict_that_makes_a_finding_has_a_listed_id():
    assert {*get_args(Kind), *get_args(State)} - {"none", "moving", "no_ranks", "hung"} <= IDS.keys()


def of_job(id, job, culprits=("rank 3",)):
    return FindingDraft(id, "error", "certain", culprits, f"{job}: {id}", job=job)


def test_crash_of_a_job_covers_the_hang_of_the_ranks_that_wait_for_the_dead_one():
    board = TrackedFindings(clear_s=0)
    (dead,) = board.put(of_job("rank_dead", "a"), of_job("rank_missing", "b"), source="verdict")[:1]
    crash, cleared = board.put(of_job("signalled", "a"), source="crash")
    assert (dead.id, crash.id) == ("rank_dead", "signalled")
    assert (cleared.id, cleared.cleared_at is None) == ("rank_dead", False)
    assert board.put(of_job("rank_dead", "a"), of_job("rank_missing", "b"), source="verdict") == []
    (other,) = board.put(of_job("rank_dead", "b"), of_job("rank_missing", "b"), source="verdict")
    assert (other.id, other.job) == ("rank_dead", "b")


def test_crash_that_was_restarted_covers_no_hang_of_the_next_attempt():
    board = TrackedFindings(clear_s=0)
    restarted = FindingDraft("signalled", "warning", "certain", ("rank 3",), "a: restarted", job="a")
    assert [finding.id for finding in board.put(restarted, source="crash")] == ["signalled"]
    (hang,) = board.put(of_job("rank_dead", "a"), source="verdict")
    assert (hang.id, hang.severity) == ("rank_dead", "error")
