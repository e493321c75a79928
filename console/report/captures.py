"""Captures in a headless run: their part of the report, and what a person reads of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..analysis.stacks.fold import PLAIN, Fold, JobKey, Shape, StackGroup, fold, jobs_of
from ..analysis.stacks.frame_models import Model
from ..core.store import CaptureNow, Store
from ..monitor.hang import hang_models
from ..present.stacks import to_text
from ..records import Local
from ..text.secrets import value_without_secrets


class StepLine(msgspec.Struct, omit_defaults=True):
    function: str
    file: str
    lines: list[int]  # several where the ranks stand at different lines of it
    values: dict[str, str] = {}  # its variables, where ranks are told apart by them


class StackGroupLine(msgspec.Struct):
    """Processes that stand at the same place and do the same."""

    role: str
    class_: str = msgspec.field(name="class")
    ranks: list[int]
    processes: int
    nodes: list[str]
    path: list[StepLine]  # outermost first; empty where no stack was read
    unchanged: list[int]  # ranks whose stacks were the same in all samples
    status: str
    reason: str | None
    try_: str = msgspec.field(name="try")


class LocalLine(msgspec.Struct):
    """One variable that was asked for, as it was in the newest sample."""

    rank: int | None
    role: str
    thread: str | None
    function: str
    name: str
    value: str


class CaptureLine(msgspec.Struct):
    """One job in one capture. `spread_ns` is of the instants at which /proc was read, on the nodes' own clocks."""

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


def capture_lines(store: Store) -> list[CaptureLine]:
    """Every capture that is kept, oldest first, a line a job."""
    return lines_of(store.captures.values(), hang_models(store))


def lines_of(captures: Iterable[CaptureNow], models: Sequence[Model], shape: Shape = PLAIN) -> list[CaptureLine]:
    """These captures, a line a job."""
    return [_line(capture, found, _locals(capture, found)) for capture, found in _folds(captures, models, shape)]


def capture_text(store: Store, shape: Shape = PLAIN) -> str:
    """The trees of each job in the newest of its captures that has all its ranks; empty where there is none."""
    return text_of(store.captures.values(), hang_models(store), shape)


def text_of(captures: Iterable[CaptureNow], models: Sequence[Model], shape: Shape = PLAIN) -> str:
    """The trees of each job in the newest of these captures that has all its ranks."""
    parts = []
    for capture, found in newest_of(captures, models, shape):
        name = found.job + (f" attempt {found.attempt}" if found.attempt else "")
        parts.append(f"capture {capture.id}  {name}\n{to_text(found)}")
        if capture.lost or capture.dropped:
            lost = f"{capture.lost} stacks did not arrive, {capture.dropped} were too many to keep"
            parts.append(f"  ▲ incomplete: {lost}")
    return "\n\n".join(parts)


def newest_of(
    captures: Iterable[CaptureNow], models: Sequence[Model], shape: Shape = PLAIN
) -> list[tuple[CaptureNow, Fold]]:
    """Each job in the newest of these captures that has all its ranks, folded."""
    newest: dict[JobKey, tuple[CaptureNow, Fold]] = {}
    for capture, found in _folds(captures, models, shape):
        before = newest.get((found.job, found.attempt))
        if before is None or len(found.ranks) >= len(before[1].ranks):
            newest[found.job, found.attempt] = (capture, found)
    return list(newest.values())


def is_partial(line: CaptureLine) -> bool:
    """Whether a rank has no stack."""
    return line.read != line.ranks or any(group.role == "rank" and group.status != "ok" for group in line.groups)


def _folds(captures: Iterable[CaptureNow], models: Sequence[Model], shape: Shape) -> Iterator[tuple[CaptureNow, Fold]]:
    for capture in captures:
        for job in jobs_of(capture.stacks):
            yield capture, fold(capture.stacks, job, models, shape)


def _locals(capture: CaptureNow, found: Fold) -> list[LocalLine]:
    own = [
        stack for stack in capture.stacks if (stack.job, stack.attempt) == (found.job, found.attempt) and stack.locals
    ]
    newest: dict[tuple[str, int], int] = {}
    for one in own:
        newest[one.node, one.pid] = max(one.sample, newest.get((one.node, one.pid), 0))
    return sorted(
        (
            LocalLine(one.rank, one.role, one.thread_name, frames[local.frame].function, local.name, _value(local))
            for one in own
            if one.sample == newest[one.node, one.pid] and (frames := one.frames)
            for local in one.locals or ()
            if local.frame < len(frames)
        ),
        key=lambda line: (line.rank is None, line.rank or 0, line.role, line.thread or "", line.function, line.name),
    )  # fmt: skip


def _value(local: Local) -> str:
    return value_without_secrets(local.name, local.value)


def _line(capture: CaptureNow, found: Fold, variables: list[LocalLine]) -> CaptureLine:
    return CaptureLine(
        capture=capture.id, job=found.job, attempt=found.attempt, ranks=list(found.ranks), read=list(found.read),
        samples=found.samples, spread_ns=found.spread_ns, took_ns=found.took_ns,
        groups=[_group_line(group) for group in found.groups], locals=variables,
    )  # fmt: skip


def _group_line(group: StackGroup) -> StackGroupLine:
    path = [StepLine(step.function, step.file, list(step.lines), dict(step.values)) for step in group.path]
    return StackGroupLine(
        role=group.role, class_=group.cls, ranks=list(group.ranks), processes=group.processes,
        nodes=list(group.nodes), path=path,
        unchanged=list(group.unchanged), status=group.status, reason=group.reason, try_=group.try_,
    )  # fmt: skip
