"""Fake clusters with devices and links, for the tests of the Topology view."""

from __future__ import annotations

import sys
from pathlib import Path

from fake_cluster import FakeCluster

from gconsole.analysis.topology.node import TopologyFacts

# last: tests of one name are in both folders
sys.path.append(str(Path(__file__).parent.parent / "unit" / "analysis"))
from machines import hgx_facts, pcie_facts, uuid

__all__ = ["hgx_facts", "odd_pod", "publish_topology", "uuid"]


def publish_topology(cluster: FakeCluster, *facts: TopologyFacts) -> None:
    """Publish the device and link records of these nodes."""
    for fact in facts:
        for record in (*fact.gpus, *fact.links, *fact.nics):
            record.node = fact.node
        cluster.publish(*fact.gpus, *fact.links, *fact.nics)


def odd_pod() -> FakeCluster:
    """Five equal nodes, one of them with a port down; one node without the NVLinks of a GPU; one of another type."""
    names = [f"node{number:03}" for number in range(1, 6)]
    cluster = FakeCluster(*names, "node044", "slow1")
    cluster.up()
    down = {"node003": ["mlx5_1"]}
    publish_topology(cluster, *(hgx_facts(name, down=down.get(name, [])) for name in names))
    publish_topology(cluster, hgx_facts("node044", dead=[4]), pcie_facts("slow1"))
    for number in range(48):
        cluster.rank("llama-70b", number, [*names, "node044"][number // 8], 48, gpu=str(number % 8))
    return cluster
