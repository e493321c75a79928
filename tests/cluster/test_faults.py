"""A fleet in which every node has a different fault: findings of the report and the screen."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import faulty_fleet
import pytest
from program import GCONSOLE, gconsole
from rig import Rig
from tmux import Tmux

DEADLINE_S = 90.0
EVERYTHING = [*faulty_fleet.EXPECTED.values(), *faulty_fleet.MORE]


@pytest.fixture(scope="module")
def fleet(needs_namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[faulty_fleet.FaultyFleet]:
    with Rig(nodes=faulty_fleet.names()) as rig:
        yield faulty_fleet.FaultyFleet(rig, tmp_path_factory.mktemp("faulty"))


@pytest.fixture(scope="module")
def night(fleet: faulty_fleet.FaultyFleet, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict, str, Path]:
    """One run over the faulty fleet: exit code, report, summary and records file."""
    folder = tmp_path_factory.mktemp("night")
    report, recorded = folder / "report.json", folder / "records.ndjson"
    argv = [str(GCONSOLE), "batch", str(fleet.hosts()), "--for", "32s", "-o", str(report), "--records", str(recorded)]
    with fleet.playing(), subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        began = time.monotonic()
        while faulty_fleet.sampled(recorded) < faulty_fleet.FAULTS.keys():
            assert time.monotonic() - began < DEADLINE_S, "not all nodes were sampled"
            time.sleep(0.2)
        fleet.break_down()
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode in (0, 1, 3), err
    fleet.mend()
    return process.returncode, json.loads(report.read_text()), out, recorded


@pytest.mark.parametrize(("id", "severity", "words"), EVERYTHING, ids=[f"{id}" for id, _, _ in EVERYTHING])
def test_report_describes_every_fault_with_severity_and_evidence(
    night: tuple, id: str, severity: str, words: tuple
) -> None:
    _, report, summary, _ = night
    lines = [line for line in report["findings"] if line["id"] == id]

    matches = [line for line in lines if all(word in line["text"] for word in words)]
    assert len(matches) == 1, [line["text"] for line in lines]
    assert matches[0]["severity"] == severity
    assert matches[0]["first_seen"]
    assert matches[0]["cleared_at"] is None
    assert all("." in line.split()[0] for line in matches[0]["evidence"]), matches[0]["evidence"]
    assert f"{id}  {matches[0]['text']}" in summary


def test_report_has_no_other_findings_and_exit_code_is_1(night: tuple) -> None:
    status, report, _, _ = night

    findings = sorted((line["id"], line["severity"]) for line in report["findings"])
    shape = [line for line in report["findings"] if line["id"] == faulty_fleet.OF_SHAPE[0]]

    assert findings == sorted([*((id, severity) for id, severity, _ in EVERYTHING), faulty_fleet.OF_SHAPE[:2]])
    assert [(line["culprits"], line["text"]) for line in shape] == [(["port"], faulty_fleet.OF_SHAPE[2])]
    assert status == 1


def test_broken_driver_is_listed_as_a_missing_capability_of_its_node(night: tuple) -> None:
    recorded = faulty_fleet.records(night[3])
    missing = {
        record["node"]: [lack["name"] for lack in record["missing"]] for record in recorded if record["kind"] == "node"
    }

    for node, (_, name) in faulty_fleet.BROKEN.items():
        assert name in missing[node]


def test_replay_has_the_same_findings_as_the_recorded_run(night: tuple, tmp_path: Path) -> None:
    _, report, _, recorded = night
    again = tmp_path / "again.json"
    run = gconsole("batch", "--from", recorded, "-o", again, "--quiet")

    assert json.loads(again.read_text())["findings"] == report["findings"]
    assert run.status == 1
    assert gconsole("batch", "--from", recorded, "--quiet", "--fail-on", "gpu_straggler").status == 1
    assert gconsole("batch", "--from", recorded, "--quiet", "--fail-on", "nic_errors,p2p_cycle").status == 1
    assert gconsole("batch", "--from", recorded, "--quiet", "--fail-on", "p2p_cycle").status in (0, 3)


@pytest.mark.full  # the report and the replay have the same findings; tui/test_findings draws them
def test_the_screen_lists_every_fault(fleet: faulty_fleet.FaultyFleet) -> None:
    if subprocess.run(["which", "tmux"], capture_output=True, check=False).returncode:
        pytest.skip("tmux is not installed")
    terminal = Tmux(f"{GCONSOLE} {fleet.hosts('screen.toml')}", columns=400, rows=110)
    try:
        with fleet.playing():
            terminal.until("13/13 nodes", "FINDINGS", "gpu_xid", "nvlink_down")
            fleet.break_down()
            for _, _, words in EVERYTHING:
                terminal.until(*words[:2])
            terminal.until("topology_differs")  # the hardware of these nodes differs as well
        terminal.press("q")
        terminal.until_gone()
    finally:
        terminal.close()
        fleet.mend()
