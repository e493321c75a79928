"""Clock state: the newest windows and per-node results, snapshots, time services and probing cost.

Probe bins are not kept: they are the largest stream of a node (30 a second by default), and the clock estimator
receives them from the bus.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ...records import ClockCost, ClockNode, ClockSnapshot, ClockSource, ClockWindow, GpuClock
from ...records.kinds import SPECS, identity
from ..versioned_table import Table

#: Windows per edge and results per node: an hour of background windows. An edge without a window among the node's last
#: ones is dropped, because nodes are paired anew as the fleet changes.
KEPT_WINDOWS: Final = SPECS[ClockWindow].kept_each or 0
#: Snapshots per node, one a second at most; kept as far back as its results reach, and 12 min at least.
KEPT_SNAPSHOTS: Final = SPECS[ClockSnapshot].kept_each or 0
KEPT_SNAPSHOTS_NS: Final = 720_000_000_000
#: GPUs per node; records of more are ignored.
MOST_GPUS: Final = 64

#: A probed edge: (node, dst).
EdgeKey = tuple[str, str]


class ClockTables:
    """Snapshots, time services, costs and results, bounded per node."""

    def __init__(self) -> None:
        self.snapshots: Table[str, deque[ClockSnapshot]] = Table()
        self.sources: Table[str, ClockSource] = Table()
        self.gpus: Table[tuple[str, int], GpuClock] = Table()  # by node and index
        self.costs: Table[str, ClockCost] = Table()
        self.windows: Table[EdgeKey, deque[ClockWindow]] = Table()
        self.nodes: Table[str, deque[ClockNode]] = Table()
        self._near: dict[str, _Near] = {}

    def add_snapshot(self, record: ClockSnapshot, version: int) -> None:
        """Keep the newest snapshots of the node, as far back as its lines reach."""
        kept = self.snapshots.get(record.node)
        if kept is None or kept[-1].agent != record.agent:  # after a reboot MONOTONIC_RAW begins anew
            kept = deque(maxlen=KEPT_SNAPSHOTS)
        kept.append(record)
        lines = self.nodes.get(record.node)
        since = record.rx - KEPT_SNAPSHOTS_NS
        if lines:
            since = min(since, lines[0].rx)
        while kept[0].rx < since:
            kept.popleft()
        self.snapshots.put(record.node, kept, version)

    def add_gpu(self, record: GpuClock, version: int) -> None:
        """Replace the reading of one GPU timer."""
        if record.index < MOST_GPUS:
            self.gpus.put(identity(record), record, version)

    def add_window(self, record: ClockWindow, version: int) -> None:
        """Keep the newest windows of the edge."""
        key: EdgeKey = identity(record)
        kept = self.windows.get(key) or deque(maxlen=KEPT_WINDOWS)
        kept.append(record)
        self.windows.put(key, kept, version)
        near = self._near.setdefault(record.node, _Near())
        near.edges.add(key)
        if near.is_next(record):
            self._forget_windows(near, version)

    def _forget_windows(self, near: _Near, version: int) -> None:
        """Drop windows older than the node's last ones, and edges without any."""
        for key in tuple(near.edges):
            kept = self.windows.get(key)
            while kept and kept[0].rx < near.since:
                kept.popleft()
            if not kept:
                self.windows.drop(key, version)
                near.edges.remove(key)

    def add_node(self, record: ClockNode, version: int) -> None:
        """Keep the newest results of the node."""
        kept = self.nodes.get(record.node) or deque(maxlen=KEPT_WINDOWS)
        kept.append(record)
        self.nodes.put(record.node, kept, version)

    def forget(self, node: str, version: int) -> None:
        """Drop everything about a node that was removed."""
        self.snapshots.drop(node, version)
        self.sources.drop(node, version)
        self.costs.drop(node, version)
        self.nodes.drop(node, version)
        for gpu in [key for key in self.gpus if key[0] == node]:
            self.gpus.drop(gpu, version)
        for edge in [key for key in self.windows if node in key]:
            self.windows.drop(edge, version)
            self._near[edge[0]].edges.discard(edge)
        self._near.pop(node, None)


class _Near:
    """The edges that one node probes, and when its last `KEPT_WINDOWS` windows arrived."""

    def __init__(self) -> None:
        self.edges: set[EdgeKey] = set()
        self._came: deque[int] = deque(maxlen=KEPT_WINDOWS)  # console time of the first result of each window, ns
        self._window_id: int | None = None

    def is_next(self, record: ClockWindow) -> bool:
        """True for the first result of a window."""
        if record.window_id == self._window_id:
            return False
        self._window_id = record.window_id
        self._came.append(record.rx)
        return True

    @property
    def since(self) -> int:
        """Arrival of the oldest of these windows, ns; 0 while there are fewer."""
        return self._came[0] if len(self._came) == KEPT_WINDOWS else 0
