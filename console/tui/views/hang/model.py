"""Diagnosed jobs of the Hang view: their order, verdict lines and culprits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import zip_longest
from typing import Final

from ....analysis.stacks.fold import Fold, StackGroup, StackStep
from ....present import verdict as present
from ....present.spans import Line, plain
from ....present.stacks import place_of
from ....present.status import state_word
from ....text.cells import clean, fit
from ....text.nodeset_fold import fold_numbers
from ...derived import JobDiagnosis

_ORDER: Final = tuple(present.VERDICT_STATUS)


def worst_first(jobs: Sequence[JobDiagnosis]) -> list[JobDiagnosis]:
    """Hung jobs first."""
    return sorted(jobs, key=lambda job: (_ORDER.index(job.judgement.verdict.state), job.job))


def verdict_lines(jobs: Sequence[JobDiagnosis], width: int) -> tuple[Line, ...]:
    """The verdicts of all jobs, the worst first, separated by an empty line."""
    lines: list[Line] = []
    for job in worst_first(jobs):
        lines += [plain("")] if lines else []
        lines += present.verdict_lines(job.judgement.verdict, width, watched_s=job.judgement.watched_s)
    return tuple(lines)


def culprits_of(job: JobDiagnosis | None) -> tuple[int, ...]:
    """The ranks that the verdict names."""
    culprits = job.judgement.verdict.culprits if job else ()
    return tuple(culprit.rank for culprit in culprits if culprit.rank is not None)


#: Changes. Further ones are listed without their calls.
_MOST_SHOWN: Final = 8


def side_by_side(
    left_path: tuple[StackStep, ...], left_ranks: Sequence[int],
    right_path: tuple[StackStep, ...], right_ranks: Sequence[int], width: int,
) -> list[str]:  # fmt: skip
    """The calls of two branches, outermost first; `=` while they are the same, `│` from the first difference on."""
    half = max(10, (width - 3) // 2)
    lines = [f"{fit(f'[{fold_numbers(left_ranks)}]', half)}   {fit(f'[{fold_numbers(right_ranks)}]', half)}"]
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
    """Ranks that moved between two captures, ranks that did not, then the calls of the moved ones before and after."""
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
    """Equal for groups at the same place."""
    return (group.calls, group.cls) if group is not None else None


def _places(fold: Fold) -> dict[int, StackGroup]:
    """The group of each rank."""
    return {rank: group for group in fold.groups if group.role == "rank" for rank in group.ranks}


def _leaf(group: StackGroup | None) -> str:
    if group is None:
        return "not captured"
    if not group.path:
        return group.status.replace("_", " ")
    return f"{_text(group.path[-1])} ({state_word(group.cls)})"
