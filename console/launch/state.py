"""The state of a job, derived from its nodes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
import platformdirs

from ..core.store import Store
from ..records import Job, JobNode, JobNodeState, JobState
from ..text.atomic_files import make_folder, write_atomically

_log = logging.getLogger(__name__)

ACTIVE = frozenset({"dispatching", "running", "stopping"})


class JobNodeStatus(msgspec.Struct, frozen=True):
    """One node of a job. `now` is None if its state is unknown, for the reason `why`."""

    node: str
    index: int
    now: JobNode | None
    why: str = ""


class JobStatus(msgspec.Struct, frozen=True):
    """A job, its nodes, and its overall state."""

    ordered: Job
    lines: tuple[JobNodeStatus, ...]
    state: JobState

    @property
    def unseen(self) -> tuple[str, ...]:
        """Nodes whose state is unknown."""
        return tuple(line.node for line in self.lines if line.now is None)

    @property
    def is_over(self) -> bool:
        """Whether the job has ended on every node."""
        return not self.unseen and all(line.now.state not in ACTIVE for line in self.lines if line.now)

    @property
    def first_bad(self) -> JobNode | None:
        """The node that failed first, by the nodes' own clocks; else the one that was stopped first."""
        bad = [line.now for line in self.lines if line.now and line.now.state in ("failed", "stopped")]
        return min(bad, key=lambda now: (now.state != "failed", now.ended or 2**63, now.index), default=None)

    @property
    def exit_code(self) -> int:
        """The exit code of the node that failed first, as a shell reports it: 128 + N for signal N."""
        first = self.first_bad
        if first is None:
            return 0
        if first.signal is not None:
            return 128 + first.signal
        if first.state == "stopped":
            return first.exit_code or 143  # 128 + SIGTERM
        return first.exit_code or 1


def job_state(states: Sequence[JobNodeState | None]) -> JobState:
    """The state of a job from those of its nodes, None for an unknown one.

    `partial` if it runs on after a node failed or stopped, or has ended on all nodes whose state is known.
    """
    states_known = {state for state in states if state is not None}
    active = states_known & ACTIVE
    if active:
        if "stopping" in active:
            return "stopping"
        if states_known & {"failed", "stopped"}:
            return "partial"
        return "dispatching" if "dispatching" in active else "running"
    if None in states:
        return "partial"
    return "failed" if "failed" in states_known else "stopped" if "stopped" in states_known else "completed"


def job_statuses(store: Store) -> list[JobStatus]:
    """Every known job, the newest first."""
    reports: dict[str, list[JobNode]] = defaultdict(list)
    for now in store.jobs.nodes.values():
        reports[now.job].append(now)
    views = [_view(store, store.jobs.ordered[job], reports[job]) for job in store.jobs.ordered]
    return sorted(views, key=lambda view: (-view.ordered.created, view.ordered.job))


def job_status(store: Store, job: str) -> JobStatus | None:
    """One job; None if it is unknown."""
    ordered = store.jobs.ordered.get(job)
    if ordered is None:
        return None
    return _view(store, ordered, [now for now in store.jobs.nodes.values() if now.job == job])


def _view(store: Store, ordered: Job, reports: Sequence[JobNode]) -> JobStatus:
    by_index: dict[int, JobNode] = {}
    for now in reports:
        is_named = now.node in ordered.nodes[now.index : now.index + 1]
        if is_named or now.index not in by_index:
            by_index[now.index] = now  # the node with the planned name wins
    lines = tuple(_line(store, name, index, by_index.get(index)) for index, name in enumerate(ordered.nodes))
    return JobStatus(ordered, lines, job_state([line.now.state if line.now else None for line in lines]))


def _line(store: Store, name: str, index: int, now: JobNode | None) -> JobNodeStatus:
    """`name` is the node's name on the console that started the job; this console's name for it is preferred."""
    node = now.node if now is not None else name
    entry = store.nodes.get(node)
    state = entry.state if entry else None
    if now is not None and (now.state not in ACTIVE or (state is not None and state.state == "ok")):
        return JobNodeStatus(node, index, now)
    if state is None:
        return JobNodeStatus(node, index, None, "not a node of this console")
    if state.state == "ok":
        return JobNodeStatus(node, index, None, "the node has no record of this job")
    return JobNodeStatus(node, index, None, f"{state.state}: {state.error.text}" if state.error else state.state)


#: Jobs with pending orders that are kept; older ones are dropped.
MAX_JOBS: int = 200


class PendingStops:
    """The pending stop orders in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_cluster(cls, cluster: str) -> PendingStops:
        """The pending stop orders of the cluster of that name."""
        return cls(platformdirs.user_state_path("gconsole") / "stops" / f"{quote(cluster, safe=' ')[:200]}.json")

    @property
    def orders(self) -> dict[str, tuple[str, ...]]:
        """Nodes by job; empty if the file cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, tuple[str, ...]])
        except (OSError, msgspec.DecodeError):
            return {}

    def set(self, job: str, nodes: tuple[str, ...]) -> None:
        """Replace the nodes on which a job is still to be stopped; none if the order is done. Raises OSError."""
        orders = self.orders
        if orders.get(job, ()) == nodes:
            return
        _log.info("job %s: pending stop on %s", job, ", ".join(nodes) or "no node")
        orders.pop(job, None)
        if nodes:
            orders[job] = nodes
        kept = dict(list(orders.items())[-MAX_JOBS:])
        if kept:
            make_folder(self._path.parent)
            write_atomically(self._path, msgspec.json.encode(kept) + b"\n")
        else:
            self._path.unlink(missing_ok=True)
