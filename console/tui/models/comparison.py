"""Two branches side by side, or a capture and the one before it: what is the same, and where they part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest

from ...analysis.ranges import ranges
from ...analysis.stacks import Fold, Group, Step
from ..text import clean, fit
from .stacktree import place_of


def side_by_side(
    one: tuple[Step, ...], one_ranks: Sequence[int], other: tuple[Step, ...], other_ranks: Sequence[int], width: int
) -> list[str]:
    """The calls of two branches from the outermost inward; `=` where they are the same, `│` from where they part."""
    half = max(10, (width - 3) // 2)
    lines = [f"{fit(f'[{ranges(one_ranks)}]', half)}   {fit(f'[{ranges(other_ranks)}]', half)}"]
    same = True
    for left, right in zip_longest(one, other):
        same = same and left is not None and right is not None and _name(left) == _name(right)
        lines.append(f"{fit(_text(left), half)} {'=' if same else '│'} {fit(_text(right), half)}".rstrip())
    return lines


def _name(step: Step) -> tuple[str, str]:
    return step.function, step.file


def _text(step: Step | None) -> str:
    return "" if step is None else f"{clean(step.function)}  {place_of(step)}"


def moved(before: Fold, after: Fold) -> list[str]:
    """Which ranks stand elsewhere than in the capture before, and which stand where they stood."""
    then, now = _places(before), _places(after)
    changes: dict[tuple[str, str], list[int]] = defaultdict(list)
    stayed = []
    for rank in sorted(then.keys() | now.keys()):
        was, place = then.get(rank), now.get(rank)
        if was is not None and place is not None and (was.calls, was.cls) == (place.calls, place.cls):
            stayed.append(rank)
        else:
            changes[_leaf(was), _leaf(place)].append(rank)
    lines = [f"[{ranges(ranks)}]  {was}  →  {place}" for (was, place), ranks in changes.items()]
    return [*lines, f"[{ranges(stayed)}]  where they were" if stayed else "nobody where they were"]


def _places(found: Fold) -> dict[int, Group]:
    """Where each rank stands."""
    return {rank: group for group in found.groups if group.role == "rank" for rank in group.ranks}


def _leaf(group: Group | None) -> str:
    if group is None:
        return "not seen"
    if not group.path:
        return group.status.replace("_", " ")
    return f"{_text(group.path[-1])} ({group.cls.replace('_', ' ')})"
