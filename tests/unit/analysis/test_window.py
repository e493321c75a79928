"""Sums and maxima over a sliding window, compared with a brute-force computation per bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.analysis.health.window import BUCKETS, MOST_NAMES, Window

STEP = 10.0
ADDED = st.lists(st.tuples(st.floats(0, 300), st.integers(1, 1000)), min_size=1, max_size=40)


@given(ADDED)
def test_window_totals_and_peaks_match_a_brute_force_computation(added):
    window = Window(STEP * BUCKETS)
    for at, value in added:
        window.add(at, {"x": float(value)}, {"y": float(value)})

    newest = max(int(at / STEP) for at, _ in added)
    at_most = max_so_far(added)
    kept = [value for (at, value), seen in zip(added, at_most, strict=True)
            if int(at / STEP) > newest - BUCKETS and int(at / STEP) > seen - BUCKETS]  # fmt: skip
    assert window.total("x") == pytest.approx(sum(kept))
    assert window.peak("y") == (max(kept) if kept else None)


@given(ADDED)
def test_figures_read_between_additions_are_those_of_the_end(added):
    window, unread = Window(STEP * BUCKETS), Window(STEP * BUCKETS)
    for at, value in added:
        for each in (window, unread):
            each.add(at, {"x": float(value)}, {"y": float(value)})
        read = window.total("x"), window.peak("y")
    assert read == (unread.total("x"), unread.peak("y"))


def max_so_far(added):
    """Newest bucket at each insertion; values too late even then were never counted."""
    newest, found = -1, []
    for at, _ in added:
        newest = max(newest, int(at / STEP))
        found.append(newest)
    return found


def test_mean_without_its_weight_is_none():
    window = Window(60)
    window.add(1.0, {"power": 1400.0, "powered": 2.0})

    assert window.mean("power", "powered") == 700.0
    assert window.mean("power", "clocked") is None
    assert window.peak("power") is None


def test_names_beyond_the_limit_are_dropped_and_existing_ones_keep_counting():
    window = Window(60.0)
    for number in range(10 * MOST_NAMES):
        window.add(1.0, {"known": 1.0, f"invented{number}": 1.0})
    assert window.total("known") == 10 * MOST_NAMES
    assert len(window._totals) == MOST_NAMES
