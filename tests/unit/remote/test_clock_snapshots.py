"""Snapshots of a node's clocks: tightest read, immediate steps, slew as a rate."""

from __future__ import annotations

import time

import pytest

from gconsole_remote.clocks import stamps
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.clock import SnapshotSampler

MS = 1_000_000


class Clock:
    """Fake clocks of a node."""

    def __init__(self, monkeypatch) -> None:
        self.raw, self.ahead, self.width = 10**12, 10**18, 200
        monkeypatch.setattr(stamps, "snapshot", self.snapshot)

    def snapshot(self) -> dict[str, int]:
        real = self.raw + self.ahead
        return {"real": real, "monotonic": self.raw, "raw": self.raw, "boot": self.raw, "width_ns": self.width}


class ProbeState:
    is_probing = False


class Agent:
    clocks = ProbeState()
    snapshot_period_ms = 100


@pytest.fixture
def node(monkeypatch) -> Clock:
    return Clock(monkeypatch)


def a_sampler() -> SnapshotSampler:
    sampler = SnapshotSampler(Context(), Agent())
    sampler.start()
    return sampler


def ticks(sampler: SnapshotSampler, node: Clock, count: int, slew: int = 0) -> list[dict]:
    """`count` reads, 100 ms apart, with `slew` ns per read."""
    reported = []
    for _ in range(count):
        node.raw += 100 * MS
        node.ahead += slew
        reported += [fields for _, fields in sampler.tick(0.0)]
    return reported


def test_snapshot_is_reported_every_10_s_and_every_second_while_probing(node, monkeypatch):
    sampler = a_sampler()
    assert len(ticks(sampler, node, 201)) == 3
    monkeypatch.setattr(ProbeState, "is_probing", True)
    assert [tick["reads"] for tick in ticks(sampler, node, 50)] == [10] * 5


def test_tightest_bracketed_read_is_reported(node):
    sampler = a_sampler()
    ticks(sampler, node, 1)
    node.width = 5000
    ticks(sampler, node, 50)
    node.width = 150
    ticks(sampler, node, 1)
    at = node.raw
    node.width = 5000
    (reported,) = ticks(sampler, node, 50)

    assert (reported["raw"], reported["width_ns"]) == (at, 150)


@pytest.mark.parametrize("step", [1 * MS, -3 * MS, 100_000])
def test_clock_step_is_reported_immediately(node, step):
    sampler = a_sampler()
    ticks(sampler, node, 3)
    node.ahead += step
    (reported,) = ticks(sampler, node, 1)

    assert reported["step_ns"] == step and reported["slew_ppm"] is None
    assert ticks(sampler, node, 3) == []


def test_slew_is_reported_as_a_rate_and_not_as_a_step(node):
    """500 ppm is the maximum rate of adjtime: 50 us in 100 ms."""
    (first, *rest) = ticks(a_sampler(), node, 102, slew=50_000)

    assert [one["step_ns"] for one in (first, *rest)] == [0, 0]
    assert rest[0]["slew_ppm"] == pytest.approx(500, rel=0.02)


def test_sampling_interval_can_change_and_stop_at_run_time(node, monkeypatch):
    sampler = a_sampler()
    monkeypatch.setattr(ProbeState, "is_probing", True)
    assert sampler.interval_s == 0.1
    monkeypatch.setattr(Agent, "snapshot_period_ms", 20)
    assert sampler.interval_s == 0.02
    monkeypatch.setattr(Agent, "snapshot_period_ms", 0)
    assert ticks(sampler, node, 300) == []
    assert sampler.interval_s == 1.0  # then it only polls for requests


@pytest.mark.parametrize("period_ms, interval_s", [(20, 0.1), (100, 0.5), (200, 0.5), (1000, 1.0)])
def test_clocks_are_read_less_often_while_no_probes_run(monkeypatch, period_ms, interval_s):
    sampler = a_sampler()
    monkeypatch.setattr(Agent, "snapshot_period_ms", period_ms)

    assert sampler.interval_s == interval_s


def test_the_real_clocks_are_read_together():
    reported = stamps.snapshot()

    assert 0 < reported["width_ns"] < 1_000_000_000
    assert abs(reported["real"] - time.time_ns()) < 5_000_000_000
    assert abs(stamps.mono_of_kernel(reported["real"]) - reported["raw"]) < 5_000_000_000
    assert set(stamps.time_namespace()) == {"timens", "timens_monotonic_ns", "timens_boot_ns"}
