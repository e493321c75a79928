"""The thread of a sampler: a tick in each slot, and at once when it is woken."""

import queue
import threading
import time
from types import SimpleNamespace

import pytest

from gconsole_remote.agent.sampler_thread import SamplerThread, grid_origin
from gconsole_remote.samplers.base import Sampler


class Recorded(Sampler):
    """Ticks once an hour; whether each tick was expedited."""

    name = "recorded"
    interval_s = 3600.0

    def __init__(self) -> None:
        super().__init__(None)
        self.ticks: queue.Queue[bool] = queue.Queue()
        self.is_expedited = False

    def expedite(self) -> None:
        self.is_expedited = True

    def tick(self, now: float):
        self.ticks.put(self.is_expedited)
        self.is_expedited = False
        return ()


def test_woken_sampler_ticks_without_waiting_for_its_slot():
    sampler = Recorded()
    agent = SimpleNamespace(ended=threading.Event(), epoch=time.monotonic() - 1, outbox=None, digests=None)
    thread = SamplerThread(sampler, agent)
    thread.start()
    assert sampler.ticks.get(timeout=60) is False
    thread.wake()
    assert sampler.ticks.get(timeout=60) is True
    agent.ended.set()
    thread.wake()
    thread.join(60)
    assert not thread.is_alive() and sampler.ticks.empty()


def test_origin_of_the_grid_is_a_full_second_and_the_offset():
    assert grid_origin(0.25, realtime=1000.75, monotonic=50.0) == 49.5
    assert grid_origin(0.75, realtime=1000.25, monotonic=50.0) == 49.5  # of the second before
    assert grid_origin(0.0, realtime=1000.0, monotonic=50.0) == 50.0


@pytest.mark.parametrize(("since_s", "wait_s"), [(0.1, 0.9), (0.45, 0.55), (0.55, 1.45), (0.99, 1.01)])
def test_second_tick_is_at_least_half_an_interval_after_the_first(since_s, wait_s, monkeypatch):
    sampler = Recorded()
    sampler.interval_s = 1.0
    monkeypatch.setattr(time, "monotonic", lambda: 50.0 + since_s)
    thread = SamplerThread(sampler, SimpleNamespace(epoch=50.0))
    assert thread._until_next_slot(sampler.interval_s / 2) == pytest.approx(wait_s)
    assert thread._until_next_slot(0.0) == pytest.approx(1.0 - since_s)  # of all later ones
