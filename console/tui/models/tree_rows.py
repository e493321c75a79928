"""Rows of a tree whose branches hold ranks: what is unfolded, in the order it is drawn."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass

from ...present.spans import TreeNode


@dataclass(frozen=True)
class TreeRow:
    """A branch where it stands; `parent` is the place of its parent's row, -1 for a root."""

    branch: TreeNode
    depth: int
    parent: int
    folded: bool


def unfolded(roots: Sequence[TreeNode], folded: Collection[Hashable]) -> list[TreeRow]:
    """The rows to draw, from the top. A tree may be thousands deep: nothing here recurs."""
    rows: list[TreeRow] = []
    waiting: list[tuple[Iterator[TreeNode], int]] = [(iter(roots), -1)]
    while waiting:
        branches, parent = waiting[-1]
        branch = next(branches, None)
        if branch is None:
            waiting.pop()
            continue
        is_folded = bool(branch.children) and branch.key in folded
        rows.append(TreeRow(branch, len(waiting) - 1, parent, is_folded))
        if branch.children and not is_folded:
            waiting.append((iter(branch.children), len(rows) - 1))
    return rows
