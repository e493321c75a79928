"""A capture, folded: which ranks stand at the same place, as a tree of calls from the outermost inward (after STAT).

No verdict is made here, and a small group is not called wrong: it is only shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..records import Stack, StackStatus
from .frames import Call, Reader, Trace, class_of
from .models import FrameClass, Model

#: Threads that are folded: of each process the main one, or all.
Threads = Literal["main", "all"]

#: (job, attempt)
JobKey = tuple[str, int]
_Process = tuple[str, int, int]  # node, pid, start_ticks


@dataclass(frozen=True, slots=True)
class Step:
    """One call on the way to where a group stands."""

    function: str
    file: str  # the last part of its path
    lines: tuple[int, ...]  # where the ranks stand in it; several where they differ


@dataclass(frozen=True, slots=True)
class Group:
    """Processes that stand at the same place and do the same: one equivalence class."""

    role: str
    cls: FrameClass
    path: tuple[Step, ...]  # outermost first; empty where no stack was read
    calls: tuple[Call, ...]  # the same, as it is compared
    ranks: tuple[int, ...]
    processes: int  # more than ranks where a rank has several such workers, or its number is unknown
    nodes: tuple[str, ...]
    unchanged: tuple[int, ...]  # ranks whose stacks were the same in all samples, of at least two
    status: StackStatus
    reason: str | None
    try_: str


@dataclass(slots=True)
class Branch:
    """A call in the tree, and the ranks below it. `cls` is that of the group that ends here."""

    step: Step
    cls: FrameClass | None
    ranks: tuple[int, ...]
    branches: list[Branch] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fold:
    """One job in one capture, at the last readable sample of each process."""

    job: str
    attempt: int
    ranks: tuple[int, ...]  # those with a record
    read: tuple[int, ...]  # those with a stack
    samples: int
    groups: tuple[Group, ...]  # ranks before workers, large before small
    trees: dict[str, tuple[Branch, ...]]  # by role
    spread_ns: int | None  # of the instants at which /proc was read, in the worst sample; on the nodes' own clocks
    took_ns: int | None  # from the instant that was asked for to the end of the last read


def jobs_of(stacks: Iterable[Stack]) -> list[JobKey]:
    """The jobs of a capture, in order."""
    return sorted({(stack.job, stack.attempt) for stack in stacks})


def fold(
    stacks: Sequence[Stack], job: JobKey, models: Sequence[Model] = (), threads: Threads = "main"
) -> Fold:
    """Fold what a capture read of one job. `models` are asked before the built-in ones."""
    own = [stack for stack in stacks if (stack.job, stack.attempt) == job and not stack.native]
    reads = _reads(own)
    reader = Reader(models)
    gathered: dict[_Key, _Gathered] = {}
    for samples in reads.values():
        last = _last(samples)
        unchanged = _is_unchanged(samples)
        active = any(stack.active for stack in last)
        for stack in last if threads == "all" else [_main(last)]:
            trace = reader.trace(stack.frames) if stack.frames else None
            # another thread's stack says nothing of what the kernel said of the main one
            cls = class_of(stack, trace, active) if stack is _main(last) else (trace and trace.cls) or "unknown"
            _gather(gathered, stack, trace, cls, unchanged)
    groups = sorted((_group(key, found) for key, found in gathered.items()), key=_order)
    return Fold(
        job=job[0],
        attempt=job[1],
        ranks=_ranks(stack for stack in own if stack.role == "rank"),
        read=_ranks(stack for stack in own if stack.role == "rank" and stack.status == "ok"),
        samples=len({stack.sample for stack in own}),
        groups=tuple(groups),
        trees=_trees(groups),
        spread_ns=_spread_ns(own),
        took_ns=_took_ns(own),
    )


# -- from records to groups --------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """What is the same in all of a group."""

    role: str
    cls: FrameClass
    calls: tuple[Call, ...]
    status: StackStatus
    reason: str  # "" where there is a stack
    try_: str


@dataclass(slots=True)
class _Gathered:
    """What a group is made of."""

    ranks: set[int] = field(default_factory=set)
    processes: set[_Process] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    unchanged: set[int] = field(default_factory=set)
    traces: dict[int, Trace] = field(default_factory=dict)  # by identity: few, however many ranks


def _reads(stacks: Iterable[Stack]) -> dict[_Process, dict[int, list[Stack]]]:
    found: dict[_Process, dict[int, list[Stack]]] = defaultdict(lambda: defaultdict(list))
    for stack in stacks:
        found[(stack.node, stack.pid, stack.start_ticks)][stack.sample].append(stack)
    return found


def _last(samples: dict[int, list[Stack]]) -> list[Stack]:
    """The last sample, unless it was not in time and an earlier one was."""
    newest = samples[max(samples)]
    if newest[0].status in ("timed_out", "unreadable"):
        readable = [number for number, stacks in samples.items() if stacks[0].status == "ok"]
        return samples[max(readable)] if readable else newest
    return newest


def _main(threads: Sequence[Stack]) -> Stack:
    for stack in threads:
        if stack.thread_name == "MainThread" or (stack.os_thread_id is not None and stack.os_thread_id == stack.pid):
            return stack
    return threads[0]


def _is_unchanged(samples: dict[int, list[Stack]]) -> bool:
    """Whether a process was read at least twice and all its threads stood where they had stood."""
    seen = [
        sorted(((stack.thread_id or 0, stack.frames) for stack in stacks), key=lambda one: one[0])
        for stacks in samples.values()
        if stacks[0].status == "ok"
    ]
    return len(seen) > 1 and all(one == seen[0] for one in seen[1:])


def _gather(
    gathered: dict[_Key, _Gathered], stack: Stack, trace: Trace | None, cls: FrameClass, unchanged: bool
) -> None:
    key = _Key(
        stack.role, cls, trace.calls if trace else (), stack.status,
        "" if trace else stack.reason or "", "" if trace else stack.try_,
    )  # fmt: skip
    found = gathered.get(key)
    if found is None:
        found = gathered[key] = _Gathered()
    if stack.rank is not None:
        found.ranks.add(stack.rank)
        if unchanged:
            found.unchanged.add(stack.rank)
    found.processes.add((stack.node, stack.pid, stack.start_ticks))
    found.nodes.add(stack.node)
    if trace:
        found.traces[id(trace)] = trace


def _group(key: _Key, found: _Gathered) -> Group:
    return Group(
        role=key.role, cls=key.cls, calls=key.calls,
        path=tuple(_step(found.traces.values(), at) for at in range(len(key.calls))),
        ranks=tuple(sorted(found.ranks)), processes=len(found.processes), nodes=tuple(sorted(found.nodes)),
        unchanged=tuple(sorted(found.unchanged)), status=key.status, reason=key.reason or None, try_=key.try_,
    )  # fmt: skip


def _step(traces: Iterable[Trace], at: int) -> Step:
    frames = [trace.frames[at] for trace in traces]
    name = max((frame.function for frame in frames), key=_fullest)
    file = min(frame.file.rsplit("/", 1)[-1] for frame in frames)
    return Step(name, file, tuple(sorted({frame.line for frame in frames})))


def _order(group: Group) -> tuple[bool, str, int, tuple[int, ...], str]:
    return (group.role != "rank", group.role, -group.processes, group.ranks, repr(group.path))


# -- from groups to the tree -------------------------------------------------------------------------------------------


def _trees(groups: Sequence[Group]) -> dict[str, tuple[Branch, ...]]:
    """A tree a role. Groups without a stack are in none."""
    by_role: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        if group.path:
            by_role[group.role].append(group)
    return {role: tuple(_branches(members, 0)) for role, members in by_role.items()}


def _branches(groups: Sequence[Group], depth: int) -> list[Branch]:
    """The branches at one depth. A group that ends at a call where others go on, or do something else, has its own."""
    apart: dict[tuple[Call, FrameClass | None], list[Group]] = defaultdict(list)
    for group in groups:
        if len(group.calls) > depth:
            apart[(group.calls[depth], group.cls if len(group.calls) == depth + 1 else None)].append(group)
    found = []
    for (_, cls), inside in apart.items():
        steps = [group.path[depth] for group in inside]
        step = Step(
            max((step.function for step in steps), key=_fullest),
            min(step.file for step in steps),
            tuple(sorted({line for step in steps for line in step.lines})),
        )
        ranks = tuple(sorted({rank for group in inside for rank in group.ranks}))
        found.append(Branch(step, cls, ranks, _branches(inside, depth + 1) if cls is None else []))
    return sorted(found, key=lambda branch: (-len(branch.ranks), branch.ranks, branch.step.function, branch.cls or ""))


def _fullest(function: str) -> tuple[int, str]:
    """Of a bare and a qualified name the qualified one."""
    return len(function), function


# -- figures -----------------------------------------------------------------------------------------------------------


def _ranks(stacks: Iterable[Stack]) -> tuple[int, ...]:
    return tuple(sorted({stack.rank for stack in stacks if stack.rank is not None}))


def _spread_ns(stacks: Sequence[Stack]) -> int | None:
    """How far apart /proc was read, in the worst sample: against the instant that was the same for all nodes."""
    late: dict[tuple[int, int], list[int]] = defaultdict(list)
    starts = _starts(stacks)
    for stack in stacks:
        if stack.looked is not None and stack.at is not None:
            late[(stack.sample, stack.at - starts[stack.node])].append(stack.looked - stack.at)
    return max((max(one) - min(one) for one in late.values()), default=None)


def _took_ns(stacks: Sequence[Stack]) -> int | None:
    starts = _starts(stacks)
    ends = (stack.ended - starts[stack.node] for stack in stacks if stack.ended and stack.node in starts)
    return max(ends, default=None)


def _starts(stacks: Sequence[Stack]) -> dict[str, int]:
    """The first instant that was asked for, on each node's clock."""
    starts: dict[str, int] = {}
    for stack in stacks:
        if stack.at is not None:
            starts[stack.node] = min(stack.at, starts.get(stack.node, stack.at))
    return starts
