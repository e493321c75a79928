"""The period of a job's steps in a curve of one value a second, and steps that become lastingly longer in it."""

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from gconsole.analysis.step_clock import Curve, StepClock, fine_sampling, period_of_curve
from gconsole.core.store.traffic import TrafficCurve
from gconsole.records import RankTraffic

RUNS = 20
SHOWN_S, READ_S = 300, 5
#: Seconds of an interval of traffic.
FINE_S = 0.05


def curve(
    step_s: Callable[[float], float], until_s: int, *, seed: int = 1, duty: float = 0.3, noise: float = 0.1,
    jitter: float = 0.02, work: Callable[[float], float] = lambda _: 1.0,
) -> Curve:  # fmt: skip
    """Bytes of each second of a job that sends 100 MB in the last part of each step: `duty` of the first step."""
    chance, values = random.Random(seed), np.zeros(until_s * 100)
    at_s, burst_s = chance.random() * step_s(0.0), duty * step_s(0.0)
    while at_s < until_s - 1:
        ends_s = at_s + step_s(at_s) * chance.gauss(1.0, jitter)
        begin = max(at_s, ends_s - burst_s)
        values[int(100 * begin) : int(100 * ends_s)] = (
            work(at_s) * 100e6 / burst_s * chance.uniform(1 - noise, 1 + noise)
        )
        at_s = ends_s
    seconds = values.reshape(until_s, 100).mean(axis=1)
    return seconds + np.array([chance.uniform(0, 1e5) for _ in range(until_s)])


def readings(values: Curve, clock: StepClock | None = None) -> Iterator[tuple[int, StepClock]]:
    """(second, clock) after each read: values arrive one by one, some never, and are read every five seconds."""
    chance, clock = random.Random(len(values)), clock or StepClock(conserves=True)
    shown = np.full(SHOWN_S, np.nan)
    for second, value in enumerate(values):
        shown = np.append(shown[1:], np.nan if chance.random() < 0.02 else value)
        if second % READ_S == READ_S - 1:
            clock.read(second, shown)
            yield second, clock


def is_ever_slow(values: Curve) -> bool:
    return any(clock.slowdown is not None for _, clock in readings(values))


def with_gaps(values: Curve, share: float, seed: int, lengths: tuple[int, int] = (1, 2)) -> Curve:
    """The curve as of an agent that is not scheduled now and then: this share of its values are unknown."""
    chance, values = random.Random(seed), values.copy()
    while np.isnan(values).mean() < share:
        first = chance.randrange(len(values))
        values[first : first + chance.randint(*lengths)] = np.nan
    return values


@pytest.mark.parametrize("step_s", [4.0, 6.4, 7.77, 11.3, 14.2, 25.5])
@pytest.mark.parametrize("duty", [0.1, 0.3, 0.6])
def test_period_of_ten_steps_has_an_error_of_one_percent_at_most(step_s: float, duty: float) -> None:
    seconds = int(11 * step_s)
    for seed in range(RUNS):
        period = period_of_curve(curve(lambda _: step_s, seconds, seed=seed, duty=duty, noise=0.1, jitter=0.002))
        assert period is not None
        assert period.length == pytest.approx(step_s, rel=0.01), seed


@pytest.mark.parametrize("step_s", [4.83, 6.4, 11.3])
def test_period_shows_where_bursts_are_unknown(step_s: float) -> None:
    seen = 0
    for seed in range(RUNS):
        steps = curve(lambda _: step_s, int(14 * step_s), seed=seed, duty=0.2, jitter=0.01)
        period = period_of_curve(with_gaps(steps, 0.15, seed))
        assert period is None or period.length == pytest.approx(step_s, rel=0.03), seed
        seen += period is not None
    assert seen >= 0.8 * RUNS


