"""Timestamps are integers in ns on every Python."""

from __future__ import annotations

import importlib.util
import time

import pytest


def the_clock(monkeypatch, old: bool):
    """The clock module as Python without clock_gettime_ns (3.6) or with it loads it."""
    if old:
        monkeypatch.delattr(time, "clock_gettime_ns")
    found = importlib.util.find_spec("gconsole_remote.clocks.stamps")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("old", [False, True], ids=["3.7 and newer", "3.6"])
def test_both_clocks_return_integers_that_match_the_system_clocks(monkeypatch, old):
    clock = the_clock(monkeypatch, old)

    before = time.time_ns()
    realtime, mono = clock.realtime_ns(), clock.mono_ns()

    assert type(realtime) is int and type(mono) is int
    assert -1000 < realtime - before < 5_000_000_000
    assert abs(mono - int(time.clock_gettime(time.CLOCK_MONOTONIC_RAW) * 1e9)) < 5_000_000_000


@pytest.mark.parametrize("old", [False, True], ids=["3.7 and newer", "3.6"])
def test_monotonic_clock_never_decreases(monkeypatch, old):
    clock = the_clock(monkeypatch, old)

    stamps = [clock.mono_ns() for _ in range(1000)]

    assert stamps == sorted(stamps)


def test_kernel_timestamp_is_converted_with_the_tightest_bracketed_read(monkeypatch):
    """An interruption during a read must not move the arrival before the departure."""
    clock = the_clock(monkeypatch, False)
    # three reads of (raw, realtime, raw), all interrupted; the second is the shortest
    reads = iter([0, 90_000, 90_500, 100_000, 102_900, 103_000, 200_000, 240_000, 260_000])
    monkeypatch.setattr(clock, "_read", lambda _: next(reads))

    assert clock.mono_of_kernel(102_000) == 101_500 - 102_900 + 102_000
    assert not list(reads)
