"""The thread of a sampler: a tick in each slot, and at once when it is woken."""

import queue
import threading
import time
from types import SimpleNamespace

from gconsole_remote.agent.sampler_thread import SamplerThread
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
