"""Which nodes are compared with which: every pair of a few, rings through all of many."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

#: So many nodes are compared each with each: that is at most six peers a node, as in larger fleets.
COMPLETE: Final = 7

#: In a small fleet a ring easily repeats an edge of another: the best of so many is taken.
_DRAWS: Final = 64

#: (who probes, who answers)
Edge = tuple[str, str]


def edges(nodes: Sequence[str], peers: int, seed: int) -> tuple[Edge, ...]:
    """The edges to probe, each from one end only, so that every node probes about as many as it answers.

    Of more than `COMPLETE` nodes the union of `peers` / 2 random rings through all of them: connected by construction,
    each node in as many loops as it has peers, so that a wrong edge shows (a star or a tree would believe it). The same
    nodes, `peers` and `seed` give the same edges.
    """
    ordered = sorted(nodes)
    if len(ordered) <= COMPLETE:
        return _complete(ordered)
    shuffled = random.Random(seed)
    found: dict[frozenset[str], Edge] = {}
    for _ in range(peers // 2):
        for here, there in _new_ring(ordered, found, shuffled):
            found.setdefault(frozenset((here, there)), (here, there))
    return tuple(found.values())


def _new_ring(nodes: Sequence[str], known: Mapping[frozenset[str], Edge], shuffled: random.Random) -> list[Edge]:
    """A random ring, of several the one that repeats the fewest edges."""
    best: list[Edge] = []
    fewest = len(nodes) + 1
    for _ in range(_DRAWS):
        order = list(nodes)
        shuffled.shuffle(order)
        ring = list(zip(order, [*order[1:], order[0]], strict=True))
        repeated = sum(frozenset(edge) in known for edge in ring)
        if repeated < fewest:
            best, fewest = ring, repeated
        if fewest == 0:
            break
    return best


def _complete(nodes: Sequence[str]) -> tuple[Edge, ...]:
    """Every pair; each node probes the half of the others that follows it round the table."""
    count = len(nodes)
    found = []
    for index, node in enumerate(nodes):
        for step in range(1, count // 2 + 1):
            other = (index + step) % count
            if 2 * step == count and other < index:
                continue  # opposite each other: the one that comes first probes
            found.append((node, nodes[other]))
    return tuple(found)
