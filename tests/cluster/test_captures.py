"""Captures of real jobs on real nodes: every rank's stack at one instant, through SSH, by the real agent."""

import asyncio
from pathlib import Path

from jobs import start_ring
from live import watched
from rig import Rig

from gconsole.hub import CaptureOrder, new_capture


async def test_all_ranks_of_all_nodes_are_read_at_one_instant(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with start_ring(rig, rig.nodes, nproc_per_node=2) as job:
        job.wait_ready()
        async with watched(hosts) as watch:
            await watch.sampled()
            order = CaptureOrder(new_capture(), samples=2, every_s=0.2)
            done = await watch.fleet.capture(order)
    assert sorted(done.nodes) == [node.name for node in rig.nodes]
    assert {name: counts.ranks for name, counts in done.nodes.items()} == {node.name: 2 for node in rig.nodes}
    assert all(counts.stopped_since == 0 for counts in done.nodes.values())
    stacks = watch.store.captures.get(order.id).stacks
    assert {stack.rank for stack in stacks if stack.status == "ok" and stack.frames} == set(range(8))
    assert {stack.sample for stack in stacks} == {0, 1}
    firsts = [stack for stack in stacks if stack.sample == 0]
    assert max(one.looked - one.at for one in firsts) < 1_000_000_000, "they wait for the instant, and do not miss it"


async def test_a_node_that_is_lost_meanwhile_does_not_keep_the_others(tmp_path: Path) -> None:
    with Rig(nodes=2, name="losing") as rig, start_ring(rig, rig.nodes, nproc_per_node=1) as job:
        staying, leaving = rig.nodes
        job.wait_ready()
        async with watched(rig.write_hosts_toml(tmp_path / "hosts.toml")) as watch:
            await watch.sampled()
            order = CaptureOrder(new_capture(), samples=5, every_s=0.3)
            capturing = asyncio.create_task(watch.fleet.capture(order))
            await watch.until(lambda: watch.store.captures.get(order.id))
            leaving.stop_sshd(sessions=True)
            done = await asyncio.wait_for(capturing, 30)
            again = await watch.fleet.capture(CaptureOrder(new_capture()))
    assert (list(done.nodes), list(done.failures)) == ([staying.name], [leaving.name])
    assert (list(again.nodes), list(again.failures)) == ([staying.name], [leaving.name])
