"""The event log without a screen: retention, texts and details."""

from __future__ import annotations

import pytest
from fake_cluster import NOON, SECOND, FakeCluster

from gconsole.config.model import Config
from gconsole.core.bus import Hub
from gconsole.fleet.fleet import Fleet
from gconsole.records import Failure, Finding, Gap, GpuEvent, Log, Mark, NodeState, Rank
from gconsole.tui.views.events.model import (
    KEPT,
    EventLog,
    EventRow,
    event_detail,
    event_kind,
    event_status,
    event_text,
    is_of_node,
)


def a_log(text: str = "something", severity: str = "info", **fields: object) -> Log:
    defaults = {"node": "node1", "source": "kernel", "rx": NOON, "t": NOON} | fields
    return Log(text=text, severity=severity, **defaults)  # type: ignore[arg-type]


def a_finding(**fields: object) -> Finding:
    defaults = {"id": "slow", "severity": "warning", "confidence": "likely", "text": "it lags", "first_seen": NOON}
    return Finding(**(defaults | fields))  # type: ignore[arg-type]


def a_rank(**fields: object) -> Rank:
    defaults = {"job": "llama", "rank": 7, "pid": 1, "start_ticks": 1, "source": "environ", "node": "node1"}
    return Rank(**(defaults | fields))  # type: ignore[arg-type]


class TestWords:
    @pytest.mark.parametrize(
        ("record", "status", "kind", "text"),
        [
            (NodeState(node="n", state="ok", attempt=3), "ok", "node", "connected, receiving data (attempt 3)"),
            (NodeState(node="n", state="connecting"), None, "node", "connecting"),
            (NodeState(node="n", state="failed", error=Failure("auth", "the key was refused")), "failed", "node",
             "failed: auth: the key was refused"),
            (NodeState(node="n", state="lost", error=Failure("lost", "no word for 3 s")), "failed", "node",
             "lost: no word for 3 s"),
            (a_log("link down", "error"), "failed", "kernel", "link down"),
            (a_log("staged"), None, "kernel", "staged"),
            (Gap(node="n", source="buffer", reason="full", count=1200), "warning", "gap",
             "gap in buffer: 1,200 records lost, full"),
            (Gap(node="n", source="link", reason="cut"), "warning", "gap", "gap in link: records lost, cut"),
            (Mark(text="now"), None, "mark", "now"),
            (GpuEvent(node="n1", index=5, event="xid", severity="error", text="XID 79: gone"), "failed", "gpu",
             "gpu5: XID 79: gone"),
            (a_finding(), "warning", "finding", "slow: it lags"),
            (a_finding(cleared_at=NOON), "ok", "finding", "cleared: slow: it lags"),
            (a_rank(status="exited", reason="signal 9"), "failed", "rank", "rank 7 of llama exited: signal 9"),
            (a_rank(status="no_permission", rank=None), "warning", "rank",
                "rank – of llama cannot be read (no permission)"),
            (a_rank(status="stale"), "stale", "rank", "rank 7 of llama is stale (earlier attempt)"),
        ],
    )  # fmt: skip
    def test_each_record_type_maps_to_its_status_kind_and_text(self, record, status, kind, text):
        assert (event_status(record), event_kind(record), event_text(record)) == (status, kind, text)

    def test_node_text_is_sanitised_to_one_line(self):
        assert event_text(a_log("a\x1b[2J\nb")) == "a␛[2J b"

    def test_an_event_without_a_time_has_no_age(self):
        assert EventRow(0, a_log(rx=0), NOON).age == "–"

    def test_row_version_changes_only_when_its_displayed_age_changes(self):
        record = a_log()
        young, older = EventRow(4, record, NOON + SECOND), EventRow(4, record, NOON + 2 * SECOND)
        assert young.version != older.version
        assert young.version == EventRow(4, record, NOON + SECOND + 1).version

    def test_console_records_have_no_node_clock(self):
        assert is_of_node(a_log())
        assert not is_of_node(a_log(source="console"))
        assert not is_of_node(NodeState(node="node1", state="ok"))
        assert not is_of_node(a_log(node=""))


class TestTheStory:
    def test_event_details_include_both_clocks_the_hint_and_the_record_source(self):
        record = a_log("Xid 79", "error", try_="reset it", t=NOON + 250_000_000, agent="a1", seq=12)
        facts = {fact.label: fact.text for fact in event_detail(record, NOON + 5 * SECOND).facts}
        assert facts["event"] == "Xid 79"
        assert facts["try"] == "reset it"
        assert facts["console time"] == "2023-11-15 12:00:00.000, 5 s ago"
        assert facts["node time"] == "2023-11-15 12:00:00.250, +0.250 s from console time"
        assert facts["record"] == "#12 of a1"

    def test_finding_details_include_culprits_and_evidence(self):
        detail = event_detail(a_finding(culprits=("rank 7",), evidence=("e1", "e2")), NOON)
        facts = [(fact.label, fact.text) for fact in detail.facts]
        assert ("culprits", "rank 7") in facts
        assert [text for label, text in facts if label == "evidence"] == ["e1", "e2"]

    @pytest.mark.parametrize(
        "record",
        [
            a_rank(status="exited"),
            GpuEvent(event="xid", severity="info", text="x", try_="t"),
            Mark(text="x"),
            Gap(source="s", reason="r", first_seq=1, last_seq=2),
            NodeState(node="n", state="lost", error=Failure("lost", "t", "try"), retry_at=NOON),
        ],
    )
    def test_every_record_type_has_event_details(self, record):
        assert event_detail(record, NOON).facts[0].label == "event"


SLACK = KEPT // 10


class TestTheLog:
    def test_event_numbers_are_stable_while_the_oldest_events_are_dropped(self):
        log = EventLog()
        log.append([a_log(str(i)) for i in range(KEPT + SLACK - 1)])
        assert (log.first, len(log.items)) == (0, KEPT + SLACK - 1)
        log.append([a_log("last")])
        assert (log.first, len(log.items), log.end) == (SLACK, KEPT, KEPT + SLACK)
        rows = log.rows(NOON)
        assert (rows[0].key, rows[0].span.text) == (SLACK, str(SLACK))
        assert event_text(log.find(KEPT + SLACK - 1)) == "last"
        assert log.find(0) is None
        assert log.find(log.end) is None

    def test_the_newest_events_of_a_node_come_first_up_to_the_limit(self):
        log = EventLog()
        log.append([a_log(str(i), node=f"node{i % 2}") for i in range(10)])
        assert [row.key for row in log.of_node("node1", 3)] == [9, 7, 5]

    def test_copied_log_is_unaffected_by_later_appends(self):
        log = EventLog([a_log()])
        copy = log.copied()
        log.append([a_log()])
        assert len(copy.rows(NOON)) == 1

    def test_snapshot_contains_every_stored_event_once(self):
        cluster = FakeCluster("node1")
        app = cluster.app()
        cluster.publish(a_log("one"))
        cluster.publish(a_log("two"))
        assert [row.span.text for row in app.frames.builder.build().events.rows(NOON)][-2:] == ["one", "two"]
        assert len(app.frames.builder.build().events.rows(NOON)) == len(cluster.store.events)


async def test_live_fleet_mark_publishes_a_console_record():
    hub, published = Hub(), []
    hub.subscribe(published.extend)
    fleet = Fleet(Config(cluster="lab", nodes=()), hub)
    await fleet.mark("switched the fabric over")
    await fleet.stop()
    assert [(type(record), record.text, record.agent) for record in published] == [
        (Mark, "switched the fabric over", hub.console_id)
    ]
