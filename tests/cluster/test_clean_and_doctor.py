"""What a node keeps between runs: what is not sent again, what `clean` removes, and what `doctor` reports."""

import asyncio
import json
from pathlib import Path

import pytest
from live_fleet import started_fleet
from program import batch, gconsole
from rig import Rig

from gconsole.fleet.deploy import agent_payload
from gconsole.transport import ssh


def _caches(rig: Rig) -> list[str]:
    """All gconsole caches on the nodes."""
    files = []
    for node in rig.nodes:
        places = "/var/tmp/gconsole-[0-9]* /tmp/gconsole-[0-9]* ~/.cache/gconsole-agent"  # without demo folders
        listing = node.output(["sh", "-c", f"ls -d {places} 2>/dev/null; true"])
        files += [f"{node.name}:{path}" for path in listing.split()]
    return files


async def _sent_bytes(hosts: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> int:
    """Bytes written to the SSH channel of one node: its command, and standard input up to the first sample."""
    sent: list[int] = []
    opened, written = ssh.AsyncsshTransport.open, ssh._SshChannel.write

    async def counted_open(transport: object, node: object, command: str, receiver: object) -> object:
        sent.append(len(command))
        return await opened(transport, node, command, receiver)

    def counted_write(channel: object, data: bytes) -> None:
        sent.append(len(data))
        written(channel, data)

    with monkeypatch.context() as patched:
        patched.setattr(ssh.AsyncsshTransport, "open", counted_open)
        patched.setattr(ssh._SshChannel, "write", counted_write)
        async with started_fleet(hosts, **settings) as fleet:
            await fleet.sampled()
            await fleet.until(lambda: fleet.fleet.staging.staged == fleet.fleet.staging.expected == 1)
            total = sum(sent)
    return total


@pytest.mark.parametrize("settings", [{}, {"agent_linger_s": 5}], ids=["", "linger"])
async def test_what_a_node_has_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], needs_namespaces: None
) -> None:
    with Rig(nodes=1, name="warm", is_first_start=True) as rig:
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        cold = await _sent_bytes(hosts, monkeypatch, **settings)
        warm = await _sent_bytes(hosts, monkeypatch, **settings)
        assert (await asyncio.to_thread(gconsole, "clean", hosts, "--force")).status == 0
        again = await _sent_bytes(hosts, monkeypatch, **settings)
        print(f"\nsent to a node: {cold} bytes at first, {warm} later, {again} after clean")
    archive = len(agent_payload.build().archive)
    assert archive < cold and archive < again
    assert warm <= 20_000


def test_a_run_leaves_one_folder_and_clean_removes_it(tmp_path: Path) -> None:
    with Rig(nodes=2, name="clean", is_first_start=True) as rig:
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        assert batch(hosts).status == 0
        own_places = rig.mode == "namespaces"  # in other modes the nodes share this machine's folders
        assert not own_places or _caches(rig), "a normal run leaves the cache folder"
        run = gconsole("clean", hosts)
        assert run.status == 0, run.stdout + run.stderr
        assert "● removed /" in run.stdout
        assert not own_places or _caches(rig) == []


def test_an_ephemeral_run_leaves_nothing(tmp_path: Path, needs_namespaces: None) -> None:
    with Rig(nodes=1, name="ephemeral", is_first_start=True) as rig:
        run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"ephemeral": True}))
        assert run.status == 0
        assert _caches(rig) == []


async def test_clean_keeps_a_cache_in_use_and_names_its_console(tmp_path: Path, needs_namespaces: None) -> None:
    with Rig(nodes=1, name="inuse") as rig:
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        async with started_fleet(hosts) as fleet:
            await fleet.sampled()
            kept = await asyncio.to_thread(gconsole, "clean", hosts)
            assert kept.status == 3
            assert "in use" in kept.stdout
            assert fleet.hub.console_id[:8] in kept.stdout
            assert fleet.state("node1") == "ok", "the other console's agent is still connected"
            [first] = fleet.seqs("node1")
            forced = await asyncio.to_thread(gconsole, "clean", hosts, "--force")
            assert f"stopped agent of console {fleet.hub.console_id[:8]}" in forced.stdout
            await fleet.until(lambda: len(fleet.seqs("node1")) == 2)
            assert next(iter(fleet.seqs("node1"))) == first


async def test_two_consoles_on_one_fleet_do_not_disturb_each_other(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    async with started_fleet(hosts) as first, started_fleet(hosts, agent_linger_s=30) as second:
        await first.sampled()
        await second.sampled()
        for fleet in (first, second):
            for node in rig.nodes:
                assert fleet.state(node.name) == "ok"
                assert len(fleet.seqs(node.name)) == 1
    assert first.hub.console_id != second.hub.console_id


def test_doctor_checks_every_node_and_groups_equal_results(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    run = gconsole("doctor", hosts)
    assert run.status == 0, run.stdout + run.stderr
    for check in (
        "reach", "python", "proc", "ptrace", "rights", "sudo", "py-spy", "gpus", "clock", "cache", "buffer",
    ):  # fmt: skip
        assert f"\n{check}" in "\n" + run.stdout
    assert "node[1-4]" in run.stdout
    document = json.loads(gconsole("doctor", hosts, "--json").stdout)
    assert document["schema"] == "gconsole.doctor/1"
    assert [exam["reached"] for exam in document["nodes"]] == [True] * 4


def test_doctor_reports_why_a_node_is_unreachable_and_continues(tmp_path: Path) -> None:
    with Rig(nodes=1, name="sick") as rig:
        rig.add_node("deaf", "refuse")
        run = gconsole("doctor", rig.write_hosts_toml(tmp_path / "hosts.toml"))
    assert run.status == 3
    assert "deaf  refused: connection refused by" in run.stdout
    assert "node1" in run.stdout


def test_doctor_reports_a_noexec_cache_folder(tmp_path: Path, needs_namespaces: None) -> None:
    with Rig(nodes=0, name="noexec") as rig:
        rig.add_node("n", "noexec_cache")
        run = gconsole("doctor", rig.write_hosts_toml(tmp_path / "hosts.toml"))
    assert "noexec" in run.stdout
    assert "py-spy 0.4.3 at /proc/" in run.stdout, "it runs from memory there"
