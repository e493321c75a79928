"""Progress of a job over its samples: whether it is stalled, for how long, and the straggler of a job that moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import comb
from typing import Final

import msgspec

from ..stacks.frame_models import FrameClass
from ..stacks.frames import long_work
from .job_view import HELD, WRITES_BYTES, JobView
from .rank_state import LONGEST_PAUSE_S, WAITING, RankState, site_of
from .verdict import Site

#: Samples of a rank below which nothing is known of its progress.
MIN_SAMPLES: Final = 2
#: Samples from which a job counts as progressing if half of its ranks or more changed place.
MIN_MOVES: Final = 3
#: Wakes per second from which a rank without a GPU, in one and the same call, is communicating.
BUSY_WAKES_S: Final = 1.0
#: Bytes that its thread reads, and page faults of one that loads, by which a rank makes progress: more than by polling.
READS_BYTES: Final = 65_536
LOADS_FAULTS: Final = 64
#: CPU time while it was sampled, s and share of a core, by which a compiler or a child process works.
LEAST_WORK_S: Final = 0.03
WORK_SHARE: Final = 0.05
#: Seconds for which they are watched: on a busy node they do not run all the time.
LEAST_WATCH_S: Final = 1.5
#: Seconds. A step on a device may take this long.
LEAST_DEVICE_S: Final = 30.0
#: Seconds that a rank may compute in one place before the others wait for it in vain: no step of a training job, an
#: evaluation or a preparation of data is that long without a sign of progress, and loops without an end are longer.
LEAST_COMPUTES_S: Final = 30.0
#: Seconds for which the others may wait for a rank that evaluates or saves: nothing shows work that is done elsewhere,
#: by a GPU, a service or a file system, while the rank pauses at one line again and again.
LEAST_LONG_WORK_S: Final = 600.0
#: Seconds up to which a wait with a limit is expected to end: the usual time limit of collectives.
LONGEST_WAIT_S: Final = 1800.0
#: A limited wait is repeated in vain if its place is the same for this many times its length.
LEAST_PAUSES: Final = 2.0
#: Seconds for which a job waits in its set-up before a rank that was never found is missing: nodes start one by one.
LEAST_START_S: Final = 30.0
#: Seconds for which a part of a job must stand still to be hung while the rest passes steps.
LEAST_PART_S: Final = 30.0
#: Seconds for which ranks must poll in their loops while another one stands still, and where all of them poll: these
#: may wait for work from outside.
LEAST_POLL_S: Final = 10.0
LEAST_ALL_POLL_S: Final = 30.0
#: Classes of ranks that load.
_READING: Final[frozenset[FrameClass]] = frozenset(
    {"file_io", "network_io", "checkpoint_io", "dataloader", "import", "compile", "subprocess"}
)
#: Classes of ranks that wait for a child process, whose progress is theirs.
_BY_CHILD: Final[frozenset[FrameClass]] = frozenset({"dataloader", "subprocess", "compile"})
#: Classes that occur once in a job: a rank that stays in them has not passed a step, even if it polls.
_ONCE: Final = ("group_setup", "teardown", "store_wait")
#: Samples a rank needs before its shares count.
MIN_STRAGGLER_SAMPLES: Final = 5
#: Share of samples in which the others must wait, and their lead over the straggler.
WAIT_SHARE: Final = 0.5
LEAD: Final = 0.4
#: Probability, over all ranks, that a rank like the others is seen waiting as seldom as the straggler.
CHANCE: Final = 0.01


class Stillness(msgspec.Struct, frozen=True):
    """The progress of a job over its samples."""

    is_stuck: bool  # waiting ranks waited for at least `min_frozen_s`, and one of them slept throughout
    is_whole: bool  # all of them did, and no rank that they may wait for makes progress
    moves: bool  # it made progress while it was sampled
    more_s: float  # longer sampling that would decide, s; 0.0 where it would not
    stuck: frozenset[RankState]  # ranks that do not wait and are unchanged, too
    may_spin: bool = False  # some ranks sleep, and the others may be polling in a native call for them


def stillness(view: JobView) -> Stillness:
    """Waiting ranks must have been on one call path for `min_frozen_s`, and one of them must have slept throughout.

    A job that only communicates is in a collective at every sample, but each completion wakes its ranks. A rank that
    computes never sleeps: it is stuck if its call path stays the same while the others wait.
    """
    least = view.least_s
    waiters = [state for state in view.waiting if state.samples] or [state for state in view.opaque if state.samples]
    by_device = bool(waiters) and not view.waiting and all(state.cls == "device_wait" for state in waiters)
    counted_as_waiting = set(waiters)
    others = [
        state for state in (*view.behind, *view.opaque)
        if (state.samples or state.cls in HELD or state.is_other_program) and state not in counted_as_waiting
    ]  # fmt: skip
    counted = waiters or others
    if not counted or min(state.samples for state in counted if state.samples or counted is others) < MIN_SAMPLES:
        return Stillness(False, False, False, least if counted else 0.0, frozenset())
    stuck = frozenset(
        other
        for other in others
        if _still_s(other) >= _least_s(view, other) and not works(view, other) and _lacks_s(view, other) <= 0
    )
    if not waiters:
        if all(other.frozen_s >= least and not works(view, other) for other in others):
            return Stillness(True, True, False, 0.0, stuck)
        return _may_spin(view, others, stuck) or _not_stuck(view, others, stuck)
    least = _least_wait_s(view)
    held_up = [waiter for waiter in waiters if waiter.place_s >= least]
    slept = [state for state in held_up if _slept_s(state) >= least]
    # a device is waited for at each step: a rank elsewhere must have been there at every sample
    slept = [state for state in slept if not by_device]
    if by_device and not others:
        return _on_devices(view, waiters, stuck)
    if slept or (held_up and any((_still_s(state) if by_device else _slept_s(state)) >= least for state in stuck)):
        # MPI polls while it waits: then a late rank must have slept
        is_still = bool(slept) or by_device or any(_slept_s(state) >= least for state in stuck)
        whole = is_still and len(held_up) == len(waiters) and len(stuck) == len(others)
        late = [other for other in others if other not in stuck and _may_be_stuck(view, other)]
        late = [other for other in late if not ends(other) and long_work_of(view, other) is None]
        pending = [max(_least_s(view, other) - _still_s(other), _lacks_s(view, other)) for other in late]
        pending += [least - waiter.place_s for waiter in waiters if _may_be_held_up(waiter)]
        more_s = max((seconds for seconds in pending if seconds > 0), default=0.0)
        return Stillness(True, whole, False, more_s, stuck)
    return _not_stuck(view, waiters, stuck)


def until_started(view: JobView, still: Stillness) -> Stillness:
    """Longer sampling where a job waits in its set-up for ranks that were never found: these may be starting late."""
    waits = [_still_s(state) for state in view.waiting if state.samples]
    is_setup = waits and all(state.cls == "group_setup" for state in view.waiting)
    if not is_setup or not view.not_found or view.behind or view.opaque or not still.is_stuck:
        return still
    more_s = max(view.least_s, LEAST_START_S) - min(waits)
    return msgspec.structs.replace(still, more_s=max(still.more_s, more_s)) if more_s > 0 else still


def is_part(view: JobView, still: Stillness, named: Sequence[RankState]) -> bool:
    """Whether ranks stand still for long, and ranks that wait for them, while all others go on without them."""
    if not named or not still.is_stuck or any(state not in still.stuck for state in named):
        return False
    victims = [state for state in view.waiting if _still_s(state) >= LEAST_PART_S]
    movers = [state for state in view.states if state not in victims and state not in named]
    if not victims or any(_still_s(state) < LEAST_PART_S for state in named):
        return False
    needed = {wait.rank for state in named for wait in state.peer_waits}
    return all(_goes_on(state) and state.rank not in needed for state in movers)


def _goes_on(state: RankState) -> bool:
    """Whether it changes its place, or wakes up as one that communicates does."""
    return state.place_s < state.watched_s or (state.wakes_s or 0.0) >= BUSY_WAKES_S


def _least_wait_s(view: JobView) -> float:
    """Seconds for which ranks must wait to be held up."""
    if not view.pollers:
        return view.least_s
    return max(view.least_s, LEAST_POLL_S if view.behind else LEAST_ALL_POLL_S)


def _least_s(view: JobView, state: RankState) -> float:
    """Seconds at one place after which a rank that others wait for is stuck."""
    if long_work_of(view, state):
        return max(view.least_s, LEAST_LONG_WORK_S)
    if ends(state):
        return max(view.least_s, LEAST_PAUSES * (state.pause_s or 0.0))
    return max(view.least_s, LEAST_COMPUTES_S) if _may_go_on(view, state) else view.least_s


def _may_go_on(view: JobView, state: RankState) -> bool:
    """Whether it, or a worker of its data loader, may make progress while it stays at one place."""
    workers = view.workers.get(state.rank, ()) if state.rank is not None and state.cls == "dataloader" else ()
    return any(
        (each.runs and each.cls == "compute") or each.ends_soon or _has_received(each) for each in (state, *workers)
    )


def long_work_of(view: JobView, state: RankState) -> str | None:
    """What it does by the names of its functions, evaluating or checkpointing, if it may go on without any sign."""
    if not _may_go_on(view, state):
        return None
    return next(filter(None, map(long_work, (state.newest or state.last).frames or ())), None)


def ends(state: RankState) -> bool:
    """Whether its sleep, or wait, is long but ends by itself: before a launcher or a time limit ends the job."""
    return state.pause_s is not None and LONGEST_PAUSE_S < state.pause_s <= LONGEST_WAIT_S


def repeats(state: RankState) -> bool:
    """Whether its limited wait has ended without effect: it is where it was before the present one began."""
    return state.pause_s is not None and _still_s(state) >= LEAST_PAUSES * state.pause_s


def _lacks_s(view: JobView, state: RankState) -> float:
    """Seconds of sampling that lack to see whether its children, or threads of a compiler, work, or whether it does."""
    if state.cls in ("subprocess", "compile"):
        return LEAST_WATCH_S - state.watched_s
    return view.least_s - state.watched_s if state.ends_soon else 0.0


def _has_received(state: RankState) -> bool:
    """Whether it waits for more data on a connection on which some arrived lately: a stream has pauses."""
    ago_s = state.received_ago_s
    return state.cls == "network_io" and ago_s is not None and ago_s < LEAST_COMPUTES_S


def _on_devices(view: JobView, waiters: list[RankState], stuck: frozenset[RankState]) -> Stillness:
    """All ranks wait for their devices, at every step: standing still shows by a long sleep, or by GPUs that spin."""
    least = max(view.least_s, LEAST_DEVICE_S)
    slept = all(state.frozen_s >= least for state in waiters)
    spin = all(
        state.place_s >= least and view.gpu_states.get(state.rank or 0) == "spinning" for state in waiters
    )  # fmt: skip
    if slept or spin:
        return Stillness(True, True, False, 0.0, stuck)
    return _not_stuck(view, waiters, stuck)


def _not_stuck(view: JobView, counted: list[RankState], stuck: frozenset[RankState]) -> Stillness:
    least = _least_wait_s(view)
    changed = sum(map(_has_changed, counted))
    woken = [state for state in counted if (state.wakes_s or 0) >= BUSY_WAKES_S and state.moved_bytes != 0]
    woken = [state for state in woken if state.poll is None]
    is_busy = not view.uses_gpus and len(woken) == len(counted)
    is_seen = min(state.samples for state in counted) >= MIN_MOVES
    moves = is_seen and (2 * changed >= len(counted) or is_busy)
    more_s = least - view.watched_s
    slept_s = min(map(_slept_s, counted))
    recovers = moves and all(_slept_s(state) <= state.recovered_s for state in counted)
    if more_s <= 0 < slept_s < least and not recovers:
        more_s = least - slept_s  # it may have stopped only now: some rank never woke from a sleep that long
    return Stillness(False, False, moves, max(0.0, more_s), stuck)


def _has_changed(state: RankState) -> bool:
    """Whether it was elsewhere before, or moves data; the traffic of one that polls is none."""
    if state.poll is not None:
        left = state.poll.is_new and state.poll.seconds < LEAST_POLL_S
        return left or (state.written_bytes or 0) >= WRITES_BYTES
    return state.place_s < state.watched_s or (state.moved_bytes or 0) > 0


def _may_spin(view: JobView, others: Sequence[RankState], stuck: frozenset[RankState]) -> Stillness | None:
    """Whether some ranks sleep and all others run in one native call, as in MPI, which polls while it waits."""
    running = [state for state in others if state.runs and state.trace is not None and state.trace.in_user]
    asleep = [state for state in others if state.frozen_s >= view.least_s and not works(view, state)]
    if not running or not asleep or len(running) + len(asleep) < len(others):
        return None
    if any(state.native or state.place_s < state.watched_s for state in running):
        return None
    more_s = view.least_s - min(state.place_s for state in running)
    return Stillness(False, False, False, max(0.0, more_s), stuck, more_s <= 0)


def _may_be_stuck(view: JobView, state: RankState) -> bool:
    """Whether it was at one place in all samples, but not for long enough yet."""
    is_seen = state.samples >= MIN_SAMPLES or state.is_other_program
    return is_seen and state.place_s >= state.watched_s and not works(view, state)


def _may_be_held_up(waiter: RankState) -> bool:
    """Whether it has slept since it came to its place: a rank of a node that was read later, or the last to arrive."""
    return 0.0 < waiter.place_s <= _slept_s(waiter)


def works(view: JobView, state: RankState) -> bool:
    """Whether a rank, or the child process that it waits for, moved data while it was sampled."""
    children = view.workers.get(state.rank, ()) if state.rank is not None and state.cls in _BY_CHILD else ()
    if state.cls == "compile" and (state.runs or _uses(state, state.cpu_s) or any(child.runs for child in children)):
        return True
    if state.cls in ("subprocess", "compile") and _uses(state, state.children_cpu_s):
        return True
    if state.cls == "subprocess" and (state.children_bytes or 0) >= READS_BYTES:
        return True
    return _moves_data(state) or any(map(_moves_data, children))


def _uses(state: RankState, cpu_s: float | None) -> bool:
    """Whether this CPU time is work: more than timers of idle threads need."""
    return (cpu_s or 0.0) >= max(LEAST_WORK_S, WORK_SHARE * state.watched_s)


def moves(view: JobView, state: RankState) -> bool:
    """Whether a process runs, moved data, or changed its place while it was sampled."""
    return state.runs or works(view, state) or state.place_s < state.watched_s


def _moves_data(state: RankState) -> bool:
    if (state.written_bytes or 0) >= WRITES_BYTES or (state.moved_bytes or 0) > 0:
        return True
    loads = state.cls in _READING and (state.faults or 0) >= LOADS_FAULTS
    return loads or (state.read_bytes or 0) >= READS_BYTES


def _still_s(state: RankState) -> float:
    return max(state.place_s, state.frozen_s)


def _slept_s(state: RankState) -> float:
    polls = state.by_library and state.moved_bytes == 0  # a wait with a time limit wakes up without any event
    polls |= state.poll is not None or any(target.direction == "lock" for target in state.waits_for)
    return state.place_s if state.cls in _ONCE or polls else state.frozen_s


class Straggler(msgspec.Struct, frozen=True):
    """One rank that the others wait for in most steps."""

    state: RankState
    cls: FrameClass  # its most frequent class while it does not wait
    share: float  # of the samples in which it waited
    others: float  # median of that of the others
    samples: int
    site: Site | None = None  # where it mostly is while it does so


def straggler(view: JobView) -> Straggler | None:
    """The rank that waits least, if that is significant; None where no rank stands out.

    Refuses where ranks wait for messages rather than in collectives: the stages of a pipeline wait for each other by
    design. Refuses where several ranks stand out: then work is distributed unevenly, and no single rank is slow.
    Refuses where the others were in one long wait: that is a single event. Samples of one and the same wait count once.
    """
    trials = {state: independent_samples(state) for state in view.states}
    ranks = [state for state in view.states if len(trials[state]) >= MIN_STRAGGLER_SAMPLES]
    if len(ranks) < len(view.states) or any("p2p" in rank.classes for rank in ranks):
        return None
    ranks.sort(key=lambda state: state.rank or 0)
    slowest = waits_least([(_waits(trials[state]), len(trials[state])) for state in ranks])
    if slowest is None:
        return None
    slow, others = ranks[slowest], [state for state in ranks if state is not ranks[slowest]]
    if not _alternates(others):
        return None
    own = Counter(cls for cls in slow.classes if cls not in WAITING)
    shares = sorted(_waits(state.classes) / len(state.classes) for state in others)
    share = _waits(slow.classes) / len(slow.classes)
    cls = max(own, key=lambda cls: (own[cls], cls))
    return Straggler(slow, cls, share, shares[len(shares) // 2], len(slow.classes), _usual_site(slow, cls))


def independent_samples(state: RankState) -> list[FrameClass]:
    """The classes of its samples without those that saw what the sample before saw, as it had not woken up since."""
    return [
        cls
        for index, cls in enumerate(state.classes)
        if index == 0
        or state.switches[index] is None
        or state.switches[index] != state.switches[index - 1]
        or state.traces[index].calls != state.traces[index - 1].calls
    ]


def _usual_site(state: RankState, cls: FrameClass) -> Site | None:
    """The place in the job's own code that most samples of this class share; of equal ones the newest."""
    sites = [
        site_of(trace) for trace, sampled in zip(state.traces, state.classes, strict=True) if sampled == cls
    ]  # fmt: skip
    counts = Counter(site for site in reversed(sites) if site is not None)
    return counts.most_common(1)[0][0] if counts else None


