"""Live columns: what jitters moves no row, what changes does, and never more often than every two seconds."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gconsole.tui.models.rows import REORDER_S, Noise, SteadyOrder


@dataclass(frozen=True)
class Thing:
    key: str
    value: float | None


class Watched:
    """Things in a steady order, on a clock that stands still until it is moved."""

    def __init__(self, noise: Noise) -> None:
        self.at = 0.0
        self.noise = noise
        self.order: SteadyOrder[Thing] = SteadyOrder(lambda: self.at)

    def keys(self, reverse: bool = False, **values: float | None) -> str:
        things = [Thing(key, value) for key, value in values.items()]
        return "".join(thing.key for thing in self.order.sorted(things, lambda thing: thing.value, self.noise, reverse))


def test_jitter_does_not_reorder_rows():
    watched = Watched(Noise(2.0))
    assert watched.keys(a=97.0, b=98.0) == "ab"
    for _ in range(5):
        watched.at += REORDER_S
        assert watched.keys(a=98.9, b=97.1) == "ab"


def test_a_change_beyond_noise_moves_the_row():
    watched = Watched(Noise(2.0))
    watched.keys(a=97.0, b=98.0)
    watched.at += REORDER_S
    assert watched.keys(a=99.5, b=98.0) == "ba"


def test_slow_drift_eventually_moves_the_row():
    watched = Watched(Noise(2.0))
    watched.keys(a=90.0, b=95.0)
    for step in range(10):
        watched.at += REORDER_S
        last = watched.keys(a=90.0 + step, b=95.0)
    assert last == "ba"


def test_rows_reorder_at_most_every_two_seconds():
    watched = Watched(Noise())
    assert watched.keys(a=1, b=2) == "ab"
    watched.at += REORDER_S - 0.1
    assert watched.keys(a=3, b=2) == "ab"
    watched.at += 0.1
    assert watched.keys(a=3, b=2) == "ba"
    watched.at += 0.5
    assert watched.keys(a=1, b=2) == "ba"


def test_deferred_reorder_becomes_due_after_the_interval():
    watched = Watched(Noise(1.0))
    watched.keys(a=1, b=2)
    watched.keys(a=1.5, b=2)
    watched.at += REORDER_S
    assert not watched.order.is_due, "noise is owed nothing"
    watched.keys(a=1, b=2)
    watched.keys(a=9, b=2)
    assert not watched.order.is_due
    watched.at += REORDER_S
    assert watched.order.is_due
    assert watched.keys(a=9, b=2) == "ba"
    assert not watched.order.is_due


def test_new_row_is_placed_at_once_without_moving_the_others():
    watched = Watched(Noise())
    watched.keys(a=1, c=3)
    watched.at += 0.5
    assert watched.keys(a=9, c=3, b=2) == "abc"


def test_explicit_sort_takes_effect_immediately():
    watched = Watched(Noise(2.0))
    watched.keys(a=97.0, b=98.0)
    watched.order.forget()
    assert watched.keys(a=98.5, b=98.0) == "ba"
    watched.order.forget()
    assert watched.keys(reverse=True, a=98.5, b=98.0) == "ab"


def test_unknown_values_sort_last_in_both_directions():
    watched = Watched(Noise())
    assert watched.keys(a=None, b=1, c=2) == "bca"
    watched.order.forget()
    assert watched.keys(reverse=True, a=None, b=1, c=2) == "cba"


def test_noise_share_is_relative_to_the_value():
    assert Noise(share=0.1).covers(1000, 1099) and not Noise(share=0.1).covers(1000, 1101)
    assert not Noise(2.0).covers(None, 1) and not Noise(2.0).covers("a", "b") and Noise().covers("a", "a")


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9) | st.none()))
def test_initial_order_matches_a_stable_sort(values: dict[str, float | None]):
    known = sorted((key for key in values if values[key] is not None), key=lambda key: values[key] or 0)
    assert Watched(Noise(5.0)).keys(**values) == "".join([*known, *(key for key in values if values[key] is None)])
