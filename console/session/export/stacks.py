"""Stacks of captures in the formats of other tools: folded stacks, speedscope, DOT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from ...analysis.stacks.fold import PLAIN, Fold, Shape, StackBranch
from ...analysis.stacks.frame_models import Model
from ...analysis.stacks.frames import is_main, name_of
from ...core.store import CaptureNow, Store
from ...monitor.captures import lines_of, newest_of
from ...monitor.hang import hang_models
from ...present.stacks import captures_text
from ...records import Stack
from ...text.documents import pretty
from ...text.nodeset_fold import fold_numbers
from ...text.sanitize import quoted_for_dot
from ..format.layout import SessionError
from .slice import SessionSlice


class StackFormat(msgspec.Struct, frozen=True):
    """One export format. `write` takes captures; of each job the newest capture with all its ranks is exported."""

    name: str  # of --format
    title: str  # in menus
    suffix: str
    write: Callable[[Sequence[CaptureNow], Sequence[Model], Shape], str]


def _as_text(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return captures_text(newest_of(captures, models, shape)) + "\n"


def _as_json(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return pretty(lines_of(captures, models, shape)) + "\n"


def _as_folded(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return folded_stacks(_stacks(captures, models))


def _as_speedscope(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return speedscope(_stacks(captures, models))


def _as_dot(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return dot([fold for _, fold in newest_of(captures, models, shape)])


def _stacks(captures: Sequence[CaptureNow], models: Sequence[Model]) -> list[Stack]:
    """The stacks of each job in its newest capture, without native ones."""
    return [
        stack
        for capture, fold in newest_of(captures, models)
        for stack in capture.stacks
        if (stack.job, stack.attempt) == (fold.job, fold.attempt) and not stack.native
    ]


#: Format name → format, in the order of menus.
STACK_FORMATS: Final = {
    form.name: form
    for form in (
        StackFormat("folded", "folded", ".folded", _as_folded),
        StackFormat("speedscope", "speedscope", ".speedscope.json", _as_speedscope),
        StackFormat("dot", "DOT", ".dot", _as_dot),
        StackFormat("text", "text", ".txt", _as_text),
        StackFormat("json", "JSON", ".json", _as_json),
    )
}


# -- folded stacks -----------------------------------------------------------------------------------------------------


def folded_stacks(stacks: Iterable[Stack]) -> str:
    """Return folded stacks for flame graph programs: `role [ranks];thread;frame;…;frame count`, outermost first.

    One line per distinct stack, most frequent first; every thread of every sample counts once.
    """
    counts: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    ranks: dict[tuple[str, str, tuple[str, ...]], set[int]] = {}
    for stack in stacks:
        if stack.frames is None:
            continue
        frames = tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in stack.frames)
        key = (stack.role, name_of(stack), frames)
        counts[key] += 1
        if stack.rank is not None:
            ranks.setdefault(key, set()).add(stack.rank)
    lines = []
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        role, thread, frames = key
        who = f"{role} [{fold_numbers(sorted(ranks[key]))}]" if key in ranks else role
        lines.append(";".join(_field(part) for part in (who, thread, *frames)) + f" {count}\n")
    return "".join(lines)


def _field(text: str) -> str:
    """One field of a line, without separators and control characters."""
    return "".join(letter if letter.isprintable() else "·" for letter in text.replace(";", ","))


# -- speedscope --------------------------------------------------------------------------------------------------------

SPEEDSCOPE_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def speedscope(stacks: Iterable[Stack]) -> str:
    """Return a file for speedscope.app (file-format-schema.json of that project).

    Two profiles: the last main-thread stack of each rank, and every thread in every sample. Widths are counts, not
    times. The innermost frame of a stack is its rank, so that ranks at the same call share all other frames.
    """
    read = [stack for stack in stacks if stack.frames]
    frames: dict[tuple[str, str, int], int] = {}
    profiles = [
        _profile("ranks: last main-thread stack", _last_of_ranks(read), frames, with_thread=False),
        _profile("all threads, all samples", sorted(read, key=_order), frames, with_thread=True),
    ]
    document = {
        "$schema": SPEEDSCOPE_SCHEMA,
        "exporter": "gconsole",
        "name": f"stacks of {len({(stack.job, stack.rank) for stack in read if stack.role == 'rank'})} ranks",
        "activeProfileIndex": 0,
        "shared": {"frames": [_box(*key) for key in frames]},
        "profiles": profiles,
    }
    return pretty(document, indent=1) + "\n"


def _profile(
    name: str, stacks: Sequence[Stack], frames: dict[tuple[str, str, int], int], *, with_thread: bool
) -> dict[str, Any]:
    samples = [[frames.setdefault(key, len(frames)) for key in _boxes(stack, with_thread)] for stack in stacks]
    return {
        "type": "sampled", "name": name, "unit": "none", "startValue": 0, "endValue": len(samples),
        "samples": samples, "weights": [1] * len(samples),
    }  # fmt: skip


def _boxes(stack: Stack, with_thread: bool) -> list[tuple[str, str, int]]:
    """Role, thread (if `with_thread`), the calls from the outermost inward, and the rank."""
    boxes = [(stack.role.replace("_", " "), "", 0)] if stack.role != "rank" or with_thread else []
    if with_thread:
        boxes.append((name_of(stack), "", 0))
    boxes += [(frame.function, frame.file, frame.line) for frame in stack.frames or ()]
    return [*boxes, (f"rank {'?' if stack.rank is None else stack.rank}", "", 0)]


def _box(name: str, file: str, line: int) -> dict[str, str | int]:
    box: dict[str, str | int] = {"name": name}
    if file:
        box["file"] = file
    if line:
        box["line"] = line
    return box


def _last_of_ranks(stacks: Iterable[Stack]) -> list[Stack]:
    """The main thread of each rank in the last sample that has it."""
    last: dict[tuple[str, str, int], Stack] = {}
    for stack in stacks:
        key = (stack.job, stack.node, stack.pid)
        if stack.role == "rank" and is_main(stack) and (key not in last or stack.sample >= last[key].sample):
            last[key] = stack
    return sorted(last.values(), key=_order)


def _order(stack: Stack) -> tuple[str, str, bool, int, int, int, int]:
    """Sort key: job, role, rank."""
    rank = stack.rank
    return (stack.job, stack.role, rank is None, rank or 0, stack.pid, stack.sample, stack.thread_id or 0)


def write_speedscope(source: SessionSlice, out: BinaryIO) -> None:
    """Write the newest capture of each job of a session for speedscope.app.

    Raises SessionError without captures, OSError, and what reading the session raises.
    """
    store = Store()
    for record in source.only("console", "node_state", "node", "process", "rank", "rank_stat", "stack"):
        store.apply([record])
    captures = store.captures.values()
    if not captures:
        raise SessionError(f"{source.name}: no stacks were captured; press s or d to capture them")
    out.write(STACK_FORMATS["speedscope"].write(captures, hang_models(store), PLAIN).encode(errors="replace"))


# -- DOT ---------------------------------------------------------------------------------------------------------------

_HEAD: Final = """\
digraph stacks {
  graph [rankdir=LR, fontname="Helvetica", nodesep=0.15];
  node [shape=box, fontname="Helvetica", fontsize=10, style="rounded,filled", fillcolor=white];
  edge [fontname="Helvetica", fontsize=9, color=gray40];
"""
#: Fill colour of the last call of a group by its class: blue waits for other ranks.
_FILLS: Final = {
    "collective": "#dae8fc", "p2p": "#dae8fc", "store_wait": "#dae8fc", "group_setup": "#dae8fc",
    "teardown": "#dae8fc", "unknown": "#f5f5f5",
}  # fmt: skip
_DEFAULT_FILL: Final = "#fff2cc"


def dot(folds: Sequence[Fold]) -> str:
    """Return the call trees for Graphviz, a cluster per job and role; coloured calls are where ranks are."""
    lines = [_HEAD.rstrip()]
    number = 0
    for fold in folds:
        for role, branches in sorted(fold.trees.items(), key=lambda item: (item[0] != "rank", item[0])):
            lines += _cluster(f"{fold.job}\n{role.replace('_', ' ')}", branches, number)
            number += 1
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(title: str, branches: Sequence[StackBranch], number: int) -> Iterator[str]:
    """Iterative: a stack may be a thousand calls deep."""
    yield f"  subgraph cluster_{number} {{"
    yield f"    label={quoted_for_dot(title)}; color=gray70;"
    waiting = [(branch, "") for branch in reversed(branches)]
    count = 0
    while waiting:
        branch, above = waiting.pop()
        own = f"n{number}_{count}"
        count += 1
        ranks = quoted_for_dot(_ranks(branch))
        yield f"    {own} [label={quoted_for_dot(_label(branch))}, tooltip={ranks}{_fill(branch)}];"
        if above:
            yield f"    {above} -> {own} [label={ranks}];"
        waiting += [(inner, own) for inner in reversed(branch.branches)]
    yield "  }"


def _label(branch: StackBranch) -> str:
    step = branch.step
    few = 0 < len(step.lines) <= 3 and step.lines != (0,)
    place = f"{step.file}:{','.join(map(str, step.lines))}" if few else step.file
    values = [f"{name} = {value}" for name, value in step.values]
    group = [f"{branch.cls.replace('_', ' ')}  {_ranks(branch)}"] if branch.cls else []
    return "\n".join(filter(None, (step.function, place, *values, *group)))


def _ranks(branch: StackBranch) -> str:
    return f"[{fold_numbers(branch.ranks)}] ({len(branch.ranks)})"


def _fill(branch: StackBranch) -> str:
    return f', fillcolor="{_FILLS.get(branch.cls, _DEFAULT_FILL)}"' if branch.cls else ""
