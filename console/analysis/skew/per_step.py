"""Lateness per step: who causes the waiting of a whole step, where a step has several collectives.

A rank that is late once a step is last at one of the step's collectives, and by chance at the others: neither how often
it is last nor its median lateness shows it. Two tests find it: whether it is last at the same place of most steps, and
whether it causes most of the waiting of most steps. The first is the stronger one, where the length of a step is known:
the chance delays of all other collectives of the step do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from math import exp, lgamma, log, sqrt
from statistics import mean, median
from typing import Any, Final

import msgspec

from ..collectives.period import period_of
from .sync_points import SyncPoint

#: Fewest parts of the record that show a consistent cause.
LEAST_PARTS: Final = 8
#: A rank must cause most of the waiting in more than this share of the parts, where these are not steps: the delays of
#: parts that cut steps apart are not independent, so that their p-value alone proves little.
LEAST_CAUSED: Final = 0.5
#: Least excess of a culprit, and of one that others wait for so many times as long as for any other: less is of no
#: consequence, however significant it is.
OFTEN: Final = 0.25
SOMETIMES: Final = 0.1
MUCH: Final = 5.0
#: Parts of the record in all of which a culprit is late.
PARTS: Final = 4
#: ns. Ranks leave a collective at different times, by about this much, and so enter the next one: no lateness of one
#: of several collectives of a step.
LEAVING_NS: Final = 200_000
#: Newest collectives in whose pauses a period is sought; by this factor the pauses between steps are longer.
MOST_PAUSES: Final = 2048
LONGER: Final = 1.5
#: Quantile of the normal distribution for intervals of 95 %.
_NORMAL_95: Final = 1.96


class Delay(msgspec.Struct, frozen=True):
    """The last ranks of one collective, when they arrived, how late they were, and the waiting of all others."""

    last: tuple[int, ...]  # empty: unresolved
    ranks: int
    behind_ns: int
    bound_ns: int
    caused_ns: int  # rank-nanoseconds
    group: str = ""
    number: int = 0
    arrived_ns: int = 0


class StepLateness(msgspec.Struct, frozen=True):
    """One rank over parts of `size` successive collectives: steps, or, where these are unknown, parts as long.

    `caused`: parts in which it caused the waiting, of `parts` with any. `behind_ns` is how long the others waited for
    it in a part: the median of those parts if it is late at the same place of each, else the median of all parts.
    """

    size: int
    is_step: bool  # `size` is the period of the job's operations
    parts: int
    caused: int
    behind_ns: int
    bound_ns: int  # clock error, and the interval of 95 % of the median
    chance: float  # p-value, corrected for the sizes and places that were tried
    excess: float  # how consistently, beyond chance: see `excess`
    is_placed: bool = False  # always at the same collectives of a step

    @property
    def is_resolved(self) -> bool:
        """Whether its lateness exceeds its error; not required of stretches, which cut steps apart."""
        return self.behind_ns > self.bound_ns or not self.is_step


def excess(times: Sequence[bool], by_chance: float, much: float = 1.0) -> float:
    """How consistently something happens, beyond chance: 0 as often as by chance, 1 always.

    0, too, where it is less than `OFTEN` in either half of the times, or than `SOMETIMES` if it is `MUCH` worse than
    when it happens to others (`much`, a factor), and in any quarter no more than by chance: a machine that delays one
    rank for some seconds, or one of its cores that has more to do than the others, makes no straggler.
    """
    count = len(times)
    if count < 2 * PARTS or by_chance >= 1.0:
        return 0.0
    quarters = [_beyond(times[count * part // PARTS : count * (part + 1) // PARTS], by_chance) for part in range(PARTS)]
    least = min(_beyond(times[: count // 2], by_chance), _beyond(times[count // 2 :], by_chance))
    is_lasting = min(quarters) > 0.0 and least >= (SOMETIMES if much >= MUCH else OFTEN)
    return _beyond(times, by_chance) if is_lasting else 0.0


def _beyond(times: Sequence[bool], by_chance: float) -> float:
    return (mean(times) - by_chance) / (1.0 - by_chance)


def chance_of(times: Sequence[bool], by_chance: float) -> float:
    """P-value of something that happens this often (binomial), of so many times as are independent of each other.

    What happens in bursts is less significant: trials are counted by the correlation of one with the next one.
    """
    before, after = times[:-1], times[1:]
    spread = sqrt(_variance(before) * _variance(after))
    both = mean(map(all, zip(before, after, strict=True))) if before else 0.0
    correlation = (both - mean(before) * mean(after)) / spread if spread else 0.0
    correlation = min(0.95, max(0.0, correlation))
    trials = max(1, int(len(times) * (1.0 - correlation) / (1.0 + correlation)))
    return binomial_tail(trials, int(mean(times) * trials + 0.5), by_chance)


def _variance(times: Sequence[bool]) -> float:
    share = mean(times) if times else 0.0
    return share * (1.0 - share)


def much_later(own: Sequence[int], others: Sequence[int]) -> float:
    """How many times as long as for others is waited for a rank (medians)."""
    return median(own) / max(1.0, median(others)) if own and others else 1.0


def binomial_tail(trials: int, least: int, share: float) -> float:
    """Probability of at least `least` successes in `trials`, each with probability `share`."""
    if least <= 0 or share >= 1.0:
        return 1.0
    if share <= 0.0:
        return 0.0
    logs = (
        lgamma(trials + 1) - lgamma(k + 1) - lgamma(trials - k + 1) + k * log(share) + (trials - k) * log(1.0 - share)
        for k in range(least, trials + 1)
    )
    return min(1.0, sum(exp(log_term) for log_term in logs))


def median_error(values: Sequence[int]) -> int:
    """Half of the interval of 95 % of the median, by order statistics; of few values half of their range."""
    ordered = sorted(values)
    count, middle = len(ordered), median(ordered)
    reach = _NORMAL_95 * sqrt(count) / 2
    low, high = ordered[max(0, int(count / 2 - reach))], ordered[min(count - 1, int(count / 2 + reach))]
    return int(max(middle - low, high - middle))


# -- the length of a step ----------------------------------------------------------------------------------------------


def step_size(points: Sequence[SyncPoint], likely: Iterable[int] = ()) -> int | None:
    """Collectives per step, in the order of `points`; None where unknown, and for one. `likely` sizes are tried first.

    The period of operation, group and size; that of the pauses before the collectives, if it is a multiple of it:
    layers repeat within a step, and all collectives of a step may be alike.
    """
    period = period_of([(point.name, point.group, point.numel) for point in points])
    paused = _period_of_pauses(_pauses(points[-MOST_PAUSES:]), period or 1, likely)
    if paused is not None:
        return paused
    return period if period is not None and period > 1 else None


def _pauses(points: Sequence[SyncPoint]) -> list[int]:
    """From the last arrival at the collective before to the first at this one, ns."""
    return [
        min(arrival.instant.ns for arrival in point.arrivals) - max(arrival.instant.ns for arrival in before.arrivals)
        for before, point in pairwise(points)
    ]


def _period_of_pauses(pauses: Sequence[int], unit: int, likely: Iterable[int]) -> int | None:
    """The least period at one place of which most pauses are longer than most others; None without one, and for 1."""
    import numpy as np

    all_ = np.array(pauses, dtype=np.int64)
    tried = chain(likely, range(unit, len(pauses) // LEAST_PARTS + 1, unit))
    return next((period for period in tried if period % unit == 0 and _is_period(all_, period)), None)


def _is_period(pauses: Any, period: int) -> bool:
    """Whether three of four pauses at one place of this period are longer than three of four at all other places."""
    import numpy as np

    rows = len(pauses) // period
    if period < 2 or rows < LEAST_PARTS:
        return False
    places = pauses[len(pauses) - rows * period :].reshape(rows, period)
    longest = int(np.argmax(np.median(places, axis=0)))
    least = np.partition(places[:, longest], rows // 4)[rows // 4]
    rest = np.delete(places, longest, axis=1).ravel()
    return bool(least > LEAVING_NS and least > LONGER * np.partition(rest, rest.size * 3 // 4)[rest.size * 3 // 4])


# -- at one place of the steps -----------------------------------------------------------------------------------------


class _Place(msgspec.Struct, frozen=True):
    """How often one rank was last at one place of the steps."""

    chance: float
    excess: float


def placed_lateness(
    delays: Sequence[Delay], points: Sequence[SyncPoint], size: int, most_p: float
) -> dict[int, StepLateness]:
    """The ranks that are last at the same collectives of the steps, by rank. `delays` are of one group, oldest first.

    `most_p` is the significance level of each rank. The p-value is corrected for the number of places: half of the
    level is for the place after the longest pause, where a step begins, and the others share the rest.
    """
    if len(delays) < size * LEAST_PARTS:
        return {}
    span = delays[-1].number - delays[-1 - size].number  # a recorder may have lost steps in between
    if span < 1:  # clock errors exceed the distance of these collectives
        return {}
    places: dict[int, list[Delay]] = defaultdict(list)
    pauses: dict[int, list[int]] = defaultdict(list)
    for delay, pause in zip(delays, [0, *_pauses(points)], strict=True):
        places[delay.number % span].append(delay)
        pauses[delay.number % span].append(pause)
    begin = max(places, key=lambda number: median(pauses[number]))
    late: dict[int, dict[int, _Place]] = defaultdict(dict)
    for number, own in places.items():
        for rank, place in _late_at(own, 2 if number == begin else 2 * (len(places) - 1), most_p).items():
            late[rank][number] = place
    return {rank: _over_steps(rank, [places[number] for number in own], own, span) for rank, own in late.items()}


def _late_at(delays: Sequence[Delay], tests: int, most_p: float) -> dict[int, _Place]:
    """The ranks that are significantly often last at one place, and by more than ranks leave a collective apart."""
    resolved = [delay for delay in delays if delay.last]
    if len(resolved) < LEAST_PARTS:
        return {}
    by_chance = mean(len(delay.last) / delay.ranks for delay in resolved)
    late = {}
    for rank in {rank for delay in resolved for rank in delay.last}:
        times = [rank in delay.last for delay in resolved]
        chance = min(1.0, chance_of(times, by_chance) * tests)
        behind = [delay.behind_ns for delay in resolved if rank in delay.last]
        much = much_later(behind, [delay.behind_ns for delay in resolved if rank not in delay.last])
        consistent = excess(times, by_chance, much)
        if chance <= most_p and consistent * median(behind) >= LEAVING_NS:
            late[rank] = _Place(chance, consistent)
    return late


def _over_steps(rank: int, late: Sequence[Sequence[Delay]], places: Mapping[int, _Place], span: int) -> StepLateness:
    """The lateness of a rank per step, over the places at which it is late."""
    steps: dict[int, list[Delay]] = defaultdict(list)
    for own in late:
        for delay in own:
            if delay.last:
                steps[delay.number // span].append(delay)
    behind = [waited_ns for step in steps.values() if (waited_ns := _waited_ns(step, rank))]
    bound_ns = median(delay.bound_ns for step in steps.values() for delay in step if rank in delay.last)
    best = min(places.values(), key=lambda place: place.chance)
    return StepLateness(
        span, True, len(steps), len(behind), int(median(behind)), int(bound_ns) + median_error(behind), best.chance,
        best.excess, is_placed=True,
    )  # fmt: skip


def _waited_ns(delays: Iterable[Delay], rank: int) -> int:
    """How long the others waited for this rank alone; lateness at collectives that overlap in time counts once."""
    total = until = 0
    intervals = [(delay.arrived_ns - delay.behind_ns, delay.arrived_ns) for delay in delays if rank in delay.last]
    for begin, end in sorted(intervals):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


# -- of whole steps ----------------------------------------------------------------------------------------------------


def step_lateness(delays: Sequence[Delay], size: int | None, ranks: int) -> dict[int, StepLateness]:
    """By rank, the part size at which its lateness is least likely by chance.

    `size` is that of a step; without it, sizes of 2, 4, 8, … are tried, and the p-value is multiplied by their number.
    """
    sizes = [size] if size is not None else _sizes(len(delays))
    best: dict[int, StepLateness] = {}
    for tried in sizes:
        for rank, late in _of_size(delays, tried, ranks).items():
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


def _of_size(delays: Sequence[Delay], size: int, ranks: int) -> dict[int, StepLateness]:
    """The lateness of each rank that caused the most waiting of any part. An incomplete first part is left out."""
    parts = [delays[begin : begin + size] for begin in range(len(delays) % size, len(delays), size)]
    if len(parts) < LEAST_PARTS:
        return {}
    winners = [_most_waited_for(part) for part in parts]
    waited = [latest for latest in winners if latest]
    if not waited:
        return {}
    by_chance = sum(map(len, waited)) / ranks / len(waited)
    by_rank = {
        rank: [[delay for delay in part if rank in delay.last] for part in parts]
        for rank in {rank for delay in delays for rank in delay.last}
    }
    behind = {rank: median(_waited_ns(part, rank) for part in own) for rank, own in by_rank.items()}
    times = {rank: median(map(len, own)) for rank, own in by_rank.items()}
    late = {}
    for rank, count in Counter(rank for latest in waited for rank in latest).items():
        # what the others cause by chance is no lateness of this one
        beyond = behind[rank] - _of_others(behind, rank, ranks)
        if beyond < LEAVING_NS * max(1.0, times[rank] - _of_others(times, rank, ranks)):
            continue
        won = [rank in latest for latest in waited]
        bound_ns = median(sum(delay.bound_ns for delay in part) for part in by_rank[rank])
        error_ns = median_error([_waited_ns(part, rank) for part in by_rank[rank]])
        late[rank] = StepLateness(
            size, False, len(waited), count, int(beyond), int(bound_ns) + error_ns,
            chance_of(won, by_chance), excess(won, by_chance),
        )  # fmt: skip
    return late


def _of_others(values: Mapping[int, float], rank: int, ranks: int) -> float:
    """Median of a figure of all other ranks; those without it have 0."""
    others = [value for other, value in values.items() if other != rank]
    return median([*others, *[0.0] * (ranks - 1 - len(others))])


def _most_waited_for(delays: Iterable[Delay]) -> tuple[int, ...]:
    """The ranks that caused the most waiting; several if they were always last together."""
    caused: dict[int, int] = defaultdict(int)
    for delay in delays:
        for rank in delay.last:
            caused[rank] += delay.caused_ns
    most = max(caused.values(), default=0)
    return tuple(rank for rank, amount in caused.items() if amount == most)
