"""`gconsole clocks` and `batch --clocks` on real nodes, and the fleet's clock lines with known clock errors."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from fixtures import FEW_PROBES
from live_fleet import LiveFleet, started_fleet
from program import batch, gconsole
from rig import Rig, find_python
from skewed_clocks import ClockError, ClockErrors, wrong_clocks

from gconsole.monitor.clock_estimator import ClockEstimator
from gconsole.records import AgentCost, ClockBins, ClockNode, ClockWindow

NAMES = [f"node{number}" for number in range(1, 5)]


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(tmp_path / "hosts.toml", clock=FEW_PROBES)


@pytest.mark.full
@pytest.mark.usefixtures("needs_namespaces")
def test_clocks_json_has_every_node_and_edge_with_valid_bounds(hosts: Path) -> None:
    """All nodes of the rig share one clock: every true offset is 0."""
    run = gconsole("clocks", hosts, "--for", "4s", "--json", "--quiet")

    assert run.status == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    nodes = [line for line in lines if line["type"] == "node"]
    windows = [line for line in lines if line["type"] == "window" and line["status"] == "ok"]
    assert {line["node"] for line in nodes} == set(NAMES)
    assert len({frozenset((line["src"], line["dst"])) for line in windows}) == 6
    for line in windows:
        assert abs(line["beta_ns"]) <= line["bound_ns"] and abs(line["alpha"] - 1) < 2e-4
        assert (line["method"], line["stamps"]) == ("udp", "kernel_rx") and line["kept"] > 100
    assert len({line["reference"] for line in nodes}) == 1


@pytest.mark.usefixtures("needs_namespaces")
def test_clock_tables_list_the_reference_every_node_and_every_edge(hosts: Path) -> None:
    run = gconsole("clocks", hosts, "--for", "4s")

    assert run.status == 0, run.stderr
    head, *lines = run.stdout.splitlines()
    assert head.startswith("clocks: reference node")
    assert [line.split()[0] for line in lines[1:5]] == NAMES
    assert sum(" → " in line for line in lines) == 6
    assert any(line.startswith("max probing cost") for line in lines)
    assert "clocks: 6 edges probed" in run.stderr


@pytest.mark.usefixtures("needs_namespaces")
def test_report_of_batch_with_clocks_has_nodes_edges_and_services(hosts: Path, tmp_path: Path) -> None:
    records, folder = tmp_path / "records.ndjson", tmp_path / "lines"
    run = batch(hosts, "--clocks", "--records", records, "--set", f"clock.output_dir={folder}")

    clocks = run.report["clocks"]
    assert clocks["reference"] in NAMES
    assert [line["node"] for line in clocks["nodes"]] == NAMES
    assert len(clocks["edges"]) == 6 and {line["method"] for line in clocks["edges"]} == {"udp"}
    assert {line["node"] for line in clocks["services"]} == set(NAMES)
    (written,) = folder.iterdir()
    types = {json.loads(line)["type"] for line in written.read_text().splitlines()}
    assert types == {"window", "node"} and written.name.startswith("clocks-rig-")

    again = gconsole("batch", "--from", records, "-o", "-", "--quiet")
    assert json.loads(again.stdout)["clocks"] == clocks


@pytest.mark.full
def test_batch_without_clocks_sends_no_probes(hosts: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.ndjson"
    run = batch(hosts, "--for", "15s", "--records", records)  # a login takes seconds on a machine under load

    assert run.report["clocks"]["nodes"] == run.report["clocks"]["edges"] == []
    kinds = {json.loads(line)["kind"] for line in records.read_text().splitlines()}
    assert not kinds & {"clock_bins", "clock_cost", "clock_node"} and "clock_snapshot" in kinds


def errors_of(fleet: LiveFleet, clock_errors: ClockErrors) -> list[tuple[float, int]]:
    """(error, bound) of every edge's window, ns."""
    errors_and_bounds = []
    for record in fleet.records:
        if isinstance(record, ClockWindow) and record.beta_ns is not None and record.bound_ns is not None:
            errors_and_bounds.append(
                (
                    abs(record.beta_ns - clock_errors.offset_between_ns(record.node, record.dst, record.centre)),
                    record.bound_ns,
                )
            )
    return errors_and_bounds


@pytest.mark.usefixtures("needs_namespaces")
async def test_wrong_and_drifting_clocks_are_measured_within_their_bounds(hosts: Path, tmp_path: Path) -> None:
    errors = {
        "node1": ClockError(800_000, 5_000),
        "node2": ClockError(5_000_000, 20_000),
        "node3": ClockError(-90_000_000, -30_000),
    }
    with wrong_clocks(tmp_path, errors) as clock_errors:
        async with started_fleet(hosts) as fleet:
            clockwork = ClockEstimator(fleet.hub, fleet.fleet.config.clock, "rig")
            clockwork.start()
            await fleet.sampled()
            fleet.fleet.request_clock_probes("test", True)
            await fleet.until(lambda: len(errors_of(fleet, clock_errors)) >= 12)
            await clockwork.stop()

    pairs = errors_of(fleet, clock_errors)
    assert all(error <= bound for error, bound in pairs), pairs
    lines = [record for record in fleet.records if isinstance(record, ClockNode) and record.bound_ns is not None]
    common = {line.reference for line in lines}
    assert len(common) == 1
    (reference,) = common
    drift = {node: errors.get(node, ClockError()).ppb / 1000 for node in NAMES}
    for line in lines:
        assert line.drift_ppm is not None and line.drift_bound_ppm is not None
        true_ppm = drift[line.node] - drift[reference]
        assert abs(line.drift_ppm - true_ppm) <= line.drift_bound_ppm + 0.01
        assert "rate" not in line.warnings and line.status == "ok"


