"""The demo's job as a launcher sees it: which rank runs where, their start, their end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RUN_ID = "demo"
PROGRAM = Path(__file__).with_name("ring.py")


@dataclass(frozen=True)
class RankPlacement:
    """Where one rank runs. `node` counts from 0."""

    rank: int
    node: int
    local_rank: int
    local_world_size: int


def places(nodes: int, ranks: int) -> list[RankPlacement]:
    """Ranks in blocks over the nodes, as launchers place them; if uneven, the first nodes have one more."""
    placements: list[RankPlacement] = []
    for node in range(nodes):
        size = ranks // nodes + (node < ranks % nodes)
        placements += [
            RankPlacement(len(placements) + local_rank, node, local_rank, size) for local_rank in range(size)
        ]
    return placements


class DemoJob:
    """The processes of all ranks. `environments` are those of the nodes' own processes, in order."""

    def __init__(
        self, ranks: int, environments: Sequence[Mapping[str, str]], hang: str = "", dumps: Path | None = None
    ) -> None:
        """`hang`: kind of hang in ring.py that `strike` triggers; "" for none.

        In the folder `dumps` each rank keeps what it remembers of its collectives; a job that will hang remembers
        nothing: it shows what is found out without.
        """
        self._places = places(len(environments), ranks)
        self._environments = environments
        self._hang = hang
        self._recording = {"TORCH_FR_DUMP_TEMP_FILE": f"{dumps}/trace"} if dumps is not None and not hang else {}
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Start every rank. Call on the main thread: a rank dies with the thread that made it."""
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

    def strike(self) -> None:
        """Let the hang set in, in the next step of all ranks."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGUSR1)

    async def stop(self) -> None:
        """End every rank, also a stopped one, and wait until the last is gone."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._processes))


def _listener() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(False)
    return listener


def _environment(place: RankPlacement, ports: Sequence[int], listener: int, token: str) -> dict[str, str]:
    """What torchrun would set, and what ring.py wants beside it."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(len(ports)),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_world_size),
        "GROUP_RANK": str(place.node),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(ports[0]),
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "RING_LISTENER": str(listener),
        "RING_PORTS": ",".join(map(str, ports)),
        "RING_TOKEN": token,
        "RING_LAUNCHER": str(os.getpid()),
    }
