"""Findings on topology differences between nodes while records arrive: when they open and when they clear."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "analysis"))
from machines import hgx_facts

from gconsole.analysis.finding import FindingDraft
from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.monitor import topology
from gconsole.monitor import topology as module
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.monitor.topology import LASTS_S, SETTLE_S, TopologyFindings, TopologyFold
from gconsole.records import Inventory, Log, NodeState

ALIKE = [f"node{number}" for number in range(1, 6)]
TEXT = "node9: NIC1 state down, the rest active"


class Fleet:
    """Nodes that report their topology, and a fake clock."""

    def __init__(self, **limits):
        self.now, self.published = 100.0, []
        self.hub, self.store = Hub(), Store()
        self.hub.subscribe(self.store.apply)
        self.hub.subscribe(self.published.extend)
        self.findings = FindingTracker(self.hub, HealthConfig(clear_s=0, **limits), clock=lambda: self.now)
        self.differing = TopologyFindings(self.store, TopologyFold(self.store), self.findings, clock=lambda: self.now)

    def tell(self, *names, state="failed", **more):
        """Publish the topology of these nodes, then their state; failed nodes count as reported."""
        for name in names:
            facts = hgx_facts(name, **more)
            for record in (*facts.gpus, *facts.links, *facts.nics):
                record.node = name
            counts = {"gpu": facts.gpus, "link": facts.links, "nic": facts.nics}
            counted = [Inventory(node=name, of=of, count=len(those)) for of, those in counts.items()]
            self.hub.publish([*facts.gpus, *facts.links, *facts.nics, *counted])
            self.hub.publish_own(NodeState(node=name, state=state))

    async def look(self, after=0.0, **more):
        """Advance the clock, evaluate, and return the texts of the open findings."""
        self.now += after
        await self.differing.evaluate(**more)
        return [finding.text for finding in self.store.findings.values() if finding.cleared_at is None]


@pytest.fixture
def fleet(monkeypatch):
    monkeypatch.setattr(topology, "EVERY_S", 0.0)
    return Fleet()


async def test_lasting_difference_opens_a_finding_that_clears_when_it_ends(fleet):
    fleet.tell(*ALIKE)
    fleet.tell("node9", down=["mlx5_1"])

    assert await fleet.look() == []
    assert await fleet.look(after=LASTS_S) == [TEXT]
    fleet.tell("node9")
    await fleet.look(after=1.0)
    assert await fleet.look(after=1.0) == []


async def test_short_lived_difference_is_not_reported(fleet):
    fleet.tell(*ALIKE)
    fleet.tell("node9", down=["mlx5_0", "mlx5_1"])
    await fleet.look()
    fleet.tell("node9")

    assert await fleet.look(after=LASTS_S) == []


async def test_comparison_waits_for_connecting_nodes_up_to_settle_s(fleet):
    fleet.tell("node1")
    fleet.tell("node9", down=["mlx5_1"])
    fleet.hub.publish_own(NodeState(node="node2", state="connecting"))

    assert await fleet.look() == []
    assert await fleet.look(after=LASTS_S) == []
    await fleet.look(after=SETTLE_S)
    assert len(await fleet.look(after=LASTS_S)) == 1


async def test_final_evaluation_reports_differences_immediately(fleet):
    fleet.tell(*ALIKE, "node6", "node7", state="connecting")
    fleet.tell("node9", down=["mlx5_1"])

    assert await fleet.look(at_last=True) == [TEXT]


async def test_difference_that_health_already_reports_is_not_reported_again(fleet):
    fleet.tell(*ALIKE)
    fleet.tell("node9", down=["mlx5_1"])
    await fleet.look()
    fleet.findings.report("health", [FindingDraft("nic_down", "error", "certain", ("node9:mlx5_1",), "down")])

    assert await fleet.look(after=LASTS_S) == ["down"]
    fleet.findings.report("health", [])
    fleet.findings.report("health", [])
    await fleet.look()
    assert await fleet.look(after=LASTS_S) == [TEXT]


async def test_difference_is_found_among_many_nodes_folded_in_a_thread(fleet):
    fleet.tell(*(f"node{number}" for number in range(100, 140)))
    fleet.tell("node9", down=["mlx5_1"])
    await fleet.look()

    assert await fleet.look(after=LASTS_S) == [TEXT]


async def test_unchanged_topology_is_not_compared_again(fleet, monkeypatch):
    fleet.tell(*ALIKE, "node9")
    await fleet.look()
    monkeypatch.setattr(module, "difference_findings", None)  # a call would fail and be logged
    monkeypatch.setattr(module, "complete_nodes", None)

    await fleet.look(after=1.0)

    assert not any(isinstance(record, Log) for record in fleet.published)


async def test_failing_comparison_is_logged_once(fleet, monkeypatch):
    monkeypatch.setattr(module, "difference_findings", None)
    fleet.tell(*ALIKE)
    for _ in range(3):
        await fleet.look(after=1.0)

    logs = [record.text for record in fleet.published if isinstance(record, Log)]
    assert len(logs) == 1
    assert "the analysis topology failed" in logs[0]
