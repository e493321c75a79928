"""The gateway's program, started from its real bundle on this machine; nodes are commands of this machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from local_gateway import Outer, Receiver, until

from gconsole.config.model import NodeConfig
from gconsole.config.sections import AgentConfig, SshConfig
from gconsole.fleet.deploy.gateway_launch import GatewayLaunch, gateway_share
from gconsole.transport import errors
from gconsole.transport.gateway import frames
from gconsole.transport.gateway.connection import GatewayConnection
from gconsole.transport.gateway.streams import NodeChannel
from gconsole.transport.gateway.transport import GatewayTransport
from gconsole.transport.login_limiter import LoginLimiter

pytestmark = pytest.mark.slow  # starts Python for each test


class Site:
    """A gateway on this machine; a node's command gets its name as `$NODE`."""

    def __init__(self, cache: Path) -> None:
        self.outer = Outer()
        self.reports: list[tuple[str, errors.FleetError | None]] = []
        self.transport = GatewayTransport(
            LoginLimiter(8), lambda host: self.outer,
            lambda host: GatewayLaunch(host, self._agent, "c" * 16, lambda name, kept: None),
            gateway_share, lambda name, error: self.reports.append((name, error)),
        )  # fmt: skip
        self._agent = AgentConfig(cache_dir=str(cache))

    async def run(
        self, node: str, command: str, receiver: Receiver, words: str = "env NODE={node} /bin/sh -c"
    ) -> NodeChannel:
        ssh = SshConfig(gateway="login1", gateway_command=words)
        channel = await self.transport.open(NodeConfig(name=node, ssh=ssh), command, receiver)
        receiver.channel = channel
        assert isinstance(channel, NodeChannel)
        return channel

    @property
    def connection(self) -> GatewayConnection:
        [gateway] = self.transport._gateways.values()
        assert gateway._opening is not None
        return gateway._opening.result()

    @property
    def pid(self) -> int:
        channel: Any = self.connection._channel
        return int(channel._process.get_pid())


@asynccontextmanager
async def site(cache: Path) -> AsyncIterator[Site]:
    site = Site(cache)
    try:
        yield site
    finally:
        await site.transport.close()
        await until(lambda: all(process.get_returncode() is not None for process in site.outer.processes))
        await asyncio.sleep(0)  # the last callbacks of its pipes


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder on the gateway's host: compiled once."""
    return tmp_path_factory.mktemp("gateway") / "cache"


def entries(cache: Path) -> set[Path]:
    """Users of the cache; one that was killed leaves its entry."""
    return set((cache / "run").glob("*"))


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


async def test_streams_carry_input_output_errors_and_status(cache: Path) -> None:
    async with site(cache) as gateway:
        first, second = Receiver(), Receiver()
        channel = await gateway.run("node1", 'read line; echo "$NODE $line"; echo oops >&2; exit 7', first)
        await gateway.run("node2;id", 'echo "$NODE"', second)
        channel.write(b"hello\n")
        await until(lambda: first.ended and second.ended)
    assert (bytes(first.data), bytes(first.errors), first.ended) == (b"node1 hello\n", b"oops\n", (7, None))
    assert bytes(second.data) == b"node2;id\n", "no shell reads the name of a node"


async def test_node_that_floods_delays_no_other_and_takes_no_memory(cache: Path) -> None:
    async with site(cache) as gateway:
        paused, unlimited, other = Receiver(most=1), Receiver(), Receiver()
        await gateway.run("paused", "exec yes", paused)
        await gateway.run("flood", "exec yes", unlimited)
        channel = await gateway.run("other", "exec cat", other)
        await until(lambda: unlimited.count > 8 << 20)
        channel.write(b"ping\n")
        await until(lambda: bytes(other.data) == b"ping\n")
        assert paused.count <= frames.WINDOW
        assert resident_kb(gateway.pid) < 64 << 10


async def test_equal_bytes_reach_every_node_and_come_once(cache: Path) -> None:
    async with site(cache) as gateway:
        receivers = [Receiver() for _ in range(4)]
        blob = os.urandom(1 << 20)
        channels = [
            await gateway.run(f"node{index}", f"head -c {len(blob)} | sha256sum", receiver)
            for index, receiver in enumerate(receivers)
        ]
        before = gateway.connection.bytes_sent
        for channel in channels:
            channel.write(blob)
        await until(lambda: all(receiver.ended for receiver in receivers))
        assert len({bytes(receiver.data) for receiver in receivers}) == 1
        assert gateway.connection.bytes_sent - before < 1.1 * len(blob)


async def test_program_that_is_not_there_is_reported_for_its_node(cache: Path) -> None:
    async with site(cache) as gateway:
        receiver = Receiver()
        await gateway.run("node1", "true", receiver, words="/no/such/rsh {node}")
        await until(lambda: receiver.ended)
        assert receiver.ended is not None
        error = receiver.ended[1]
        assert isinstance(error, errors.SiteCommand)
        assert error.text.startswith("via login1: cannot start /no/such/rsh")
        assert "gateway_command" in error.try_


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_commands_end_with_the_gateway_and_its_loss_is_reported_once(cache: Path, number: int) -> None:
    before = entries(cache)
    async with site(cache) as gateway:
        receivers = [Receiver() for _ in range(3)]
        for index, receiver in enumerate(receivers):
            await gateway.run(f"node{index}", "echo $$; exec cat", receiver)
        await until(lambda: all(receiver.data for receiver in receivers))
        pids = [int(receiver.data) for receiver in receivers]
        os.kill(gateway.pid, number)
        await until(lambda: all(receiver.ended for receiver in receivers))
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        losses = [(name, type(error)) for name, error in gateway.reports if error is not None]  # None: it is back
        assert losses == [("login1", errors.GatewayLost)]
        if number == signal.SIGTERM:
            assert entries(cache) <= before


HOSTILE = {
    "a stream that was not opened": frames.encode(frames.Kind.DATA, 5, b"x"),
    "a stream that is opened twice": frames.encode(frames.Kind.OPEN, 1, b'{"argv": ["true"]}'),
    "a huge length": b"\x02" + bytes(4) + b"\xff" * 4,
    "more than the window": frames.encode(frames.Kind.DATA, 1, bytes(frames.MAX_PAYLOAD)) * 5,
    "a blob that was not named": frames.encode(frames.Kind.BLOB, 3, b"x"),
    "a command that is not JSON": frames.encode(frames.Kind.OPEN, 2, b"{"),
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
async def test_gateway_ends_on_bytes_that_are_not_the_protocol(cache: Path, sent: bytes) -> None:
    async with site(cache) as gateway:
        receiver = Receiver()
        await gateway.run("node1", "exec sleep 60", receiver)
        gateway.connection._streams.write(sent)
        await until(lambda: receiver.ended)
        assert gateway.reports[0][0] == "login1"
