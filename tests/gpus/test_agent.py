"""End to end: a real agent with the fake NVML library, its records in the report of a real console."""

import json
import os
import subprocess
import time

import fork_server
import pytest
from fork_server import GCONSOLE
from mock_profiles import OF_THE_MACHINE
from nvml import scenarios
from nvml.library import Scenario, folder

DEADLINE_S = 60.0


@pytest.fixture
def batch(tmp_path):
    """`batch(lines)` watches this machine with that scenario; the report, and the records by kind.

    Findings about the machine itself, such as its clock, are left out.
    """
    folder()

    def run(lines, seconds=0, code=0):
        scenario = Scenario(tmp_path / "scenario", lines)
        hosts = tmp_path / "hosts.toml"
        # a filter without matches: other processes of this machine are ignored
        hosts.write_text(f'[ssh]\ntransport = "local"\n[agent]\ncache_dir = "{tmp_path / "cache"}"\n'
                         '[[nodes]]\nhosts = "me"\nprocess_filter = "env:GCONSOLE_TEST_NOBODY=1"\n')  # fmt: skip
        report, records = tmp_path / "report.json", tmp_path / "records.ndjson"
        argv = [GCONSOLE, "batch", str(hosts), "--for", f"{seconds}s", "--quiet"]
        argv += ["--output", str(report), "--records", str(records)]
        result = fork_server.run(argv, text=True, env={**os.environ, **scenario.environment}, timeout=DEADLINE_S)
        assert result.returncode == code, result.stderr
        by_kind = {}
        for line in records.read_text().splitlines():
            record = json.loads(line)
            by_kind.setdefault(record["kind"], []).append(record)
        content = json.loads(report.read_text())
        content["findings"] = [finding for finding in content["findings"] if finding["id"] not in OF_THE_MACHINE]
        return content, by_kind

    return run


def test_eight_gpus_are_in_the_report_of_a_console(batch):
    report, records = batch(scenarios.hgx_h100())

    assert [(gpu["node"], gpu["index"], gpu["name"]) for gpu in report["gpus"]] == [
        ("me", index, "NVIDIA H100 80GB HBM3") for index in range(8)]  # fmt: skip
    assert {gpu["util_pct"] for gpu in report["gpus"]} == {97}
    assert records["node"][-1]["missing"] == []
    assert [log for log in records.get("log", []) if log["severity"] == "error"] == []


def test_driver_that_hangs_at_its_start_is_named_and_makes_the_run_partial(batch):
    report, records = batch(scenarios.hgx_h100() | {"hang.nvmlInitWithFlags": 1}, seconds=20, code=3)

    assert [(finding["id"], finding["severity"]) for finding in report["findings"]] == [("driver_broken", "warning")]
    (node,) = report["nodes"]
    assert "nvmlInit has not returned for" in node["gpu_fault"]["text"]
    assert "GPUs" in node["awaits"]
    assert records["host"], "everything else is reported"


def test_crash_of_the_driver_library_is_an_error_that_names_the_signal(batch):
    report, records = batch(scenarios.hgx_h100() | {"crash.nvmlDeviceGetPowerUsage": 1}, seconds=15, code=1)

    (finding,) = report["findings"]
    assert (finding["id"], "killed by signal SIGSEGV in nvmlDeviceGetPowerUsage" in finding["text"]) == (
        "driver_broken",
        True,
    )
    assert records["node"][-1]["pid"] == records["node"][0]["pid"], "the agent goes on"


def test_driver_version_mismatch_is_listed_as_a_missing_capability(batch):
    report, records = batch(scenarios.hgx_h100() | {"fail.nvmlInitWithFlags": 18}, seconds=0, code=1)

    (missing,) = [record for record in records["node"][-1]["missing"] if record["name"].startswith("gpu")]
    assert (report["gpus"], missing["name"]) == ([], "gpu_driver_mismatch")
    assert [finding["id"] for finding in report["findings"]] == ["driver_broken"]
    (node,) = report["nodes"]
    assert (node["gpus_seen"], node["gpu_fault"]["name"]) == (0, "gpu_driver_mismatch")
    assert "version mismatch" in missing["text"]
    assert "reboot" in missing["try"]


def test_call_that_hangs_from_the_start_is_an_error_that_names_it(batch):
    report, _records = batch(scenarios.hgx_h100() | {"hang.nvmlDeviceGetPowerUsage": 1}, seconds=20, code=1)

    assert [(finding["id"], finding["severity"]) for finding in report["findings"]] == [("driver_broken", "error")]
    assert "nvmlDeviceGetPowerUsage of GPU 0 has not returned for" in report["findings"][0]["text"]
    assert "persistence mode" not in report["findings"][0]["text"]


def test_gpu_that_cannot_be_opened_counts_as_expected(batch):
    report, _records = batch(scenarios.hgx_h100() | {"gpu3.lost": 999}, code=1)

    assert [finding["id"] for finding in report["findings"]] == ["gpu_lost"]
    (node,) = report["nodes"]
    assert (node["gpus_seen"], node["gpus_expected"]) == (7, 8)


def test_release_makes_the_agents_of_another_console_close_their_gpus(tmp_path):
    folder()
    scenario = Scenario(tmp_path / "scenario", scenarios.hgx_h100())
    hosts = tmp_path / "hosts.toml"
    settings = f'[ssh]\ntransport = "local"\n[agent]\ncache_dir = "{tmp_path / "cache"}"\n'
    hosts.write_text(f'{settings}[[nodes]]\nhosts = "me"\n')
    records = tmp_path / "records.ndjson"
    env = {**os.environ, **scenario.environment}
    argv = [GCONSOLE, "batch", str(hosts), "--for", "300s", "--quiet", "--records", str(records)]
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL) as watching:
        try:
            until(lambda: inventories(records) and inventories(records)[-1].get("count") == 8)
            done = fork_server.run([GCONSOLE, "release", str(hosts)], text=True, env=env, timeout=DEADLINE_S)
            assert done.stdout == "me  ● gconsole has let the GPUs go for 10 min; no process has a GPU open\n"
            assert done.returncode == 0, done.stderr
            until(lambda: inventories(records)[-1].get("fault") == "gpu_released")
            undone = fork_server.run(
                [GCONSOLE, "release", str(hosts), "--undo"], text=True, env=env, timeout=DEADLINE_S
            )
            assert undone.stdout == "me  ● the agents use the GPUs again\n", undone.stderr
            until(lambda: inventories(records)[-1].get("count") == 8)
        finally:
            watching.terminate()


def inventories(records):
    """The inventories of GPUs among these records so far."""
    lines = records.read_text().splitlines() if records.exists() else []
    read = [json.loads(line) for line in lines if line.endswith("}") and '"inventory"' in line]
    return [record for record in read if record["kind"] == "inventory" and record["of"] == "gpu"]


def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
