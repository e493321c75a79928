"""Nodes behind gateways: real sshd, two login nodes, and nodes that only these reach."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import Site, give_key, site
from live_fleet import LiveFleet, started_fleet
from program import GCONSOLE, batch, gconsole
from rig import Node

from gconsole.fleet.deploy import agent_payload
from gconsole.fleet.node_link import SILENT_S
from gconsole.records import Log
from gconsole.transport.gateway.connection import GatewayConnection


@pytest.fixture(scope="module")
def cluster(needs_namespaces: None) -> Iterator[Site]:
    with site() as cluster:
        yield cluster


def ours(node: Node) -> list[str]:
    """Processes of gconsole, and what it started, on a node."""
    return [line for line in node.ps().splitlines() if "gconsole-agent" in line or " ssh " in line]


def program_of(gateway: Node) -> int:
    """Pid of the gateway's program; its commands name the agent, too."""
    [line] = [line for line in gateway.ps().splitlines() if "gconsole-agent" in line and "ssh" not in line]
    return int(line.split()[0])


async def until_nothing_is_left(*nodes: Node) -> None:
    async with asyncio.timeout(40):
        while any(ours(node) for node in nodes):  # noqa: ASYNC110 - another machine's process table has no event
            await asyncio.sleep(0.1)


def lost_gateways(fleet: LiveFleet) -> list[Log]:
    return [record for record in fleet.records if isinstance(record, Log) and record.fault == "gateway_lost"]


def connections(fleet: LiveFleet) -> list[GatewayConnection]:
    transport = fleet.fleet._transports["gateway"]
    return [gateway._opening.result() for gateway in transport._gateways.values() if gateway._opening]


@pytest.mark.parametrize("transport", ["asyncssh", pytest.param("openssh", marks=pytest.mark.full)])
def test_two_gateways_share_the_nodes_and_the_report_names_them(cluster: Site, tmp_path: Path, transport: str) -> None:
    before = [gateway.logins() for gateway in cluster.gateways]
    run = cluster.batch(tmp_path / "hosts.toml", ssh={"transport": transport})
    assert run.status == 0, run.stderr
    names = [gateway.address for gateway in cluster.gateways]
    assert sorted(run.node(node.name)["via"] for node in cluster.nodes) == sorted(names * 2)
    assert [gateway.logins() - count for gateway, count in zip(cluster.gateways, before, strict=True)] == [1, 1]


def test_other_command_than_ssh_reaches_the_nodes(cluster: Site, tmp_path: Path) -> None:
    gateway = cluster.gateways[0]
    rsh = gateway.folder / "rsh"  # as where OpenSSH is the system's rsh
    rsh.write_text('#!/bin/sh\nexec ssh -o BatchMode=yes "$@"\n')
    rsh.chmod(0o755)
    command = f"env 'OF THE=USER' {gateway.inside}/rsh {{node}}"
    run = cluster.batch(tmp_path / "hosts.toml", gateways=1, ssh={"gateway_command": command})
    assert run.status == 0, run.stderr
    assert [run.node(node.name)["state"] for node in cluster.nodes] == ["ok"] * len(cluster.nodes)


@pytest.mark.full
def test_node_that_floods_its_stream_disturbs_no_other(cluster: Site, tmp_path: Path) -> None:
    flooding, *others = cluster.nodes
    flood = flooding.folder / "flood"
    flood.write_text("#!/bin/sh\nexec tr x y </dev/zero\n")
    flood.chmod(0o755)
    path = cluster.hosts(tmp_path / "hosts.toml", gateways=1)
    path.write_text(path.read_text().replace(
        f'hosts = "{flooding.name}"', f'hosts = "{flooding.name}"\npython = "{flooding.inside}/flood"'))  # fmt: skip
    run = batch(path)
    assert [run.node(node.name)["state"] for node in others] == ["ok"] * 3
    assert run.node(flooding.name)["state"] == "failed"
    assert [finding["id"] for finding in run.report["findings"]] == []


def test_doctor_says_where_host_keys_were_checked(cluster: Site, tmp_path: Path) -> None:
    gateway = cluster.gateways[0].address
    hosts = cluster.hosts(tmp_path / "hosts.toml", ssh={"gateway": None})
    run = gconsole("doctor", hosts, "--via", gateway, "--json")
    reach = [check for node in json.loads(run.stdout)["nodes"] for check in node["checks"] if check["name"] == "reach"]
    assert [check["text"] for check in reach] == [f"login and agent work via {gateway}: host key checked there"] * 4


async def test_agents_modules_leave_the_console_once(cluster: Site, tmp_path: Path) -> None:
    hosts = cluster.hosts(tmp_path / "hosts.toml", gateways=1, agent={"cache_dir": "/tmp/cold"})
    async with started_fleet(hosts, agent_linger_s=0) as fleet:
        await fleet.sampled()
        [connection] = connections(fleet)
        payload = agent_payload.build()
        assert len(payload.archive) < connection.bytes_sent  # once to the gateway itself, which keeps it for the nodes
        binaries = sum(len(task.result()) for task in fleet.fleet.staging._packing.values())
        assert connection.bytes_sent < 1.5 * len(payload.archive) + 1.5 * binaries
    await until_nothing_is_left(*cluster.gateways, *cluster.nodes)


