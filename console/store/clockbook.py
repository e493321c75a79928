"""What the store knows of clocks: the bins of the last seconds per edge, and the newest of everything else."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..records import ClockBins, ClockCost, ClockNode, ClockSnapshot, ClockSource, ClockWindow
from ..table import Table

#: Bins are kept so long: two of the widest windows. They are the largest thing a probing node says.
KEPT_NS: Final = 20_000_000_000
#: Snapshots, windows and lines of one node or edge that are kept: an hour of background windows, 12 min of snapshots.
KEPT_SNAPSHOTS: Final = 720
KEPT_WINDOWS: Final = 64

#: An edge as it is probed: (node, dst).
EdgeKey = tuple[str, str]
#: The same, by one method: over UDP and over SSH are two measurements.
WayKey = tuple[str, str, str]


class ClockBook:
    """Bins, snapshots, claims, costs, and the console's own results; bounded, whatever the nodes say."""

    def __init__(self) -> None:
        self.bins: Table[WayKey, deque[ClockBins]] = Table()
        self.snapshots: Table[str, deque[ClockSnapshot]] = Table()
        self.sources: Table[str, ClockSource] = Table()
        self.costs: Table[str, ClockCost] = Table()
        self.windows: Table[EdgeKey, deque[ClockWindow]] = Table()
        self.nodes: Table[str, deque[ClockNode]] = Table()

    def add_bins(self, record: ClockBins, version: int) -> None:
        key = (record.node, record.dst, record.method)
        kept = self.bins.get(key) or deque()
        if kept and kept[-1].agent != record.agent:
            kept.clear()  # another incarnation: not one line
        kept.append(record)
        while kept[0].base < record.base - KEPT_NS:
            kept.popleft()
        self.bins.put(key, kept, version)

    def add_snapshot(self, record: ClockSnapshot, version: int) -> None:
        kept = self.snapshots.get(record.node)
        if kept is None or kept[-1].agent != record.agent:  # after a reboot MONOTONIC_RAW begins anew
            kept = deque(maxlen=KEPT_SNAPSHOTS)
        kept.append(record)
        self.snapshots.put(record.node, kept, version)

    def add_source(self, record: ClockSource, version: int) -> None:
        self.sources.put(record.node, record, version)

    def add_cost(self, record: ClockCost, version: int) -> None:
        self.costs.put(record.node, record, version)

    def add_window(self, record: ClockWindow, version: int) -> None:
        key = (record.node, record.dst)
        kept = self.windows.get(key) or deque(maxlen=KEPT_WINDOWS)
        kept.append(record)
        self.windows.put(key, kept, version)

    def add_node(self, record: ClockNode, version: int) -> None:
        kept = self.nodes.get(record.node) or deque(maxlen=KEPT_WINDOWS)
        kept.append(record)
        self.nodes.put(record.node, kept, version)

    def forget(self, node: str, version: int) -> None:
        """A node is no longer of this fleet."""
        self.snapshots.drop(node, version)
        self.sources.drop(node, version)
        self.costs.drop(node, version)
        self.nodes.drop(node, version)
        for way in [key for key in self.bins if node in key[:2]]:
            self.bins.drop(way, version)
        for edge in [key for key in self.windows if node in key]:
            self.windows.drop(edge, version)
