"""Traces of other tools on the common clock: exact times, error bounds, and no mixed-up processes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from session_builders import START, a_session
from session_clocks import SECOND, ask, windows

from gconsole.analysis.clock.model import CommonClock
from gconsole.cli.clocks import clocks
from gconsole.records import ClockSnapshot, Rank
from gconsole.session.export.foreign_traces import EARLIEST_REAL_NS, read_trace
from gconsole.session.format.layout import SessionError

#: CLOCK_REALTIME minus MONOTONIC_RAW of each node, ns: their clocks differ by 250 ms.
AHEAD_NS = {"n0": START, "n1": START + 250_000_000}


def snapshots(node: str) -> list[ClockSnapshot]:
    return [
        ClockSnapshot(node=node, agent="a", seq=1000 + second, rx=START + second * SECOND, raw=second * SECOND,
                      real=AHEAD_NS[node] + second * SECOND, monotonic=second * SECOND - 5, boot=second * SECOND + 9,
                      width_ns=300, reads=10)
        for second in range(40, 260)
    ]  # fmt: skip


def clock_records() -> list[Any]:
    ranks = [
        Rank(node=f"n{rank}", agent="a", seq=1, rx=START, rank=rank, job="j", local_rank=0, pid=7, start_ticks=1,
             source="environ")
        for rank in range(2)
    ]  # fmt: skip
    return [*windows("n0"), *windows("n1"), *snapshots("n0"), *snapshots("n1"), *ranks]


def kineto(folder: Path, rank: int, real_ns: int, **more: Any) -> Path:
    """A trace of torch.profiler, whose step began at `real_ns` of the node's CLOCK_REALTIME."""
    base = real_ns - 1_500_000
    path = folder / f"rank{rank}.pt.trace.json"
    path.write_text(json.dumps({
        "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "baseTimeNanoseconds": base, "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 4242, "tid": 0, "ts": 0, "args": {"name": "python"}},
            {"ph": "X", "cat": "cpu_op", "name": "step", "pid": 4242, "tid": 1, "ts": 1500.000, "dur": 1000.001},
            {"ph": "s", "id": 17, "cat": "ac2g", "name": "ac2g", "pid": 4242, "tid": 1, "ts": 1500.5},
            {"ph": "f", "id": 17, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 1600.25, "bp": "e"},
        ], **more,
    }))  # fmt: skip
    return path


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return a_session(tmp_path / "sessions", clock_records()).path


