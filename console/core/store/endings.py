"""What ended: outputs, processes below ranks, faults of kernels and losses of nodes, kept for the diagnosis of a crash.

Unlike the list of events, which a run without a screen shortens, these are always kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from ...records import AgentCost, Log, Node, NodeState, Process, Rank
from .entities import ProcessKey
from .outputs import OutputTable

#: Newest faults, losses and processes of all nodes together.
MOST_FAULTS: Final = 4_096
MOST_LOSSES: Final = 1_024
MOST_PROCESSES: Final = 65_536
#: Names of failures of the console, of its agent or of the way to a node: nothing shows that the node itself is lost.
_NOT_OF_THE_NODE: Final = frozenset({"console_late", "gateway_lost", "agent_crashed", "no_descriptors", "internal"})
#: Names of failures to reach it again, which show that.
_UNREACHABLE: Final = frozenset({"refused", "timeout", "lost"})
#: ns within which a node that was only out of reach is there again: established connections of jobs outlast that.
RETURNED_NS: Final = 60_000_000_000


class LostNode(msgspec.Struct, frozen=True):
    """A node that was lost, and the ranks that lived on it."""

    node: str
    agent: str  # that ran on it; empty if unknown
    reason: str
    last_rx: int  # console time of its last record before, ns
    rx: int  # console time when it was found lost, ns
    ranks: tuple[Rank, ...]


def has_run_on(before: Node, after: Node) -> bool:
    """Whether a node, or a container, was not restarted between two agents."""
    is_known = after.init_start_ticks is not None
    return is_known and (before.boot_id, before.init_start_ticks) == (after.boot_id, after.init_start_ticks)


def is_loss(before: NodeState | None, record: NodeState) -> bool:
    """Whether a node itself was lost, as far as its connection shows."""
    if before is None or record.state != "lost":
        return False
    name = record.error.name if record.error is not None else ""
    if before.state == "lost":
        earlier = before.error.name if before.error is not None else ""
        return earlier in _NOT_OF_THE_NODE and name in _UNREACHABLE
    return before.state == "ok" and name not in _NOT_OF_THE_NODE


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

    def add_loss(self, record: NodeState, agent: str, last_rx: int, ranks: tuple[Rank, ...], version: int) -> None:
        """Keep the loss of a node on which ranks lived."""
        self.version = version
        reason = record.error.text if record.error is not None else "lost"
        self.losses.append(LostNode(record.node, agent, reason, last_rx, record.rx, ranks))

    def restarted_agent(self, record: Node, version: int) -> None:
        """Forget the newest losses of a node that has not restarted: it was out of reach, and has run on."""
        self._keep(lambda loss: loss.node != record.node or record.rx - loss.rx > RETURNED_NS, version)

    def same_agent(self, record: AgentCost, version: int) -> None:
        """Forget the losses of a node whose agent goes on: only its connection was silent."""
        if self.losses:  # records from before a loss may be delivered after it
            self._keep(lambda loss: loss.agent != record.agent or loss.rx >= record.t, version)

    def _keep(self, is_kept: Callable[[LostNode], bool], version: int) -> None:
        kept = [loss for loss in self.losses if is_kept(loss)]
        if len(kept) < len(self.losses):
            self.version = version
            self.losses = deque(kept, maxlen=MOST_LOSSES)

    def lost_rx(self, attempt: tuple[str, int]) -> int:
        """Console time, ns, at which a node with ranks of an attempt of a job was last found lost; 0: never."""
        rxs = (loss.rx for loss in self.losses if any((rank.job, rank.attempt) == attempt for rank in loss.ranks))
        return max(rxs, default=0)

    def changed_since(self, version: int) -> bool:
        """Whether anything changed after a version of the store."""
        return self.version > version or bool(self.outputs.table.changed_since(version))
