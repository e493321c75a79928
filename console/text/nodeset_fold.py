"""Folding of node names and rank numbers: `node[1-3]`, `0-2,5`. ClusterShell is imported lazily."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache


def fold(nodes: Sequence[str]) -> str:
    """`node[1-3]` for node1, node2, node3; a plain list if a name cannot be a part of a node set (one with a port)."""
    if len(nodes) == 1:
        return nodes[0]
    from ClusterShell.NodeSet import NodeSet, NodeSetParseError

    try:
        return str(NodeSet.fromlist(list(nodes)))
    except NodeSetParseError:
        return ",".join(sorted(nodes, key=natural))


def fold_numbers(numbers: Iterable[int]) -> str:
    """`0-136,138-511` for those numbers; `–` for none."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs) or "–"


def fold_ranks(ranks: Sequence[int | None]) -> str:
    """`0-2,5` for 0, 1, 2, 5; `–` for each rank whose number is unknown, and for no rank."""
    numbers = [rank for rank in ranks if rank is not None]
    unknown = len(ranks) - len(numbers)
    if not unknown or not numbers:
        return fold_numbers(numbers) if unknown < 2 else f"– (×{unknown})"
    return f"{fold_numbers(numbers)},–" if unknown == 1 else f"{fold_numbers(numbers)},– (×{unknown})"


def replace_node_name(text: str, node: str, other: str) -> str:
    """The text with `other` for each whole-word occurrence of a node's name: not within a longer name, nor in a
    finding's name."""
    return _whole_word(node).sub(lambda _: other, text) if node in text else text


@lru_cache(16_384)
def _whole_word(node: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])")


@lru_cache(16_384)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts node2 before node10. Cached: lists of thousands of rows are of a few hundred nodes."""
    parts = re.split(r"(\d+)", name)  # every second part is a number
    return tuple((0, int(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts))
