"""A capture, folded: which ranks stand at the same place, as a tree of calls from the outermost inward (after STAT).

No verdict is made here, and a small group is not called wrong: it is only shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from ...records import Stack, StackStatus
from ...text.secrets import value_without_secrets
from .capture_timing import spread_ns, took_ns
from .frame_models import FrameClass, Model
from .frames import Call, CallPath, Reader, class_of
from .threads import blocking_thread, main_of

#: Threads that are folded: of each process the main one; the one that holds it up, for which the main one waits; all.
Threads = Literal["main", "blocking", "all"]
THREADS: Final[tuple[Threads, ...]] = get_args(Threads)
#: By what calls are told apart: by function, and by line where the job's own innermost one stands; by the line of every
#: call; by the variables that were asked for, too.
Granularity = Literal["function", "line", "locals"]
GRANULARITIES: Final[tuple[Granularity, ...]] = get_args(Granularity)

#: The variables of one call: names and values.
Values = tuple[tuple[str, str], ...]

#: (job, attempt)
JobKey = tuple[str, int]
_Process = tuple[str, int, int]  # node, pid, start_ticks


@dataclass(frozen=True, slots=True)
class Shape:
    """How captures are folded."""

    threads: Threads = "main"
    granularity: Granularity = "function"


#: As they are folded unless somebody asks for more.
PLAIN: Final = Shape()


@dataclass(frozen=True, slots=True)
class StackStep:
    """One call on the way to where a group stands."""

    function: str
    file: str  # the last part of its path
    lines: tuple[int, ...]  # where the ranks stand in it; several where they differ
    values: Values = ()  # its variables, where ranks are told apart by them


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Processes that stand at the same place and do the same: one equivalence class."""

    role: str
    cls: FrameClass
    path: tuple[StackStep, ...]  # outermost first; empty where no stack was read
    calls: tuple[Call, ...]  # the same, as it is compared
    ranks: tuple[int, ...]
    processes: int  # more than ranks where a rank has several such workers, or its number is unknown
    nodes: tuple[str, ...]
    unchanged: tuple[int, ...]  # ranks whose stacks were the same in all samples, of at least two
    status: StackStatus
    reason: str | None
    try_: str


@dataclass(slots=True)
class StackBranch:
    """A call in the tree, and the ranks below it. `cls` is that of the group that ends here."""

    step: StackStep
    cls: FrameClass | None
    ranks: tuple[int, ...]
    branches: list[StackBranch] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fold:
    """One job in one capture, at the last readable sample of each process."""

    job: str
    attempt: int
    ranks: tuple[int, ...]  # those with a record
    read: tuple[int, ...]  # those with a stack
    samples: int
    groups: tuple[StackGroup, ...]  # ranks before workers, large before small
    trees: dict[str, tuple[StackBranch, ...]]  # by role
    spread_ns: int | None  # of the instants at which /proc was read, in the worst sample; on the nodes' own clocks
    took_ns: int | None  # from the instant that was asked for to the end of the last read
    shape: Shape = PLAIN


def jobs_of(stacks: Iterable[Stack]) -> list[JobKey]:
    """The jobs of a capture, in order."""
    return sorted({(stack.job, stack.attempt) for stack in stacks})


def fold(stacks: Sequence[Stack], job: JobKey, models: Sequence[Model] = (), shape: Shape = PLAIN) -> Fold:
    """Fold what a capture read of one job. `models` are asked before the built-in ones."""
    own = [stack for stack in stacks if (stack.job, stack.attempt) == job and not stack.native]
    reads = _reads(own)
    reader = Reader(models)
    gathered: dict[_Key, _Gathered] = {}
    for samples in reads.values():
        last = _last(samples)
        unchanged = _is_unchanged(samples)
        active = any(stack.active for stack in last)
        main = main_of(last)
        for stack in _chosen(main, last, shape.threads, reader):
            trace = reader.trace(stack.frames) if stack.frames else None
            # another thread's stack says nothing of what the kernel said of the main one
            cls = class_of(stack, trace, active) if stack is main else (trace and trace.cls) or "unknown"
            _gather(gathered, _key(stack, trace, cls, shape.granularity), stack, trace, unchanged)
    groups = sorted((_group(key, found) for key, found in gathered.items()), key=_order)
    return Fold(
        job=job[0],
        attempt=job[1],
        ranks=_ranks(stack for stack in own if stack.role == "rank"),
        read=_ranks(stack for stack in own if stack.role == "rank" and stack.status == "ok"),
        samples=len({stack.sample for stack in own}),
        groups=tuple(groups),
        trees=_trees(groups),
        spread_ns=spread_ns(own),
        took_ns=took_ns(own),
        shape=shape,
    )


# -- from records to groups --------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """What is the same in all of a group."""

    role: str
    cls: FrameClass
    calls: tuple[Call, ...]
    values: tuple[Values, ...]  # of each call; () where variables do not count
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
    traces: dict[int, CallPath] = field(default_factory=dict)  # by identity: few, however many ranks


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


