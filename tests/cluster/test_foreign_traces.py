"""Traces of two nodes with wrong clocks, put on the common clock that was recorded from the same nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import skewed_clocks
from jobs import start_torchrun
from jobs.launch import FOLDER
from program import gconsole, run_program
from rig import Rig
from skewed_clocks import ClockError, ClockErrors, copy_with_wrong_clock

from gconsole_remote.clocks import stamps

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_namespaces")]

ERRORS = {"node1": ClockError(), "node2": ClockError(300_000_000, 20_000)}
OFFSETS = {"node1": ClockError(), "node2": ClockError(300_000_000)}
SECOND = 1_000_000_000


def trace(folder: Path, node: str, errors: ClockErrors, instants: list[tuple[int, int]]) -> Path:
    """A trace of `node` in Kineto's form with a step at each true (CLOCK_REALTIME, MONOTONIC_RAW)."""
    stamped = [real + round(errors.ahead(node, raw)) for real, raw in instants]
    base = stamped[0] - 5 * SECOND
    events = [
        {"ph": "X", "name": "step", "pid": 7, "tid": 7, "ts": (stamp - base) / 1000, "dur": 100.0} for stamp in stamped
    ]
    path = folder / f"{node}.pt.trace.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": events}))
    return path


def test_simultaneous_events_of_nodes_with_wrong_clocks_meet_within_their_bounds(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"], clock={"duty": "continuous"})
    errors = copy_with_wrong_clock(tmp_path / "gconsole_remote", ERRORS)
    to_real = stamps.realtime_ns() - stamps.mono_ns()
    folder = ("--set", f"sessions.folder={tmp_path / 'sessions'}")
    argv = [sys.executable, skewed_clocks.__file__, tmp_path / "gconsole_remote"]
    run = run_program(
        [*argv, "record", hosts, "--name", "night", "--clocks", "--for", "16s", "--quiet", *folder], deadline_s=120.0
    )
    assert run.status == 0, run.stderr
    ended = stamps.mono_ns()
    instants = [(raw + to_real, raw) for raw in range(ended - 6 * SECOND, ended - 2 * SECOND, SECOND // 4)]
    paths = [trace(tmp_path, node, errors, instants) for node in ERRORS]
    merged = tmp_path / "merged.json"

    nodes = [word for node in ERRORS for word in ("--node", node)]
    session = tmp_path / "sessions" / "night"
    done = gconsole("clocks", "apply", *paths, "--from", session, *nodes, "-o", merged)

    assert done.status == 0, done.stderr
    document = json.loads(merged.read_text())
    bound_us = sum(own["bound_ns"] for own in document["gconsole"]["traces"]) / 1000
    steps: dict[int, list[float]] = {}
    for event in document["traceEvents"]:
        if event["name"] == "step":
            steps.setdefault(event["pid"], []).append(event["ts"])
    first, second = steps.values()
    apart = [abs(one_us - other_us) for one_us, other_us in zip(first, second, strict=True)]
    print(f"\n{len(apart)} pairs, at most {max(apart):.1f} µs apart, bounds together {bound_us:.1f} µs")
    assert len(first) == len(instants)
    assert max(apart) <= bound_us < 5_000


@pytest.mark.usefixtures("needs_torch")
def test_traces_that_torch_profiler_wrote_on_nodes_with_wrong_clocks_are_put_on_the_common_clock(
    rig: Rig, tmp_path: Path
) -> None:
    nodes = [rig.node("node1"), rig.node("node2")]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"], clock={"duty": "continuous"})
    errors = copy_with_wrong_clock(tmp_path / "gconsole_remote", OFFSETS)
    sessions = ("--set", f"sessions.folder={tmp_path / 'sessions'}")
    argv = [sys.executable, skewed_clocks.__file__, tmp_path / "gconsole_remote"]
    # the profiler needs all of torch, which the ranks of other jobs do without
    env = {"TRACES": nodes[0].inside, "LIGHT_TORCH": "launchers"}
    with start_torchrun(rig, nodes, nproc_per_node=1, script=FOLDER / "profiled_steps.py", env=env) as job:
        job.wait_ready()
        run = run_program(
            [*argv, "record", hosts, "--name", "night", "--clocks", "--for", "16s", "--quiet", *sessions],
            deadline_s=120.0,
        )
        assert run.status == 0, run.stderr
        assert job.stop(60.0) == [0, 0], job.output()
    paths = [node.folder / f"rank{rank}.pt.trace.json" for rank, node in enumerate(nodes)]
    true_us = [reductions(json.loads(path.read_text())) for path in paths]
    for path, node in zip(paths, OFFSETS, strict=True):
        shift(path, errors.errors[node].offset_ns)  # as if the node's own clock had stamped it

    merged = tmp_path / "merged.json"
    done = gconsole("clocks", "apply", *paths, "--from", tmp_path / "sessions" / "night", "-o", merged)

    assert done.status == 0, done.stderr
    document = json.loads(merged.read_text())
    assert [(own["rank"], own["node"]) for own in document["gconsole"]["traces"]] == [(0, "node1"), (1, "node2")]
    bound_us = sum(own["bound_ns"] for own in document["gconsole"]["traces"]) / 1000
    first, second = reductions(document).values()
    [true_first], [true_second] = (own.values() for own in true_us)
    assert len(first) == len(second) == len(true_first) > 100
    apart = [right[0] - left[0] for left, right in zip(first, second, strict=True)]
    truly_apart = [right[0] - left[0] for left, right in zip(true_first, true_second, strict=True)]
    worst_us = max(abs(own - truth) for own, truth in zip(apart, truly_apart, strict=True))
    print(f"\n{len(apart)} all_reduces: error at most {worst_us:.1f} µs, bounds together {bound_us:.1f} µs")
    assert worst_us <= bound_us < 5_000
    for left, right in zip(first, second, strict=True):  # none ends on one rank before it begins on the other one
        assert max(left[0], right[0]) <= min(left[1], right[1]) + bound_us


def reductions(document: dict[str, Any]) -> dict[int, list[tuple[float, float]]]:
    """Begin and end of each all_reduce, µs since 1970, by process."""
    base_us = document["baseTimeNanoseconds"] / 1000
    spans: dict[int, list[tuple[float, float]]] = {}
    for event in document["traceEvents"]:
        if event.get("name") == "gloo:all_reduce" and event["ph"] == "X":
            begin = base_us + event["ts"]
            spans.setdefault(event["pid"], []).append((begin, begin + event["dur"]))
    return {pid: sorted(own) for pid, own in sorted(spans.items())}


def shift(path: Path, ns: int) -> None:
    document = json.loads(path.read_text())
    document["baseTimeNanoseconds"] += ns
    path.write_text(json.dumps(document))
