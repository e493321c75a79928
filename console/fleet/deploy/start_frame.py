"""The frames that get an agent going: what it is told at its start, and the binaries it asked for."""

from __future__ import annotations

import base64
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any

from ...config.model import NodeConfig
from ..wire import PROTOCOL
from . import payload

#: Bytes of a binary in one frame: short enough that records and answers pass between two of them.
_PIECE = 96 << 10


def start(
    node: NodeConfig,
    console_id: str,
    agent: str,
    after: int,
    blobs: Mapping[str, Any],
    snapshot_period_ms: int = 0,
    *,
    gpu_clock: bool = False,
) -> dict[str, Any]:
    """The first frame: who speaks, what came of the node's earlier `agent` (up to its record `after`), the settings.

    `blobs` are offers of binaries by name, each by its digest; the agent asks for those that it does not have.
    `snapshot_period_ms`: how often it reads its clocks against each other; 0: never. `gpu_clock`: whether its GPUs'
    timers, too.
    """
    settings = node.agent
    return {
        "protocol": list(PROTOCOL),
        "console": console_id,
        "label": f"uid {os.getuid()} at {platform.node()}, pid {os.getpid()}",
        "bundle": payload.build().digest,
        "agent": agent,
        "after": after,
        "blobs": dict(blobs),
        "config": {
            "sample_interval_ms": settings.sample_interval_ms,
            "linger_s": settings.linger_s,
            "orphan_s": settings.orphan_s,
            "buffer_bytes": settings.buffer_bytes,
            "cpu_budget_pct": settings.cpu_budget_pct,
            "cache_dir": settings.cache_dir,
            "ephemeral": settings.ephemeral,
            "simulate_gpus": settings.simulate_gpus,
            "process_filter": node.process_filter,
            "snapshot_period_ms": snapshot_period_ms,
            "gpu_clock": gpu_clock,
            "watch_locals": list(node.watch.locals),
            "watch_every_s": node.watch.every_s,
        },
    }


def blob_pieces(name: str, encoding: str, packed: bytes) -> Iterator[dict[str, Any]]:
    """One binary as the frames that carry it."""
    for at in range(0, len(packed), _PIECE):
        piece = base64.b64encode(packed[at : at + _PIECE]).decode()
        yield {"blob": name, "at": at, "encoding": encoding, "data": piece, "end": at + _PIECE >= len(packed)}
