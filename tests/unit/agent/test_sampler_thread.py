"""Threads of samplers: a tick in each slot, at once when woken, and no sampler waits for another one that hangs."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gconsole_remote.agent import sampler_thread
from gconsole_remote.agent.agent import Agent
from gconsole_remote.agent.sampler_run import SamplerRun
from gconsole_remote.agent.sampler_thread import SamplerThread, SharedThread, grid_origin
from gconsole_remote.samplers.base import Sampler, Unavailable

DEADLINE_S = 60.0


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


class Steady(Sampler):
    """Ticks every millisecond, and does `then`; the thread of each tick."""

    interval_s = 0.001

    def __init__(self, name: str, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(None)
        self.name, self.then = name, then
        self.threads: queue.Queue[threading.Thread] = queue.Queue()
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def tick(self, now: float):
        self.threads.put(threading.current_thread())
        self.then()
        return ()

    def thread_of_tick_after(self, count: int) -> threading.Thread:
        """The thread of one of the next ticks, `count` ticks later than that which is under way or done."""
        while not self.threads.empty():
            self.threads.get()
        return list(itertools.islice(iter(lambda: self.threads.get(timeout=DEADLINE_S), None), count))[-1]


class Sharing(Agent):
    """An agent with only what its samplers need, and what lets one thread relieve another."""

    def __init__(self) -> None:
        self.ended, self.epoch, self.digests = threading.Event(), time.monotonic(), None
        self.outbox = SimpleNamespace(post=lambda facts: None)  # type: ignore[assignment]
        self._lock, self._sink = threading.Lock(), None
        self._shared = SharedThread(self)
        self._shared.start()

    def begin(self, *samplers: Sampler) -> list[SamplerRun]:
        runs = [SamplerRun(sampler, self) for sampler in samplers]
        for run in runs:
            SamplerThread(run, self.share).start()
            assert run.ready.wait(DEADLINE_S)
        return runs

    def miss(self, name: str, text: str, try_: str) -> None:
        pass

    def unmiss(self, name: str) -> None:
        pass


@pytest.fixture
def agent() -> Iterator[Sharing]:
    sharing = Sharing()
    yield sharing
    sharing.ended.set()


def test_woken_sampler_ticks_without_waiting_for_its_slot():
    sampler = Recorded()
    agent: Any = SimpleNamespace(ended=threading.Event(), epoch=time.monotonic() - 1, outbox=None, digests=None)
    run = SamplerRun(sampler, agent)
    thread = SamplerThread(run)
    thread.start()
    assert sampler.ticks.get(timeout=DEADLINE_S) is False
    run.wake()
    assert sampler.ticks.get(timeout=DEADLINE_S) is True
    agent.ended.set()
    run.wake()
    thread.join(DEADLINE_S)
    assert run.is_dead() and sampler.ticks.empty()


def test_woken_sampler_of_a_shared_thread_ticks_without_waiting_for_its_slot(agent: Sharing):
    woken, other = Recorded(), Recorded()
    run, _ = agent.begin(woken, other)
    assert [woken.ticks.get(timeout=DEADLINE_S), other.ticks.get(timeout=DEADLINE_S)] == [False, False]
    for _ in range(3):
        run.wake()
        assert woken.ticks.get(timeout=DEADLINE_S) is True
    assert other.ticks.empty()


def test_sampler_that_is_woken_in_its_tick_ticks_again(agent: Sharing):
    begun, go_on, ends = threading.Event(), threading.Event(), iter([False, True])

    class Slow(Recorded):
        def tick(self, now: float):
            super().tick(now)
            if next(ends, False):
                begun.set()
                go_on.wait(DEADLINE_S)
            return ()

    sampler = Slow()
    (run,) = agent.begin(sampler)
    sampler.ticks.get(timeout=DEADLINE_S)
    run.wake()
    assert begun.wait(DEADLINE_S)
    run.wake()
    go_on.set()
    assert [sampler.ticks.get(timeout=DEADLINE_S) for _ in range(2)] == [True, True]


def test_samplers_share_a_thread_after_their_first_tick(agent: Sharing):
    first, second, alone = Steady("first"), Steady("second"), Steady("alone")
    alone.waits = True
    agent.begin(first, second, alone)
    assert first.threads.get() is not second.threads.get()
    threads = [sampler.thread_of_tick_after(5) for sampler in (first, second, alone)]
    assert threads[0] is threads[1] is agent._shared and threads[2].name == "gconsole-alone"


def test_no_sampler_waits_for_another_one_whose_tick_hangs(agent: Sharing, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampler_thread, "LONG_S", 0.02)
    monkeypatch.setattr(sampler_thread, "QUICK_TICKS", 10**9)
    hangs, returns = threading.Event(), threading.Event()
    hung = Steady("hung", lambda: hangs.is_set() and returns.wait(DEADLINE_S))
    others = [Steady("one"), Steady("two")]
    runs = agent.begin(others[0], hung, others[1])
    before = hung.thread_of_tick_after(5)
    hangs.set()
    agent._sink = object()
    agent.outbox.next_bytes = lambda *_: time.sleep(0.005) or b""  # type: ignore[method-assign]
    threading.Thread(target=agent._write, args=(agent._sink, 1), daemon=True).start()
    deadline = time.monotonic() + DEADLINE_S
    while agent._shared is before and time.monotonic() < deadline:
        time.sleep(0.005)
    agent._sink = None
    assert {sampler.thread_of_tick_after(5) for sampler in others} == {agent._shared}
    assert runs[1].began is not None and not any(run.is_dead() for run in runs)
    hangs.clear()
    returns.set()
    assert hung.thread_of_tick_after(5) is before, "it keeps the thread for itself"
    monkeypatch.setattr(sampler_thread, "QUICK_TICKS", 5)
    deadline = time.monotonic() + DEADLINE_S
    while before.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert hung.thread_of_tick_after(5) is agent._shared is not before, "until its ticks are short again"
    assert not runs[1].is_dead()
    (late,) = agent.begin(Steady("late"))
    assert late.sampler.thread_of_tick_after(5) is agent._shared  # type: ignore[attr-defined]


def test_sampler_whose_ticks_begin_to_wait_has_a_thread_of_its_own_until_they_end(agent: Sharing):
    sampler, other = Steady("sometimes"), Steady("other")
    agent.begin(sampler, other)
    assert sampler.thread_of_tick_after(5) is agent._shared
    sampler.waits = True
    assert sampler.thread_of_tick_after(5).name == "gconsole-sometimes"
    sampler.waits = False
    assert sampler.thread_of_tick_after(5) is agent._shared is other.thread_of_tick_after(5)
    assert sampler.starts == 1


def gone_at_third_tick() -> Callable[[], object]:
    """What a sampler does in its ticks, the source of which is gone at the third one and back at the next start."""
    failures = iter([None, None, Unavailable("gone")])

    def tick() -> None:
        failure = next(failures, None)
        if failure is not None:
            raise failure

    return tick


def test_sampler_whose_source_is_gone_is_started_again_and_shares_again(
    agent: Sharing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sampler_thread, "RETRY_S", 0.001)
    sampler, other = Steady("source", gone_at_third_tick()), Steady("other")
    run, _ = agent.begin(sampler, other)
    deadline = time.monotonic() + DEADLINE_S
    while sampler.starts < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert sampler.thread_of_tick_after(5) is agent._shared is other.thread_of_tick_after(5)
    assert sampler.starts == 2 and not run.is_dead()


def test_sampler_stays_where_no_thread_can_be_created_for_its_start(agent: Sharing, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampler_thread, "RETRY_S", 0.001)
    refusals = iter([RuntimeError("no thread"), MemoryError()])
    start = SamplerThread.start

    def refuse(self: SamplerThread) -> None:
        refusal = next(refusals, None) if self._is_retry else None
        if refusal is not None:
            raise refusal
        start(self)

    monkeypatch.setattr(SamplerThread, "start", refuse)
    sampler = Steady("source", gone_at_third_tick())
    (run,) = agent.begin(sampler)
    deadline = time.monotonic() + DEADLINE_S
    while sampler.starts < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert sampler.thread_of_tick_after(5) is agent._shared
    assert next(refusals, None) is None and not run.is_dead()


def test_origin_of_the_grid_is_a_full_second_and_the_offset():
    assert grid_origin(0.25, realtime=1000.75, monotonic=50.0) == 49.5
    assert grid_origin(0.75, realtime=1000.25, monotonic=50.0) == 49.5  # of the second before
    assert grid_origin(0.0, realtime=1000.0, monotonic=50.0) == 50.0


@pytest.mark.parametrize(("since_s", "wait_s"), [(0.1, 0.9), (0.45, 0.55), (0.55, 1.45), (0.99, 1.01)])
def test_second_tick_is_at_least_half_an_interval_after_the_first(since_s, wait_s, monkeypatch):
    sampler = Recorded()
    sampler.interval_s = 1.0
    monkeypatch.setattr(time, "monotonic", lambda: 50.0 + since_s)
    run = SamplerRun(sampler, SimpleNamespace(epoch=50.0))
    run.set_due(sampler.interval_s / 2)
    assert run.due == pytest.approx(50.0 + since_s + wait_s)
    run.set_due(0.0)
    assert run.due == pytest.approx(51.0)  # of all later ones
