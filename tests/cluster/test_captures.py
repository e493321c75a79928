"""Stack captures of real jobs on real nodes: all ranks at one instant, over SSH, with the real agent."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from jobs import start_ring
from live_fleet import started_fleet
from program import batch, gconsole
from rig import Rig

from gconsole.core.control import CaptureRequest, new_capture


async def test_capture_samples_all_ranks_of_all_nodes_at_the_same_instant(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with start_ring(rig, rig.nodes, nproc_per_node=2) as job:
        job.wait_ready()
        async with started_fleet(hosts) as watch:
            await watch.sampled()
            order = CaptureRequest(new_capture(), samples=2, every_s=0.2)
            done = await watch.fleet.capture(order)
    assert sorted(done.nodes) == [node.name for node in rig.nodes]
    assert {name: counts.ranks for name, counts in done.nodes.items()} == {node.name: 2 for node in rig.nodes}
    assert all(counts.stopped_since == 0 for counts in done.nodes.values())
    stacks = watch.store.captures.get(order.id).stacks
    assert {stack.rank for stack in stacks if stack.status == "ok" and stack.frames} == set(range(8))
    assert {stack.sample for stack in stacks} == {0, 1}
    firsts = [stack for stack in stacks if stack.sample == 0]
    assert max(first.looked - first.at for first in firsts) < 1_000_000_000, "no sample is taken after its planned time"


async def test_node_lost_during_a_capture_does_not_block_the_others(tmp_path: Path) -> None:
    with Rig(nodes=2, name="losing") as rig, start_ring(rig, rig.nodes, nproc_per_node=1) as job:
        staying, leaving = rig.nodes
        job.wait_ready()
        async with started_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml")) as watch:
            await watch.sampled()
            order = CaptureRequest(new_capture(), samples=5, every_s=0.3)
            capturing = asyncio.create_task(watch.fleet.capture(order))
            await watch.until(lambda: watch.store.captures.get(order.id))
            leaving.stop_sshd(sessions=True)
            done = await asyncio.wait_for(capturing, 30)
            again = await watch.fleet.capture(CaptureRequest(new_capture()))
    assert (list(done.nodes), list(done.failures)) == ([staying.name], [leaving.name])
    assert (list(again.nodes), list(again.failures)) == ([staying.name], [leaving.name])


async def test_node_that_is_only_silent_is_captured_when_it_is_heard_again(tmp_path: Path) -> None:
    with Rig(nodes=2, name="silent") as rig, start_ring(rig, rig.nodes, nproc_per_node=1) as job:
        node = rig.nodes[1]
        job.wait_ready()
        async with started_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml")) as watch:
            await watch.sampled()
            agents = [int(line.split()[0]) for line in node.ps().splitlines() if "gconsole-agent" in line]
            for pid in agents:
                node.kill(pid, signal.SIGSTOP)
            await watch.until(lambda: watch.state(node.name) == "lost")
            capturing = asyncio.create_task(watch.fleet.capture(CaptureRequest(new_capture())))
            await asyncio.sleep(0.2)
            for pid in agents:
                node.kill(pid, signal.SIGCONT)
            done = await asyncio.wait_for(capturing, 60)
    assert sorted(done.nodes) == [node.name for node in rig.nodes] and not done.failures


def group_of(report: dict[str, Any], rank: int) -> dict[str, Any]:
    """The group that contains a rank, with its path as function names."""
    [capture] = report["captures"]
    group = next(group for group in capture["groups"] if rank in group["ranks"] and group["role"] == "rank")
    return {**group, "path": [step["function"] for step in group["path"]]}


def state_of(rig: Rig, rank: Any) -> str:
    """The kernel's state letter of a rank's process."""
    line = next(line for line in rig.node(rank.node).ps().splitlines() if line.split()[0] == str(rank.pid))
    return line.split()[1]


def test_one_command_groups_a_hung_job_and_leaves_process_states_unchanged(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with start_ring(rig, rig.nodes, nproc_per_node=2, script="blocked_ranks.py", env={"BLOCKED_3": "lock"}) as job:
        ranks = job.wait_ready()
        rig.node(ranks[5].node).kill(ranks[5].pid, signal.SIGSTOP)
        before = [state_of(rig, rank) for rank in ranks]
        model = r"hang.models=p2p wait_for_neighbour (^|/)blocked_ranks\.py$"
        run = batch(
            hosts, "--capture", "--samples", "2", "--every", "200ms", "--records", tmp_path / "records", "--set", model
        )
        assert [state_of(rig, rank) for rank in ranks] == before
    assert run.status == 0, run.stderr
    assert before[5] == "T"
    waiting = group_of(run.report, 0)
    assert (waiting["ranks"], waiting["class"]) == ([0, 1, 2, 4, 6, 7], "p2p")
    assert waiting["path"] == ["<module>", "main", "wait_for_neighbour"]
    assert waiting["unchanged"] == waiting["ranks"]
    assert group_of(run.report, 3)["path"][-1] == "take_twice"
    assert group_of(run.report, 5)["class"] == "stopped"
    assert "[0-2,4,6-7]" in run.stdout
    again = gconsole("batch", "--from", tmp_path / "records", "-o", tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == run.report
    assert again.stdout == run.stdout


def test_ranks_of_another_user_are_captured_only_with_sudo(tmp_path: Path, needs_namespaces: None) -> None:
    with Rig(nodes=0, name="others") as rig:
        node = rig.add_node("node1", "sudo")
        with start_ring(rig, [node], nproc_per_node=1, user=65534) as job:
            job.wait_ready()
            plain = batch(rig.write_hosts_toml(tmp_path / "hosts.toml"), "--capture")
            sudo = batch(rig.write_hosts_toml(tmp_path / "sudo.toml", agent={"run_as": "sudo"}), "--capture")
    assert plain.report["captures"] == [], "the environment is not readable"
    assert "no ranks found" in plain.stderr
    assert group_of(sudo.report, 0)["status"] == "ok"
