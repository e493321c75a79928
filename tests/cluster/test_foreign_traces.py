"""Traces of two nodes with wrong clocks, put on the common clock that was recorded from the same nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import skewed_clocks
from program import gconsole, run_program
from rig import Rig
from skewed_clocks import ClockError, ClockErrors, copy_with_wrong_clock

from gconsole_remote.clocks import stamps

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_namespaces")]

ERRORS = {"node1": ClockError(), "node2": ClockError(300_000_000, 20_000)}
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
