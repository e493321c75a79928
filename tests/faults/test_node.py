"""Faults of a node or its agent, and the recovery."""

from __future__ import annotations

import signal
import time

import pytest

from gconsole.fleet.node_link import DEAD_S

from . import node_faults
from .consoles import any_instant
from .fault_cluster import FaultCluster

ENDED = "lost .* s ago"


def test_restarted_sshd_loses_no_records(cluster: FaultCluster) -> None:
    node = cluster.rig.nodes[0]
    pattern = "connection closed|connection refused by|no data for"
    with cluster.fault("sshd restarted, its sessions ended", node, pattern) as fault:
        fault.mark_injected()
        node.stop_sshd(sessions=True)
        time.sleep(1)
        node.start_sshd()
        fault.mark_repaired()


def test_a_rebooted_node_comes_back_with_a_new_agent_and_boot_id(cluster: FaultCluster) -> None:
    node = cluster.rig.nodes[3]
    with cluster.fault("node rebooted", node, "no data for|connection closed", loses=True) as fault:
        before = cluster.recorder.boots[node.name]
        fault.mark_injected()
        node.down()
        time.sleep(3)
        node_faults.reboot(node)
        fault.mark_repaired()
        fault.wait_until_lost()
        fault.wait_until_healthy()
        assert fault.count.agents == 1
        assert cluster.recorder.boots[node.name] != before


def test_an_agent_that_is_killed_is_started_again(cluster: FaultCluster) -> None:
    node = cluster.rig.nodes[1]
    with cluster.fault("agent killed (SIGKILL)", node, ENDED, loses=True, is_brief=True) as fault:
        fault.mark_injected()
        fault.mark_repaired()
        node_faults.signal_all(node, node_faults.every_agent(node), signal.SIGKILL)
        fault.wait_until_lost()
        fault.wait_until_healthy()
        assert fault.count.agents == 1


@pytest.mark.parametrize("stopped_s", [4, pytest.param(60, marks=[pytest.mark.full, pytest.mark.timeout(400)])])
def test_stopped_agent_resumes_when_continued(cluster: FaultCluster, stopped_s: int) -> None:
    node = cluster.rig.nodes[2]
    fault_name = f"agent stopped {stopped_s} s (SIGSTOP), continued"
    with cluster.fault(fault_name, node, "no data for", loses=stopped_s > 20) as fault:
        pids = node_faults.every_agent(node)
        fault.mark_injected()
        node_faults.signal_all(node, pids, signal.SIGSTOP)
        time.sleep(stopped_s)
        node_faults.signal_all(node, pids, signal.SIGCONT)  # of those that were not replaced meanwhile
        fault.mark_repaired()
        fault.wait_until_healthy()
        assert len([agent for agent in node_faults.agents(node) if agent["linger_s"]]) == 1
        if stopped_s < DEAD_S:
            assert node.name not in cluster.recorder.tally.dropped(fault.injected_ns), "its kernel acknowledges"


def test_agent_out_of_memory_recovers_once_memory_is_available(cluster: FaultCluster) -> None:
    node = cluster.rig.nodes[1]
    with cluster.fault("agent out of memory (allocations fail), then memory again", node, loses=True) as fault:
        pid = node_faults.lingering(node, cluster.recorder.process.pid)
        fault.mark_injected()
        with node_faults.without_memory(node.outer_pid(pid)):
            time.sleep(4)
        fault.mark_repaired()
        fault.wait_until_healthy()


@pytest.mark.full  # the kernel takes long; for the console it equals a killed agent
def test_an_agent_that_the_oom_killer_ends_is_started_again(cluster: FaultCluster) -> None:
    node = cluster.rig.nodes[0]
    with cluster.fault("agent ended by the OOM killer", node, loses=True) as fault:
        pid = node.outer_pid(node_faults.lingering(node, cluster.recorder.process.pid))
        fault.mark_injected()
        fault.mark_repaired()
        node_faults.kill_by_memory_limit(pid)
        fault.wait_until_lost()
        fault.wait_until_healthy()
        assert fault.count.agents == 1


@pytest.mark.parametrize("how", ["disk full", "home read-only"])
def test_killed_agent_is_restarted_on_an_unwritable_node(cluster: FaultCluster, how: str) -> None:
    node = cluster.rig.nodes[2]
    unwritable = node_faults.full_disks if how == "disk full" else node_faults.read_only_home
    fault_name = f"{how} on the node, and the agent killed there"
    with cluster.fault(fault_name, node, ENDED, loses=True, is_brief=True) as fault, unwritable(node):
        cluster.recorder.wait_for_ticks([node.name])  # it continues in this state
        any_instant()
        fault.mark_injected()
        node_faults.signal_all(node, node_faults.every_agent(node), signal.SIGKILL)
        fault.mark_repaired()
        fault.wait_until_lost()
        fault.wait_until_healthy()
