"""Fuzz target: what srun writes, from the labels of its lines to the streams of the nodes."""

from __future__ import annotations

import asyncio
import binascii
import json
import zlib

from gconsole.config.model import NodeConfig, SlurmStep
from gconsole.config.sections import AgentConfig
from gconsole.fleet.deploy.gateway_launch import gateway_share
from gconsole.fleet.deploy.step_launch import StepLaunch
from gconsole.transport.errors import FleetError
from gconsole.transport.gateway import frames
from gconsole.transport.gateway.frames import Kind
from gconsole.transport.step.connection import StepConnection
from gconsole.transport.step.labels import ended_tasks, exit_status

from .conversation import HELLO

NODES = ("node1", "node2")
_LAUNCH = StepLaunch(NodeConfig(name=NODES[0], engine=SlurmStep("7")), AgentConfig(), "c" * 16)
_GREETINGS = [{"gconsole": {**HELLO["gconsole"], "node": node}} for node in NODES]
_GREETED = b"".join(f"{task}: {json.dumps(hello)}\n".encode() for task, hello in enumerate(_GREETINGS))


class _Channel:
    """Standard input of srun."""

    def write(self, data: bytes) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class _Receiver:
    """A node's consumer of output."""

    def on_bytes(self, data: bytes) -> None: ...
    def on_error_bytes(self, data: bytes) -> None: ...
    def on_end(self, exit_status: int | None, error: Exception | None) -> None: ...


def read_step(data: bytes) -> None:
    """A whole step, after valid hellos unless the first byte selects otherwise; the second half is standard error."""
    asyncio.run(_receive(data))
    for line in data.decode("utf-8", "replace").splitlines()[:20]:
        for end in ended_tasks(line):
            exit_status(end.how)


async def _receive(data: bytes) -> None:
    step = StepConnection("slurm:7", NODES, _LAUNCH, gateway_share(), lambda error: None)
    starting = asyncio.create_task(step.start(_Channel()))
    await asyncio.sleep(0)
    if data[:1] < b"\xf0":
        step.on_bytes(_GREETED)
        await starting
        for node in NODES:
            await step.open_stream(node, ["sh"], _Receiver())
    step.on_bytes(data[1:])
    step.on_error_bytes(data[len(data) // 2 :])
    for _ in range(3):
        await asyncio.sleep(0)
    step.on_end(1, None)
    step.close()
    starting.cancel()
    try:
        await starting
    except (asyncio.CancelledError, FleetError):
        pass


def step_seeds() -> list[bytes]:
    """Lines of tasks that work and that end."""
    kinds = ((Kind.DATA, b'{"kind":'), (Kind.END, b'{"status":1,"error":""}'), (Kind.PING, b""))
    packed = zlib.compress(b"".join(frames.encode(kind, 1, payload) for kind, payload in kinds))[:-4]
    lines = b"0: =" + binascii.b2a_base64(packed) + b"1: =\n" + b" 1: oops\n"
    ends = b"srun: error: node2: task 1: Exited with exit code 127\nsrun: error: node[1-2]: tasks 0-1: Killed\n"
    return [b"\x20" + lines + ends, b"\xff" + _GREETED + lines, b"\x20" + ends * 2]
