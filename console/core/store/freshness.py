"""Whether the figures of a GPU still arrive, judged by what else its node sends."""

from __future__ import annotations

from typing import Final

from ...records import DigestibleRecord
from .entities import GpuNow, NodeNow

#: Sampling intervals. Older data are stale.
STALE_PERIODS: Final = 3
_DEFAULT_PERIOD_MS: Final = 1000


def period_ns(node: NodeNow) -> int:
    """Interval between two reports of a node, ns; GPUs may be sampled more often."""
    period = _DEFAULT_PERIOD_MS
    if node.cost is not None:
        period = node.cost.sample_interval_ms
    elif node.node is not None:
        period = node.node.sample_interval_ms
    return max(period, _DEFAULT_PERIOD_MS) * 1_000_000


def promised_ns(record: DigestibleRecord, node: NodeNow) -> int:
    """Interval in which the next record of an entity is due, ns: that of its digests, else that of its node."""
    return max(period_ns(node), int((record.period_s or 0.0) * 1e9))


def gpu_stale_ns(now: GpuNow, node: NodeNow | None) -> int | None:
    """Age of a GPU's newest figures when its node last reported, ns; None while they arrive, or without any.

    The node's own records are the reference, so that a slow connection makes no GPU stale.
    """
    if now.gpu is None or node is None or not now.gpu.rx:
        return None
    age = node.last_rx - now.gpu.rx
    return age if age > STALE_PERIODS * promised_ns(now.gpu, node) else None