def _chosen(main: Stack, threads: Sequence[Stack], wanted: Threads, reader: Reader) -> Sequence[Stack]:
    """Those threads of a process that are folded."""
    if wanted == "all":
        return threads
    return [main if wanted == "main" else blocking_thread(main, threads, reader)]


def _is_unchanged(samples: dict[int, list[Stack]]) -> bool:
    """Whether a process was read at least twice and all its threads stood where they had stood."""
    seen = [
        sorted(((stack.thread_id or 0, stack.frames) for stack in stacks), key=lambda one: one[0])
        for stacks in samples.values()
        if stacks[0].status == "ok"
    ]
    return len(seen) > 1 and all(one == seen[0] for one in seen[1:])


def _key(stack: Stack, trace: CallPath | None, cls: FrameClass, granularity: Granularity) -> _Key:
    if trace is None:
        return _Key(stack.role, cls, (), (), stack.status, stack.reason or "", stack.try_)
    calls = trace.calls
    if granularity != "function":
        calls = tuple(call._replace(line=frame.line) for call, frame in zip(calls, trace.frames, strict=True))
    values = _values(stack, trace) if granularity == "locals" and stack.locals else ()
    return _Key(stack.role, cls, calls, values, stack.status, "", "")


def _values(stack: Stack, trace: CallPath) -> tuple[Values, ...]:
    """The variables of each call that the trace has."""
    named: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for local in stack.locals or ():
        named[local.frame].append((local.name, value_without_secrets(local.name, local.value)))
    return tuple(tuple(sorted(named.get(at, ()))) for at in trace.places)


def _gather(gathered: dict[_Key, _Gathered], key: _Key, stack: Stack, trace: CallPath | None, unchanged: bool) -> None:
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


def _group(key: _Key, found: _Gathered) -> StackGroup:
    return StackGroup(
        role=key.role, cls=key.cls, calls=key.calls,
        path=tuple(
            _step(found.traces.values(), at, key.values[at] if key.values else ()) for at in range(len(key.calls))
        ),
        ranks=tuple(sorted(found.ranks)), processes=len(found.processes), nodes=tuple(sorted(found.nodes)),
        unchanged=tuple(sorted(found.unchanged)), status=key.status, reason=key.reason or None, try_=key.try_,
    )  # fmt: skip


def _step(traces: Iterable[CallPath], at: int, values: Values) -> StackStep:
    frames = [trace.frames[at] for trace in traces]
    name = max((frame.function for frame in frames), key=fullest)
    file = min(frame.file.rsplit("/", 1)[-1] for frame in frames)
    return StackStep(name, file, tuple(sorted({frame.line for frame in frames})), values)


def fullest(function: str) -> tuple[int, str]:
    """Of a bare and a qualified name the qualified one is greater."""
    return len(function), function


def _order(group: StackGroup) -> tuple[bool, str, int, tuple[int, ...], str]:
    return (group.role != "rank", group.role, -group.processes, group.ranks, repr(group.path))


def _ranks(stacks: Iterable[Stack]) -> tuple[int, ...]:
    return tuple(sorted({stack.rank for stack in stacks if stack.rank is not None}))


# -- from groups to the tree -------------------------------------------------------------------------------------------


def _trees(groups: Sequence[StackGroup]) -> dict[str, tuple[StackBranch, ...]]:
    """A tree a role. Groups without a stack are in none."""
    by_role: dict[str, list[StackGroup]] = defaultdict(list)
    for group in groups:
        if group.path:
            by_role[group.role].append(group)
    return {role: tuple(_branches(members, 0)) for role, members in by_role.items()}


def _branches(groups: Sequence[StackGroup], depth: int) -> list[StackBranch]:
    """The branches at one depth. A group that ends at a call where others go on, or do something else, has its own."""
    apart: dict[tuple[Call, Values, FrameClass | None], list[StackGroup]] = defaultdict(list)
    for group in groups:
        if len(group.calls) > depth:
            cls = group.cls if len(group.calls) == depth + 1 else None
            apart[group.calls[depth], group.path[depth].values, cls].append(group)
    found = []
    for (_, values, cls), inside in apart.items():
        steps = [group.path[depth] for group in inside]
        step = StackStep(
            max((step.function for step in steps), key=fullest),
            min(step.file for step in steps),
            tuple(sorted({line for step in steps for line in step.lines})),
            values,
        )
        ranks = tuple(sorted({rank for group in inside for rank in group.ranks}))
        found.append(StackBranch(step, cls, ranks, _branches(inside, depth + 1) if cls is None else []))
    return sorted(found, key=_size)


def _size(branch: StackBranch) -> tuple[int, tuple[int, ...], str, Values, str]:
    return (-len(branch.ranks), branch.ranks, branch.step.function, branch.step.values, branch.cls or "")
