"""What ended: outputs, processes below ranks, faults of kernels and losses of nodes, kept for the diagnosis of a crash.

Unlike the list of events, which a run without a screen shortens, these are always kept.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from ...records import Log, NodeState, Process, Rank
from .entities import ProcessKey
from .outputs import OutputTable

#: Newest faults, losses and processes of all nodes together.
MOST_FAULTS: Final = 4_096
MOST_LOSSES: Final = 1_024
MOST_PROCESSES: Final = 65_536


class LostNode(msgspec.Struct, frozen=True):
    """A node that was lost, and the ranks that lived on it."""

    node: str
    reason: str
    last_rx: int  # console time of its last record before, ns
    rx: int  # console time when it was found lost, ns
    ranks: tuple[Rank, ...]


class EndTables:
    """`version` is the store's version of the last change, also of a rank."""

    def __init__(self) -> None:
        self.version = -1
        self.outputs = OutputTable()
        self.faults: deque[Log] = deque(maxlen=MOST_FAULTS)
        self.losses: deque[LostNode] = deque(maxlen=MOST_LOSSES)
        self.processes: dict[ProcessKey, Process] = {}  # below ranks, and launchers; the oldest first

    def add_fault(self, record: Log, version: int) -> None:
        """Keep a message of a kernel that reports a fault."""
        self.version = version
        self.faults.append(record)

    def add_process(self, record: Process, version: int) -> None:
        """Keep a process that belongs to a job, also after its end."""
        if record.job is None or record.role == "rank":
            return
        key = (record.node, record.pid, record.start_ticks)
        if record.role == "launcher":
            self.version = version
        self.processes.pop(key, None)
        self.processes[key] = record
        if len(self.processes) > MOST_PROCESSES:
            del self.processes[next(iter(self.processes))]

    def add_loss(self, record: NodeState, last_rx: int, ranks: tuple[Rank, ...], version: int) -> None:
        """Keep the loss of a node on which ranks lived."""
        self.version = version
        reason = record.error.text if record.error is not None else "lost"
        self.losses.append(LostNode(record.node, reason, last_rx, record.rx, ranks))

    def changed_since(self, version: int) -> bool:
        """Whether anything changed after a version of the store."""
        return self.version > version or bool(self.outputs.table.changed_since(version))
