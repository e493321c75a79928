"""Values derived from a store: when they are recomputed, and in which thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine

import pytest

from gconsole.core.derived import Derived, Throttle


class FakeStore:
    """Counts changes; `changed_since` is its only method."""

    def __init__(self) -> None:
        self.version = 0

    def changed_since(self, version: int) -> bool:
        return self.version > version


class DerivedSetup:
    """A derived value with a fake clock that counts its computations."""

    def __init__(self, *, every_s: float = 1.0, size: float = 0.0, pause: float = 0.0, took_s: float = 0.0) -> None:
        self.now_s, self.computed, self.size, self.took_s = 100.0, 0, size, took_s
        self.threads: list[int] = []
        self.background: list[Coroutine[None, None, None]] = []
        self.store = FakeStore()
        self.derived = Derived(
            self.store, [self.store.changed_since], self._compute, 0, every_s=every_s, size=lambda: self.size,
            thread_above=10, pause=pause, clock=lambda: self.now_s,
        )  # fmt: skip

    def _compute(self):
        version = self.store.version

        def work() -> int:
            self.computed += 1
            self.threads.append(threading.get_ident())
            self.now_s += self.took_s
            return version

        return work

    def refresh(self) -> int:
        self.derived.refresh(self.background.append)
        return self.derived.value


def test_a_value_is_computed_at_first_and_then_only_after_a_change():
    setup = DerivedSetup(every_s=0.0)
    setup.store.version = 1
    assert (setup.refresh(), setup.refresh(), setup.computed) == (1, 1, 1)
    assert setup.derived.is_current
    setup.store.version = 2
    assert not setup.derived.is_current
    assert (setup.refresh(), setup.computed) == (2, 2)


def test_changes_within_the_interval_are_folded_together():
    setup = DerivedSetup(every_s=1.0)
    for version in range(1, 6):
        setup.store.version = version
        setup.refresh()
        setup.now_s += 0.19
    assert (setup.derived.value, setup.computed) == (1, 1)
    setup.now_s += 0.1
    assert (setup.refresh(), setup.computed) == (5, 2)


def test_work_that_took_long_is_followed_by_a_pause_in_proportion():
    setup = DerivedSetup(every_s=0.5, pause=9.0, took_s=1.0)
    setup.refresh()
    setup.store.version = 1
    setup.now_s += 8.9
    assert setup.refresh() == 0
    setup.now_s += 0.2
    assert setup.refresh() == 1


def test_small_work_runs_inline_and_large_work_in_a_thread():
    setup = DerivedSetup(every_s=0.0, size=9)
    setup.refresh()
    assert setup.threads == [threading.get_ident()] and not setup.background
    setup.size = 10
    setup.store.version = 1
    assert setup.refresh() == 0 and setup.derived.is_busy and not setup.derived.is_current
    setup.store.version = 2
    setup.refresh()
    [task] = setup.background
    asyncio.run(task)
    assert setup.threads[1] != threading.get_ident()
    assert setup.derived.value == 1 and not setup.derived.is_busy and not setup.derived.is_current


def test_an_invalidated_value_is_computed_without_a_change():
    setup = DerivedSetup(every_s=0.0)
    setup.refresh()
    setup.derived.invalidate()
    assert not setup.derived.is_current
    setup.refresh()
    assert setup.computed == 2 and setup.derived.is_current


def test_a_failure_reaches_the_caller_and_the_next_change_is_computed():
    store = FakeStore()
    results = iter([ValueError("bug"), 7])

    def work() -> int:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    derived = Derived(store, [store.changed_since], lambda: work, 0)
    with pytest.raises(ValueError, match="bug"):
        derived.refresh(lambda task: None)
    assert not derived.is_busy and derived.is_current
    store.version = 1
    derived.refresh(lambda task: None)
    assert derived.value == 7


@pytest.mark.parametrize("size", [0, 10])
async def test_update_waits_for_the_newest_value_whatever_the_throttle(size: float):
    setup = DerivedSetup(every_s=60.0, size=size)
    assert await setup.derived.update() == 0
    setup.store.version = 3
    assert await setup.derived.update() == 3
    assert await setup.derived.update() == 3 and setup.computed == 2


def test_time_in_which_work_waits_does_not_prolong_the_pause():
    throttle = Throttle(0.0, pause=1_000.0)
    with throttle.running():
        time.sleep(0.2)  # as a thread that waits for a core does: 200 s of pause, if it counted
    assert throttle._due_s - time.monotonic() < 100.0


def test_pause_has_a_longest_one():
    now_s = 100.0
    throttle = Throttle(1.0, 50.0, lambda: now_s, longest_pause_s=5.0)
    with throttle.running():
        now_s += 3.0  # once, to load a library
    now_s += 4.9
    assert not throttle.is_due
    now_s += 0.2
    assert throttle.is_due


def test_throttle_is_not_due_while_running_and_due_after_a_failure():
    throttle = Throttle(0.0, clock=lambda: 0.0)
    assert throttle.is_due
    with pytest.raises(ZeroDivisionError), throttle.running():
        assert not throttle.is_due
        raise ZeroDivisionError
    assert throttle.is_due


async def test_failed_copy_of_the_source_is_retried_on_the_next_refresh():
    store, failures = FakeStore(), iter([True, False])

    def compute():
        if next(failures):
            raise ValueError("not readable now")
        return lambda: 7

    derived = Derived(store, [store.changed_since], compute, 0, size=lambda: 1.0, thread_above=0.0)
    tasks = []
    with pytest.raises(ValueError, match="not readable now"):
        derived.refresh(lambda work: tasks.append(asyncio.ensure_future(work)))

    derived.refresh(lambda work: tasks.append(asyncio.ensure_future(work)))
    await asyncio.gather(*tasks)
    assert (derived.value, derived.is_busy) == (7, False)


async def test_pause_after_work_in_a_thread_counts_its_cpu_time_not_its_waiting():
    setup = DerivedSetup(every_s=0.5, size=10, pause=9.0, took_s=1.0)  # on the fake clock, used by other threads
    setup.refresh()
    await setup.background.pop()
    setup.store.version = 1
    setup.now_s += 0.1
    setup.refresh()
    assert setup.derived.is_busy
    await setup.background.pop()
    assert setup.derived.value == 1
