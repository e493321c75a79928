"""Whether a job moves: what must have stood still, and for how long, before anybody says that it hangs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .job_view import HELD, JobView
from .rank_state import RankState

#: Fewer looks than this at a rank say nothing of movement.
LEAST_LOOKS: Final = 2
#: So many looks, of which half the ranks or more changed place between, and a job moves.
LEAST_MOVES: Final = 3
#: A rank without a GPU that is woken so often in a second, in one and the same call, communicates.
BUSY_WAKES_S: Final = 1.0
#: Who writes so much while it is looked at gets on with something, whatever it waits for in between: a page.
WRITES_BYTES: Final = 4096
#: Classes that happen once in a job's life: who stays in them has not passed a step, also where it polls.
_ONCE: Final = ("group_setup", "teardown", "store_wait")


@dataclass(frozen=True, slots=True)
class Stillness:
    """What the looks say of a job."""

    is_stuck: bool  # who waits has waited for at least `min_frozen_s`, and somebody slept all the while
    is_whole: bool  # all of them did, and nobody of those they can be waiting for goes on
    moves: bool  # it went on while it was watched
    still_s: float  # so long nothing of those who stand still has changed
    more_s: float  # longer watching would decide; 0.0 where it would not
    stuck: frozenset[RankState]  # of those who do not wait, who has not changed either


def stillness(scene: JobView) -> Stillness:
    """Who waits must have stood on one path for that long, and somebody must have slept all the time.

    A job that communicates all the time stands in its collective at every look; but each one that ends wakes its ranks.
    A rank that computes never sleeps: it is stuck where its path of calls stays the same while the others wait.
    """
    least = scene.evidence.min_frozen_s
    waiters = [one for one in scene.waiting if one.looks] or [one for one in scene.opaque if one.looks]
    counted_as_waiting = set(waiters)
    others = [
        one for one in (*scene.behind, *scene.opaque)
        if (one.looks or one.cls in HELD) and one not in counted_as_waiting
    ]  # fmt: skip
    counted = waiters or others
    if not counted or min(one.looks for one in counted if one.looks or counted is others) < LEAST_LOOKS:
        return Stillness(False, False, False, 0.0, least if counted else 0.0, frozenset())
    stuck = frozenset(other for other in others if _still_s(other) >= least and not _writes(other))
    if not waiters:
        if all(other.frozen_s >= least for other in others):
            return Stillness(True, True, False, _shortest(stuck), 0.0, stuck)
        return _not_stuck(scene, others, stuck)
    held_up = [waiter for waiter in waiters if waiter.place_s >= least]
    slept = [one for one in held_up if _slept_s(one) >= least]
    if slept or (held_up and any(_slept_s(one) >= least for one in stuck)):
        whole = bool(slept) and len(held_up) == len(waiters) and len(stuck) == len(others)
        pending = [least - _still_s(other) for other in others if other not in stuck and _may_be_stuck(other)]
        more_s = max((seconds for seconds in pending if seconds > 0), default=0.0)
        return Stillness(True, whole, False, _shortest((*held_up, *stuck)), more_s, stuck)
    return _not_stuck(scene, waiters, stuck)


def _not_stuck(scene: JobView, counted: list[RankState], stuck: frozenset[RankState]) -> Stillness:
    least, watched_s, tail_s = scene.evidence.min_frozen_s, scene.watched_s, _shortest(counted)
    changed = sum(one.place_s < one.watched_s for one in counted)
    is_busy = not scene.uses_gpus and all((one.wakes_s or 0) >= BUSY_WAKES_S for one in counted)
    is_seen = min(one.looks for one in counted) >= LEAST_MOVES
    more_s = least - watched_s
    slept_s = min(one.frozen_s for one in counted)
    if more_s <= 0 < slept_s < least:
        more_s = least - slept_s  # it may just have stopped
    moves = is_seen and (2 * changed >= len(counted) or is_busy)
    return Stillness(False, False, moves, tail_s, max(0.0, more_s), stuck)


def _may_be_stuck(one: RankState) -> bool:
    """Whether it was at one place whenever it was looked at, but not for long enough yet."""
    return one.looks >= LEAST_LOOKS and one.place_s >= one.watched_s and not _writes(one)


def _writes(one: RankState) -> bool:
    return (one.written_bytes or 0) >= WRITES_BYTES


def _still_s(one: RankState) -> float:
    return max(one.place_s, one.frozen_s)


def _slept_s(one: RankState) -> float:
    return one.place_s if one.cls in _ONCE else one.frozen_s


def _shortest(standings: Iterable[RankState]) -> float:
    return min(map(_still_s, standings), default=0.0)
