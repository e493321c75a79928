"""Whether a job makes progress: how long which ranks must be unchanged before the job counts as stalled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .job_view import HELD, JobView
from .rank_state import RankState

#: Samples of a rank below which nothing is known of its progress.
MIN_SAMPLES: Final = 2
#: Samples from which a job counts as progressing if half of its ranks or more changed place.
MIN_MOVES: Final = 3
#: Wakes per second from which a rank without a GPU, in one and the same call, is communicating.
BUSY_WAKES_S: Final = 1.0
#: Bytes (one page). A rank that writes this much while it is sampled makes progress.
WRITES_BYTES: Final = 4096
#: Classes that occur once in a job: a rank that stays in them has not passed a step, even if it polls.
_ONCE: Final = ("group_setup", "teardown", "store_wait")


@dataclass(frozen=True, slots=True)
class Stillness:
    """The progress of a job over its samples."""

    is_stuck: bool  # waiting ranks waited for at least `min_frozen_s`, and one of them slept throughout
    is_whole: bool  # all of them did, and no rank that they may wait for makes progress
    moves: bool  # it made progress while it was sampled
    still_s: float  # seconds without a change of the stalled ranks
    more_s: float  # longer sampling that would decide, s; 0.0 where it would not
    stuck: frozenset[RankState]  # ranks that do not wait and are unchanged, too


def stillness(view: JobView) -> Stillness:
    """Waiting ranks must have been on one call path for `min_frozen_s`, and one of them must have slept throughout.

    A job that only communicates is in a collective at every sample, but each completion wakes its ranks. A rank that
    computes never sleeps: it is stuck if its call path stays the same while the others wait.
    """
    least = view.evidence.min_frozen_s
    waiters = [state for state in view.waiting if state.samples] or [state for state in view.opaque if state.samples]
    counted_as_waiting = set(waiters)
    others = [
        state for state in (*view.behind, *view.opaque)
        if (state.samples or state.cls in HELD) and state not in counted_as_waiting
    ]  # fmt: skip
    counted = waiters or others
    if not counted or min(state.samples for state in counted if state.samples or counted is others) < MIN_SAMPLES:
        return Stillness(False, False, False, 0.0, least if counted else 0.0, frozenset())
    stuck = frozenset(other for other in others if _still_s(other) >= least and not _writes(other))
    if not waiters:
        if all(other.frozen_s >= least for other in others):
            return Stillness(True, True, False, _shortest(stuck), 0.0, stuck)
        return _not_stuck(view, others, stuck)
    held_up = [waiter for waiter in waiters if waiter.place_s >= least]
    slept = [state for state in held_up if _slept_s(state) >= least]
    if slept or (held_up and any(_slept_s(state) >= least for state in stuck)):
        whole = bool(slept) and len(held_up) == len(waiters) and len(stuck) == len(others)
        pending = [least - _still_s(other) for other in others if other not in stuck and _may_be_stuck(other)]
        more_s = max((seconds for seconds in pending if seconds > 0), default=0.0)
        return Stillness(True, whole, False, _shortest((*held_up, *stuck)), more_s, stuck)
    return _not_stuck(view, waiters, stuck)


def _not_stuck(view: JobView, counted: list[RankState], stuck: frozenset[RankState]) -> Stillness:
    least, watched_s, tail_s = view.evidence.min_frozen_s, view.watched_s, _shortest(counted)
    changed = sum(state.place_s < state.watched_s for state in counted)
    is_busy = not view.uses_gpus and all((state.wakes_s or 0) >= BUSY_WAKES_S for state in counted)
    is_seen = min(state.samples for state in counted) >= MIN_MOVES
    more_s = least - watched_s
    slept_s = min(state.frozen_s for state in counted)
    if more_s <= 0 < slept_s < least:
        more_s = least - slept_s  # it may have stopped only now
    moves = is_seen and (2 * changed >= len(counted) or is_busy)
    return Stillness(False, False, moves, tail_s, max(0.0, more_s), stuck)


def _may_be_stuck(state: RankState) -> bool:
    """Whether it was at one place in all samples, but not for long enough yet."""
    return state.samples >= MIN_SAMPLES and state.place_s >= state.watched_s and not _writes(state)


def _writes(state: RankState) -> bool:
    return (state.written_bytes or 0) >= WRITES_BYTES


def _still_s(state: RankState) -> float:
    return max(state.place_s, state.frozen_s)


def _slept_s(state: RankState) -> float:
    return state.place_s if state.cls in _ONCE else state.frozen_s


def _shortest(states: Iterable[RankState]) -> float:
    return min(map(_still_s, states), default=0.0)
