"""Stacks as a file for speedscope.app, in its own format (file-format-schema.json of that project).

Two profiles: where each rank's main thread stood last, a rank wide; and every thread in every sample. There is no time
in either: the width of a box is a count, and "left heavy" shows who stands together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from ...analysis.stacks.threads import is_main, name_of
from ...records import Stack, StackFrame

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def speedscope(stacks: Iterable[Stack]) -> str:
    """The file. The innermost box of a stack is its rank, so that those who stand together share all others."""
    read = [stack for stack in stacks if stack.frames]
    frames: dict[tuple[str, str, int], int] = {}
    profiles = [
        _profile("ranks: where each stood last", _last_of_ranks(read), frames, with_thread=False),
        _profile("all threads, all samples", sorted(read, key=_order), frames, with_thread=True),
    ]
    document = {
        "$schema": SCHEMA,
        "exporter": "gconsole",
        "name": f"stacks of {len({(one.job, one.rank) for one in read if one.role == 'rank'})} ranks",
        "activeProfileIndex": 0,
        "shared": {"frames": [_box(*key) for key in frames]},
        "profiles": profiles,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def _profile(
    name: str, stacks: Sequence[Stack], frames: dict[tuple[str, str, int], int], *, with_thread: bool
) -> dict[str, Any]:
    samples = [[_index(frames, key) for key in _boxes(stack, with_thread)] for stack in stacks]
    return {
        "type": "sampled", "name": name, "unit": "none", "startValue": 0, "endValue": len(samples),
        "samples": samples, "weights": [1] * len(samples),
    }  # fmt: skip


def _boxes(stack: Stack, with_thread: bool) -> list[tuple[str, str, int]]:
    """The calls from the outermost inward; before them the thread, where threads are told apart, and the role."""
    boxes = [(stack.role.replace("_", " "), "", 0)] if stack.role != "rank" or with_thread else []
    if with_thread:
        boxes.append((name_of(stack), "", 0))
    boxes += [_call(frame) for frame in stack.frames or ()]
    return [*boxes, (f"rank {'?' if stack.rank is None else stack.rank}", "", 0)]


def _call(frame: StackFrame) -> tuple[str, str, int]:
    return frame.function, frame.file, frame.line


def _index(frames: dict[tuple[str, str, int], int], key: tuple[str, str, int]) -> int:
    return frames.setdefault(key, len(frames))


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
    """By job, role and rank."""
    rank = stack.rank
    return (stack.job, stack.role, rank is None, rank or 0, stack.pid, stack.sample, stack.thread_id or 0)