def waits_least(counts: Sequence[tuple[int, int]]) -> int | None:
    """The index of the rank that waits significantly less than all others, which mostly wait; None without one.

    `counts` are (samples in which a rank waits, its samples); at least one sample of each.
    """
    if len(counts) < 2:
        return None
    shares = sorted((waits / samples, index) for index, (waits, samples) in enumerate(counts))
    (lowest, slowest), others = shares[0], [share for share, _ in shares[1:]]
    if others[len(others) // 2] < WAIT_SHARE or others[0] - lowest < LEAD:
        return None
    return slowest if _chance(*counts[slowest], _least_likely_share(counts, slowest)) * len(counts) <= CHANCE else None


def _least_likely_share(counts: Sequence[tuple[int, int]], slowest: int) -> float:
    """Estimated share of samples in which the least waiting of the others waits; below 1 even if it always waits.

    The posterior mean of a proportion with Jeffreys' prior.
    """
    others = [count for index, count in enumerate(counts) if index != slowest]
    return min((waits + 0.5) / (samples + 1) for waits, samples in others)


def _waits(classes: Sequence[FrameClass]) -> int:
    return sum(cls in WAITING for cls in classes)


def _chance(waits: int, samples: int, share: float) -> float:
    """Probability that a rank waiting with this `share` is seen waiting so seldom (binomial)."""
    return sum(comb(samples, k) * share**k * (1 - share) ** (samples - k) for k in range(waits + 1))


def _alternates(others: Sequence[RankState]) -> bool:
    """Whether a waiting rank was woken meanwhile, so that steps pass."""
    return any(rank.wakes_s is None or rank.wakes_s * rank.watched_s >= 2 * MIN_STRAGGLER_SAMPLES for rank in others)
