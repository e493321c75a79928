"""The state of a whole job, folded over its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.store import Store
from ..records import Job, JobNode, JobNodeState, JobState

ACTIVE = frozenset({"dispatching", "running", "stopping"})


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node of a job. `now` is None where nobody can say, and `why` tells why."""

    node: str
    index: int
    now: JobNode | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it stands."""

    ordered: Job
    lines: tuple[NodeLine, ...]
    state: JobState

    @property
    def unseen(self) -> tuple[str, ...]:
        return tuple(line.node for line in self.lines if line.now is None)

    @property
    def is_over(self) -> bool:
        """Every node has said that it is over."""
        return not self.unseen and all(line.now.state not in ACTIVE for line in self.lines if line.now)

    @property
    def first_bad(self) -> JobNode | None:
        """The node that failed first, by the nodes' own clocks; else the one that was stopped first."""
        bad = [line.now for line in self.lines if line.now and line.now.state in ("failed", "stopped")]
        return min(bad, key=lambda now: (now.state != "failed", now.ended or 2**63, now.index), default=None)

    @property
    def exit_code(self) -> int:
        """What a shell would say: the code of the node that ended badly first, 128 and the number for a signal."""
        first = self.first_bad
        if first is None:
            return 0
        if first.signal is not None:
            return 128 + first.signal
        if first.state == "stopped":
            return first.exit_code or 143  # 128 and SIGTERM: it was asked to end
        return first.exit_code or 1


def job_state(states: Sequence[JobNodeState | None]) -> JobState:
    """The state of the whole; None for a node that nobody can see.

    `partial` where it runs on and has failed or stopped somewhere, or where it is over as far as can be seen.
    """
    known = {state for state in states if state is not None}
    active = known & ACTIVE
    if active:
        if "stopping" in active:
            return "stopping"
        if known & {"failed", "stopped"}:
            return "partial"
        return "dispatching" if "dispatching" in active else "running"
    if None in states:
        return "partial"
    return "failed" if "failed" in known else "stopped" if "stopped" in known else "completed"


def job_views(store: Store) -> list[JobView]:
    """Every job that any node tells of, the newest first."""
    heard: dict[str, list[JobNode]] = defaultdict(list)
    for now in store.jobs.nodes.values():
        heard[now.job].append(now)
    views = [_view(store, store.jobs.ordered[job], heard[job]) for job in store.jobs.ordered]
    return sorted(views, key=lambda view: (-view.ordered.created, view.ordered.job))


def job_view(store: Store, job: str) -> JobView | None:
    """One job, None where nobody knows it."""
    ordered = store.jobs.ordered.get(job)
    if ordered is None:
        return None
    return _view(store, ordered, [now for now in store.jobs.nodes.values() if now.job == job])


def _view(store: Store, ordered: Job, heard: Sequence[JobNode]) -> JobView:
    by_index: dict[int, JobNode] = {}
    for now in heard:
        is_named = now.node in ordered.nodes[now.index : now.index + 1]
        if is_named or now.index not in by_index:
            by_index[now.index] = now  # who has the name that was ordered is believed before any other
    lines = tuple(_line(store, name, index, by_index.get(index)) for index, name in enumerate(ordered.nodes))
    return JobView(ordered, lines, job_state([line.now.state if line.now else None for line in lines]))


def _line(store: Store, name: str, index: int, now: JobNode | None) -> NodeLine:
    """`name` is what the console that started the job called the node; where it is heard of, our own name counts."""
    node = now.node if now is not None else name
    known = store.nodes.get(node)
    state = known.state if known else None
    if now is not None and (now.state not in ACTIVE or (state is not None and state.state == "ok")):
        return NodeLine(node, index, now)
    if state is None:
        return NodeLine(node, index, None, "not a node of this console")
    if state.state == "ok":
        return NodeLine(node, index, None, "it knows nothing of this job any more")
    return NodeLine(node, index, None, f"{state.state}: {state.error.text}" if state.error else state.state)
