"""Names and numbers as people read many of them: `node[1-3]`, `0-2,5`. ClusterShell is imported when first needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache


def fold(nodes: Sequence[str]) -> str:
    """`node[1-3]` for node1, node2, node3; a plain list where a name is no node-set text (one with a port)."""
    if len(nodes) == 1:
        return nodes[0]
    from ClusterShell.NodeSet import NodeSet, NodeSetParseError

    try:
        return str(NodeSet.fromlist(list(nodes)))
    except NodeSetParseError:
        return ",".join(sorted(nodes, key=natural))


def fold_ranks(ranks: Sequence[int | None]) -> str:
    """`0-2,5` for 0, 1, 2, 5; `–` for ranks whose number nobody knows."""
    known = sorted({rank for rank in ranks if rank is not None})
    parts: list[str] = []
    start = 0
    for i in range(1, len(known) + 1):
        if i == len(known) or known[i] != known[i - 1] + 1:
            parts.append(str(known[start]) if i - start == 1 else f"{known[start]}-{known[i - 1]}")
            start = i
    unknown = sum(rank is None for rank in ranks)
    if unknown:
        parts.append("–" if unknown == 1 else f"– (×{unknown})")
    return ",".join(parts)


def renamed(text: str, node: str, other: str) -> str:
    """The text with `other` in the place of that node's name, where it is a word by itself: not in a longer name, nor
    in the name of a finding."""
    return _by_itself(node).sub(lambda _: other, text) if node in text else text


@lru_cache(16_384)
def _by_itself(node: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that puts node2 before node10."""
    parts = re.split(r"(\d+)", name)  # every second one is a number
    return [(0, int(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts)]
