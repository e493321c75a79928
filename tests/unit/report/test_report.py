"""Report, summary and exit code of a headless run."""

import msgspec
import pytest

from gconsole.analysis.health import health_findings
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.core.store import Store
from gconsole.records import (
    AgentCost,
    ConsoleRecord,
    Failure,
    Finding,
    Host,
    Log,
    Node,
    NodeState,
    Rank,
    RankStat,
    Record,
)
from gconsole.report import coverage_code, exit_code, make_report, summary, to_json
from gconsole.report.document import MAX_EVENTS
from gconsole.text.format import iso

T0 = 1_795_000_000_000_000_000


def a_store(*records: Record) -> Store:
    """A store with these records, one millisecond apart."""
    store = Store()
    store.apply([ConsoleRecord(cluster="pod", version="0", rx=T0, t=T0)])
    for i, record in enumerate(records, 1):
        record.rx = record.t = T0 + i * 1_000_000
        store.apply([record])
    return store


def a_node(name: str, state: str = "ok", error: Failure | None = None) -> list[Record]:
    records = [NodeState(node=name, state=state, error=error)]
    if state == "ok":
        records.append(
            Node(
                node=name,
                agent=f"agent-{name}",
                hostname=name,
                boot_id="b",
                kernel="6.1",
                arch="x86_64",
                python="3.11.7",
                uid=0,
                pid=7,
                sample_interval_ms=1000,
            )
        )
        cost = {"cpu_pct": 0.3, "rss_bytes": 1 << 24, "sample_interval_ms": 1000}
        records.append(AgentCost(node=name, agent=f"agent-{name}", **cost))
    return records


def a_rank(node: str, rank: int, world_size: int = 2, state: str = "moving") -> list[Record]:
    pid = 100 + rank
    return [
        Rank(
            node=node,
            job="job",
            rank=rank,
            local_rank=rank,
            world_size=world_size,
            pid=pid,
            start_ticks=1,
            source="environ",
        ),
        RankStat(node=node, job="job", rank=rank, pid=pid, start_ticks=1, state=state),
    ]


def a_finding(severity: str = "error", cleared_at: int | None = None) -> Finding:
    return Finding(
        id="gpu_xid", severity=severity, confidence="certain", text="XID 79", first_seen=T0, cleared_at=cleared_at
    )


def test_complete_coverage_exits_with_code_0():
    report = make_report(a_store(*a_node("n1"), *a_rank("n1", 0), *a_rank("n1", 1)))
    assert exit_code(report) == 0
    assert report.jobs[0].ranks_found == [0, 1]
    assert [(row.rank, row.node, row.pid, row.state) for row in report.ranks] == [
        (0, "n1", 100, "moving"), (1, "n1", 101, "moving"),
    ]  # fmt: skip


def test_missing_rank_makes_the_report_partial_and_is_named_in_the_summary():
    report = make_report(a_store(*a_node("n1"), *a_rank("n1", 0)))
    assert exit_code(report) == 3
    assert "1/2 ranks" in summary(report)
    assert "◌ rank 1: not found" in summary(report)


def test_failed_node_makes_the_report_partial_and_suggests_a_remedy():
    failure = Failure("auth", "key refused for ops (1 key offered)", "try: ssh -v n2")
    report = make_report(a_store(*a_node("n1"), *a_node("n2", "failed", failure)))
    assert exit_code(report) == 3
    assert "✖ n2  auth: key refused for ops (1 key offered)" in summary(report)
    assert "ssh -v n2" in summary(report)


def test_nodes_with_the_same_failure_share_one_summary_line():
    def failed(name: str) -> list[Record]:
        return a_node(name, "failed", Failure("refused", f"connection refused by {name}:22", f"ssh -v {name}"))

    text = summary(make_report(a_store(*a_node("n0"), *failed("n1"), *failed("n2"), *failed("n3"))))
    assert "n[1-3]" in text
    assert text.count("connection refused by") == 1


def test_unreachable_fleet_has_its_own_exit_code_despite_findings():
    report = make_report(a_store(*a_node("n1", "failed", Failure("dns", "no such name")), a_finding()))
    assert exit_code(report) == 4


@pytest.mark.parametrize(
    ("finding", "fail_on", "code"),
    [
        (a_finding("error"), ("error",), 1),
        (a_finding("warning"), ("error",), 0),
        (a_finding("warning"), ("warning",), 1),
        (a_finding("error", cleared_at=T0), ("error",), 0),
        (a_finding("warning"), ("gpu_xid",), 1),
        (a_finding("error"), ("nvlink_down",), 0),
    ],
)
def test_findings_set_the_exit_code_by_severity_or_id(finding: Finding, fail_on: tuple[str, ...], code: int):
    report = make_report(a_store(*a_node("n1"), finding))
    assert exit_code(report, fail_on) == code


