"""Ranks that all wait, but not in the same place: who stands with whom, and who waits for whose message."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..stacks.frame_models import FrameClass
from .rank_state import RankState

#: The variables of torch's wrapper around a collective in which a process group other than the default shows.
_GROUP_GIVEN: Final = re.compile(r"'group': <")


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Ranks that wait in one operation at one place of the job's code."""

    cls: FrameClass
    operation: str
    where: str  # `train.py:30`
    ranks: tuple[int, ...]


def wait_groups(waiting: Sequence[RankState]) -> tuple[WaitGroup, ...]:
    """The camps, the largest first."""
    found: dict[tuple[FrameClass, str, str], set[int]] = defaultdict(set)
    for one in waiting:
        site = one.caller
        where = f"{site.file.rsplit('/', 1)[-1]}:{site.line}" if site else ""
        if one.rank is not None:
            found[one.cls, one.call, where].add(one.rank)
    camps = (WaitGroup(cls, call, where, tuple(sorted(ranks))) for (cls, call, where), ranks in found.items())
    return tuple(sorted(camps, key=lambda camp: (-len(camp.ranks), camp.ranks)))


def is_in_subgroup(one: RankState) -> bool:
    """Whether the collective that it waits in is known to be of some ranks only."""
    return any(local.name == "kwargs" and _GROUP_GIVEN.search(local.value) for local in one.locals or ())


def cycles(waiting: Sequence[RankState]) -> tuple[tuple[int, ...], ...]:
    """Circles of ranks each of which waits for a message of, or to, the next; the smallest rank of each first.

    A rank that receives from one that sends to it is no circle: that message is on its way.
    """
    edges = {
        one.rank: one.peers[0] for one in waiting if one.rank is not None and len(one.peers) == 1
    }  # fmt: skip
    found: list[tuple[int, ...]] = []
    done: set[int] = set()
    for start in sorted(edges):
        way: list[int] = []
        at = start
        while at in edges and at not in done and at not in way:
            way.append(at)
            at = edges[at].rank
        if at in way:
            circle = way[way.index(at) :]
            if len(circle) > 2 or (len(circle) == 2 and edges[circle[0]].direction == edges[circle[1]].direction):
                first = circle.index(min(circle))
                found.append(tuple(circle[first:] + circle[:first]))
        done.update(way)
    return tuple(sorted(found))
