"""The bytes of a real agent, replayed for any number of nodes.

One agent is started on one real node with eight simulated GPUs and a real job of eight ranks, and its output is kept.
A `ReplayedAgent` then replays it for one of many nodes: the same records, one write per second, with its own id,
sequence numbers and timestamps.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from jobs import start_ring
from rig import Rig

from gconsole.config import load
from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub
from gconsole.fleet.deploy.binaries import Binaries
from gconsole.fleet.deploy.send_binaries import Staging
from gconsole.fleet.node_link import NodeLink
from gconsole.fleet.wire import LineSplitter
from gconsole.transport.login_limiter import LoginLimiter
from gconsole.transport.ssh import AsyncsshTransport
from gconsole.transport.transport import Channel, Receiver

GPUS, RANKS = 8, 8
#: Seconds of recorded output; the first tick is skipped.
LISTEN_S = 9.0
#: Kinds that an agent sends every second; all others are sent on change.
EACH_SECOND = {"host": 1, "agent_cost": 1, "gpu": GPUS, "rank_stat": RANKS}

Fields = dict[str, Any]


@dataclass(frozen=True)
class AgentOutput:
    """The output of one agent: its hello, what it sends once, and what it sends in each of a few steady seconds."""

    hello: Fields
    once: list[Fields]
    seconds: list[list[Fields]]


class ReplayedAgent:
    """One of many simulated nodes, whose agent started at `began_ns`; its output is bytes in wire format."""

    def __init__(self, output: AgentOutput, began_ns: int) -> None:
        self._output, self._began_ns, self._seq = output, began_ns, 0
        self._hello = dict(output.hello, agent=secrets.token_hex(8), wanted=[])

    def hello(self) -> bytes:
        return msgspec.json.encode({"gconsole": self._hello}) + b"\n"

    def once(self) -> bytes:
        """Its identity, GPUs, processes and ranks."""
        return self._encoded(self._output.once, 0)

    def second(self, number: int) -> bytes:
        """One tick, stamped `number` seconds after the start."""
        return self._encoded(self._output.seconds[number % len(self._output.seconds)], number)

    def _encoded(self, records: list[Fields], number: int) -> bytes:
        t = self._began_ns + number * 1_000_000_000
        lines = []
        for record in records:
            self._seq += 1
            record.update(seq=self._seq, t=t, mono=number * 1_000_000_000)
            lines.append(msgspec.json.encode(record))
        return b"\n".join(lines) + b"\n"


class RecordingTransport:
    """A transport that keeps all bytes received by the link."""

    def __init__(self) -> None:
        self.received = bytearray()
        self._ssh = AsyncsshTransport(LoginLimiter(1))

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        deliver = receiver.on_bytes

        def on_bytes(data: bytes) -> None:
            self.received += data
            deliver(data)

        receiver.on_bytes = on_bytes  # type: ignore[method-assign]
        return await self._ssh.open(node, command, receiver)

    async def close(self) -> None:
        await self._ssh.close()


def record_agent(listen_s: float = LISTEN_S) -> AgentOutput:
    """Run a real agent beside a real job for a few seconds and keep its output."""
    with (
        Rig(nodes=1, name="bench") as rig,
        start_ring(rig, nproc_per_node=RANKS) as job,
        tempfile.TemporaryDirectory() as scratch,
    ):
        job.wait_ready()
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"), agent={"simulate_gpus": GPUS, "wire": "readable"})
        return _parse_output(asyncio.run(_record_output(load(str(target)).nodes[0], listen_s)))


async def _record_output(node: NodeConfig, listen_s: float) -> bytes:
    recording, hub = RecordingTransport(), Hub()
    staging = Staging(hub, Binaries())
    link = NodeLink(node, recording, hub, staging.send_now)
    link.start()
    try:
        await asyncio.sleep(listen_s)
    finally:
        await link.stop()
        await staging.close()
        await recording.close()
    return bytes(recording.received)


def _parse_output(received: bytes) -> AgentOutput:
    frames = [msgspec.json.decode(line) for line in LineSplitter().feed(received)]
    hello = next(frame["gconsole"] for frame in frames if "gconsole" in frame)
    by_kind: dict[str, list[Fields]] = defaultdict(list)
    once = []
    for frame in frames:
        if frame.get("kind") in EACH_SECOND:
            by_kind[frame["kind"]].append(frame)
        elif "kind" in frame:
            once.append(frame)
    # the first tick of each has no rates yet
    steady = min(len(by_kind[kind]) // count for kind, count in EACH_SECOND.items()) - 1
    if steady < 3:
        counts = {kind: len(group) for kind, group in by_kind.items()}
        raise RuntimeError(f"the agent sent too few records: {counts}")
    seconds = [
        [record for kind, count in EACH_SECOND.items() for record in by_kind[kind][n * count : (n + 1) * count]]
        for n in range(1, steady + 1)
    ]
    return AgentOutput(hello, once, seconds)
