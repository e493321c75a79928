"""A lost node is shown within 3 s and reconnects by itself; with linger no record is lost."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from live_fleet import started_fleet
from program import GCONSOLE
from rig import Node, Rig

#: Seconds. How soon a loss must be shown. The deadline of the test is generous, the measured value is printed.
SHOWN_S = 3.0


def _agents(node: Node) -> list[str]:
    """The lines of the node's process list that are agents."""
    return [line for line in node.ps().splitlines() if "gconsole-agent" in line]


async def _until_no_agent(node: Node, deadline_s: float) -> None:
    async with asyncio.timeout(deadline_s):
        while _agents(node):  # noqa: ASYNC110 - another machine's process table has no event
            await asyncio.sleep(0.1)


async def test_cut_link_is_reported_as_lost_and_reconnects(rig: Rig, tmp_path: Path, needs_namespaces: None) -> None:
    node = rig.nodes[0]
    async with started_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml")) as fleet:
        await fleet.sampled()
        node.down()
        try:
            shown_s = await fleet.until(lambda: fleet.state(node.name) == "lost")
        finally:
            node.up()
        print(f"\nloss shown after {shown_s:.2f} s (goal {SHOWN_S:g} s)")
        await fleet.until(lambda: fleet.state(node.name) == "ok")
        others = [other.name for other in rig.nodes[1:]]
        assert all(fleet.history(name) == ["expected", "connecting", "ok"] for name in others)


async def test_node_reconnects_after_its_sshd_session_ends(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[1]
    async with started_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])) as fleet:
        await fleet.sampled()
        [first] = fleet.seqs(node.name)
        node.stop_sshd(sessions=True)
        await fleet.until(lambda: fleet.state(node.name) == "lost")
        last_rx = max(record.rx for record in fleet.records if record.agent == first)
        await fleet.until(lambda: time.time_ns() - last_rx > 4_500_000_000)
        node.start_sshd()
        await fleet.until(lambda: fleet.state(node.name) == "ok" and len(fleet.seqs(node.name)) == 2)
        await fleet.until(lambda: fleet.gaps(node.name))
        (gap,) = fleet.gaps(node.name)
        assert gap.reason.endswith("the one before ended") and gap.count >= 3, "the ticks between both agents"
        second = fleet.seqs(node.name)
        assert next(iter(second)) == first
        assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in second.values())


async def test_lingering_agent_loses_and_duplicates_no_records_over_random_cuts(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[2]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
    moments = random.Random(7)
    async with started_fleet(hosts, agent_linger_s=60, agent_sample_interval_ms=100, agent_simulate_gpus=16) as fleet:
        await fleet.sampled()
        link = fleet.fleet.links[node.name]
        for _ in range(5):
            before = len(fleet.records)
            wanted = before + moments.randint(3, 40)
            await fleet.until(lambda wanted=wanted: len(fleet.records) > wanted)
            link._connection.channel.close()
            await fleet.until(lambda: fleet.state(node.name) == "lost")
            await fleet.until(lambda: fleet.state(node.name) == "ok")
        last = len(fleet.records)
        await fleet.until(lambda: len(fleet.records) > last + 10)
        [seqs] = fleet.seqs(node.name).values()
        assert seqs == list(range(1, len(seqs) + 1))
        assert fleet.gaps(node.name) == []
    await _until_no_agent(node, 5)  # a normal stop ends a lingering agent, long before its linger_s


async def test_a_buffer_that_is_too_small_leaves_a_counted_gap(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[3]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
    flags = {"agent_linger_s": 60, "agent_buffer_bytes": 65536, "agent_cpu_budget_pct": 100}
    async with started_fleet(hosts, agent_sample_interval_ms=100, agent_simulate_gpus=64, **flags) as fleet:
        await fleet.sampled()
        node.stop_sshd(sessions=True)
        await fleet.until(lambda: fleet.state(node.name) == "lost")
        began = time.monotonic()  # the outage must last until the buffer has overflowed
        await fleet.until(lambda: time.monotonic() - began > 6)
        node.start_sshd()
        await fleet.until(lambda: fleet.state(node.name) == "ok" and fleet.gaps(node.name))
        last = len(fleet.records)
        await fleet.until(lambda: len(fleet.records) > last + 200)
        [seqs] = fleet.seqs(node.name).values()
        dropped = [number for gap in fleet.gaps(node.name) for number in range(gap.first_seq, gap.last_seq + 1)]
        assert dropped, "something was dropped"
        assert len(dropped) == len(set(dropped)), "each loss is counted once"
        dropped = set(dropped)
        assert set(seqs) | dropped == set(range(1, max(seqs) + 1))
        assert not set(seqs) & dropped
        assert len(seqs) == len(set(seqs))


@pytest.mark.parametrize("linger_s", [0, 30])
async def test_agent_exits_after_its_console_is_killed(rig: Rig, tmp_path: Path, linger_s: int) -> None:
    """`kill -9` of the console: no end-of-stream frame, no more pings."""
    node = rig.nodes[0]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name], agent={"linger_s": min(linger_s, 3)})
    process = await asyncio.create_subprocess_exec(str(GCONSOLE), "batch", str(hosts), "--for", "60s", "--quiet")
    async with asyncio.timeout(30):
        while not _agents(node):  # noqa: ASYNC110 - another machine's process table has no event
            await asyncio.sleep(0.05)
    process.kill()
    await process.wait()
    await _until_no_agent(node, 40)