def test_reader_of_an_agent_that_failed_is_never_exit_code_0():
    log = Log(node="n1", source="agent", severity="error", text="sampler processes failed: ValueError: ²", rx=1)
    state = HealthState(60.0, 50.0)
    state.add([log])
    [draft] = health_findings(state, HealthConfig())
    finding = Finding(id=draft.id, severity=draft.severity, confidence=draft.confidence, text=draft.text, first_seen=T0)
    report = make_report(a_store(*a_node("n1"), *a_rank("n1", 0), *a_rank("n1", 1), finding))
    assert (draft.id, exit_code(report)) == ("agent_error", 1)


def test_finding_takes_precedence_over_partial_coverage_in_the_exit_code():
    report = make_report(a_store(*a_node("n1"), *a_node("n2", "lost", Failure("lost", "no word")), a_finding()))
    assert exit_code(report) == 1


def test_a_lost_node_keeps_its_ranks_in_the_report_as_unknown():
    records = [*a_node("n1"), *a_rank("n1", 0, 1), *a_node("n2")]
    store = a_store(*records, NodeState(node="n1", state="lost", error=Failure("lost", "no word for 3 s")))
    report = make_report(store)
    assert report.ranks[0].state == "unknown"
    assert [missing.reason for missing in report.jobs[0].ranks_missing] == ["node n1 lost"]
    assert coverage_code(store) == 3


def test_unreadable_processes_are_reported_with_a_remedy():
    report = make_report(a_store(*a_node("n1"), Host(node="n1", unreadable=3)))
    assert report.nodes[0].unreadable == 3
    assert 'run_as = "sudo"' in summary(report)


def test_json_report_has_the_documented_field_names():
    document = msgspec.json.decode(to_json(make_report(a_store(*a_node("n1"), *a_rank("n1", 0), a_finding()))))
    assert document["schema"] == "gconsole.report/1"
    promised = {
        "cluster", "started_at", "ended_at", "nodes", "jobs", "ranks", "verdicts", "findings", "agent_cost",
        "started_at_ns", "ended_at_ns",
    }  # fmt: skip
    assert promised <= set(document)
    rank = {"job", "attempt", "rank", "local_rank", "node", "pid", "gpu", "state", "step", "source", "watched"}
    rank |= {"progress", "progress_evidence", "progress_source"}
    assert set(document["ranks"][0]) == rank
    finding = {
        "id", "severity", "confidence", "culprits", "victims", "text", "evidence", "first_seen", "cleared_at",
    }  # fmt: skip
    assert set(document["findings"][0]) == finding
    assert document["ranks"][0]["step"] is None


def test_nodes_are_sorted_by_number_in_their_names():
    report = make_report(a_store(*a_node("node10"), *a_node("node2")))
    assert [line.node for line in report.nodes] == ["node2", "node10"]


def test_timestamps_are_utc_with_microseconds_and_zero_is_none():
    assert iso(T0 + 1500) == "2026-11-18T11:06:40.000001Z"
    assert iso(0) is None


def an_event(text: str, minutes: int, **more) -> Log:
    """A message of the kernel that is so many minutes older than the agent."""
    known = {"source": "kernel", "severity": "warning", "is_earlier": True, "at": T0 - minutes * 60_000_000_000}
    return Log(node="node1", text=text, **{**known, **more})


def test_the_report_tells_what_happened_before_the_agents_came():
    store = a_store(
        *a_node("node1"),
        an_event("Out of memory: Killed process 4242 (python)", 37, fault="oom_kill", pid=4242),
        an_event("nfs: server store1 not responding", 3 * 60, fault="nfs"),
        an_event("usb 1-1: new device", 5, severity="info"),
        an_event("said later", 0, is_earlier=False),
    )
    report = make_report(store)
    assert [(line.age, line.fault) for line in report.events] == [
        ("3 h", "nfs"),
        ("37 min", "oom_kill"),
        ("5 min", None),
    ]
    assert summary(report).splitlines()[-2:] == [
        "  · 3 h before you came  node1: nfs: server store1 not responding",
        "  · 37 min before you came  node1: Out of memory: Killed process 4242 (python)",
    ]
    told = Finding(
        node="node1", id="kernel_fault", severity="warning", confidence="certain", culprits=("node1",), victims=(),
        text="37 min earlier: Out of memory: Killed process 4242 (python)", evidence=(), first_seen=T0,
    )  # fmt: skip
    store.apply([told])
    assert "before you came  node1: Out of memory" not in summary(make_report(store))


def test_a_node_with_a_long_past_keeps_its_newest_events():
    report = make_report(a_store(*a_node("node1"), *(an_event(f"fault {n}", 1000 - n) for n in range(100))))
    assert [line.text for line in report.events][:1] == ["fault 36"] and len(report.events) == MAX_EVENTS
    assert len(summary(report).splitlines()) < 20