@pytest.mark.usefixtures("needs_namespaces")
async def test_blocked_edge_is_listed_and_measured_over_ssh(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock={"probe_cadence_us": 20_000})
    near, far = rig.nodes[0], rig.nodes[1]
    near.output(["ip", "route", "add", "blackhole", f"{far.address}/32"])
    try:
        run = gconsole("clocks", hosts, "--for", "8s")
    finally:
        near.output(["ip", "route", "del", "blackhole", f"{far.address}/32"])

    rows = [line for line in run.stdout.splitlines() if line.startswith("UDP blocked ")]
    assert len(rows) == 1 and {"node1", "node2"} <= set(rows[0].split())
    (edge,) = [line for line in run.stdout.splitlines() if " ssh " in line and " → " in line]
    assert rows[0].removeprefix("UDP blocked ") in edge


def guide_one_liners() -> list[str]:
    text = (Path(__file__).parents[2] / "docs/guide/clocks.md").read_text()
    return [line for line in text.splitlines() if line.startswith("jq ") and "clocks-" in line]


@pytest.mark.usefixtures("needs_namespaces")
def test_jq_one_liners_of_the_guide_work_on_the_output_files(hosts: Path, tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("no jq on this machine")
    folder = tmp_path / "clocks"
    gconsole("clocks", hosts, "--for", "4s", "--set", f"clock.output_dir={folder}")
    lines = guide_one_liners()
    assert len(lines) == 3

    outputs = [
        subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=True, timeout=90).stdout
        for line in lines
    ]

    written = [json.loads(line) for file in folder.glob("clocks-*.jsonl") for line in file.read_text().splitlines()]
    windows = [line for line in written if line["type"] == "window"]
    good = [line for line in windows if line["status"] == "ok"]
    assert good, "no window of six edges was complete"
    assert int(outputs[0]) == len(good)
    rows = [row.split() for row in outputs[1].splitlines()]
    assert [row[:3] for row in rows] == [[str(line["window_id"]), line["src"], line["dst"]] for line in windows]
    fits = [row[3:] for row, line in zip(rows, windows, strict=True) if line["status"] == "ok"]
    assert all(abs(float(alpha) - 1) < 1e-3 and abs(int(beta)) < 1_000_000 for alpha, beta in fits)
    assert int(outputs[2]) == len(windows) - len(good)


@pytest.mark.full
@pytest.mark.usefixtures("needs_namespaces")
def test_python_36_agents_measure_clocks_within_bounds(tmp_path: Path) -> None:
    """Its clocks are floats with a resolution of 0.24 us for CLOCK_REALTIME, which the bound includes."""
    with Rig(nodes=2, name="old", python=find_python("3.6")) as rig:
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        run = gconsole("clocks", hosts, "--for", "4s", "--json", "--quiet")

    assert run.status == 0, run.stderr
    windows = [line for line in map(json.loads, run.stdout.splitlines()) if line["type"] == "window"]
    assert windows and {line["stamps"] for line in windows} == {"kernel_rx"}
    assert all(abs(line["beta_ns"]) <= line["bound_ns"] < 1_000_000 for line in windows)


@pytest.mark.full
@pytest.mark.usefixtures("needs_namespaces")
async def test_background_probe_window_gives_bounds_until_the_next_window(hosts: Path) -> None:
    """Remaining probe samples after a window do not cause a fallback to the time services' claims."""
    async with started_fleet(hosts) as fleet:
        clockwork = ClockEstimator(fleet.hub, fleet.fleet.config.clock, "rig")
        clockwork.start()
        await fleet.until(lambda: len(fleet.store.clocks.nodes) == len(NAMES), 60.0)
        costs = [fleet.store.nodes[node].cost for node in NAMES]
        earlier = len(fleet.records)
        await fleet.until(
            lambda: len([record for record in fleet.records[earlier:] if isinstance(record, AgentCost)]) > 6 * 4
        )
        await clockwork.stop()

    assert all(cost is not None for cost in costs)
    lines = [record for record in fleet.records if isinstance(record, ClockNode)]
    assert {line.method for line in lines} == {"probe"} and all(line.bound_ns is not None for line in lines)
    cadences = {record.cadence_us for record in fleet.records if isinstance(record, ClockBins)}
    assert min(cadences) == 20_000  # 20 ms in the background, longer only if the CPU cap requires it
