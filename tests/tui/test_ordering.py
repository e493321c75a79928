"""Live columns: what jitters moves no row, what changes does, and never more often than every two seconds."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gconsole.tui.models.rows import REORDER_S, Noise, SteadyOrder


@dataclass(frozen=True)
class OrderedItem:
    key: str
    value: float | None


class LiveRows:
    """Rows in a steady order, on a fake clock."""

    def __init__(self, noise: Noise) -> None:
        self.now_s = 0.0
        self.noise = noise
        self.order: SteadyOrder[OrderedItem] = SteadyOrder(lambda: self.now_s)

    def keys(self, reverse: bool = False, **values: float | None) -> str:
        items = [OrderedItem(key, value) for key, value in values.items()]
        return "".join(item.key for item in self.order.sorted(items, lambda item: item.value, self.noise, reverse))


def test_jitter_does_not_reorder_rows():
    rows = LiveRows(Noise(2.0))
    assert rows.keys(a=97.0, b=98.0) == "ab"
    for _ in range(5):
        rows.now_s += REORDER_S
        assert rows.keys(a=98.9, b=97.1) == "ab"


def test_a_change_beyond_noise_moves_the_row():
    rows = LiveRows(Noise(2.0))
    rows.keys(a=97.0, b=98.0)
    rows.now_s += REORDER_S
    assert rows.keys(a=99.5, b=98.0) == "ba"


def test_slow_drift_eventually_moves_the_row():
    rows = LiveRows(Noise(2.0))
    rows.keys(a=90.0, b=95.0)
    for step in range(10):
        rows.now_s += REORDER_S
        last = rows.keys(a=90.0 + step, b=95.0)
    assert last == "ba"


def test_rows_reorder_at_most_every_two_seconds():
    rows = LiveRows(Noise())
    assert rows.keys(a=1, b=2) == "ab"
    rows.now_s += REORDER_S - 0.1
    assert rows.keys(a=3, b=2) == "ab"
    rows.now_s += 0.1
    assert rows.keys(a=3, b=2) == "ba"
    rows.now_s += 0.5
    assert rows.keys(a=1, b=2) == "ba"


def test_deferred_reorder_becomes_due_after_the_interval():
    rows = LiveRows(Noise(1.0))
    rows.keys(a=1, b=2)
    rows.keys(a=1.5, b=2)
    rows.now_s += REORDER_S
    assert not rows.order.is_due, "noise is owed nothing"
    rows.keys(a=1, b=2)
    rows.keys(a=9, b=2)
    assert not rows.order.is_due
    rows.now_s += REORDER_S
    assert rows.order.is_due
    assert rows.keys(a=9, b=2) == "ba"
    assert not rows.order.is_due


def test_new_row_is_placed_at_once_without_moving_the_others():
    rows = LiveRows(Noise())
    rows.keys(a=1, c=3)
    rows.now_s += 0.5
    assert rows.keys(a=9, c=3, b=2) == "abc"


def test_explicit_sort_takes_effect_immediately():
    rows = LiveRows(Noise(2.0))
    rows.keys(a=97.0, b=98.0)
    rows.order.forget()
    assert rows.keys(a=98.5, b=98.0) == "ba"
    rows.order.forget()
    assert rows.keys(reverse=True, a=98.5, b=98.0) == "ab"


def test_unknown_values_sort_last_in_both_directions():
    rows = LiveRows(Noise())
    assert rows.keys(a=None, b=1, c=2) == "bca"
    rows.order.forget()
    assert rows.keys(reverse=True, a=None, b=1, c=2) == "cba"


def test_noise_share_is_relative_to_the_value():
    assert Noise(share=0.1).covers(1000, 1099) and not Noise(share=0.1).covers(1000, 1101)
    assert not Noise(2.0).covers(None, 1) and not Noise(2.0).covers("a", "b") and Noise().covers("a", "a")


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9) | st.none()))
def test_initial_order_matches_a_stable_sort(values: dict[str, float | None]):
    known_keys = sorted((key for key in values if values[key] is not None), key=lambda key: values[key] or 0)
    assert LiveRows(Noise(5.0)).keys(**values) == "".join(
        [*known_keys, *(key for key in values if values[key] is None)]
    )
