"""Clock estimation runs only while a consumer requests it."""

import asyncio
import sys
import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest

from gconsole.analysis.clock.windows import ClockLimits
from gconsole.config.model import ClockConfig
from gconsole.core.bus import Hub
from gconsole.core.control import Control
from gconsole.core.pacing import Pacer
from gconsole.monitor import clock_estimator
from gconsole.monitor.clock_estimator import MANY, ClockEstimator, measure
from gconsole.records import AgentCost, ClockBins


async def test_clock_estimator_holds_records_only_while_it_is_running():
    hub, record = Hub(), AgentCost(node="node1", sample_interval_ms=1000)
    clockwork = ClockEstimator(hub, ClockConfig(), "pod")
    before = sys.getrefcount(record)
    hub.publish([record])
    assert sys.getrefcount(record) == before, "records are not held while it is stopped"
    clockwork.start()
    hub.publish([record])
    assert sys.getrefcount(record) > before
    await clockwork.stop()
    hub.publish([record])
    assert sys.getrefcount(record) == before


@pytest.mark.parametrize(
    ("cost_s", "ping_every_s", "pause_s", "window_s"),
    [(0.1, 0.025, 0.0, 4), (3.0, 0.025, 0.0, 20), (3.0, 0.025, 6.0, 14), (3.0, 0.025, 56.0, 4), (0.1, 2.0, 0.0, 24)],
)
def test_windows_that_follow_each_other_are_longer_where_they_take_much_cpu_and_where_pings_are_rare(
    monkeypatch, cost_s, ping_every_s, pause_s, window_s
):
    cpu, now, windows = [0.0], [100.0], []
    monkeypatch.setattr(time, "thread_time", lambda: cpu[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    estimator = ClockEstimator(Hub(), ClockConfig(), "pod")

    class Fold:
        limits = ClockLimits()

        def add(self, records):
            windows.append(self.limits.window_ns / 1e9)
            cpu[0] += cost_s
            return ["a window"]

    estimator._fold = Fold()  # type: ignore[assignment]
    bins = ClockBins(node="n1", dst="n2", method="ssh", stamps="ssh", base=0, base_real=0, ahead=0, bin_ms=1, bins=(),
                     cadence_us=round(ping_every_s * 1e6), ticks=0)  # fmt: skip
    for _ in range(2):
        estimator._folded([bins], False)
        now[0] += pause_s

    assert windows[-1] == pytest.approx(window_s)


async def test_progress_counts_an_edge_once_from_whichever_end_it_is_probed():
    hub, lines, has_counted = Hub(), [], asyncio.Event()
    control = cast(Control, SimpleNamespace(request_clock_probes=lambda name, wanted: None))

    def bins(near: str, far: str) -> ClockBins:
        return ClockBins(
            node=near, dst=far, stamps="user", base=0, base_real=0, ahead=0, bin_ms=1, bins=(), cadence_us=1, ticks=0
        )

    def publish_both_ends(line: str) -> None:
        if not lines:
            hub.publish([bins("node1", "node2"), bins("node2", "node1")])
        else:
            has_counted.set()
        lines.append(line)

    measuring = asyncio.create_task(measure(hub, control, ClockConfig(), 1.0, publish_both_ends))
    await has_counted.wait()
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert lines[:2] == ["clocks: 0 edges probed", "clocks: 1 edge probed"]


@pytest.mark.parametrize(("method", "least_s"), [("udp", 5.0), ("ssh", 24.0)])
async def test_measuring_over_ssh_lasts_until_there_are_enough_pings(monkeypatch, method, least_s):
    hub, now = Hub(), [100.0]
    control = cast(Control, SimpleNamespace(request_clock_probes=lambda name, wanted: None))
    bins = ClockBins(node="n1", dst="n2", method=method, stamps="ssh", base=0, base_real=0, ahead=0, bin_ms=1, bins=(),
                     cadence_us=2_000_000, ticks=0)  # fmt: skip

    async def pass_time(seconds: float) -> None:
        if now[0] == 100.0:
            hub.publish([bins])
        now[0] += seconds

    monkeypatch.setattr(clock_estimator, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(clock_estimator, "asyncio", SimpleNamespace(sleep=pass_time))
    await measure(hub, control, ClockConfig(), 5.0, lambda line: None)

    assert now[0] - 100.0 == pytest.approx(least_s + clock_estimator.TAIL_S, abs=0.3)


async def test_window_of_many_edges_is_closed_in_a_thread_whatever_closes_it():
    hub, threads = Hub(), []
    estimator = ClockEstimator(hub, ClockConfig(), "pod")

    class Fold:
        limits = ClockLimits()
        held = 0

        def add(self, records):
            threads.append(threading.current_thread() is threading.main_thread())
            assert isinstance(self.pace, Pacer) is not threads[-1]  # the event loop itself must not sleep
            self.held += sum(isinstance(record, ClockBins) for record in records)
            return []

    estimator._fold = Fold()  # type: ignore[assignment]
    bins = ClockBins(node="n1", dst="n2", method="ssh", stamps="ssh", base=0, base_real=0, ahead=0, bin_ms=1, bins=(),
                     cadence_us=1, ticks=0)  # fmt: skip
    for batch in ([bins] * (MANY - 1), [bins], [AgentCost(node="node1", sample_interval_ms=1000)]):
        estimator._append(batch)
        await estimator.refresh()

    assert threads == [True, False, False]


async def test_stop_waits_for_the_fold_of_a_thread_which_then_makes_no_pauses(monkeypatch):
    monkeypatch.setattr(clock_estimator, "REFRESH_S", 0.01)
    estimator = ClockEstimator(Hub(), ClockConfig(), "pod")

    class Fold:
        limits = ClockLimits()
        held = 0

        def __init__(self):
            self.has_begun, self.may_end, self.at_once = threading.Event(), threading.Event(), []
            self.running = 0

        def add(self, records):
            if records:
                self.running += 1
                self.at_once.append(self.running)
                self.has_begun.set()
                assert self.may_end.wait(60)
                self.running -= 1
            return ["a window"]

    fold = estimator._fold = Fold()  # type: ignore[assignment]
    estimator._open_lines = lambda: None
    estimator.start()
    bins = ClockBins(node="n1", dst="n2", method="ssh", stamps="ssh", base=0, base_real=0, ahead=0, bin_ms=1, bins=(),
                     cadence_us=1, ticks=0)  # fmt: skip
    monkeypatch.setattr(estimator._hub, "publish_own", lambda *records: None)
    async with asyncio.timeout(60):
        estimator._append([bins] * MANY)
        await asyncio.to_thread(fold.has_begun.wait)
        estimator._append([bins])
        stopping = asyncio.create_task(estimator.stop())
        while not fold.pace.is_off:  # noqa: ASYNC110 - the end of its pauses is no event
            await asyncio.sleep(0.01)
        assert not stopping.done()
        fold.may_end.set()
        await stopping
    assert fold.at_once == [1, 1]
