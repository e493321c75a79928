"""Trees of stacks for Graphviz: `dot -Tsvg`. A box a call, the ranks on the way into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...analysis.stacks.fold import Fold, StackBranch
from ...text.nodeset_fold import fold_numbers
from ...text.sanitize import quoted_for_dot

_HEAD: Final = """\
digraph stacks {
  graph [rankdir=LR, fontname="Helvetica", nodesep=0.15];
  node [shape=box, fontname="Helvetica", fontsize=10, style="rounded,filled", fillcolor=white];
  edge [fontname="Helvetica", fontsize=9, color=gray40];
"""
#: Where a group stands, by the class of what it does; what is not here is white.
_FILLS: Final = {
    "collective": "#dae8fc", "p2p": "#dae8fc", "store_wait": "#dae8fc", "group_setup": "#dae8fc",
    "teardown": "#dae8fc", "unknown": "#f5f5f5",
}  # fmt: skip
_OTHERWISE: Final = "#fff2cc"


def dot(folds: Sequence[Fold]) -> str:
    """One cluster a job and role. Calls in a colour are where somebody stands: blue waits for other ranks."""
    lines = [_HEAD.rstrip()]
    number = 0
    for found in folds:
        for role, branches in sorted(found.trees.items(), key=lambda item: (item[0] != "rank", item[0])):
            lines += _cluster(f"{found.job}\n{role.replace('_', ' ')}", branches, number)
            number += 1
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(title: str, branches: Sequence[StackBranch], number: int) -> Iterator[str]:
    """Nothing here recurs: a stack may be a thousand calls deep."""
    yield f"  subgraph cluster_{number} {{"
    yield f"    label={quoted_for_dot(title)}; color=gray70;"
    waiting = [(branch, "") for branch in reversed(branches)]
    count = 0
    while waiting:
        branch, above = waiting.pop()
        own = f"n{number}_{count}"
        count += 1
        ranks = quoted_for_dot(_ranks(branch))
        yield f"    {own} [label={quoted_for_dot(_label(branch))}, tooltip={ranks}{_look(branch)}];"
        if above:
            yield f"    {above} -> {own} [label={ranks}];"
        waiting += [(inner, own) for inner in reversed(branch.branches)]
    yield "  }"


def _label(branch: StackBranch) -> str:
    step = branch.step
    few = 0 < len(step.lines) <= 3 and step.lines != (0,)
    place = f"{step.file}:{','.join(map(str, step.lines))}" if few else step.file
    values = [f"{name} = {value}" for name, value in step.values]
    stands = [f"{branch.cls.replace('_', ' ')}  {_ranks(branch)}"] if branch.cls else []
    return "\n".join(filter(None, (step.function, place, *values, *stands)))


def _ranks(branch: StackBranch) -> str:
    return f"[{fold_numbers(branch.ranks)}] ({len(branch.ranks)})"


def _look(branch: StackBranch) -> str:
    return f', fillcolor="{_FILLS.get(branch.cls, _OTHERWISE)}"' if branch.cls else ""
