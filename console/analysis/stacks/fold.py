"""Folded capture: ranks grouped by call path, as a tree from the outermost call inward (after STAT). No verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from ...records import Stack, StackStatus
from ...text.secrets import value_without_secrets
from .frame_models import FrameClass, Model
from .frames import Call, CallPath, Reader, class_of, main_of
from .training_threads import ThreadRole, analysed_thread, as_process, training_role

#: Folded threads per process: the main one; the one that blocks the process; all.
Threads = Literal["main", "blocking", "all"]
THREADS: Final[tuple[Threads, ...]] = get_args(Threads)
#: Calls are grouped by function (and the line of the innermost user call); by all lines; by requested locals, too.
Granularity = Literal["function", "line", "locals"]
GRANULARITIES: Final[tuple[Granularity, ...]] = get_args(Granularity)

#: (name, value) of the variables of one call.
Values = tuple[tuple[str, str], ...]

#: (job, attempt)
JobKey = tuple[str, int]
_Process = tuple[str, int, int]  # node, pid, start_ticks


class Shape(msgspec.Struct, frozen=True):
    """Folding options."""

    threads: Threads = "main"
    granularity: Granularity = "function"


#: Default options.
PLAIN: Final = Shape()


class StackStep(msgspec.Struct, frozen=True):
    """One call on the path of a group."""

    function: str
    file: str  # base name
    lines: tuple[int, ...]  # current lines of the ranks
    values: Values = ()  # its variables, if grouped by them


class StackGroup(msgspec.Struct, frozen=True):
    """Equivalence class of processes with the same call path and activity."""

    role: str
    cls: FrameClass
    path: tuple[StackStep, ...]  # outermost first; empty without a stack
    calls: tuple[Call, ...]  # the path in comparable form
    ranks: tuple[int, ...]
    processes: int  # more than ranks if a rank has several workers, or its number is unknown
    nodes: tuple[str, ...]
    unchanged: tuple[int, ...]  # ranks with identical stacks in all samples, of at least two
    status: StackStatus
    reason: str | None
    try_: str


class StackBranch(msgspec.Struct):
    """A call in the tree and the ranks below it; `cls` is that of the group that ends here."""

    step: StackStep
    cls: FrameClass | None
    ranks: tuple[int, ...]
    branches: list[StackBranch] = msgspec.field(default_factory=list)


class Fold(msgspec.Struct, frozen=True):
    """One job in one capture, at the last readable sample of each process."""

    job: str
    attempt: int
    ranks: tuple[int, ...]  # those with a record
    read: tuple[int, ...]  # those with a stack
    samples: int
    groups: tuple[StackGroup, ...]  # ranks before workers, large before small
    trees: dict[str, tuple[StackBranch, ...]]  # by role
    spread_ns: int | None  # of the /proc reads in the worst sample, on the nodes' own clocks
    took_ns: int | None  # from the requested instant to the end of the last read
    shape: Shape = PLAIN


def jobs_of(stacks: Iterable[Stack]) -> list[JobKey]:
    """The jobs of a capture, in order."""
    return sorted({(stack.job, stack.attempt) for stack in stacks})


def fold(stacks: Sequence[Stack], job: JobKey, models: Sequence[Model] = (), shape: Shape = PLAIN) -> Fold:
    """Fold the stacks of one job; `models` take precedence over the built-in ones."""
    own = [stack for stack in stacks if (stack.job, stack.attempt) == job and not stack.native]
    reads = _reads(own)
    reader = Reader(models)
    gathered: dict[_Key, _Gathered] = {}
    role = _role_of(reads.values(), reader) if shape.threads == "blocking" else None
    for samples in reads.values():
        last = _last(samples)
        unchanged = _is_unchanged(samples)
        active = any(stack.active for stack in last)
        main = main_of(last)
        for stack in _chosen(main, last, shape.threads, role if main.role == "rank" else None, reader):
            trace = reader.trace(stack.frames) if stack.frames else None
            # the process's kernel state is that of its main thread
            of_thread = stack if stack is main else as_process(stack)
            cls = class_of(of_thread, trace, active if stack is main else bool(stack.active))
            _gather(gathered, _key(stack, trace, cls, shape.granularity), stack, trace, unchanged)
    groups = sorted((_group(key, members) for key, members in gathered.items()), key=_order)
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
    """Properties shared by all processes of a group."""

    role: str
    cls: FrameClass
    calls: tuple[Call, ...]
    values: tuple[Values, ...]  # per call; () unless grouped by locals
    status: StackStatus
    reason: str  # "" with a stack
    try_: str


class _Gathered(msgspec.Struct):
    """Accumulated members of a group."""

    ranks: set[int] = msgspec.field(default_factory=set)
    processes: set[_Process] = msgspec.field(default_factory=set)
    nodes: set[str] = msgspec.field(default_factory=set)
    unchanged: set[int] = msgspec.field(default_factory=set)
    traces: dict[int, CallPath] = msgspec.field(default_factory=dict)  # by identity: few, however many ranks


def _reads(stacks: Iterable[Stack]) -> dict[_Process, dict[int, list[Stack]]]:
    reads: dict[_Process, dict[int, list[Stack]]] = defaultdict(lambda: defaultdict(list))
    for stack in stacks:
        reads[(stack.node, stack.pid, stack.start_ticks)][stack.sample].append(stack)
    return reads


def _last(samples: dict[int, list[Stack]]) -> list[Stack]:
    """The last readable sample, else the last one."""
    newest = samples[max(samples)]
    if newest[0].status in ("timed_out", "unreadable"):
        readable = [number for number, stacks in samples.items() if stacks[0].status == "ok"]
        return samples[max(readable)] if readable else newest
    return newest


def _role_of(reads: Iterable[dict[int, list[Stack]]], reader: Reader) -> ThreadRole | None:
    ranks = (
        [stacks for stacks in samples.values() if stacks[0].status == "ok"]
        for samples in reads
        if next(iter(samples.values()))[0].role == "rank"
    )
    return training_role((samples for samples in ranks if samples), reader)


def _chosen(
    main: Stack, threads: Sequence[Stack], wanted: Threads, role: ThreadRole | None, reader: Reader
) -> Sequence[Stack]:
    """Threads of a process to fold."""
    if wanted == "all":
        return threads
    return [main if wanted == "main" else analysed_thread(main, threads, role, reader)]


def _is_unchanged(samples: dict[int, list[Stack]]) -> bool:
    """Whether a process was read at least twice with identical stacks in all threads."""
    seen = [
        sorted(((stack.thread_id or 0, stack.frames) for stack in stacks), key=lambda entry: entry[0])
        for stacks in samples.values()
        if stacks[0].status == "ok"
    ]
    return len(seen) > 1 and all(entry == seen[0] for entry in seen[1:])


def _key(stack: Stack, trace: CallPath | None, cls: FrameClass, granularity: Granularity) -> _Key:
    if trace is None:
        return _Key(stack.role, cls, (), (), stack.status, stack.reason or "", stack.try_)
    calls = trace.calls
    if granularity != "function":
        calls = tuple(call._replace(line=frame.line) for call, frame in zip(calls, trace.frames, strict=True))
    values = _values(stack, trace) if granularity == "locals" and stack.locals else ()
    return _Key(stack.role, cls, calls, values, stack.status, "", "")


def _values(stack: Stack, trace: CallPath) -> tuple[Values, ...]:
    """Variables of each call of the trace, secrets redacted."""
    named: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for local in stack.locals or ():
        named[local.frame].append((local.name, value_without_secrets(local.name, local.value)))
    return tuple(tuple(sorted(named.get(place, ()))) for place in trace.places)


def _gather(gathered: dict[_Key, _Gathered], key: _Key, stack: Stack, trace: CallPath | None, unchanged: bool) -> None:
    members = gathered.get(key)
    if members is None:
        members = gathered[key] = _Gathered()
    if stack.rank is not None:
        members.ranks.add(stack.rank)
        if unchanged:
            members.unchanged.add(stack.rank)
    members.processes.add((stack.node, stack.pid, stack.start_ticks))
    members.nodes.add(stack.node)
    if trace:
        members.traces[id(trace)] = trace


def _group(key: _Key, members: _Gathered) -> StackGroup:
    paths = members.traces.values()
    return StackGroup(
        role=key.role, cls=key.cls, calls=key.calls,
        path=tuple(
            _step(paths, depth, key.values[depth] if key.values else ()) for depth in range(len(key.calls))
        ),
        ranks=tuple(sorted(members.ranks)), processes=len(members.processes), nodes=tuple(sorted(members.nodes)),
        unchanged=tuple(sorted(members.unchanged)), status=key.status, reason=key.reason or None, try_=key.try_,
    )  # fmt: skip


def _step(traces: Iterable[CallPath], depth: int, values: Values) -> StackStep:
    frames = [trace.frames[depth] for trace in traces]
    return _merged([(frame.function, frame.file.rsplit("/", 1)[-1], (frame.line,)) for frame in frames], values)


def _merged(steps: Sequence[tuple[str, str, tuple[int, ...]]], values: Values) -> StackStep:
    """One step of (function, file, lines) of equal calls, with the longest name: a qualified one rather than a bare."""
    function = max((name for name, _, _ in steps), key=lambda name: (len(name), name))
    lines = {line for _, _, lines in steps for line in lines}
    return StackStep(function, min(file for _, file, _ in steps), tuple(sorted(lines)), values)


def _order(group: StackGroup) -> tuple[bool, str, int, tuple[int, ...], str]:
    return (group.role != "rank", group.role, -group.processes, group.ranks, repr(group.path))


def _ranks(stacks: Iterable[Stack]) -> tuple[int, ...]:
    return tuple(sorted({stack.rank for stack in stacks if stack.rank is not None}))


# -- from groups to the tree -------------------------------------------------------------------------------------------


def _trees(groups: Sequence[StackGroup]) -> dict[str, tuple[StackBranch, ...]]:
    """One tree per role, of the groups with stacks."""
    by_role: dict[str, list[StackGroup]] = defaultdict(list)
    for group in groups:
        if group.path:
            by_role[group.role].append(group)
    return {role: tuple(_branches(members, 0)) for role, members in by_role.items()}


def _branches(groups: Sequence[StackGroup], depth: int) -> list[StackBranch]:
    """Branches at one depth; a group that ends at a call where others continue has its own."""
    apart: dict[tuple[Call, Values, FrameClass | None], list[StackGroup]] = defaultdict(list)
    for group in groups:
        if len(group.calls) > depth:
            cls = group.cls if len(group.calls) == depth + 1 else None
            apart[group.calls[depth], group.path[depth].values, cls].append(group)
    branches = []
    for (_, values, cls), inside in apart.items():
        steps = [(step.function, step.file, step.lines) for group in inside for step in (group.path[depth],)]
        step = _merged(steps, values)
        ranks = tuple(sorted({rank for group in inside for rank in group.ranks}))
        branches.append(StackBranch(step, cls, ranks, _branches(inside, depth + 1) if cls is None else []))
    return sorted(branches, key=_size)


def _size(branch: StackBranch) -> tuple[int, tuple[int, ...], str, Values, str]:
    return (-len(branch.ranks), branch.ranks, branch.step.function, branch.step.values, branch.cls or "")


# -- timing of the capture --------------------------------------------------------------------------------------------


def spread_ns(stacks: Sequence[Stack]) -> int | None:
    """Spread of the /proc reads relative to the requested instant, in the worst sample; node clocks, ns."""
    late: dict[tuple[int, int], list[int]] = defaultdict(list)
    starts = _starts(stacks)
    for stack in stacks:
        if stack.looked is not None and stack.at is not None:
            late[(stack.sample, stack.at - starts[stack.node])].append(stack.looked - stack.at)
    return max((max(delays) - min(delays) for delays in late.values()), default=None)


def took_ns(stacks: Sequence[Stack]) -> int | None:
    """Time from the requested instant to the end of the last read, ns."""
    starts = _starts(stacks)
    ends = (stack.ended - starts[stack.node] for stack in stacks if stack.ended and stack.node in starts)
    return max(ends, default=None)


def _starts(stacks: Sequence[Stack]) -> dict[str, int]:
    """First requested instant, on each node's clock."""
    starts: dict[str, int] = {}
    for stack in stacks:
        if stack.at is not None:
            starts[stack.node] = min(stack.at, starts.get(stack.node, stack.at))
    return starts
