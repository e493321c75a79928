"""Which alerts are due: selection by rules, limits, incidents, restarts. The clock is a number."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gconsole.config.sections import WatchRule
from gconsole.monitor.alerting.alerts import RESTORED_S, AlertTracker, RuleState
from gconsole.monitor.alerting.rules import Rule
from gconsole.monitor.alerting.state_file import StateFile
from gconsole.records import Finding
from gconsole.text.timespec import duration_s

T = 1_000_000.0


def rule(**values: object) -> Rule:
    config = msgspec.convert({"name": "page", "run": ["true"], **values}, WatchRule)
    return Rule(config, duration_s(config.after), duration_s(config.at_most_every), 60.0, Path("/"))


def finding(id: str = "rank_missing", *culprits: str, at_s: float = T, **values: object) -> Finding:
    fields = {"severity": "error", "confidence": "certain", "text": "a text", "job": None, **values}
    return Finding(id=id, culprits=culprits, first_seen=int(at_s * 1e9), **fields)


def events(tracker: AlertTracker, now_s: float, *findings: Finding, **options: object) -> list[tuple[str, str]]:
    alerts = tracker.evaluate(findings, lambda finding: ("node1",), now_s, **options)
    return [(alert.event, alert.findings[0].id) for alert in alerts]


@pytest.mark.parametrize(
    ("selection", "is_selected"),
    [
        ({}, True),
        ({"on": ["warning"]}, True),
        ({"on": ["gpu_xid"]}, False),
        ({"on": ["gpu_xid", "rank_missing"]}, True),
        ({"confidence": "certain"}, False),
        ({"confidence": "likely"}, True),
        ({"culprit": "rank 1*"}, True),
        ({"culprit": "rank 2"}, False),
        ({"node": "node?"}, True),
        ({"node": "gpu-*"}, False),
        ({"job": "llama*"}, True),
        ({"job": "eval*"}, False),
    ],
)
def test_rule_selects_by_id_severity_confidence_culprit_node_and_job(selection: dict, is_selected: bool) -> None:
    found = finding("rank_missing", "rank 17", confidence="likely", job="llama-70b")
    assert rule(**selection).selects(found, ("node3",)) is is_selected


def test_finding_without_a_job_matches_only_the_pattern_for_all_jobs() -> None:
    assert rule().selects(finding(), ())
    assert not rule(job="**").selects(finding(), ())


def test_open_finding_is_alerted_once_after_its_time() -> None:
    tracker = AlertTracker([rule(after="60s")])
    found = finding()
    assert events(tracker, T + 59, found) == []
    assert events(tracker, T + 60, found) == [("open", "rank_missing")]
    assert [events(tracker, T + 60 + after_s, found) for after_s in (1, 60, 3600, 86_400)] == [[], [], [], []]


def test_clearing_is_alerted_only_with_on_clear_and_never_while_blind() -> None:
    for on_clear in (False, True):
        tracker = AlertTracker([rule(on_clear=on_clear)])
        assert events(tracker, T, finding()) == [("open", "rank_missing")]
        assert events(tracker, T + 5, may_clear=False) == []
        assert events(tracker, T + 6) == ([("clear", "rank_missing")] if on_clear else [])
        assert events(tracker, T + 7) == []


def test_finding_that_opens_again_waits_until_at_most_every_has_passed() -> None:
    tracker = AlertTracker([rule(at_most_every="30m", on_clear=True)])
    assert events(tracker, T, finding()) == [("open", "rank_missing")]
    assert events(tracker, T + 60) == [("clear", "rank_missing")]
    assert events(tracker, T + 120, finding(at_s=T + 120)) == []
    assert events(tracker, T + 180) == [], "it was not alerted, so its end is not"
    again = finding(at_s=T + 600)
    assert events(tracker, T + 600, again) == []
    assert events(tracker, T + 1799, again) == []
    (alert,) = tracker.evaluate([again], lambda finding: (), T + 1800)
    assert (alert.event, alert.suppressed) == ("open", 2)


def test_findings_of_one_job_are_one_incident() -> None:
    tracker = AlertTracker([rule(on=["warning"])])
    stalled = finding("job_stalled", severity="warning", job="a")
    named = finding("rank_missing", "rank 1", job="a")
    cascade = finding("exception", "rank 2", job="a")
    assert events(tracker, T, stalled) == [("open", "job_stalled")]
    assert events(tracker, T + 30, stalled, named) == [("update", "rank_missing")], "the first with a culprit"
    assert events(tracker, T + 60, named, cascade) == [], "of the same incident, and no more severe"
    assert events(tracker, T + 61, named, cascade, finding("rank_missing", "rank 1", job="b")) == [
        ("open", "rank_missing")
    ]


def test_new_finding_of_an_incident_is_an_update_once_at_most_every_has_passed() -> None:
    tracker = AlertTracker([rule(at_most_every="30m")])
    first, later = finding("rank_missing", "rank 1", job="a"), finding("oom_killed", "rank 3", job="a")
    assert events(tracker, T, first) == [("open", "rank_missing")]
    assert len(events(tracker, T + 1801, first, later)) == 1


def test_alerts_per_hour_are_limited_and_the_rest_follows() -> None:
    tracker = AlertTracker([rule(at_most_per_hour=3)])
    findings = [finding("gpu_xid", f"node{number}:gpu0") for number in range(5)]
    assert len(events(tracker, T, *findings)) == 3
    assert events(tracker, T + 3599, *findings) == []
    assert len(events(tracker, T + 3601, *findings)) == 2
    assert events(tracker, T + 7300, *findings) == []


def restarted(tracker: AlertTracker, path: Path, now_s: float, *rules: Rule) -> AlertTracker:
    StateFile(path).write(tracker.states)
    file = StateFile(path)
    states = file.read()
    assert file.problem == ""
    return AlertTracker(rules or tracker.rules, states, now_s)


def test_restart_within_the_window_alerts_nothing_again(tmp_path: Path) -> None:
    tracker = AlertTracker([rule(on_clear=True)])
    assert events(tracker, T, finding(job="a")) == [("open", "rank_missing")]
    tracker = restarted(tracker, tmp_path / "state.json", T + 60)
    assert events(tracker, T + 61) == [], "not found again yet: not cleared"
    assert events(tracker, T + 100, finding(at_s=T + 100, job="a")) == []
    assert events(tracker, T + 5000, finding(at_s=T + 100, job="a")) == []
    assert events(tracker, T + 5001) == [("clear", "rank_missing")]


def test_incident_that_ended_during_a_restart_is_cleared_later(tmp_path: Path) -> None:
    tracker = AlertTracker([rule(on_clear=True)])
    events(tracker, T, finding())
    tracker = restarted(tracker, tmp_path / "state.json", T + 60)
    assert events(tracker, T + 60 + RESTORED_S - 1) == []
    assert events(tracker, T + 60 + RESTORED_S) == [("clear", "rank_missing")]


def test_finding_is_alerted_again_after_a_restart_beyond_the_window(tmp_path: Path) -> None:
    tracker = AlertTracker([rule(at_most_every="30m")])
    events(tracker, T, finding())
    tracker = restarted(tracker, tmp_path / "state.json", T + 7200)
    assert events(tracker, T + 7201, finding(at_s=T + 7200)) == [("open", "rank_missing")]


def test_changed_rules_hold_at_once_and_incidents_of_kept_names_stay() -> None:
    tracker = AlertTracker([rule()])
    events(tracker, T, finding())
    tracker.follow([rule(on_clear=True), rule(name="other")])
    assert events(tracker, T + 1, finding()) == [("open", "rank_missing")]  # of the rule `other`
    assert events(tracker, T + 2) == [("clear", "rank_missing")]


def test_rule_with_a_textfile_alone_makes_no_alert() -> None:
    assert events(AlertTracker([rule(run=[], textfile="/x")]), T, finding()) == []


def test_incidents_are_bounded_and_a_clock_set_back_does_not_silence_a_rule() -> None:
    tracker = AlertTracker([rule(at_most_per_hour=100_000)])
    for number in range(3_000):
        tracker.evaluate([finding("gpu_xid", f"gpu{number}")], lambda finding: (), T + number)
    assert len(tracker.states["page"].incidents) <= 2_049
    tracker = AlertTracker([rule()])
    assert len(events(tracker, T, finding())) == 1
    assert events(tracker, T - 90_000) == []
    assert len(events(tracker, T - 90_000 + 1801, finding(at_s=T - 90_000))) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"rules": 3}', b"\xff" * 100, b'{"rules":' + b"[" * 100_000])
def test_damaged_state_counts_as_none_and_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    file = StateFile(tmp_path / "state.json")
    assert file.read() == {}
    assert "alerts may be repeated" in file.problem


def test_state_is_private_and_is_not_read_through_a_link(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "deep" / "state.json")
    file.write({"page": RuleState()})
    assert (file.path.stat().st_mode & 0o777, file.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    link = tmp_path / "link.json"
    link.symlink_to(file.path)
    assert (StateFile(link).read(), file.read()) == ({}, {"page": RuleState()})
