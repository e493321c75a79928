"""The socket of a lingering agent accepts only its own user and system, even if the folder's mode was opened."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_fleet import started_fleet
from rig import Node, Rig

#: Another user's attempts: to read the status, and to stop the agent.
KNOCK = """
import socket, sys
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
link.settimeout(5)
try:
    link.connect(sys.argv[1])
    link.sendall(sys.argv[2].encode() + b"\\n")
    print("heard:", link.recv(4096).decode() or "nothing")
except OSError as error:
    print("refused:", type(error).__name__)
"""


def send_request(node: Node, socket: str, request: str, user: str) -> str:
    return node.output(["python3", "-c", KNOCK, socket, request], user=user)


async def test_linger_socket_ignores_other_users_even_with_open_permissions(
    needs_namespaces: None, tmp_path: Path
) -> None:
    with Rig(nodes=1, name="gcy-sock") as rig:
        node = rig.nodes[0]
        async with started_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml"), agent_linger_s=60) as fleet:
            await fleet.sampled()
            listing = await asyncio.to_thread(node.output, ["sh", "-c", "ls /var/tmp/gconsole-*/run/*.sock"])
            socket = listing.strip()
            assert "PermissionError" in send_request(node, socket, '{"who": true}', "other"), "the folder is 0700"
            folder = Path(socket).parent
            opened = f"chmod 755 {folder.parent} {folder}; chmod 666 {socket}"
            node.output(["sh", "-c", opened])
            for request in ('{"who": true}', '{"stop": true}', '{"start": {}}'):
                assert "heard: nothing" in send_request(node, socket, request, "other") or "refused" in send_request(
                    node, socket, request, "other"
                )
            assert '"agent"' in send_request(node, socket, '{"who": true}', "root"), "its own user gets an answer"
            before = len(fleet.records)
            await fleet.until(lambda: len(fleet.records) > before + 10)
            assert fleet.state("node1") == "ok"
            assert len(fleet.seqs("node1")) == 1, "it is still the same agent"
            node.output(["sh", "-c", f"chmod 700 {folder.parent} {folder}"])


@pytest.fixture
def shared_folder(needs_namespaces: None) -> Iterator[Path]:
    """A folder that all nodes see at the same path, owned by root."""
    folder = Path(tempfile.mkdtemp(prefix="gcy-shared-", dir="/srv"))
    yield folder
    shutil.rmtree(folder)


async def test_containers_that_share_the_cache_have_an_agent_each(shared_folder: Path, tmp_path: Path) -> None:
    with Rig(nodes=2, name="gcy-share", user="root") as rig:
        for node in rig.nodes:  # containers of one host: the same boot, other PID namespaces and hostnames
            node.output(["umount", "/proc/sys/kernel/random/boot_id"], user="root")
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"cache_dir": str(shared_folder / "cache")})
        async with started_fleet(hosts, agent_linger_s=60) as fleet:
            await fleet.sampled()
            for node in ("node1", "node2"):
                now = fleet.store.nodes[node].node
                assert now is not None and now.hostname == node
            before = len(fleet.records)
            await fleet.until(lambda: all(
                sum(record.node == name for record in fleet.records[before:]) > 20 for name in ("node1", "node2")
            ))  # fmt: skip
            for node in ("node1", "node2"):
                assert fleet.history(node) == ["expected", "connecting", "ok"], "no agent was taken over"
            agents = [set(fleet.seqs(name)) for name in ("node1", "node2")]
            assert [len(ids) for ids in agents] == [1, 1] and not agents[0] & agents[1]
            assert len(list((shared_folder / "cache" / "run").glob("*.sock"))) == 2