def apply(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(clocks, ["apply", *map(str, args)], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output


def common_ns(event: dict[str, Any], document: dict[str, Any]) -> float:
    return document["baseTimeNanoseconds"] + event["ts"] * 1000


def test_traces_of_two_nodes_meet_on_the_common_clock(tmp_path: Path, session: Path) -> None:
    """Both steps began at the same instant, stamped by clocks that are 250 ms apart."""
    raw = 100 * SECOND + 3_123_457
    clock = CommonClock.of(clock_records())
    paths = [kineto(tmp_path, rank, AHEAD_NS[f"n{rank}"] + raw) for rank in range(2)]
    merged = tmp_path / "merged.json"

    status, output = apply(*paths, "--from", session, "-o", merged)

    document = json.loads(merged.read_text())
    steps = [event for event in document["traceEvents"] if event["name"] == "step"]
    truths = [clock.to_cluster(f"n{rank}", raw) for rank in range(2)]
    assert status == 0
    for step, truth in zip(steps, truths, strict=True):
        assert truth is not None
        assert abs(common_ns(step, document) - truth.ns) < 100
        assert step["dur"] == pytest.approx(1000.001, abs=0.1)
    assert len({step["pid"] for step in steps}) == 2
    ids = [event["id"] for event in document["traceEvents"] if event["ph"] in "sf"]
    assert ids == ["0.17", "0.17", "1.17", "1.17"]
    names = [event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"]
    assert {"rank 0 on n0: python", "rank 1 on n1: python"} <= set(names)
    assert "rank 1, ±" in output


def test_error_bounds_are_labels_and_counters_that_no_event_exceeds(tmp_path: Path, session: Path) -> None:
    raw = 120 * SECOND
    merged = tmp_path / "merged.json"
    apply(kineto(tmp_path, 1, AHEAD_NS["n1"] + raw), "--from", session, "-o", merged)

    document = json.loads(merged.read_text())
    truth = CommonClock.of(clock_records()).to_cluster("n1", AHEAD_NS["n1"] + raw, "real")
    (own,) = document["gconsole"]["traces"]
    counters = [event["args"]["±"] for event in document["traceEvents"] if event["ph"] == "C"]
    labels = [event["args"]["labels"] for event in document["traceEvents"] if event["name"] == "process_labels"]
    assert truth is not None
    assert own["bound_ns"] >= truth.bound_ns
    assert max(counters) * 1000 == pytest.approx(own["bound_ns"])
    assert labels
    assert all("n1 ±" in label for label in labels)


def test_compressed_trace_and_array_without_an_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "chrome.json.gz"
    event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": EARLIEST_REAL_NS // 1000 + 5, "dur": 2}
    path.write_bytes(gzip.compress(b"[" + json.dumps(event).encode() + b",\n"))

    trace = read_trace(path, "n0", {})

    assert [event["name"] for event in trace.events] == ["a"]
    assert trace.clock == "real"


@pytest.mark.parametrize(
    ("text", "node", "message"),
    [
        ("\x0a\x02", "n0", "not a trace in JSON"),
        ("{]", "n0", "not a trace in Chrome's JSON format"),
        ('{"traceEvents": [{"ph": "M"}]}', "n0", "no event with a time"),
        ('[{"ph": "X", "ts": 12, "dur": 1}]', "n0", "name their clock"),
        ('[{"ph": "X", "ts": 12, "dur": 1}]', None, "names no rank"),
        ('{"distributedInfo": {"rank": 9}, "traceEvents": []}', None, "rank 9, of which the recording has no node"),
    ],
)
def test_trace_that_cannot_be_placed_is_rejected_with_the_reason(
    tmp_path: Path, text: str, node: str | None, message: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)

    with pytest.raises(SessionError, match=message):
        read_trace(path, node, {0: "n0"})


def test_node_without_clock_data_is_rejected(tmp_path: Path, session: Path) -> None:
    path = kineto(tmp_path, 0, START)

    result = CliRunner().invoke(clocks, ["apply", str(path), "--from", str(session), "--node", "n9"])

    assert result.exit_code != 0
    assert "n9: no clock data" in result.output


def test_to_cluster_in_sql_equals_the_clock_model(session: Path) -> None:
    clock = CommonClock.of(clock_records())
    reals = {node: AHEAD_NS[node] + raw for node, raw in (("n0", 77 * SECOND + 13), ("n1", 203 * SECOND + 999_999))}
    values = ", ".join(f"('{node}', {real})" for node, real in reals.items())

    rows = ask(
        session, f"SELECT node, to_cluster(node, t), to_cluster_bound_ns(node, t) FROM (VALUES {values}) v(node, t)"
    )

    assert {row[0] for row in rows} == set(reals)
    for node, ns, bound_ns in rows:
        truth = clock.to_cluster(node, reals[node], "real")
        assert truth is not None
        assert abs(ns - truth.ns) <= 3
        assert bound_ns >= truth.bound_ns
    assert ask(session, "SELECT to_cluster('n9', 5)") == [(None,)]


def test_to_cluster_in_sql_without_clock_records_is_null(tmp_path: Path) -> None:
    path = a_session(tmp_path, [record for record in clock_records() if isinstance(record, Rank)]).path

    assert ask(path, "SELECT DISTINCT to_cluster(node, t) FROM rank") == [(None,)]


def test_output_is_valid_json_of_numbers(tmp_path: Path, session: Path) -> None:
    merged = tmp_path / "merged.json"
    apply(kineto(tmp_path, 0, AHEAD_NS["n0"] + 100 * SECOND), "--from", session, "-o", merged)

    document = msgspec.json.decode(merged.read_bytes())

    assert all(isinstance(event["ts"], int | float) for event in document["traceEvents"])
