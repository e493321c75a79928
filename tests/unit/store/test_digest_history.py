"""History and freshness of digests: a band with its mean, never samples; late only after their own period."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.core.metric_history import COARSE_S, FINE_SLOTS, MetricHistory, Series
from gconsole.core.store import Store
from gconsole.core.store.freshness import gpu_stale_ns
from gconsole.records import AgentCost, Gpu, Host

SECOND = 10**9
KEY = ("n1", "u0")


def series_of(*values: tuple[int, int, float, float, float] | tuple[int, float]) -> Series:
    """A series of one metric with samples (second, value), and digests (first, second, low, mean, high)."""
    history = MetricHistory({"gpu": ["power_w"]}, 1 << 30, pytest.fail)
    for entry in values:
        if len(entry) == 2:
            history.put("gpu", KEY, entry[0], [entry[1]])
        else:
            first, second, low, mean, high = entry
            history.put_digest("gpu", KEY, first, second, [low], [mean], [high])
    return history.series["gpu"]


def test_digest_is_a_band_with_its_mean_and_no_sample():
    series = series_of((100, 5.0), (101, 105, 1.0, 3.0, 9.0), (106, 6.0))

    curve = series.recent_curve(KEY, "power_w", 7)
    assert curve.mean.tolist() == [5, 3, 3, 3, 3, 3, 6]
    assert curve.minimum.tolist() == [5, 1, 1, 1, 1, 1, 6]
    assert curve.maximum.tolist() == [5, 9, 9, 9, 9, 9, 6]
    np.testing.assert_array_equal(series.recent(KEY, "power_w", 7), np.array([5, *[np.nan] * 5, 6], np.float32))


def test_figure_that_did_not_change_is_known_each_second():
    series = series_of((100, 5.0), (101, 105, 5.0, 5.0, 5.0))

    assert series.recent(KEY, "power_w", 6).tolist() == [5.0] * 6


def test_hour_has_the_extremes_of_digests():
    series = series_of((1000, 1004, 1.0, 3.0, 9.0), (1005, 1009, 2.0, 5.0, 6.0), (1010, 7.0), (1021, 7.0))

    curve = series.hour(KEY, "power_w")
    place = int(np.flatnonzero(curve.t == 1000)[0])
    assert (curve.minimum[place], curve.mean[place], curve.maximum[place]) == (1.0, 4.0, 9.0)


def test_digest_across_the_end_of_ten_seconds_is_in_both():
    series = series_of((1000, 1004, 2.0, 4.0, 6.0), (1005, 2.0), (1006, 1014, 1.0, 3.0, 9.0), (1021, 7.0))

    curve = series.hour(KEY, "power_w")
    place = int(np.flatnonzero(curve.t == 1000)[0])
    assert (curve.minimum[place], curve.maximum[place]) == (1.0, 9.0)
    assert (curve.minimum[place + 1], curve.mean[place + 1], curve.maximum[place + 1]) == (1.0, 3.0, 9.0)


def test_samples_replace_a_digest_after_a_turn_of_the_ring_and_growth_keeps_bands():
    series = series_of((100, 104, 1.0, 3.0, 9.0))
    for second in range(105, 105 + FINE_SLOTS):
        series.put(0, second, [5.0])
    assert series.recent(KEY, "power_w").tolist() == [5.0] * FINE_SLOTS

    series = series_of((100, 104, 1.0, 3.0, 9.0))
    nbytes = series.nbytes
    assert nbytes == series.nbytes_with(series.capacity)
    for number in range(series.capacity + 1):
        series.row(("n1", f"other{number}"), lambda growing, rows: None)
    assert series.recent_curve(KEY, "power_w", 1).maximum.tolist() == [9.0]
    series.forget(KEY)
    row = series.row(("n1", "new"), lambda growing, rows: None)
    series.put(row, 105, [2.0])
    assert np.isnan(series.recent_curve(("n1", "new"), "power_w", 3).maximum[:2]).all()


def test_late_digest_is_folded_into_the_hour():
    series = series_of((1000, 1.0), (1030, 7.0), (1001, 1005, 1.0, 3.0, 9.0))

    curve = series.hour(KEY, "power_w")
    assert curve.maximum[int(np.flatnonzero(curve.t == 1000)[0])] == 9.0
    assert series.newest_s == 1030 and COARSE_S == 10


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 7), st.integers(0, 9), st.booleans()),
        max_size=60,
    )
)
def test_late_values_are_in_the_hour_whenever_it_is_read(values: list[tuple[int, int, int, int, bool]]):
    """Values of four entities, up to 40 s late: the same as in a history that is read after each of them."""
    seldom, often = (MetricHistory({"gpu": ["power_w", "util_pct"]}, 1 << 30, pytest.fail) for _ in range(2))
    for now, (entity, late_s, count, value, is_digest) in enumerate(values, 1000):
        figures = [float(value), None]
        for history in (seldom, often):
            if is_digest:
                history.put_digest("gpu", entity, now - late_s - count, now - late_s, figures, figures, figures)
            else:
                history.put("gpu", entity, now - late_s, figures)
        for known in range(4):
            often.series["gpu"].hour(known, "power_w")
    for entity in range(4):
        for metric in ("power_w", "util_pct"):
            one, other = (history.series["gpu"].hour(entity, metric) for history in (seldom, often))
            for ring in ("minimum", "mean", "maximum"):
                np.testing.assert_array_equal(getattr(one, ring), getattr(other, ring))


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 7), st.integers(0, 9), st.booleans()),
        max_size=60,
    )
)
def test_values_that_wait_are_stored_in_the_order_in_which_they_came(values: list[tuple[int, int, int, int, bool]]):
    """Many are of the same seconds: a history that is read after each of them stores each alone."""
    seldom, often = (MetricHistory({"gpu": ["power_w"]}, 1 << 30, pytest.fail) for _ in range(2))
    for number, (entity, late_s, count, value, is_digest) in enumerate(values):
        second = 1000 + number // 8 - late_s
        for history in (seldom, often):
            if is_digest:
                history.put_digest("gpu", entity, second - count, second, [value - 1.0], [float(value)], [value + 1.0])
            else:
                history.put("gpu", entity, second, [float(value) if value else 1e31])
        often.series["gpu"].recent_curve(0, "power_w")
    for entity in range(3):
        one, other = (history.series["gpu"].recent_curve(entity, "power_w") for history in (seldom, often))
        for ring in ("t", "minimum", "mean", "maximum"):
            np.testing.assert_array_equal(getattr(one, ring), getattr(other, ring))
    np.testing.assert_array_equal(seldom.series["gpu"].known().values, often.series["gpu"].known().values)


def gpu(at: int, **fields: Any) -> Gpu:
    return Gpu(node="n1", agent="a", index=0, uuid="u0", mono=at * SECOND, t=at * SECOND, rx=at * SECOND, **fields)


def cost(at: int) -> AgentCost:
    return AgentCost(node="n1", agent="a", mono=at * SECOND, rx=at * SECOND, sample_interval_ms=1000)


def test_digest_of_a_record_is_stored_at_the_seconds_of_its_samples():
    store = Store(1 << 30)
    store.apply([gpu(100, power_w=5.0)])
    store.apply([gpu(105, power_w=4.0, period_s=5.0, samples=5, first_mono=101 * SECOND, low={"power_w": 1.0},
                     mean={"power_w": 3.0}, high={"power_w": 9.0})])  # fmt: skip

    curve = store.history.series["gpu"].recent_curve(KEY, "power_w", 6)
    assert (curve.minimum.tolist(), curve.mean.tolist()) == ([5, 1, 1, 1, 1, 1], [5, 3, 3, 3, 3, 3])


def test_digest_with_an_absurd_begin_is_bounded():
    store = Store(1 << 30)
    store.apply([gpu(10_000, power_w=5.0, samples=5, first_mono=1, low={"power_w": 1.0}, mean={"power_w": 2.0})])

    known = ~np.isnan(store.history.series["gpu"].recent_curve(KEY, "power_w").mean)
    assert 1 <= known.sum() <= 61


def test_gpu_is_stale_after_three_of_the_periods_that_were_promised():
    store = Store()
    for period_s, stale_from in ((None, 4), (5.0, 16)):
        for age in (3, 4, 15, 16):
            store.apply(
                [gpu(100, period_s=period_s), cost(100 + age), Host(node="n1", agent="a", rx=(100 + age) * SECOND)]
            )
            stale = gpu_stale_ns(store.gpus[KEY], store.nodes["n1"])
            assert (stale is not None) == (age >= stale_from), (period_s, age)
            store = Store()