@pytest.mark.parametrize("step_s", [4.3, 6.4, 11.3])
@pytest.mark.parametrize("jitter", [0.02, 0.05])
def test_period_of_uneven_steps_is_their_mean_within_one_percent(step_s: float, jitter: float) -> None:
    wrong = 0
    for seed in range(RUNS):
        chance = random.Random(seed)
        ends = np.cumsum([0.5 * step_s] + [step_s * chance.gauss(1.0, jitter) for _ in range(16)])
        values = np.zeros(int(100 * (ends[-1] + 0.4 * step_s)))
        for end in ends:
            values[int(100 * (end - 0.3 * step_s)) : int(100 * end)] = 1e8
        seconds = values[: len(values) // 100 * 100].reshape(-1, 100).mean(axis=1)
        period = period_of_curve(seconds)
        assert period is not None
        wrong += abs(period.length / float(np.diff(ends).mean()) - 1.0) > 0.01
    assert not wrong


def test_step_of_several_bursts_has_the_period_of_the_step() -> None:
    second = np.arange(240)
    bursts = np.where(second % 12 < 2, 100.0, 0.0) + np.where(second % 4 == 0, 30.0, 0.0)
    period = period_of_curve(bursts)
    assert period is not None
    assert period.length == pytest.approx(12.0, rel=0.01)


@pytest.mark.parametrize("step_s", [0.3, 0.8, 0.95, 1.25, 1.3, 1.6, 1.75, 1.9])
@pytest.mark.parametrize("duty", [0.1, 0.3, 0.6])
def test_steps_shorter_than_two_samples_show_no_period(step_s: float, duty: float) -> None:
    clock = StepClock(conserves=True)
    for _ in readings(curve(lambda _: step_s, 600, duty=duty, jitter=0.005), clock):
        pass
    assert clock.period_s is None


@pytest.mark.parametrize("values", [
    np.zeros(300), np.full(300, 5e6), np.full(300, np.nan), np.arange(300.0), np.ones(10),
    np.where(np.arange(300) < 150, 1e6, 0.0), np.where(np.arange(300) % 2, np.nan, 1e6),
], ids=["zero", "constant", "unknown", "rising", "short", "one step", "half unknown"])  # fmt: skip
def test_curve_that_does_not_repeat_has_no_period(values: Curve) -> None:
    assert period_of_curve(values) is None


def test_clock_is_known_after_three_windows_and_says_when_its_curve_was_high() -> None:
    steps = curve(lambda _: 8.0, 600)
    clocks = {second: (clock.period_s, clock.pulse_age_s) for second, clock in readings(steps)}
    assert clocks[149][0] is None
    period_s, age_s = clocks[399]
    assert period_s == pytest.approx(8.0, rel=0.02)
    assert age_s is not None
    assert age_s <= 8.0


def test_age_of_the_newest_pulse_grows_once_a_job_stands_still() -> None:
    steps = np.append(curve(lambda _: 6.0, 600), np.full(900, 2e4))
    ages = [(second, clock.pulse_age_s, clock.longest_pause_s) for second, clock in readings(steps)]
    _, age_s, pause_s = ages[-1]
    assert age_s is not None
    assert 880 <= age_s <= 910
    assert pause_s <= 14.0


def test_values_that_no_longer_arrive_are_no_pause() -> None:
    clock = StepClock(conserves=True)
    for _ in readings(curve(lambda _: 6.0, 600), clock):
        pass
    for _ in readings(np.full(300, np.nan), clock):
        pass
    assert clock.pulse_age_s is not None
    assert clock.pulse_age_s <= 8.0


@pytest.mark.parametrize("step_s", [4.0, 6.4, 15.0])
@pytest.mark.parametrize("factor", [2.5, 3.0, 5.0])
def test_job_that_becomes_lastingly_slower_is_slow(step_s: float, factor: float) -> None:
    steps = curve(lambda at_s: step_s * (factor if at_s >= 900 else 1.0), 2_400)
    slow = [(second, clock.slowdown) for second, clock in readings(steps) if clock.slowdown is not None]
    first_s, slowdown = slow[0]
    assert 1_050 <= first_s <= 1_300 + 20 * factor * step_s
    assert slow[-1][0] == 2_399, "and it stays so"
    assert slowdown is not None
    assert slowdown.earlier_s == pytest.approx(step_s, rel=0.03)
    assert slowdown.step_s == pytest.approx(factor * step_s, rel=0.05)


@pytest.mark.parametrize(
    ("step_s", "work"),
    [
        (lambda _: 6.0, lambda _: 1.0),
        (lambda at_s: 6.0 + at_s / 600, lambda _: 1.0),
        (lambda at_s: 120.0 if at_s % 900 < 10 else 6.0, lambda _: 1.0),
        (lambda at_s: 15.0 if at_s % 1_200 < 180 else 6.0, lambda at_s: 0.1 if at_s % 1_200 < 180 else 1.0),
        (lambda at_s: 18.0 if at_s > 1_200 else 6.0, lambda at_s: 3.0 if at_s > 1_200 else 1.0),
        (lambda at_s: 20.0 if 1_200 < at_s < 1_300 else 6.0, lambda _: 1.0),
        (lambda at_s: 10.0 if at_s > 1_200 else 6.0, lambda _: 1.0),
        (lambda at_s: 0.85 if at_s > 1_200 else 0.80, lambda _: 1.0),
        (lambda at_s: 0.2, lambda _: 1.0),
    ],
    ids=[
        "steady", "ever slower, but never twice", "checkpoints", "evaluations", "batches of three times the bytes",
        "a slow minute", "less than twice", "steps shorter than a sample", "short steps",
    ],
)  # fmt: skip
def test_healthy_job_is_never_slow(step_s: Callable[[float], float], work: Callable[[float], float]) -> None:
    for seed in range(RUNS):
        assert not is_ever_slow(curve(step_s, 2_400, seed=seed, work=work)), seed


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_noise_is_never_slow(share: float) -> None:
    for seed in range(RUNS):
        chance, is_high, values = random.Random(seed), False, []
        for _ in range(1_800):
            is_high ^= chance.random() < 0.1
            values.append(1e8 * is_high + chance.random() * 1e5)
        assert not is_ever_slow(with_gaps(np.array(values), share, seed)), seed


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("conserves", [True, False])
def test_values_beyond_all_reason_and_clocks_that_jump_raise_nothing(conserves: bool) -> None:
    chance = np.random.default_rng(3)
    for _ in range(RUNS):
        clock, second, shown = StepClock(conserves=conserves), 0, np.full(SHOWN_S, np.nan, np.float32)
        for _ in range(60):
            count = int(chance.integers(1, 40))
            second += count if chance.random() > 0.1 else 1_000_000
            new = [
                chance.choice([1e30, -1e30, 0.0, 1e-30, np.nan], count), np.full(count, np.nan), np.zeros(count),
                chance.normal(size=count) * 10.0 ** chance.integers(-30, 30),
                1e30 * (np.arange(second, second + count) % 6 < 2),
            ][chance.integers(5)]  # fmt: skip
            shown = np.append(shown, new.astype(np.float32))[-SHOWN_S:]
            clock.read(second, shown)
            assert clock.pulse_age_s is None or clock.pulse_age_s >= 0


def fine_curve(
    step_s: float, until_s: float, *, seed: int, duty: float = 0.3, jitter: float = 0.02
) -> tuple[Curve, float]:
    """Bytes of each interval of `FINE_S` of a job that sends at the end of each step; the mean length of its steps."""
    chance, values = random.Random(seed), np.zeros(int(until_s * 1_000))
    ends = [chance.random() * step_s]
    while ends[-1] < until_s:
        ends.append(ends[-1] + step_s * max(0.3, chance.gauss(1.0, jitter)))
    for end in ends:
        values[int(1_000 * max(0.0, end - duty * step_s)) : int(1_000 * end)] = chance.uniform(0.9, 1.1) * 1e6
    intervals = values.reshape(-1, int(1_000 * FINE_S)).sum(axis=1)
    return intervals + np.array([chance.uniform(0, 1e4) for _ in intervals]), float(np.diff(ends).mean())


def fine_readings(values: Curve) -> Iterator[tuple[int, StepClock]]:
    """(number of the interval, clock) after each read, every five seconds; some intervals are unknown."""
    chance, clock = random.Random(len(values)), StepClock(conserves=True, sampling=fine_sampling(FINE_S))
    values = np.where([chance.random() < 0.01 for _ in values], np.nan, values)
    for newest in range(99, len(values), 100):
        kept = values[max(0, newest + 1 - 6_000) : newest + 1]
        clock.read(newest, np.append(np.full(6_000 - len(kept), np.nan), kept))
        yield newest, clock


@pytest.mark.parametrize("step_s", [0.22, 0.37, 0.5, 0.81, 1.0, 1.7, 2.6])
@pytest.mark.parametrize("jitter", [0.005, 0.03])
def test_period_of_short_steps_has_an_error_of_one_percent_at_most(step_s: float, jitter: float) -> None:
    for seed in range(RUNS):
        values, mean_s = fine_curve(step_s, 120, seed=seed, jitter=jitter)
        *_, (_, clock) = fine_readings(values)
        assert clock.period_s is not None, seed
        assert clock.period_s == pytest.approx(mean_s, rel=0.01), seed


def test_short_steps_that_vary_by_a_fifth_show_no_wrong_period() -> None:
    for seed in range(RUNS):
        values, mean_s = fine_curve(0.6, 120, seed=seed, jitter=0.2)
        *_, (_, clock) = fine_readings(values)
        assert clock.period_s is None or clock.period_s == pytest.approx(mean_s, rel=0.1), seed


@pytest.mark.parametrize("step_s", [0.3, 0.8, 2.0])
def test_short_steps_that_become_three_times_as_long_are_slow_after_three_minutes(step_s: float) -> None:
    before, _ = fine_curve(step_s, 420, seed=1)
    after, _ = fine_curve(3 * step_s, 420, seed=2, duty=0.1)
    slow = [(newest, clock.slowdown) for newest, clock in fine_readings(np.append(before, after)) if clock.slowdown]
    assert slow
    assert 420 + 170 <= slow[0][0] * FINE_S <= 420 + 260
    assert slow[-1][1] is not None
    assert slow[-1][1].earlier_s == pytest.approx(step_s, rel=0.02)
    assert slow[-1][1].step_s == pytest.approx(3 * step_s, rel=0.02)


@pytest.mark.parametrize("step_s", [0.3, 0.8, 2.0])
def test_healthy_job_of_short_steps_is_never_slow(step_s: float) -> None:
    """Evaluations with other bytes, pauses, and two minutes on a machine that is as busy with something else."""
    for seed in range(RUNS):
        parts = [
            fine_curve(length_s, until_s, seed=seed + number, duty=duty)[0] * share
            for number, (length_s, until_s, duty, share) in enumerate([
                (step_s, 420, 0.3, 1.0), (2.5 * step_s, 240, 0.3, 0.05), (step_s, 240, 0.3, 1.0), (1.0, 60, 0.0, 0.0),
                (2.5 * step_s, 120, 0.12, 1.0), (step_s, 240, 0.3, 1.0), (3 * step_s, 240, 0.3, 2.0),
            ])
        ]  # fmt: skip
        assert not [newest for newest, clock in fine_readings(np.concatenate(parts)) if clock.slowdown], seed


def both_readings(parts: Sequence[Curve], share: float, seed: int) -> Iterator[tuple[float, StepClock, StepClock]]:
    """(second, clock of intervals, clock of seconds) after each read; gaps of about a second make a share unknown."""
    values = with_gaps(np.concatenate(parts), share, seed, (18, 26))
    curve, in_second = TrafficCurve("tcp", int(1_000 * FINE_S)), round(1 / FINE_S)
    fine = StepClock(conserves=True, sampling=fine_sampling(FINE_S))
    by_second = StepClock(conserves=True, finer=fine)
    for first in range(0, len(values) - READ_S * in_second + 1, READ_S * in_second):
        for number in range(first, first + READ_S * in_second):
            if not np.isnan(values[number]):
                curve.add(traffic(number, int(values[number])))
        if curve.newest < 0:
            continue
        fine.read(curve.newest, curve.values())
        by_second.read(*curve.seconds())
        yield (first + READ_S * in_second) * FINE_S, fine, by_second


def traffic(number: int, moved: int) -> RankTraffic:
    every_ms = int(1_000 * FINE_S)
    began = number * every_ms * 1_000_000
    return RankTraffic(
        node="node1", agent="a", seq=1, t=began, mono=began, rx=began, job="job", attempt=0, rank=0, pid=1,
        start_ticks=1, source="tcp", began=began, every_ms=every_ms, moved_bytes=(moved,),
    )  # fmt: skip


@pytest.mark.parametrize(("before_s", "after_s"), [(5.0, 15.0), (2.0, 10.0)])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_job_of_short_history_is_slow_by_the_steps_that_the_intervals_showed(
    before_s: float, after_s: float, share: float
) -> None:
    """Seconds alone show steps of 2 s never, and those of 5 s for three windows only after minutes."""
    for seed in range(4):
        before, _ = fine_curve(before_s, 330, seed=seed, duty=0.1)
        after, _ = fine_curve(after_s, 600, seed=seed + 100, duty=0.1 * before_s / after_s)
        slow = [(at_s, clock.slowdown) for at_s, _, clock in both_readings((before, after), share, seed)]
        assert not [at_s for at_s, slowdown in slow if slowdown is not None and at_s < 330 + 150], seed
        ended = slow[-1][1]
        assert ended is not None, seed
        assert ended.earlier_s == pytest.approx(before_s, rel=0.05)
        assert ended.step_s == pytest.approx(after_s, rel=0.05)


@pytest.mark.parametrize(
    ("after_s", "share_of_bytes"),
    [(6.0, 0.2), (6.0, 2.5), (3.5, 1.0)],
    ids=["evaluation", "larger batches", "less than twice"],
)
@pytest.mark.parametrize("share", [0.0, 0.15])
def test_longer_steps_of_another_phase_are_not_slow(after_s: float, share_of_bytes: float, share: float) -> None:
    for seed in range(4):
        before, _ = fine_curve(2.0, 330, seed=seed, duty=0.1)
        after, _ = fine_curve(after_s, 400, seed=seed + 100, duty=0.2 / after_s)
        later, _ = fine_curve(2.0, 200, seed=seed + 200, duty=0.1)
        parts = (before, after * share_of_bytes, later)
        assert not [at_s for at_s, fine, clock in both_readings(parts, share, seed) if fine.slowdown or clock.slowdown]


def test_parts_of_steps_are_not_the_earlier_steps_of_the_whole() -> None:
    """Eight micro-batches and an optimizer, whose period the intervals show for one of them or for all."""
    for seed in range(4):
        chance, values, at_s = random.Random(seed), np.zeros(900_000), 0.0
        while at_s < 880.0:
            parts_s = 4.0 if at_s < 400.0 else 5.0
            for number in range(1, 9):
                end_s = at_s + number * parts_s / 8
                values[int(1_000 * (end_s - 0.1)) : int(1_000 * end_s)] = chance.uniform(0.9, 1.1) * 1e6
            at_s += parts_s + (0.0 if at_s < 400.0 else 1.0)
        intervals = values.reshape(-1, int(1_000 * FINE_S)).sum(axis=1)
        readings = both_readings((intervals,), 0.05, seed)
        assert not [at_s for at_s, fine, clock in readings if fine.slowdown or clock.slowdown], seed


def test_age_of_the_newest_pulse_of_short_steps_is_of_their_intervals() -> None:
    values, _ = fine_curve(0.4, 180, seed=1)
    clocks = [(newest, clock.pulse_age_s) for newest, clock in fine_readings(np.append(values, np.full(600, 100.0)))]
    assert max(age_s for newest, age_s in clocks if 2_400 < newest < 3_600 and age_s is not None) <= 0.5
    assert clocks[-1][1] == pytest.approx(30.0, abs=0.6)


@pytest.mark.parametrize(("gap", "least"), [(0.2, 10), (0.35, 5)])
def test_parts_of_a_step_are_no_period(gap: float, least: int) -> None:
    """Four micro-batches exchange data, then an optimizer runs: the period is that of all, or none."""
    seen = 0
    for seed in range(RUNS):
        chance, values, at_s = random.Random(seed), np.zeros(30_000), 0.0
        while at_s < 30.0:
            step_s = 2.0 * chance.gauss(1.0, 0.02)
            part_s = step_s * (1.0 - gap) / 4
            for number in range(1, 5):
                end_s = at_s + number * part_s
                values[int(1_000 * (end_s - 0.4 * part_s)) : int(1_000 * end_s)] = chance.uniform(0.9, 1.1)
            at_s += step_s
        period = period_of_curve(values.reshape(-1, int(1_000 * FINE_S)).sum(axis=1))
        assert period is None or period.length * FINE_S == pytest.approx(2.0, rel=0.03), seed
        seen += period is not None
    assert seen >= least
