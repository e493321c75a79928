"""Two branches side by side, or a capture and the one before it: what is the same, and where they part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import zip_longest
from typing import Final

from ....analysis.stacks.fold import Fold, StackGroup, StackStep
from ....present.stacks import place_of
from ....present.status import state_word
from ....text.cells import clean, fit
from ....text.nodeset_fold import fold_numbers

#: Of more changes the calls are not shown; who moved is told of all.
_MOST_SHOWN: Final = 8


def side_by_side(
    left_path: tuple[StackStep, ...],
    one_ranks: Sequence[int],
    right_path: tuple[StackStep, ...],
    other_ranks: Sequence[int],
    width: int,
) -> list[str]:
    """The calls of two branches from the outermost inward; `=` where they are the same, `│` from where they part."""
    half = max(10, (width - 3) // 2)
    lines = [f"{fit(f'[{fold_numbers(one_ranks)}]', half)}   {fit(f'[{fold_numbers(other_ranks)}]', half)}"]
    same = True
    for left, right in zip_longest(left_path, right_path):
        same = same and left is not None and right is not None and _name(left) == _name(right)
        lines.append(f"{fit(_text(left), half)} {'=' if same else '│'} {fit(_text(right), half)}".rstrip())
    return lines


def _name(step: StackStep) -> tuple[str, str]:
    return step.function, step.file


def _text(step: StackStep | None) -> str:
    return "" if step is None else f"{clean(step.function)}  {place_of(step)}"


def moved(before: Fold, after: Fold, width: int) -> list[str]:
    """Who stands elsewhere than in the capture before, and who where they stood; then their calls, then and now."""
    then, now = _places(before), _places(after)
    changes: dict[tuple[Hashable, Hashable], list[int]] = defaultdict(list)
    stayed = []
    for rank in sorted(then.keys() | now.keys()):
        was, place = _place(then.get(rank)), _place(now.get(rank))
        if was == place:
            stayed.append(rank)
        else:
            changes[was, place].append(rank)
    lines = [
        f"[{fold_numbers(ranks)}]  {_leaf(then.get(ranks[0]))}  →  {_leaf(now.get(ranks[0]))}"
        for ranks in changes.values()
    ]
    lines.append(f"[{fold_numbers(stayed)}]  unchanged" if stayed else "no rank unchanged")
    for ranks in [ranks for ranks in changes.values() if ranks[0] in then and ranks[0] in now][:_MOST_SHOWN]:
        was_path, path = then[ranks[0]].path, now[ranks[0]].path
        lines += ["", *side_by_side(was_path, ranks, path, ranks, width)]
    return lines


def _place(group: StackGroup | None) -> Hashable:
    """What two groups at the same place have in common."""
    return (group.calls, group.cls) if group is not None else None


def _places(fold: Fold) -> dict[int, StackGroup]:
    """Where each rank stands."""
    return {rank: group for group in fold.groups if group.role == "rank" for rank in group.ranks}


def _leaf(group: StackGroup | None) -> str:
    if group is None:
        return "not captured"
    if not group.path:
        return group.status.replace("_", " ")
    return f"{_text(group.path[-1])} ({state_word(group.cls)})"
