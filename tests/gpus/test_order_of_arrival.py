"""Healthy fleets give no finding, in whatever order their records arrive, and at no moment in between."""

import random

import msgspec
import pynvml
import pytest
from nvml import scenarios

from gconsole.analysis.health import health_findings
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.monitor import topology
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.monitor.topology import TopologyFindings, TopologyFold
from gconsole.records import KINDS, AgentCost, Inventory, Nic, Node, NodeState, Rank
from gconsole_remote.samplers.topology import TopologySampler

LIMITS = HealthConfig()
SECOND = 10**9
#: Ticks in which every link of every GPU is read at least once.
TICKS = 12


def some_gpus(lines, count):
    """The first GPUs of a machine."""
    return scenarios.machine(count, {key: value for key, value in lines.items() if not key.startswith("count")})


def half_bridged():
    """Six PCIe cards of which four have NVLink bridges: a link without a bridge is not a fault."""
    lines = some_gpus(scenarios.bridged(), 6) | scenarios.ancestors(6)
    return lines | {"gpu4.field.165": "u32:0", "gpu5.field.165": "u32:0"}


PROFILES = {
    "hgx": scenarios.hgx_h100,
    "hgx-driver-b": lambda: scenarios.pcie_only() | {"driver": "550.90.07", "cuda": 12040},
    "bridged": scenarios.bridged,
    "half-bridged": half_bridged,
    "one": lambda: some_gpus(scenarios.hgx_h100(), 1),
    "two": lambda: some_gpus(scenarios.hgx_h100(), 2),
    "three": lambda: some_gpus(scenarios.hgx_h100(), 3),
    "mig": scenarios.mig,
    "bare": scenarios.nothing_supported,
}
#: Profiles of the nodes of each fleet; "cpu" has no GPU.
FLEETS = (
    ("hgx", "hgx"), ("hgx", "hgx-driver-b", "cpu"), ("bridged", "bridged", "half-bridged"), ("half-bridged",),
    ("one", "one", "cpu"), ("two", "two", "three"), ("mig", "mig", "bare"), ("hgx", "hgx-driver-b", "hgx-driver-b"),
    ("cpu", "cpu"), ("bare", "bare", "three"),
)  # fmt: skip


@pytest.fixture
def recorded(watch):
    """`recorded(profile)`: the (kind, fields) that a healthy node of that profile sends."""
    kept = {}

    def record(profile):
        if profile not in kept:
            kept[profile] = [] if profile == "cpu" else _recorded(watch(PROFILES[profile]()))
        return kept[profile]

    return record


def _recorded(started):
    facts = []
    for number in range(TICKS):
        tick = started.tick()
        for records in vars(tick).values():
            facts += [record for record in records if type(record).__name__ != "Gpu" or number in (0, TICKS - 1)]
    links = TopologySampler(started.context, pynvml)
    links.start()
    facts += [msgspec.convert({"kind": kind, **fields}, KINDS[kind]) for kind, fields in links.tick(0.0)]
    links.stop()
    return facts


def records_of(name, profile, facts):
    """All records of one node."""
    kernel = "6.1" if profile != "cpu" else "5.15"
    own = [Node(node=name, hostname=name, boot_id="b", kernel=kernel, arch="x86_64", python="3.11", uid=0, pid=1,
                sample_interval_ms=1000),
           NodeState(node=name, state="ok"), AgentCost(node=name, sample_interval_ms=1000),
           Inventory(node=name, of="nic", count=2),
           *(Nic(node=name, device=f"mlx5_{n}", port=1, rdma=True, state="active") for n in range(2)),
           Rank(node=name, job=f"job of {profile}", rank=0, pid=7, start_ticks=1, source="environ",
                nccl="2.21.5" if profile == "hgx" else "2.18.3")]  # fmt: skip
    if profile == "cpu":
        own += [Inventory(node=name, of="gpu", count=0), Inventory(node=name, of="link", count=0)]
    own += [msgspec.structs.replace(record, node=name) for record in facts]
    for record in own:
        record.agent = f"agent of {name}"
    return own


def fleet_in_random_order(recorded, seed):
    """The records of one of the fleets, shuffled."""
    fleet = FLEETS[seed % len(FLEETS)]
    chosen = random.Random(seed)
    records = [record for number, profile in enumerate(fleet)
               for record in records_of(f"node{number}", profile, recorded(profile))]  # fmt: skip
    order = list(range(len(records)))
    chosen.shuffle(order)
    return [msgspec.structs.replace(records[position], rx=SECOND + number * SECOND // 100)
            for number, position in enumerate(order)]  # fmt: skip


@pytest.mark.parametrize("seeds", [40, pytest.param(200, marks=pytest.mark.full)])
def test_health_has_no_finding_while_healthy_records_arrive_in_any_order(recorded, seeds):
    for seed in range(seeds):
        facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
        for record in fleet_in_random_order(recorded, seed):
            facts.add([record])
            texts = [finding.text for finding in health_findings(facts, LIMITS)]
            assert texts == [], f"seed {seed}, after {record}"


async def test_topology_has_no_finding_while_healthy_records_arrive_in_any_order(recorded, monkeypatch):
    monkeypatch.setattr(topology, "EVERY_S", 0.0)
    for seed in range(3 * len(FLEETS)):
        if seed % len(FLEETS) in (2, 5, 9):
            continue  # nodes with another number of GPUs do differ
        hub, store = Hub(), Store()
        hub.subscribe(store.apply)
        findings = FindingTracker(hub, LIMITS)
        differing = TopologyFindings(store, TopologyFold(store), findings)
        for number, record in enumerate(fleet_in_random_order(recorded, seed)):
            hub.publish([record])
            if number % 7 == 0:
                await differing.evaluate(at_last=True)
            texts = [finding.text for finding in store.findings.values() if finding.severity != "info"]
            assert texts == [], f"seed {seed}, after {record}"
