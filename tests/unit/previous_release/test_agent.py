"""An agent of release 0.1.0 with this release: its hello is parsed, and a lingering one is replaced.

`agent.payload` is what that release sends to a node: header, boot code and modules.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gconsole.config import load
from gconsole.config.model import NodeConfig
from gconsole.fleet.deploy import agent_payload
from gconsole.fleet.wire import read_hello

PREVIOUS = (Path(__file__).parent / "agent.payload").read_bytes()
CONSOLE, DEADLINE_S = "c0ffee0000000002", 60.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeConfig]:
    """A node on this machine with lingering agents; remaining ones are stopped at the end."""
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(
        f'[ssh]\ntransport = "local"\n[agent]\nlinger_s = 60\nsimulate_gpus = 2\ncache_dir = "{tmp_path}/cache"\n'
        '[[nodes]]\nhosts = "here"\nprocess_filter = "env:NOBODY_HAS=this"\n'
    )
    yield load(str(hosts)).nodes[0]
    for path in (tmp_path / "cache" / "run").glob("*.sock"):
        with connected(path) as console:
            console.sendall(line({"stop": True}))
            console.recv(1)


def socket_of(folder: Path) -> Path:
    """The socket of the current agent, or of one of the previous release, which has another name."""
    (path,) = (folder / "cache" / "run").glob("*.sock")
    return path


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(DEADLINE_S)
    connection.connect(str(path))
    return connection


def line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def start_agent(
    node: NodeConfig, preamble: bytes, agent: str = "", after: int = 0, archive: bytes = b""
) -> dict[str, Any]:
    """The hello of an agent that lingers after its connection was cut. `preamble` is that of its release.

    `archive` is what a node without a cache requests from a current release.
    """
    start = agent_payload.start(node, CONSOLE, agent, after, 1000)
    start["bundle"] = preamble.split()[1].decode()
    command = agent_payload.command(node.agent.python, node.agent.run_as)
    pipe = subprocess.PIPE
    with subprocess.Popen(["/bin/sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe) as relay:
        assert relay.stdin and relay.stdout and relay.stderr
        relay.stdin.write(preamble + line({"start": start}) + archive)
        relay.stdin.flush()
        if archive:
            assert "gconsole_lacks" in json.loads(relay.stdout.readline())
        hello = relay.stdout.readline()
        assert hello, relay.stderr.read()
        relay.kill()
    return dict(json.loads(hello))


def pid_behind(path: Path) -> int:
    with connected(path) as console, console.makefile("rb") as lines:
        console.sendall(line({"who": True}))
        return int(json.loads(lines.readline())["pid"])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_hello_of_the_previous_release_is_parsed(node: NodeConfig) -> None:
    hello = read_hello(json.dumps(start_agent(node, PREVIOUS)).encode())
    assert hello.agent
    assert hello.protocol


@pytest.mark.slow
def test_lingering_agent_of_the_previous_release_is_replaced_by_the_current_one(
    node: NodeConfig, tmp_path: Path
) -> None:
    previous = start_agent(node, PREVIOUS)["gconsole"]["agent"]
    pid = pid_behind(socket_of(tmp_path))

    payload = agent_payload.build()
    current = start_agent(node, payload.preamble, previous, 1, payload.archive)["gconsole"]["agent"]

    assert current != previous
    deadline = time.monotonic() + DEADLINE_S
    while is_alive(pid):
        assert time.monotonic() < deadline, "the agent of the previous release is still running"
        time.sleep(0.05)
    assert pid_behind(socket_of(tmp_path)) != pid
