"""What is true now, and what was: every record folded into current tables, bounded history and a list of events.

`store.py` is the front that takes the records, `now.py` what it keeps of each thing; the rest is one file a part.
"""

from .captures import CaptureNow, CaptureTable
from .entities import GpuKey, GpuNow, GpuPartKey, LinkKey, NicKey, NodeNow, ProcessKey, RankNow
from .jobs import JobOutput
from .store import CLEARED_FINDINGS, Counts, Store

__all__ = [
    "CLEARED_FINDINGS",
    "CaptureNow",
    "CaptureTable",
    "Counts",
    "GpuKey",
    "GpuNow",
    "GpuPartKey",
    "JobOutput",
    "LinkKey",
    "NicKey",
    "NodeNow",
    "ProcessKey",
    "RankNow",
    "Store",
]
