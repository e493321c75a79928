"""Collectives recorded by a demo rank; the agent reads them like torch's Flight Recorder."""

from __future__ import annotations

from pathlib import Path

from gconsole.demo.flight_recorder import KEPT, FlightRecorder
from gconsole_remote.comms import flight_recorder


def test_the_agent_reads_what_the_recorder_writes(tmp_path: Path) -> None:
    path = tmp_path / "trace3"
    recorder = FlightRecorder(path, 8)
    for _ in range(KEPT + 5):
        with recorder.entered(50):
            pass
    read = flight_recorder.parse(path.read_bytes())
    assert read.problems == []
    assert len(read.entries) == KEPT
    last = read.entries[-1]
    assert (last["collective_seq_id"], last["retired"], last["input_numel"]) == (KEPT + 5, True, 50)
    assert last["time_created_ns"] <= last["time_discovered_completed_ns"]
    [group] = read.groups
    assert group["ranks"] == list(range(8))
    assert [file.name for file in tmp_path.iterdir()] == ["trace3"]
