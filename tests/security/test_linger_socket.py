"""The socket of a lingering agent accepts only its own user, even if the folder's mode was opened."""

from __future__ import annotations

import asyncio
from pathlib import Path

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
