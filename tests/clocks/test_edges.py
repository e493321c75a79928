"""One edge, one window: the design's accuracy goals, on seeded timestamps (median over 12 windows, 20 ppm apart)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gconsole.analysis.clock.pair_bounds import edge_window, noise_ns, slack_ns

from .evaluation import evaluate_window, evaluate_windows, median_of
from .synthetic import JITTER, MS, QUEUE, SCENARIOS, VETH, Clock, bins, measure

FULL = 800  # us between triples
US = 1_000.0


@pytest.mark.parametrize(
    ("scenario", "least"),
    [
        ("veth m", 100), ("jitter m", 20), ("jitter and burners m", 20), ("queue m", 25), ("jitter u", 5),
        ("queue u", 5),
    ],
)  # fmt: skip
def test_window_estimate_is_far_more_accurate_than_its_fastest_exchange(scenario: str, least: float) -> None:
    windows = evaluate_windows(SCENARIOS[scenario], cadence_us=FULL)
    assert median_of(windows, "peer_edge") / median_of(windows, "edge") >= least


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_error_without_drift_is_at_most_twice_that_of_the_fastest_exchange(scenario: str) -> None:
    windows = evaluate_windows(SCENARIOS[scenario], ppm=0.0, cadence_us=FULL)
    assert median_of(windows, "centre") <= 2 * median_of(windows, "peer_centre") + 1  # 1 ns: both may be exact


def test_estimate_without_drift_is_twice_as_accurate_on_a_jittery_path() -> None:
    windows = evaluate_windows(JITTER, ppm=0.0, cadence_us=FULL)
    assert median_of(windows, "peer_centre") >= 2 * median_of(windows, "centre")


@pytest.mark.parametrize("cadence_us", [FULL, 5_000])
@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_true_offset_is_within_the_bound_in_every_window(scenario: str, cadence_us: int) -> None:
    assert all(window.is_covered for window in evaluate_windows(SCENARIOS[scenario], cadence_us=cadence_us))


@pytest.mark.parametrize("scenario", [name for name in sorted(SCENARIOS) if name.endswith(" m")])
def test_bound_is_about_half_the_minimum_round_trip(scenario: str) -> None:
    """Except for the allowance for wander and clock reads, which is the same on every path."""
    windows = evaluate_windows(SCENARIOS[scenario], cadence_us=FULL)
    assert median_of(windows, "bound") - slack_ns(4_000_000_000) <= 1.3 * median_of(windows, "half_rtt")


def test_asymmetric_path_shifts_the_offset_but_stays_within_the_bound() -> None:
    windows = evaluate_windows(SCENARIOS["asymmetric m"], cadence_us=FULL)
    assert median_of(windows, "centre") <= 32 * US
    assert all(window.is_covered for window in windows)


@pytest.mark.parametrize(("path", "most_us"), [(VETH, 1.0), (JITTER, 4.0), (QUEUE, 5.0)])
def test_occasional_early_timestamps_barely_shift_the_estimate(path, most_us: float) -> None:
    early = replace(path, early=(1.0, 0.005, 20.0))  # sigma 1 us, and one in 200 is 20 us early
    assert median_of(evaluate_windows(early, cadence_us=FULL), "edge") <= most_us * US


def test_noncausal_timestamps_are_detected_on_a_clean_path() -> None:
    early = replace(VETH, early=(1.0, 0.005, 20.0))
    assert {window.status for window in evaluate_windows(early, cadence_us=FULL)} == {"noncausal"}


@pytest.mark.parametrize("cadence_us", [FULL, 5_000])
@pytest.mark.parametrize("sigma_us", [0.3, 0.5, 0.85])
@pytest.mark.parametrize("path", [VETH, JITTER, QUEUE])
def test_bound_holds_with_noisy_timestamps(path, sigma_us: float, cadence_us: int) -> None:
    noisy = replace(path, early=(sigma_us, 0.0, 0.0))
    assert all(window.is_covered for window in evaluate_windows(noisy, 6, cadence_us=cadence_us))


def test_timestamp_noise_is_estimated_for_quiet_and_noisy_stamps() -> None:
    calm, noisy = (noise_ns(bins(measure(path, 1, cadence_us=FULL))) for path in (
        VETH, replace(VETH, early=(1.0, 0.0, 0.0)),
    ))  # fmt: skip
    assert calm < 700 < 1_000 < noisy < 3_000
    assert noise_ns([]) == 0.0


def test_probing_six_times_less_often_raises_the_error_moderately() -> None:
    often, seldom = (median_of(evaluate_windows(JITTER, cadence_us=cadence_us), "edge") for cadence_us in (FULL, 5_000))
    assert seldom <= 2.5 * often


@pytest.mark.parametrize("seconds", [4.0, 16.0])
def test_clock_wander_within_the_window_stays_within_the_bound(seconds: float) -> None:
    for seed in range(12):
        far = Clock(5 * MS, 20.0, wander_ns=2_000.0)
        assert evaluate_window(measure(VETH, seed, seconds, far=far, start_s=1.0 + 3 * seed)).is_covered


def test_clock_stepped_within_the_window_is_noncausal_and_has_no_bound() -> None:
    stamps = measure(JITTER, 1)
    later = np.arange(len(stamps.t2)) > len(stamps.t2) // 2
    stepped = replace(stamps, t2=stamps.t2 + later * MS, t3=stamps.t3 + later * MS)
    window = edge_window(bins(stepped))
    assert (window.status, window.bound_ns) == ("noncausal", None)


def test_bound_holds_when_half_the_forward_packets_are_lost() -> None:
    for seed in range(6):
        errors = evaluate_window(measure(replace(JITTER, lost_forward=0.5), seed))
        assert errors.is_covered
    window = edge_window(bins(measure(replace(JITTER, lost_forward=0.5), 1)))
    assert window.lost == pytest.approx(window.sent / 2, rel=0.1)


def test_reordered_and_duplicate_packets_do_not_change_the_estimate() -> None:
    stamps = measure(JITTER, 3)
    order = np.random.default_rng(3).permutation(len(stamps.t1))
    twice = np.concatenate([order, order[: len(order) // 2]])
    mixed = replace(
        stamps, t1=stamps.t1[twice], t2=stamps.t2[twice], t3=stamps.t3[twice], t4=stamps.t4[twice],
        got=stamps.got[twice],
    )  # fmt: skip
    first = int(stamps.t1.min())
    start = int(np.argmin(mixed.t1))
    for name in ("t1", "t2", "t3", "t4"):  # the generator uses the first stamp as the window's start
        array = getattr(mixed, name)
        array[0], array[start] = array[start], array[0]
    assert mixed.t1[0] == first
    estimated, expected = (edge_window(unpaired(bins(timestamps))) for timestamps in (mixed, stamps))
    assert estimated.region is not None
    assert expected.region is not None
    shift = estimated.y0 - expected.y0  # both are round values near the first stamps, which belong to different packets
    interval = [low_or_high + shift for low_or_high in estimated.region.interval(0.0)]
    assert interval == pytest.approx(expected.region.interval(0.0), abs=1.0)


def test_timestamps_at_the_64_bit_limits_are_ignored() -> None:
    records = bins(measure(JITTER, 4))
    far = records[0].bins[0]
    assert far.forward is not None
    broken = replace_bin(records[0], far, 2**63 - 1)
    window = edge_window([broken, *records[1:]])
    sound = edge_window(records)
    assert window.status == "ok"
    assert window.bound_ns == pytest.approx(sound.bound_ns, rel=0.05)


def test_window_with_too_few_or_no_replies_has_no_estimate() -> None:
    records = bins(measure(JITTER, 5, seconds=0.8))
    assert edge_window(records).status == "few"
    silent = bins(measure(replace(JITTER, lost_backward=1.0), 5))
    assert edge_window(silent).status == "no_answer"


def unpaired(records):
    """The records without the neighbour points that the generator adds from its knowledge of the order."""
    plain = [tuple(msgspec.structs.replace(row, mismatch_ns=None) for row in record.bins) for record in records]
    return [msgspec.structs.replace(record, bins=rows) for record, rows in zip(records, plain, strict=True)]


def replace_bin(record, bin_, instant: int):
    """The record with an absurd time in that bin's forward point and exchanges."""
    forward = type(bin_.forward)(instant, -(2**63))
    best = tuple(type(exchange)(instant, -(2**63), 0, 2**63 - 1) for exchange in bin_.best)
    broken = msgspec.structs.replace(bin_, forward=forward, best=best)
    return msgspec.structs.replace(record, bins=(broken, *record.bins[1:]))
