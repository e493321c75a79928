"""`gconsole check` on real nodes: silent on healthy ones, and each fault that a user can make fails its check alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from program import gconsole
from rig import Node, Rig

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_namespaces")]
#: Of the machine that the nodes share, which other tests load.
OF_THE_MACHINE = {"load", "memory", "memory_pressure", "disk_space", "disk_inodes", "kernel_since_boot", "uptime"}
RANK = "import time\nwhile True: time.sleep(0.1)\n"


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(tmp_path / "hosts.toml")


def checked(hosts: Path, *arguments: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The results of each node by check."""
    run = gconsole("check", hosts, "--json", *arguments)
    nodes = json.loads(run.stdout)["nodes"]
    assert all(node["reached"] for node in nodes), run.stderr
    return {node["node"]: {result["id"]: result for result in node["checks"]} for node in nodes}


def failed(results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The texts of failed checks, without those of the machine."""
    return {id: result["text"] for id, result in results.items()
            if result["state"] == "fail" and id not in OF_THE_MACHINE}  # fmt: skip


@contextmanager
def ranks(node: Node, *variables: dict[str, str]) -> Iterator[None]:
    """Ranks of one job on a node, one for each set of variables."""
    size = str(len(variables))
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    running = [node.run([sys.executable, "-c", RANK], env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | own)
               for rank, own in enumerate(variables)]  # fmt: skip
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_healthy_nodes_with_a_job_fail_no_check(rig: Rig, hosts: Path) -> None:
    with ranks(rig.nodes[0], *[{"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4"}] * 4):
        nodes = checked(hosts)

    assert {name: failed(results) for name, results in nodes.items()} == {name: {} for name in nodes}
    assert nodes["node1"]["rank_environment"]["state"] == "pass"
    assert {results["disk_answer"]["state"] for results in nodes.values()} == {"pass"}
    assert {results["settings_differ"]["state"] for results in nodes.values()} == {"pass"}


def test_rank_with_another_environment_and_a_rule_of_the_user_fail_on_their_node_alone(
    rig: Rig, hosts: Path, tmp_path: Path
) -> None:
    own = tmp_path / "checks.toml"
    own.write_text('[[check]]\nid = "few_ranks"\nsql = "SELECT DISTINCT node, \'it has ranks\' FROM rank"\n')
    usual, other = {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}
    with ranks(rig.nodes[1], usual, usual, usual, other):
        nodes = checked(hosts, "--checks", str(own))

    assert failed(nodes["node2"]) == {
        "rank_environment": "rank 3: NCCL_ALGO Tree, Ring on 3 of 4 ranks", "few_ranks": "it has ranks"}  # fmt: skip
    assert [failed(nodes[name]) for name in ("node1", "node3", "node4")] == [{}, {}, {}]
