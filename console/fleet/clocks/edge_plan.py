"""Which node pairs probe each other: all pairs in small fleets, random rings in larger ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

#: Up to this many nodes all pairs are probed: at most six peers per node, as in larger fleets.
COMPLETE: Final = 7

#: Candidate rings per draw: in a small fleet a ring easily repeats another's edges.
_CANDIDATES: Final = 64

#: (probing node, answering node)
Edge = tuple[str, str]


def edges(nodes: Sequence[str], peers: int, seed: int) -> tuple[Edge, ...]:
    """The edges to probe, each from one end, so that every node probes about as many as it answers.

    Above `COMPLETE` nodes: the union of `peers` / 2 random rings over all nodes. It is connected, and each node is on
    as many cycles as it has peers, so that cycle closure exposes a wrong edge (impossible in a star or tree).
    Deterministic for given nodes, `peers` and `seed`.
    """
    ordered = sorted(nodes)
    if len(ordered) <= COMPLETE:
        return _complete(ordered)
    rng = random.Random(seed)
    planned: dict[frozenset[str], Edge] = {}
    for _ in range(peers // 2):
        for here, there in _new_ring(ordered, planned, rng):
            planned.setdefault(frozenset((here, there)), (here, there))
    return tuple(planned.values())


def _new_ring(nodes: Sequence[str], planned: Mapping[frozenset[str], Edge], rng: random.Random) -> list[Edge]:
    """A random ring: of several candidates the one repeating the fewest edges."""
    best: list[Edge] = []
    fewest = len(nodes) + 1
    for _ in range(_CANDIDATES):
        order = list(nodes)
        rng.shuffle(order)
        ring = list(zip(order, [*order[1:], order[0]], strict=True))
        repeated = sum(frozenset(edge) in planned for edge in ring)
        if repeated < fewest:
            best, fewest = ring, repeated
        if fewest == 0:
            break
    return best


def _complete(nodes: Sequence[str]) -> tuple[Edge, ...]:
    """All pairs; each node probes the half of the others that follows it in a circle."""
    count = len(nodes)
    planned = []
    for index, node in enumerate(nodes):
        for step in range(1, count // 2 + 1):
            other = (index + step) % count
            if 2 * step == count and other < index:
                continue  # opposite nodes: the first one probes
            planned.append((node, nodes[other]))
    return tuple(planned)
