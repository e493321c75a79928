"""Reference cycles of lost connections are freed soon by a scheduled garbage collection."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from gconsole.config.model import Config
from gconsole.core.bus import Hub
from gconsole.fleet import gc_sweep
from gconsole.fleet.fleet import Fleet
from gconsole.records import Failure, NodeState


class CyclicObject:
    """An object that references itself."""

    def __init__(self) -> None:
        self.other = self


@pytest.fixture
def no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc_sweep, "AFTER_S", 0.01)
    monkeypatch.setattr(gc_sweep, "_process", gc_sweep._Process())
    gc.disable()
    yield
    gc.enable()


async def test_sweep_after_lost_nodes_frees_reference_cycles(no_collector: None) -> None:
    hub = Hub()
    fleet = Fleet(Config(cluster="c", nodes=()), hub)
    left = weakref.ref(CyclicObject())
    assert left() is not None, "not yet freed"
    for node in ("n1", "n2"):
        hub.publish_own(NodeState(node=node, state="lost", error=Failure("lost", "it is gone"), attempt=1, retry_at=1))
    async with asyncio.timeout(20):
        while left() is not None:  # noqa: ASYNC110 - a weak reference has no event
            await asyncio.sleep(0.01)
    assert fleet._sweep._timer is None
    await fleet.stop()


async def test_no_sweep_is_scheduled_for_a_node_that_is_only_silent(no_collector: None) -> None:
    hub = Hub()
    fleet = Fleet(Config(cluster="c", nodes=()), hub)
    hub.publish_own(NodeState(node="n1", state="lost", error=Failure("lost", "no word for 3 s"), attempt=1))
    assert fleet._sweep._timer is None
    await fleet.stop()


async def test_a_sweep_that_took_long_is_followed_by_a_long_pause(
    no_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc_sweep, "PAUSE", 1e12)
    sweep = gc_sweep.GcSweep()
    sweep._sweep()
    sweep.soon()
    assert sweep._timer is not None
    assert sweep._timer.when() - asyncio.get_running_loop().time() > 3600
    sweep.close()


async def test_old_objects_are_collected_by_time_while_a_fleet_runs(
    no_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc_sweep, "EVERY_S", 0.01)
    monkeypatch.setattr(gc_sweep, "PAUSE", 0)
    before = gc.get_threshold()
    fleet = Fleet(Config(cluster="c", nodes=()), Hub())
    await fleet.start()
    try:
        assert gc.get_threshold()[0] == gc_sweep.YOUNG
        assert gc.get_threshold()[2] > 1_000_000, "not by the number of allocated objects"
        for _ in range(2):
            left = weakref.ref(CyclicObject())
            async with asyncio.timeout(20):
                while left() is not None:  # noqa: ASYNC110 - a weak reference has no event
                    await asyncio.sleep(0.01)
    finally:
        await fleet.stop()
    assert gc.get_threshold() == before


async def test_fleets_of_one_process_share_thresholds_and_collections(
    no_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc_sweep, "EVERY_S", 0.05)
    monkeypatch.setattr(gc_sweep, "PAUSE", 0)
    before = gc.get_threshold()
    fleets = [Fleet(Config(cluster="c", nodes=()), Hub()) for _ in range(2)]
    for fleet in fleets:
        await fleet.start()
    during = gc.get_threshold()
    first, second = (fleet._sweep for fleet in fleets)
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    for sweep in (first, second):
        assert sweep._timer is not None
        sweep._timer.cancel()
        sweep._sweep()
    assert len(collected) == 1, "what the first collected the second need not"
    await fleets[0].stop()
    assert gc.get_threshold() == during, "the other fleet still runs"
    await fleets[1].stop()
    assert gc.get_threshold() == before


async def test_loss_after_the_collection_of_another_fleet_is_collected(no_collector: None) -> None:
    first, second = gc_sweep.GcSweep(), gc_sweep.GcSweep()
    first.soon()
    second._sweep()
    left = weakref.ref(CyclicObject())
    first.soon()  # the same timer
    first._sweep()
    assert left() is None
    first.close()
