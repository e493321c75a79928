"""Changing [clock] in the hosts file of a running fleet: the effect on the agents, from their records."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_fleet import LiveFleet, started_fleet
from program import batch
from rig import Rig

from gconsole.config import load
from gconsole.monitor.clock_estimator import ClockEstimator
from gconsole.records import AgentCost, ClockBins, ClockSnapshot, ClockWindow, Log

NAMES = {f"node{number}" for number in range(1, 5)}


@dataclass
class RunningFleet:
    """A running fleet whose hosts file is rewritten several times."""

    fleet: LiveFleet
    clockwork: ClockEstimator
    hosts: Path
    first_index: int = 0

    async def save(self, **clock: object) -> None:
        """Write the hosts file with these keys in [clock]; `since` starts here."""
        flags = {f"clock.{name}": str(value) for name, value in clock.items()}
        self.first_index = len(self.fleet.records)
        await self.fleet.fleet.apply(load(str(self.hosts), flags=flags, environ={}))

    def since(self, kind: type) -> list:
        """Records of that kind since the last change."""
        return [record for record in self.fleet.records[self.first_index :] if isinstance(record, kind)]

    def nodes(self, kind: type, condition=lambda _: True) -> set[str]:
        """Nodes with such a record since the last change."""
        return {record.node for record in self.since(kind) if condition(record)}


@pytest.fixture
async def changed(rig: Rig, tmp_path: Path) -> AsyncIterator[RunningFleet]:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    async with started_fleet(hosts, clock_probe_window_s="2") as fleet:
        clockwork = ClockEstimator(fleet.hub, fleet.fleet.config.clock, "rig")
        clockwork.start()
        fleet.fleet.followers.append(lambda config: clockwork.follow(config.clock))
        await fleet.sampled()
        fleet.fleet.request_clock_probes("test", True)
        yield RunningFleet(fleet, clockwork, hosts)
        await clockwork.stop()


@pytest.mark.usefixtures("needs_namespaces")
async def test_saved_clock_settings_apply_to_running_agents(changed: RunningFleet, tmp_path: Path) -> None:
    fleet = changed.fleet
    await fleet.until(lambda: len(changed.nodes(ClockSnapshot, lambda record: 2 <= record.reads <= 11)) == 4)

    await changed.save(snapshot_period_ms=20, probe_window_s=2)
    await fleet.until(lambda: changed.nodes(ClockSnapshot, lambda record: record.reads >= 16) == NAMES)
    await fleet.until(lambda: len([record for record in changed.since(ClockBins) if record.bin_ms == 20]) >= 6)
    await fleet.until(lambda: any(record.width_ns < 3_500_000_000 for record in changed.since(ClockWindow)))

    await changed.save(preset="high", cpu_cap_pct=100, output_dir=tmp_path / "lines", probe_window_s=3)
    await fleet.until(lambda: 800 in {record.cadence_us for record in changed.since(ClockBins)})
    assert {record.bin_ms for record in changed.since(ClockBins) if record.cadence_us == 800} == {50}

    await changed.save(probe_cadence_us=50_000, packet_spacing_us=2_000, output_dir=tmp_path / "lines")
    await fleet.until(lambda: len([record for record in changed.since(ClockBins) if record.cadence_us == 50_000]) >= 6)
    gaps = [
        after.t1 - before.t1
        for record in changed.since(ClockBins) if record.cadence_us == 50_000
        for row in record.bins for before, after in zip(row.best, row.best[1:], strict=False)
    ]  # fmt: skip
    assert gaps and min(gaps) >= 2_000_000
    (written,) = (tmp_path / "lines").iterdir()
    types = {"window", "node"}
    await fleet.until(lambda: {json.loads(line)["type"] for line in written.read_text().splitlines()} == types)

    await changed.save(interface="nosuch0")
    await fleet.until(lambda: any("interface nosuch0 not found" in record.text for record in changed.since(Log)))

    await changed.save(enabled="false")
    await fleet.until(lambda: len(changed.since(AgentCost)) >= 12)
    changed.first_index = len(fleet.records)
    await fleet.until(lambda: len(changed.since(AgentCost)) >= 12)
    assert not changed.since(ClockSnapshot) and not changed.since(ClockBins)

    await changed.save()
    await fleet.until(lambda: changed.nodes(ClockSnapshot) == NAMES and len(changed.since(ClockBins)) >= 6)


@pytest.mark.full  # unit/config/test_presets shows the precedence without agents
@pytest.mark.usefixtures("needs_namespaces")
def test_clock_settings_precedence_is_flag_environment_file_preset(rig: Rig, tmp_path: Path) -> None:
    """Measured on two agents."""
    clock = {"preset": "low", "probe_cadence_us": 2_000, "snapshot_period_ms": 100, "packet_spacing_us": 100}
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock=clock)
    records, folder = tmp_path / "records.ndjson", tmp_path / "lines"
    env = {**os.environ, "GCONSOLE_CLOCK_PROBE_CADENCE_US": "10000", "GCONSOLE_CLOCK_SNAPSHOT_PERIOD_MS": "40",
           "GCONSOLE_CLOCK_OUTPUT_DIR": str(folder), "GCONSOLE_CLOCK_CPU_CAP_PCT": "100"}  # fmt: skip

    batch(hosts, "--clocks", "--records", records, "--set", "clock.snapshot_period_ms=50",
          "--set", "clock.probe_window_s=2", env=env)  # fmt: skip

    entries = [json.loads(line) for line in records.read_text().splitlines()]
    bins = [record for record in entries if record["kind"] == "clock_bins" and record["method"] == "udp"]
    assert {record["cadence_us"] for record in bins} == {10_000} and {record["bin_ms"] for record in bins} == {50}
    widths = [record["width_ns"] for record in entries if record["kind"] == "clock_window"]
    assert widths and min(widths) < 3_500_000_000
    (written,) = folder.iterdir()
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert len([line for line in lines if line["type"] == "window"]) == len(widths)
