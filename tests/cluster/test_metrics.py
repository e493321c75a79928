"""`gconsole batch --metrics`: samples as NDJSON on stdout, with the report in a file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from program import GCONSOLE, batch, gconsole
from rig import Rig

DEADLINE_S = 90.0


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"simulate_gpus": 2})


def test_metrics_go_to_stdout_as_json_lines_and_the_summary_to_stderr(hosts: Path) -> None:
    run = batch(hosts, "--for", "5s", "--metrics", "gpu,host")
    lines = [json.loads(line) for line in run.stdout.splitlines()]

    assert run.status == 0, run.stderr
    assert {line["kind"] for line in lines} == {"gpu", "gpu_link", "host"}  # NVLinks belong to GPUs
    assert {line["node"] for line in lines} == {f"node{number}" for number in range(1, 5)}
    assert all(line["simulated"] for line in lines if line["kind"] == "gpu")
    assert "4/4 nodes connected" in run.stderr
    assert len(run.report["gpus"]) == 8


def test_subsecond_sampling_adds_gpu_digests_to_metrics(hosts: Path) -> None:
    run = batch(hosts, "--for", "5s", "--metrics", "gpu", "--set", "agent.sample_interval_ms=100", "--quiet")
    kinds = [json.loads(line)["kind"] for line in run.stdout.splitlines()]

    assert set(kinds) == {"gpu", "gpu_digest", "gpu_link"}
    assert kinds.count("gpu_digest") >= 8
    assert kinds.count("gpu") < 2 * kinds.count("gpu_digest") + 8


def test_closed_stdout_ends_the_run_and_the_report_is_written(hosts: Path, tmp_path: Path) -> None:
    report, log, nodes = tmp_path / "report.json", tmp_path / "stderr", set[str]()
    argv = [GCONSOLE, "batch", hosts, "--for", "1h", "--metrics", "gpu", "-o", report]
    with log.open("w") as errors, subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True) as run:
        assert run.stdout is not None
        while len(nodes) < 4:  # from each node: a report requires all of them
            nodes.add(json.loads(run.stdout.readline())["node"])
        run.stdout.close()
        status = run.wait(DEADLINE_S)

    assert status == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    assert json.loads(report.read_text())["cluster"] == "rig"


def test_replay_of_a_recording_gives_the_same_metrics(hosts: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.ndjson"
    live = gconsole("batch", hosts, "--for", "3s", "--metrics", "gpu,rank", "--quiet", "--records", records)
    again = gconsole("batch", "--from", records, "--metrics", "gpu,rank", "--quiet")

    assert again.stdout == live.stdout
    assert live.stdout.count("\n") > 8


@pytest.mark.parametrize(("words", "message"), [
    (("--metrics", "gpus"), "--metrics: gpus: unknown family; use gpu, nic, host, rank"),
    (("--metrics", "gpu", "-o", "-"), "write the report to a file"),
    (("--fail-on", "gpu_xyz,gpu_ecc"), "--fail-on: unknown severity or finding id: gpu_xyz"),
    (("--fail-on", ","), "empty list"),
])  # fmt: skip
def test_invalid_option_values_are_usage_errors_that_list_valid_ones(hosts: Path, words: tuple, message: str) -> None:
    run = gconsole("batch", hosts, *words)

    assert run.status == 2
    assert message in " ".join(run.stderr.split())
    assert "gpu_xid" in run.stderr or "--fail-on" not in words
