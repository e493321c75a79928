"""Gateways that keep what their nodes send while no console is connected: real sshd, two nodes behind one."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import Site, site
from live_fleet import LiveFleet, started_fleet
from program import GCONSOLE, gconsole
from rig import Node

from gconsole.records import Gap, Host, Log
from gconsole.session.format import reader
from gconsole.session.format.layout import named

SPOOLED = "cat /var/tmp/gconsole-*/kept/*/*-0* 2>/dev/null | wc -c"
#: Bytes: some ten seconds of two nodes.
SOME = 12_000


@pytest.fixture(scope="module")
def cluster(needs_namespaces: None) -> Iterator[Site]:
    with site(gateways=1, nodes=2) as cluster:
        yield cluster


def hosts_of(cluster: Site, path: Path, **ssh: object) -> Path:
    gateway = cluster.gateways[0].address
    return cluster.hosts(
        path, ssh={"record_on": gateway, **ssh},
        agent={"linger_s": 60, "sample_interval_ms": 200},
    )  # fmt: skip


def spooled(gateway: Node) -> int:
    return int(gateway.output(["sh", "-c", SPOOLED]))


async def until_spooled(gateway: Node, more: int) -> None:
    before = spooled(gateway)
    async with asyncio.timeout(120):
        while spooled(gateway) < before + more:  # noqa: ASYNC110 - files of another machine
            await asyncio.sleep(0.2)


def programs(node: Node) -> list[int]:
    """Pids of the gateway's program, without the ssh processes that it runs."""
    lines = [line for line in node.ps().splitlines() if "gconsole-agent" in line]
    return [int(line.split()[0]) for line in lines if "python" in line.split()[2]]


async def record_and_kill(cluster: Site, hosts: Path, sessions: Path) -> None:
    """Record a session `night` until it has some ticks of each node, and kill the console."""
    add_sessions_folder(hosts, sessions)
    process = await asyncio.create_subprocess_exec(str(GCONSOLE), "record", str(hosts), "--name", "night", "--quiet")
    async with asyncio.timeout(120):
        while not has_ticks_of(cluster, sessions):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.2)
    process.kill()
    await process.wait()


def add_sessions_folder(hosts: Path, sessions: Path) -> None:
    hosts.write_text(f'{hosts.read_text()}\n[sessions]\nfolder = "{sessions}"\n')


def has_ticks_of(cluster: Site, sessions: Path) -> bool:
    if not list(sessions.glob("night/segments/*")):
        return False
    ticks = Counter(record.node for record in reader.records(sessions / "night") if isinstance(record, Host))
    return all(ticks[node.name] >= 5 for node in cluster.nodes)


def check_complete(fleet: LiveFleet, cluster: Site) -> None:
    for node in cluster.nodes:
        [seqs] = fleet.seqs(node.name).values()
        assert seqs == list(range(1, len(seqs) + 1)), node.name
        assert fleet.gaps(node.name) == []


def logs(fleet: LiveFleet, text: str) -> list[str]:
    return [record.text for record in fleet.records if isinstance(record, Log) and text in record.text]


async def test_console_gets_what_was_kept_while_it_was_away(cluster: Site, tmp_path: Path) -> None:
    [gateway] = cluster.gateways
    async with started_fleet(hosts_of(cluster, tmp_path / "hosts.toml")) as fleet:
        await fleet.sampled()
        gateway.stop_sshd(sessions=True)
        try:
            await until_spooled(gateway, SOME)
        finally:
            gateway.start_sshd()
        await fleet.until(lambda: logs(fleet, "were kept without a console"))
        await fleet.until(lambda: spooled(gateway) == 0)
        check_complete(fleet, cluster)
        [text] = logs(fleet, "were kept without a console")
        assert re.search(r" of 2 nodes were kept without a console, until [-0-9]+ [:0-9]+", text)


@pytest.mark.full
async def test_files_of_a_killed_gateway_are_read_by_the_next(cluster: Site, tmp_path: Path) -> None:
    [gateway] = cluster.gateways
    async with started_fleet(hosts_of(cluster, tmp_path / "hosts.toml")) as fleet:
        await fleet.sampled()
        gateway.stop_sshd(sessions=True)
        try:
            await until_spooled(gateway, SOME)
            for pid in programs(gateway):
                gateway.kill(pid)
        finally:
            gateway.start_sshd()
        await fleet.until(lambda: logs(fleet, "its program was killed"))
        await fleet.until(lambda: spooled(gateway) == 0)
        check_complete(fleet, cluster)


@pytest.mark.full
async def test_recording_of_a_killed_console_contains_the_night(cluster: Site, tmp_path: Path) -> None:
    [gateway] = cluster.gateways
    sessions = tmp_path / "sessions"
    hosts = hosts_of(cluster, tmp_path / "hosts.toml")
    await record_and_kill(cluster, hosts, sessions)
    await until_spooled(gateway, SOME)
    run = gconsole("record", hosts, "--name", "night", "--for", "20s", "--quiet", deadline_s=120)
    assert run.status in (0, 1), run.stderr
    meta = named("night", sessions).read()
    assert [part.how for part in meta.parts] == ["crashed", "stopped"]
    seqs: dict[tuple[str, str], list[int]] = {}
    for record in reader.records(named("night", sessions).path):
        assert not isinstance(record, Gap), record
        if record.agent not in {part.console for part in meta.parts}:
            seqs.setdefault((record.node, record.agent), []).append(record.seq)
    assert sorted(node for node, _ in seqs) == [node.name for node in cluster.nodes]
    for numbers in seqs.values():
        assert numbers == list(range(1, len(numbers) + 1))


async def test_clean_ends_the_program_and_removes_its_files(cluster: Site, tmp_path: Path) -> None:
    [gateway] = cluster.gateways
    hosts = hosts_of(cluster, tmp_path / "hosts.toml")
    await record_and_kill(cluster, hosts, tmp_path / "sessions")
    await until_spooled(gateway, 1)
    run = gconsole("clean", hosts, "--force")
    assert run.status == 0, run.stdout + run.stderr
    for node in (gateway, *cluster.nodes):
        assert node.output(["sh", "-c", "ls -d /var/tmp/gconsole-* 2>/dev/null || true"]) == ""
    assert programs(gateway) == []
