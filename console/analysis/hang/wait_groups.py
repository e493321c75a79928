"""Waiting ranks grouped by the place at which they wait, and cycles of point-to-point waits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..stacks.frame_models import FrameClass
from .rank_state import RankState

#: Arguments of torch's collective wrapper that contain a process group other than the default one.
_GROUP_GIVEN: Final = re.compile(r"'group': <")


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Ranks that wait in one operation at one place in the job's code."""

    cls: FrameClass
    operation: str
    where: str  # `train.py:30`
    ranks: tuple[int, ...]


def wait_groups(waiting: Sequence[RankState]) -> tuple[WaitGroup, ...]:
    """The groups, largest first."""
    ranks_at: dict[tuple[FrameClass, str, str], set[int]] = defaultdict(set)
    for state in waiting:
        site = state.caller
        where = f"{site.file.rsplit('/', 1)[-1]}:{site.line}" if site else ""
        if state.rank is not None:
            ranks_at[state.cls, state.call, where].add(state.rank)
    groups = (WaitGroup(cls, call, where, tuple(sorted(ranks))) for (cls, call, where), ranks in ranks_at.items())
    return tuple(sorted(groups, key=lambda group: (-len(group.ranks), group.ranks)))


def is_in_subgroup(state: RankState) -> bool:
    """Whether the collective is known to run in a process group other than the default one."""
    return any(local.name == "kwargs" and _GROUP_GIVEN.search(local.value) for local in state.locals or ())


def cycles(waiting: Sequence[RankState]) -> tuple[tuple[int, ...], ...]:
    """Cycles of ranks in which each waits for a message of, or to, the next; each starts with its smallest rank.

    A receive that is matched by a send is not a cycle: that message is in flight.
    """
    edges = {state.rank: state.peers[0] for state in waiting if state.rank is not None and len(state.peers) == 1}
    closed: list[tuple[int, ...]] = []
    visited: set[int] = set()
    for start in sorted(edges):
        path: list[int] = []
        rank = start
        while rank in edges and rank not in visited and rank not in path:
            path.append(rank)
            rank = edges[rank].rank
        if rank in path:
            cycle = path[path.index(rank) :]
            if len(cycle) > 2 or (len(cycle) == 2 and edges[cycle[0]].direction == edges[cycle[1]].direction):
                first = cycle.index(min(cycle))
                closed.append(tuple(cycle[first:] + cycle[:first]))
        visited.update(path)
    return tuple(sorted(closed))