async def test_other_gateway_takes_over_and_no_record_is_lost_or_doubled(cluster: Site, tmp_path: Path) -> None:
    hosts = cluster.hosts(tmp_path / "hosts.toml")
    dead, alive = cluster.gateways
    async with started_fleet(hosts, agent_linger_s=60, agent_sample_interval_ms=200) as fleet:
        await fleet.sampled()
        moved = [node.name for node in cluster.nodes if fleet.fleet.links[node.name].via == dead.address]
        assert len(moved) == 2
        dead.stop_sshd(sessions=True)
        try:
            await fleet.until(lambda: all(fleet.fleet.links[name].via == alive.address for name in moved))
            await fleet.until(lambda: all(fleet.state(node.name) == "ok" for node in cluster.nodes))
        finally:
            dead.start_sshd()
        last = len(fleet.records)
        await fleet.until(lambda: len(fleet.records) > last + 50)
        for node in cluster.nodes:
            [seqs] = fleet.seqs(node.name).values()
            assert seqs == list(range(1, len(seqs) + 1)), node.name
            assert fleet.gaps(node.name) == []
        assert [log.subject for log in lost_gateways(fleet) if not log.is_over] == [dead.address]
        await fleet.until(lambda: any(log.is_over for log in lost_gateways(fleet)))
        kept = [node.name for node in cluster.nodes if node.name not in moved]
        assert all(fleet.history(name) == ["expected", "connecting", "ok"] for name in kept)
    await until_nothing_is_left(*cluster.gateways, *cluster.nodes)


async def test_nodes_of_a_gateway_that_has_no_processor_are_not_shown_as_lost(cluster: Site, tmp_path: Path) -> None:
    hosts = cluster.hosts(tmp_path / "hosts.toml", gateways=1)
    gateway = cluster.gateways[0]
    async with started_fleet(hosts) as fleet:
        await fleet.sampled()
        program = program_of(gateway)
        gateway.kill(program, signal.SIGSTOP)
        try:
            await fleet.until(lambda: connections(fleet)[0].silent_s() > 2 * SILENT_S)
        finally:
            gateway.kill(program, signal.SIGCONT)
        last = len(fleet.records)
        await fleet.until(lambda: len(fleet.records) > last + 50)
        assert [fleet.history(node.name) for node in cluster.nodes] == [["expected", "connecting", "ok"]] * 4
    await until_nothing_is_left(*cluster.gateways, *cluster.nodes)


@pytest.mark.full
async def test_cut_gateway_is_one_log_not_one_per_node(cluster: Site, tmp_path: Path) -> None:
    hosts = cluster.hosts(tmp_path / "hosts.toml", gateways=1)
    gateway = cluster.gateways[0]
    async with started_fleet(hosts) as fleet:
        await fleet.sampled()
        gateway.down()
        try:
            await fleet.until(lambda: lost_gateways(fleet))
        finally:
            gateway.up()
        await fleet.until(lambda: all(fleet.state(node.name) == "ok" for node in cluster.nodes))
        assert [log.is_over for log in lost_gateways(fleet)] == [False, True]
    await until_nothing_is_left(*cluster.gateways, *cluster.nodes)


def test_refused_key_and_unknown_host_key_of_the_inner_hop_are_explained_per_node(
    cluster: Site, tmp_path: Path
) -> None:
    gateway = cluster.gateways[0]
    wrong = cluster.rig.new_key("wrong", authorize=False)
    give_key(cluster.rig, gateway, wrong)
    try:
        refused = cluster.batch(tmp_path / "refused.toml", gateways=1)
    finally:
        give_key(cluster.rig, gateway)
    gateway.output(["sh", "-c", ": > ~/.ssh/known_hosts"])
    try:
        unknown = cluster.batch(tmp_path / "unknown.toml", gateways=1)
    finally:
        give_key(cluster.rig, gateway)
    for run, name in ((refused, "auth"), (unknown, "host_key_unknown")):
        for node in cluster.nodes:
            error = run.node(node.name)["error"]
            assert error["name"] == name
            assert error["text"].startswith(f"via {gateway.address}: ssh: ")
            assert f"ssh {gateway.address} ssh {node.address} true" in error["try"]
        assert [finding["id"] for finding in run.report["findings"]] == []


def test_gateway_that_cannot_be_reached_is_one_finding_and_one_line(cluster: Site, tmp_path: Path) -> None:
    cluster.gateways[0].stop_sshd()
    try:
        run = cluster.batch(tmp_path / "hosts.toml", gateways=1)
    finally:
        cluster.gateways[0].start_sshd()
    assert [finding["id"] for finding in run.report["findings"]] == ["gateway_lost"]
    assert run.stdout.count("connection refused") == 2  # the reason of all nodes, and the finding


async def test_nothing_is_left_after_the_console_is_killed(cluster: Site, tmp_path: Path) -> None:
    hosts = cluster.hosts(tmp_path / "hosts.toml")
    process = await asyncio.create_subprocess_exec(str(GCONSOLE), "batch", str(hosts), "--for", "60s", "--quiet")
    async with asyncio.timeout(60):
        while not all(ours(node) for node in cluster.nodes):  # noqa: ASYNC110 - a process table has no event
            await asyncio.sleep(0.05)
    process.kill()
    await process.wait()
    await until_nothing_is_left(*cluster.gateways, *cluster.nodes)
    for gateway in cluster.gateways:
        assert gateway.output(["sh", "-c", "ls /var/tmp/gconsole-*/run"]).split() == []
    run = gconsole("clean", hosts)
    assert run.status == 0, run.stdout + run.stderr
    for node in (*cluster.gateways, *cluster.nodes):
        assert node.output(["sh", "-c", "ls -d /var/tmp/gconsole-* 2>/dev/null || true"]) == ""
