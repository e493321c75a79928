"""Jobs that appear to stand still: sleeping main threads, watched steps, light stack samples, silent connections.

A rank that waits for requests sleeps as well, and one that computes at length stays in its place, so this says when to
capture; the verdict comes from the captured stacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

import msgspec

from ..text.format import seconds, step_time
from ..text.nodeset_fold import fold_numbers
from .pace import Pulse

#: A step may take this many times the job's median step.
STEPS: Final = 3.0
#: A step counter is read every few seconds: only after this many readings without a change it stands still.
READINGS: Final = 2.5
#: Samples of its place after which a rank is known to stay there.
LEAST_SAMPLES: Final = 3
#: A silence counts from this many times the longest one that ended.
PAUSES: Final = 1.5
#: While a job starts, compiles or writes a checkpoint, this many times the seconds without progress count.
LONG_ACTIVITY: Final = 20.0
#: Steps that a rank must have been seen to make before their duration is known.
LEAST_STEPS: Final = 2

#: (job, attempt)
JobKey = tuple[str, int]


class RankActivity(msgspec.Struct, frozen=True):
    """One live rank. Times are in seconds; None is unknown."""

    job: str
    attempt: int
    rank: int | None
    asleep_s: float | None = None  # its main thread has not run for this long; 0.0: it ran in the last sample
    step_age_s: float | None = None  # since its watched step was seen to change, or was first read
    step_s: float | None = None  # median duration of a step; 0.0 while steps advance, where it is not used
    read_every_s: float = 0.0  # interval at which the step is read
    place_s: float | None = None  # at one line of its code in all light samples, for at least this long
    path_s: float | None = None  # in one function of its code
    samples: int = 0  # consecutive samples in that function
    longest_quiet_s: float = 0.0  # the longest silence of its data connections that ended
    quiet_s: float | None = None  # its data connections are silent for this long; 0.0: they are not; None: it has none
    is_patient: bool = False  # it starts, compiles or writes a checkpoint
    advances: bool | None = None  # its GPU exchanges data with others; None: unknown
    pulse: Pulse | None = None  # the steps of its job in traffic or power; None: they do not show


class Suspicion(msgspec.Struct, frozen=True):
    """A job that appears to stand still."""

    job: JobKey
    since_s: float  # for at least this long
    ranks: tuple[int, ...]  # whose main threads sleep; empty where only the step counter stands still
    text: str  # `ranks 0-6 have not run for 34 s`
    is_silent: bool = False  # no rank left its function, and the data connections of all are silent
    is_slow: bool = False  # it does not stand still: its steps advance
    late: int | None = None  # the rank that the others wait for in each step, where one stands out
    measured: str = ""  # how often they wait for it, with error bars
    is_data: bool = False  # it waits for its data meanwhile
    waits_every_s: float = 0.0  # about as often they have waited for it lately
    evidence: tuple[str, ...] = ()  # fields of records that show it; (): those of watched steps or main threads


def least_stall_s(ranks: Sequence[RankActivity], stall_s: float) -> float:
    """Seconds without progress that count: `stall_s`, or more where steps of this job are longer or it starts."""
    steps = [rank.step_s for rank in ranks if rank.step_s is not None]
    steps = steps or [rank.pulse.period_s for rank in ranks if rank.pulse is not None]
    if any(rank.is_patient for rank in ranks):
        stall_s *= LONG_ACTIVITY
    return max(stall_s, STEPS * median(steps)) if steps else stall_s


def suspicions(ranks: Iterable[RankActivity], stall_s: float) -> list[Suspicion]:
    """The jobs that appear to stand still for `stall_s` or longer, by name; the newest attempt of each."""
    jobs: dict[JobKey, list[RankActivity]] = {}
    for rank in ranks:
        jobs.setdefault((rank.job, rank.attempt), []).append(rank)
    newest = {job: max(attempt for name, attempt in jobs if name == job) for job, _ in jobs}
    suspected = []
    for key in sorted(jobs):
        if newest[key[0]] == key[1]:
            suspicion = _suspicion(key, jobs[key], least_stall_s(jobs[key], stall_s))
            if suspicion is not None:
                suspected.append(suspicion)
    return suspected


def _suspicion(job: JobKey, ranks: Sequence[RankActivity], least_s: float) -> Suspicion | None:
    ages = [rank.step_age_s for rank in ranks if rank.step_age_s is not None and rank.step_s is not None]
    if ages and min(ages) < least_s:
        return None  # steps advance, although main threads sleep
    asleep = [rank for rank in ranks if rank.asleep_s is not None and rank.asleep_s >= least_s]
    if asleep:
        numbers = tuple(sorted({rank.rank for rank in asleep if rank.rank is not None}))
        since_s = min(rank.asleep_s or 0.0 for rank in asleep)
        who = f"{'rank' if len(numbers) == 1 else 'ranks'} {fold_numbers(numbers)}" if numbers else "a rank"
        text = f"the main thread of {who} has not run for {seconds(since_s)}"
        return Suspicion(job, since_s, numbers, text)
    needed_s = max([least_s, *(READINGS * rank.read_every_s for rank in ranks)])
    if ages and min(ages) >= needed_s:
        return Suspicion(job, min(ages), (), f"the watched step has not changed for {seconds(min(ages))}")
    return None if ages else _held(job, ranks, least_s) or _stopped(job, ranks, least_s)


def _stopped(job: JobKey, ranks: Sequence[RankActivity], least_s: float) -> Suspicion | None:
    """A job whose steps showed in the traffic of a node or the power of a GPU, which have been low since.

    An evaluation or a checkpoint is such a pause, too.
    """
    pulses = [rank.pulse for rank in ranks if rank.pulse is not None]
    pulse = min(pulses, key=lambda pulse: pulse.age_s, default=None)  # the node that was last to send
    if pulse is None or pulse.age_s < max(least_s, STEPS * pulse.period_s, PAUSES * pulse.longest_pause_s):
        return None
    text = f"{pulse.curve}, high every {step_time(pulse.period_s)} before, has been low for {seconds(pulse.age_s)}"
    return Suspicion(job, pulse.age_s, (), text, evidence=pulse.evidence)


def _held(job: JobKey, ranks: Sequence[RankActivity], least_s: float) -> Suspicion | None:
    """A job all of whose ranks stay where they are, while nothing shows that it goes on.

    Where connections carried data and are silent, ranks may run within one function, as code that polls does; elsewhere
    they must stay at one line.
    """
    if any(rank.advances or rank.samples < LEAST_SAMPLES or rank.path_s is None for rank in ranks):
        return None
    quiet = [rank.quiet_s for rank in ranks if rank.quiet_s is not None]
    held = [rank.path_s if quiet else rank.place_s for rank in ranks]
    since_s = min([*quiet, *(seconds_ for seconds_ in held if seconds_ is not None)])
    longest_quiet_s = max(rank.longest_quiet_s for rank in ranks)
    if since_s < max(least_s, PAUSES * longest_quiet_s if quiet else 0.0):
        return None
    is_silent = len(quiet) == len(ranks) > 1
    silent = " and its connections carry no data" if quiet else ""
    return Suspicion(job, since_s, (), f"no rank has left its place for {seconds(since_s)}{silent}", is_silent)
