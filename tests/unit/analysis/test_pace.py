"""Steps that become lastingly slower than they were, by readings of a watched step variable."""

import random
from collections.abc import Callable, Iterator

import pytest

from gconsole.analysis.pace import LASTING, WARM_UP, Pace, Slowness

READ_S = 10.0


def steps(duration_s: Callable[[float], float], until_s: float) -> Iterator[float]:
    """The instants at which a job ends its steps, each as long as `duration_s` has it at its beginning."""
    at_s = 0.0
    while at_s < until_s:
        at_s += duration_s(at_s)
        yield at_s


def paces(duration_s: Callable[[float], float], until_s: float = 3_600.0) -> list[tuple[float, bool]]:
    """(instant, whether the job is slow) after each reading of a counter that `duration_s` drives."""
    pace, counter, states = Pace(), steps(duration_s, until_s + 1_000.0), []
    number, ends_s, read = 0, next(counter), 0
    for reading in range(int(until_s / READ_S)):
        at_s = reading * READ_S
        while ends_s <= at_s:
            number, ends_s = number + 1, next(counter)
        if number > read:
            pace.add(number, at_s)
            read = number
        states.append((at_s, pace.slowdown is not None))
    return states


def is_ever_slow(duration_s: Callable[[float], float], until_s: float = 3_600.0) -> bool:
    return any(is_slow for _, is_slow in paces(duration_s, until_s))


@pytest.mark.parametrize("step_s", [0.05, 0.7, 4.0, 25.0])
@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_job_that_becomes_lastingly_slower_is_slow_and_stays_so(step_s: float, factor: float) -> None:
    began_s = 1_800.0
    states = paces(lambda at_s: step_s * (factor if at_s >= began_s else 1.0), 7_200.0)
    first_s = next(at_s for at_s, is_slow in states if is_slow)
    assert began_s + 120.0 <= first_s <= began_s + 240.0 + 20 * factor * step_s
    assert all(is_slow for at_s, is_slow in states if at_s >= first_s)


def test_slowdown_has_both_durations_and_how_long_it_lasts() -> None:
    pace, at_s = Pace(), 0.0
    for number in range(1, 1_000):
        at_s += 1.0 if number <= 600 else 3.0
        if number % 5 == 0:
            pace.add(number, at_s)
    slow = pace.slowdown
    assert slow is not None
    assert (slow.step_s, slow.earlier_s) == (3.0, 1.0)
    assert 1_140.0 <= slow.since_s <= 1_200.0


def test_job_that_recovers_is_no_longer_slow() -> None:
    states = paces(lambda at_s: 3.0 if 1_200.0 <= at_s < 1_800.0 else 1.0)
    assert any(is_slow for _, is_slow in states)
    assert not any(is_slow for at_s, is_slow in states if at_s >= 1_900.0)


@pytest.mark.parametrize(
    "duration_s",
    [
        lambda at_s: 1.0,
        lambda at_s: 1.8 if at_s > 1_800.0 else 1.0,
        lambda at_s: 8.0 if at_s < 100.0 else 1.0,
        lambda at_s: 100.0 if at_s % 300.0 < 1.0 else 1.0,
        lambda at_s: 300.0 if 1_800.0 < at_s < 1_802.0 else 1.0,
        lambda at_s: 20.0 if at_s % 40.0 < 1.0 else 1.0,
        lambda at_s: 5.0 if 1_800.0 < at_s < 1_900.0 else 1.0,
        lambda at_s: 1.0 + (at_s % 900.0) / 600.0,
        lambda at_s: 3_600.0 if at_s > 1_800.0 else 1.0,
    ],
    ids=[
        "steady", "less than twice", "warm-up", "evaluations", "one long checkpoint", "frequent checkpoints",
        "a slow minute", "batches sorted by length", "stands still",
    ],
)  # fmt: skip
def test_healthy_job_is_not_slow(duration_s: Callable[[float], float]) -> None:
    assert not is_ever_slow(duration_s, 7_200.0)


@pytest.mark.parametrize("step_s", [2.0, 20.0])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_uneven_batches_are_not_slow_in_two_days(step_s: float, spread: float) -> None:
    chance = random.Random(7)
    assert not is_ever_slow(lambda _: max(0.1, step_s * chance.lognormvariate(0.0, spread)), 2 * 86_400.0)


def test_counter_that_begins_again_is_no_slow_step() -> None:
    pace, at_s = Pace(), 0.0
    for _ in range(40):
        for number in range(1, 101):
            at_s += 1.0
            pace.add(number, at_s)
    assert pace.slowdown is None


def slowed(windows: int) -> Slowness:
    """A job that was at 1 s a step for long, and at 3 s for so many windows."""
    slowness = Slowness()
    for number in range(WARM_UP + 10):
        slowness.close(1.0, 1.0, 60.0 * number)
    for number in range(windows):
        slowness.close(3.0, 3.0, 60.0 * (WARM_UP + 10 + number))
    return slowness


def test_slow_job_stays_slow_where_single_windows_cannot_be_compared():
    slowness = slowed(LASTING)
    for number in range(10):
        slowness.skip()
        assert slowness.slowdown(2_000.0) is not None
        slowness.close(3.0, 3.0, 2_000.0 + 120.0 * number)
    slowness.close(1.0, 1.0, 4_000.0)
    assert slowness.slowdown(4_000.0) is None, "one that is as before ends it"


def test_slow_job_whose_steps_do_not_show_any_more_is_not_slow_for_ever():
    slowness = slowed(LASTING)
    for _ in range(LASTING):
        slowness.skip()
    assert slowness.slowdown(2_000.0) is None


def test_window_that_cannot_be_compared_begins_the_count_again_before_a_job_is_slow():
    slowness = slowed(LASTING - 1)
    slowness.skip()
    slowness.close(3.0, 3.0, 2_000.0)
    assert slowness.slowdown(2_000.0) is None
