"""Captures as JSON lines, one per capture and job, and the newest capture of each job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..analysis.stacks.async_tasks import awaited_names, main_first, newest_tasks
from ..analysis.stacks.fold import PLAIN as PLAIN
from ..analysis.stacks.fold import Fold, JobKey, Shape, StackGroup, fold, jobs_of
from ..analysis.stacks.frame_models import Model as Model
from ..core.store import CaptureNow, Store
from ..records import Local, Stack
from ..text.secrets import value_without_secrets
from .hang import hang_models


class StepLine(msgspec.Struct, omit_defaults=True):
    """One call of a stack path."""

    function: str
    file: str
    lines: list[int]  # current lines of the ranks
    values: dict[str, str] = {}  # its variables, if grouped by them


class StackGroupLine(msgspec.Struct):
    """Processes with the same call path and activity."""

    role: str
    class_: str = msgspec.field(name="class")
    ranks: list[int]
    processes: int
    nodes: list[str]
    path: list[StepLine]  # outermost first; empty without a stack
    unchanged: list[int]  # ranks with identical stacks in all samples
    status: str
    reason: str | None
    try_: str = msgspec.field(name="try")


class LocalLine(msgspec.Struct):
    """One requested variable in the newest sample."""

    rank: int | None
    role: str
    thread: str | None
    function: str
    name: str
    value: str


class TaskLine(msgspec.Struct):
    """One asyncio task in the newest sample in which the tasks of its event loop were read."""

    rank: int | None
    role: str
    node: str
    pid: int
    name: str
    is_main: bool  # the event loop runs until it ends
    path: list[StepLine]  # its coroutines, outermost first
    awaits: str  # type of what the innermost coroutine awaits; empty: unknown
    tasks: list[str]  # names of the tasks that it waits for
    wakes_in_s: float | None  # its sleep ends by itself by then


class CaptureLine(msgspec.Struct):
    """One job in one capture; `spread_ns` is the spread of the /proc reads on the nodes' own clocks."""

    capture: str
    job: str
    attempt: int
    ranks: list[int]  # with a record
    read: list[int]  # with a stack
    samples: int
    spread_ns: int | None
    took_ns: int | None
    groups: list[StackGroupLine]
    locals: list[LocalLine]
    tasks: list[TaskLine]


def capture_lines(store: Store) -> list[CaptureLine]:
    """One line per kept capture and job, oldest first."""
    return lines_of(store.captures.values(), hang_models(store))


def lines_of(captures: Iterable[CaptureNow], models: Sequence[Model], shape: Shape = PLAIN) -> list[CaptureLine]:
    """One line per capture and job."""
    return [_line(capture, folded, _locals(capture, folded)) for capture, folded in _folds(captures, models, shape)]


def newest_of(
    captures: Iterable[CaptureNow], models: Sequence[Model], shape: Shape = PLAIN
) -> list[tuple[CaptureNow, Fold]]:
    """Each job folded in the newest of these captures with the most ranks."""
    newest: dict[JobKey, tuple[CaptureNow, Fold]] = {}
    for capture, folded in _folds(captures, models, shape):
        before = newest.get((folded.job, folded.attempt))
        if before is None or len(folded.ranks) >= len(before[1].ranks):
            newest[folded.job, folded.attempt] = (capture, folded)
    return list(newest.values())


def is_partial(line: CaptureLine) -> bool:
    """Whether any rank has no stack, or a process that was captured alone has none."""
    if not any(group.status == "ok" for group in line.groups):
        return True
    return line.read != line.ranks or any(group.role == "rank" and group.status != "ok" for group in line.groups)


def _folds(captures: Iterable[CaptureNow], models: Sequence[Model], shape: Shape) -> Iterator[tuple[CaptureNow, Fold]]:
    for capture in captures:
        for job in jobs_of(capture.stacks):
            yield capture, fold(capture.stacks, job, models, shape)


def _locals(capture: CaptureNow, folded: Fold) -> list[LocalLine]:
    own = [
        stack for stack in capture.stacks if (stack.job, stack.attempt) == (folded.job, folded.attempt) and stack.locals
    ]
    newest: dict[tuple[str, int], int] = {}
    for stack in own:
        newest[stack.node, stack.pid] = max(stack.sample, newest.get((stack.node, stack.pid), 0))
    return sorted(
        (
            LocalLine(
                stack.rank, stack.role, stack.thread_name, frames[local.frame].function, local.name, _value(local)
            )
            for stack in own
            if stack.sample == newest[stack.node, stack.pid] and (frames := stack.frames)
            for local in stack.locals or ()
            if local.frame < len(frames)
        ),
        key=lambda line: (line.rank is None, line.rank or 0, line.role, line.thread or "", line.function, line.name),
    )  # fmt: skip


def _tasks(capture: CaptureNow, folded: Fold) -> list[TaskLine]:
    return [
        TaskLine(
            stack.rank, stack.role, stack.node, stack.pid, task.name, task.is_main,
            [StepLine(frame.function, frame.file, [frame.line] if frame.line else []) for frame in task.frames],
            task.awaits, awaited_names(task, stack.tasks or ()), task.wakes_in_s,
        )
        for stack in job_tasks(capture.stacks, folded)
        for task in main_first(stack.tasks or ())
    ]  # fmt: skip


def job_tasks(stacks: Sequence[Stack], folded: Fold) -> list[Stack]:
    """The newest readings of the asyncio tasks of one job."""
    return newest_tasks(stack for stack in stacks if (stack.job, stack.attempt) == (folded.job, folded.attempt))


def _value(local: Local) -> str:
    return value_without_secrets(local.name, local.value)


def _line(capture: CaptureNow, folded: Fold, variables: list[LocalLine]) -> CaptureLine:
    return CaptureLine(
        capture=capture.id, job=folded.job, attempt=folded.attempt, ranks=list(folded.ranks), read=list(folded.read),
        samples=folded.samples, spread_ns=folded.spread_ns, took_ns=folded.took_ns,
        groups=[_group_line(group) for group in folded.groups], locals=variables, tasks=_tasks(capture, folded),
    )  # fmt: skip


def _group_line(group: StackGroup) -> StackGroupLine:
    path = [StepLine(step.function, step.file, list(step.lines), dict(step.values)) for step in group.path]
    return StackGroupLine(
        role=group.role, class_=group.cls, ranks=list(group.ranks), processes=group.processes,
        nodes=list(group.nodes), path=path,
        unchanged=list(group.unchanged), status=group.status, reason=group.reason, try_=group.try_,
    )  # fmt: skip
