"""The period of steps from sampled figures."""

import math
import random

import pytest

from gconsole.analysis.step_clock import step_clock


def phases(period_s, count=300, noise=0.0, share=0.3, jitter=0.0):
    """Mean CPU use per second of a job that computes for a part of each step; `jitter`: of a step's duration."""
    chance, use = random.Random(5), [0.0] * (count + 2)
    begin = 0.37
    while begin < count:
        moment = begin
        while moment < min(begin + share * period_s, count):  # integrate over the seconds
            end = min(math.floor(moment) + 1, begin + share * period_s)
            use[math.floor(moment)] += max(0.0, end - moment)
            moment = end
        begin += period_s * (1 + jitter * chance.uniform(-1, 1))
    return [100 * value + chance.gauss(0, 100 * noise) for value in use[:count]]


@pytest.mark.parametrize("period_s", [4.0, 5.3, 7.77, 12.4, 23.9, 41.3])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_period_of_a_step_is_found_to_one_percent(period_s, noise):
    clock = step_clock(phases(period_s, noise=noise), 1.0)
    assert clock is not None
    assert clock.period_s == pytest.approx(period_s, rel=0.01)


def test_steps_of_slightly_different_duration_have_their_mean_period():
    clock = step_clock(phases(9.0, jitter=0.02, noise=0.05), 1.0)
    assert clock is not None
    assert clock.period_s == pytest.approx(9.0, rel=0.02)


def test_period_is_in_seconds_whatever_the_interval():
    clock = step_clock(phases(8.0), 0.1)
    assert clock is not None
    assert clock.period_s == pytest.approx(0.8, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_period(seed):
    chance = random.Random(seed)
    assert step_clock([chance.gauss(50, 10) for _ in range(300)], 1.0) is None


@pytest.mark.parametrize(
    "values",
    [[], [100.0] * 300, list(range(300)), [0.0] * 150 + [100.0] * 150, [0.0, 1.0] * 4, [0.0] * 299 + [9.0]],
    ids=["nothing", "constant", "trend", "one change", "too few", "one event"],
)
def test_figure_that_does_not_repeat_has_no_period(values):
    assert step_clock(values, 1.0) is None


def test_two_repetitions_are_too_few():
    assert step_clock(phases(140.0), 1.0) is None


def test_interval_must_be_positive():
    with pytest.raises(ValueError, match="positive"):
        step_clock([1.0], 0.0)
