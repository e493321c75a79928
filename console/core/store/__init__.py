"""The store: records folded into current tables, bounded history and a list of events."""

from .captures import CaptureNow, CaptureTable
from .entities import GpuKey, GpuNow, GpuPartKey, LinkKey, NicKey, NodeNow, ProcessKey, RankNow
from .jobs import RecentOutput
from .store import CLEARED_FINDINGS, Counts, Store

__all__ = [
    "CLEARED_FINDINGS",
    "CaptureNow",
    "CaptureTable",
    "Counts",
    "GpuKey",
    "GpuNow",
    "GpuPartKey",
    "LinkKey",
    "NicKey",
    "NodeNow",
    "ProcessKey",
    "RankNow",
    "RecentOutput",
    "Store",
]
