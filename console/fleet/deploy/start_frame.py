"""The start frame of an agent, and the frames that carry binaries."""

from __future__ import annotations

import base64
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any

from ...config.model import NodeConfig
from ..wire import PROTOCOL
from . import payload

#: Bytes of a binary per frame: small enough that records and responses interleave.
_CHUNK = 96 << 10


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
    """The start frame: identities, the last record received from the node's earlier `agent` (`after`), settings.

    `blobs` offers binaries by name and digest; the agent requests those it lacks. `snapshot_period_ms`: period of clock
    snapshots, 0: none; `gpu_clock`: include GPU timers.
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


def blob_chunks(name: str, encoding: str, packed: bytes) -> Iterator[dict[str, Any]]:
    """The frames of one binary."""
    for offset in range(0, len(packed), _CHUNK):
        chunk = base64.b64encode(packed[offset : offset + _CHUNK]).decode()
        yield {"blob": name, "at": offset, "encoding": encoding, "data": chunk, "end": offset + _CHUNK >= len(packed)}
