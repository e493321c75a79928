"""Launcher of the demo's job: placement, start and end of its ranks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

RUN_ID = "demo"
PROGRAM = Path(__file__).with_name("ring.py")


class RankPlacement(msgspec.Struct, frozen=True):
    """Node and local rank of one rank; `node` counts from 0."""

    rank: int
    node: int
    local_rank: int
    local_world_size: int


def places(nodes: int, ranks: int) -> list[RankPlacement]:
    """Ranks in blocks over the nodes, as launchers place them; if uneven, the first nodes get one more."""
    placements: list[RankPlacement] = []
    for node in range(nodes):
        size = ranks // nodes + (node < ranks % nodes)
        placements += [
            RankPlacement(len(placements) + local_rank, node, local_rank, size) for local_rank in range(size)
        ]
    return placements


class DemoJob:
    """The processes of all ranks. `environments`: of the nodes, in order."""

    def __init__(
        self, ranks: int, environments: Sequence[Mapping[str, str]], hang: str = "", dumps: Path | None = None
    ) -> None:
        """`hang`: kind of hang in ring.py that `trigger_hang` triggers; "" for none.

        Each rank writes its collectives to the folder `dumps`, except in a job that will hang, which shows the
        diagnosis without them.
        """
        self._places = places(len(environments), ranks)
        self._environments = environments
        self._hang = hang
        self._recording = {"TORCH_FR_DUMP_TEMP_FILE": f"{dumps}/trace"} if dumps is not None and not hang else {}
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Start every rank. Call it on the main thread: PR_SET_PDEATHSIG kills a rank with its starting thread."""
        with contextlib.ExitStack() as ours:
            listeners = [ours.enter_context(_listener()) for _ in self._places]
            ports = [listener.getsockname()[1] for listener in listeners]
            token = secrets.token_hex(16)
            for place, listener in zip(self._places, listeners, strict=True):
                fd = listener.fileno()
                self._processes.append(
                    await asyncio.create_subprocess_exec(
                        sys.executable, str(PROGRAM),
                        env={**self._environments[place.node], **_environment(place, ports, fd, token),
                             **self._recording, "RING_HANG": self._hang},
                        pass_fds=(fd,), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                    )
                )  # fmt: skip

    def trigger_hang(self) -> None:
        """Make the job hang in its next step."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGUSR1)

    async def stop(self) -> None:
        """Kill every rank, also a stopped one, and wait for them."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._processes))


def _listener() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(False)
    return listener


def _environment(place: RankPlacement, ports: Sequence[int], listener: int, token: str) -> dict[str, str]:
    """The variables that torchrun sets, and those of ring.py."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(len(ports)),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "GROUP_RANK": str(place.node),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(place.local_world_size))),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(ports[0]),
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "RING_LISTENER": str(listener),
        "RING_PORTS": ",".join(map(str, ports)),
        "RING_TOKEN": token,
        "RING_LAUNCHER": str(os.getpid()),
    }
