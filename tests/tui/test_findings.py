"""Findings that are made while the screen is there: listed, on their node, in the events; gone when they are over."""

from __future__ import annotations

import sys
from pathlib import Path

from fake_cluster import FakeCluster
from waiting import screen, until

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "analysis"))
from machines import hgx_facts

from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.records import GpuInfo, Inventory, Node, NodeState
from gconsole.tui.app import ConsoleApp


def make_node(name):
    return Node(node=name, agent="a", hostname=name, boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0,
                pid=1, sample_interval_ms=1000)  # fmt: skip


async def test_finding_is_listed_marks_its_node_and_clears():
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    findings = FindingTracker(hub, HealthConfig(clear_s=0))
    app = ConsoleApp(store, FakeCluster("n1"), cluster="pod", expected_nodes=["n1", "n2"], findings=findings)
    hub.publish_own(NodeState(node="n1", state="ok"), NodeState(node="n2", state="ok"))
    async with app.run_test(size=(120, 40)) as pilot:
        hub.publish([make_node("n1"), make_node("n2"), GpuInfo(node="n2", index=3, uuid="u", lost="GPU is lost")])
        await until(pilot, lambda: "n2:gpu3: lost by the driver" in screen(app))

        assert app.frame.worst_finding == "failed"
        await until(pilot, lambda: "gpu_lost" in app.frame.fleet.by_name["n2"].reason)
        assert "gpu_lost" not in app.frame.fleet.by_name["n1"].reason
        assert [record.id for record in app.frame.events.items if hasattr(record, "cleared_at")] == ["gpu_lost"]

        hub.publish([GpuInfo(node="n2", index=3, uuid="u")])
        await until(pilot, lambda: not app.frame.findings)
        assert [finding.cleared_at is None for finding in store.findings.values()] == [False]


async def test_node_differing_from_its_class_is_a_finding_and_stays_while_paused(monkeypatch):
    monkeypatch.setattr("gconsole.monitor.topology.LASTS_S", 0.0)
    cluster, hub = FakeCluster(*(f"n{number}" for number in range(1, 6))), Hub()
    hub.subscribe(cluster.store.apply)
    cluster.up()

    def publish_facts(name, **more):
        facts = hgx_facts(name, **more)
        for record in (*facts.gpus, *facts.links, *facts.nics):
            record.node = name
        counted = {"gpu": facts.gpus, "link": facts.links, "nic": facts.nics}
        inventory = [Inventory(node=name, of=of, count=len(records)) for of, records in counted.items()]
        cluster.publish(*inventory, *facts.gpus, *facts.links, *facts.nics)

    for name in cluster.names:
        publish_facts(name, down=["mlx5_1"] if name == "n3" else [])
    app = cluster.app(findings=FindingTracker(hub, HealthConfig(clear_s=0)))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "n3: NIC1 state down, the rest active" in screen(app))

        await until(pilot, lambda: "topology_differs" in app.frame.fleet.by_name["n3"].reason)
        assert "topology_differs" in [record.id for record in app.frame.events.items if hasattr(record, "cleared_at")]
        await pilot.press("space")
        publish_facts("n3")
        await until(pilot, lambda: all(finding.cleared_at is not None for finding in cluster.store.findings.values()))
        assert "n3: NIC1 state down" in screen(app)
