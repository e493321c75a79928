"""Lateness per step: who causes the waiting of a whole step, where a step has several collectives.

A rank that is late once a step is last at one of the step's collectives, and by chance at the others: neither how often
it is last nor its median lateness shows it. What counts is the waiting that a rank causes in a step, over all of its
collectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import msgspec

from ..collectives.period import period_of
from .sync_points import SyncPoint

#: Fewest parts of the record that show a consistent cause.
LEAST_PARTS: Final = 8
#: A rank must cause most of the waiting in more than this share of the parts, where these are not steps: the delays of
#: parts that cut steps apart are not independent, so that their p-value alone proves little.
LEAST_CAUSED: Final = 0.5


class Delay(msgspec.Struct, frozen=True):
    """The last ranks of one collective, how late they were, and the waiting of all others."""

    last: tuple[int, ...]  # empty: unresolved
    behind_ns: int
    bound_ns: int
    caused_ns: int  # rank-nanoseconds


class StepLateness(msgspec.Struct, frozen=True):
    """One rank over parts of `size` successive collectives: steps, or, where these are unknown, parts as long.

    `caused`: parts in which no rank caused more waiting, of `parts` with any; `behind_ns`: its lateness per part, the
    sum over the collectives at which it was last (median of all parts).
    """

    size: int
    is_step: bool  # `size` is the period of the job's operations
    parts: int
    caused: int
    behind_ns: int
    bound_ns: int
    chance: float  # p-value, corrected for the sizes that were tried


def step_size(points: Sequence[SyncPoint]) -> int | None:
    """Collectives per step, of all groups together: the period of operation, group and size; None without one."""
    period = period_of([(point.name, point.group, point.numel) for point in points])
    return period if period is not None and period > 1 else None


def step_lateness(
    delays: Sequence[Delay], size: int | None, ranks: int, tail: Callable[[int, int, float], float]
) -> dict[int, StepLateness]:
    """By rank, the part size at which its lateness is least likely by chance. `tail`: binomial, as in `lateness`.

    `size` is that of a step; without it, sizes of 2, 4, 8, … are tried, and the p-value is multiplied by their number.
    """
    sizes = [size] if size is not None else _sizes(len(delays))
    best: dict[int, StepLateness] = {}
    for tried in sizes:
        for rank, late in _of_size(delays, tried, ranks, tail).items():
            if size is None and late.caused <= LEAST_CAUSED * late.parts:
                continue
            corrected = msgspec.structs.replace(
                late, is_step=size is not None, chance=min(1.0, late.chance * len(sizes))
            )
            if rank not in best or corrected.chance < best[rank].chance:
                best[rank] = corrected
    return best


def _sizes(count: int) -> list[int]:
    sizes, size = [], 2
    while count // size >= LEAST_PARTS:
        sizes.append(size)
        size *= 2
    return sizes


def _of_size(
    delays: Sequence[Delay], size: int, ranks: int, tail: Callable[[int, int, float], float]
) -> dict[int, StepLateness]:
    """The lateness of each rank that caused the most waiting of any part. An incomplete first part is left out."""
    parts = [delays[begin : begin + size] for begin in range(len(delays) % size, len(delays), size)]
    if len(parts) < LEAST_PARTS:
        return {}
    wins: dict[int, int] = defaultdict(int)
    behind: dict[int, list[tuple[int, int]]] = defaultdict(list)
    resolved = winners = 0
    for part in parts:
        caused: dict[int, int] = defaultdict(int)
        late: dict[int, tuple[int, int]] = {}
        for delay in part:
            for rank in delay.last:
                caused[rank] += delay.caused_ns
                ns, bound_ns = late.get(rank, (0, 0))
                late[rank] = (ns + delay.behind_ns, bound_ns + delay.bound_ns)
        resolved += bool(caused)
        for rank, amount in caused.items():
            behind[rank].append(late[rank])
            if amount == max(caused.values()):
                wins[rank] += 1
                winners += 1
    if not resolved:
        return {}
    share = winners / ranks / resolved
    return {
        rank: StepLateness(
            size, False, resolved, count, *_median(behind[rank], len(parts)), tail(resolved, count, share)
        )
        for rank, count in wins.items()
    }


def _median(late: Sequence[tuple[int, int]], parts: int) -> tuple[int, int]:
    """Median of lateness and of its bound over all parts; 0 where it was never last."""
    padded = [*late, *[(0, 0)] * (parts - len(late))]
    return int(median(ns for ns, _ in padded)), int(median(bound_ns for _, bound_ns in padded))
