"""A fold as text: a line a call, indented, with the class of those who stand there, and the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..analysis.stacks.fold import Fold, Shape, StackBranch, StackGroup
from ..text.format import plural
from ..text.nodeset_fold import fold_numbers

#: Deeper branches are not indented further.
_DEEPEST: Final = 20
_TITLES: Final = {"rank": "STACKS", "dataloader_worker": "DATALOADER WORKERS", "compile_worker": "COMPILE WORKERS"}


def to_text(fold: Fold, width: int = 110) -> str:
    """The trees of ranks and of the workers below them, and what could not be read; lines of about `width` columns."""
    lines = []
    for role in ["rank", *sorted({group.role for group in fold.groups} - {"rank"})]:
        groups = [group for group in fold.groups if group.role == role]
        if not groups:
            continue
        lines.append(_head(fold, role, groups, width))
        for branch in fold.trees.get(role, ()):
            lines += _branch_lines(branch, 0, width)
        for group in groups:
            if not group.path:
                why = f"{group.status}: {group.reason}" if group.reason else group.status
                lines.append(_row(f"◌ {why}", "" if group.cls == "unknown" else group.cls, _set(group.ranks), width))
                lines += [f"  try: {group.try_}"] if group.try_ else []
    return "\n".join(lines)


def _head(fold: Fold, role: str, groups: Sequence[StackGroup], width: int) -> str:
    count = sum(group.processes for group in groups)
    left = f"{_TITLES.get(role, 'PROCESSES BELOW RANKS')}  {plural(count, 'rank' if role == 'rank' else 'process')}"
    left += "".join(f", {part}" for part in (plural(len(groups), "group"), *shape_words(fold.shape)))
    if role != "rank":
        return left
    right = [plural(fold.samples, "sample")]
    if fold.spread_ns is not None:
        right.append(f"spread {fold.spread_ns / 1e6:.1f} ms")
    if fold.took_ns is not None:
        right.append(f"took {fold.took_ns / 1e9:.1f} s")
    return left + "   ".join(right).rjust(max(2, width - len(left)))


def shape_words(shape: Shape) -> list[str]:
    """How it is folded, where that is not as at first."""
    threads = {"main": [], "blocking": ["threads that block"], "all": ["all threads"]}[shape.threads]
    return threads + {"function": [], "line": ["by line"], "locals": ["by variables"]}[shape.granularity]


def _branch_lines(branch: StackBranch, depth: int, width: int) -> list[str]:
    step = branch.step
    where = f"{step.file}:{','.join(map(str, step.lines))}" if 0 < len(step.lines) <= 3 else step.file
    mark = "▼ " if branch.branches else "  "
    values = "".join(f"  {name} = {value}" for name, value in step.values)
    text = f"{'  ' * min(depth, _DEEPEST)}{mark}{step.function} {where}{values}"
    lines = [_row(text, branch.cls or "", _set(branch.ranks), width)]
    for inner in branch.branches:
        lines += _branch_lines(inner, depth + 1, width)
    return lines


def _row(text: str, cls: str, ranks: str, width: int) -> str:
    room = max(30, width - 40)
    text = text if len(text) <= room else text[: room - 1] + "…"
    return f"{text:{room}s}  {cls:15s}  {ranks}".rstrip()


def _set(ranks: Sequence[int]) -> str:
    return f"[{fold_numbers(ranks)}]"
