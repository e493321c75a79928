"""Captures in a headless run: their part of the report, and what a person reads of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from .analysis.models import BadModel, Model, parse_model
from .analysis.stacks import Fold, Group, fold, jobs_of
from .analysis.stacktext import to_text
from .captures import CaptureNow
from .store import Store


class StepLine(msgspec.Struct):
    function: str
    file: str
    lines: list[int]  # several where the ranks stand at different lines of it


class GroupLine(msgspec.Struct):
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
    groups: list[GroupLine]


def capture_lines(store: Store) -> list[CaptureLine]:
    """Every capture that is kept, oldest first, a line a job."""
    return lines_of(store.captures.values(), models_of(store))


def capture_text(store: Store) -> str:
    """The trees of every capture; empty where there is none."""
    return text_of(store.captures.values(), models_of(store))


def lines_of(captures: Iterable[CaptureNow], models: Sequence[Model]) -> list[CaptureLine]:
    """These captures, a line a job."""
    return [_line(capture, found) for capture, found in _folds(captures, models)]


def text_of(captures: Iterable[CaptureNow], models: Sequence[Model]) -> str:
    """The trees of these captures."""
    parts = []
    for capture, found in _folds(captures, models):
        name = found.job + (f" attempt {found.attempt}" if found.attempt else "")
        parts.append(f"capture {capture.id}  {name}\n{to_text(found)}")
        if capture.lost or capture.dropped:
            lost = f"{capture.lost} stacks did not arrive, {capture.dropped} were too many to keep"
            parts.append(f"  ▲ incomplete: {lost}")
    return "\n\n".join(parts)


def is_partial(line: CaptureLine) -> bool:
    """Whether a rank has no stack."""
    return line.read != line.ranks or any(group.role == "rank" and group.status != "ok" for group in line.groups)


def _folds(captures: Iterable[CaptureNow], models: Sequence[Model]) -> Iterator[tuple[CaptureNow, Fold]]:
    for capture in captures:
        for job in jobs_of(capture.stacks):
            yield capture, fold(capture.stacks, job, models)


def models_of(store: Store) -> list[Model]:
    """By which the stacks of this session are given their class, before the built-in ones."""
    found = []
    for text in store.console.hang_models if store.console else ():
        try:
            found.append(parse_model(text))
        except BadModel:
            pass  # checked before it was recorded; another version may have had classes that this one does not know
    return found


def _line(capture: CaptureNow, found: Fold) -> CaptureLine:
    return CaptureLine(
        capture=capture.id, job=found.job, attempt=found.attempt, ranks=list(found.ranks), read=list(found.read),
        samples=found.samples, spread_ns=found.spread_ns, took_ns=found.took_ns,
        groups=[_group_line(group) for group in found.groups],
    )  # fmt: skip


def _group_line(group: Group) -> GroupLine:
    return GroupLine(
        role=group.role, class_=group.cls, ranks=list(group.ranks), processes=group.processes,
        nodes=list(group.nodes), path=[StepLine(step.function, step.file, list(step.lines)) for step in group.path],
        unchanged=list(group.unchanged), status=group.status, reason=group.reason, try_=group.try_,
    )  # fmt: skip
