"""Records of one node are processed in order and in slices, so that other nodes get the event loop in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from gconsole.fleet import record_receiver
from gconsole.fleet.quotas import TokenBucket
from gconsole.fleet.record_receiver import FairReader, Line

#: A rate that never limits.
PLENTY = 1e9


class SlowReceiver:
    """Receives lines, each in `takes_s` seconds, and records the batch sizes."""

    def __init__(self, takes_s: float = 0.0, share: TokenBucket | None = None) -> None:
        self.last_received: list[bytes] = []
        self.sizes: list[int] = []
        self.holds: list[bool] = []
        self.told_late = 0
        self.fair_reader = FairReader(
            self._hear, self.holds.append, share or TokenBucket(PLENTY, PLENTY), self._say_late
        )
        self.takes_s = takes_s

    def _say_late(self) -> None:
        self.told_late += 1

    def _hear(self, lines: Iterator[Line]) -> None:
        before = len(self.last_received)
        for line, _ in lines:
            until = time.monotonic() + self.takes_s
            while time.monotonic() < until:
                pass
            self.last_received.append(line)
        self.sizes.append(len(self.last_received) - before)


class ChargedReceiver(SlowReceiver):
    """Is charged with `takes_s` of CPU for each line and does not use it: the load of the machine does not matter.

    `cpu_s` is what `time.thread_time` is to return.
    """

    cpu_s = 0.0

    def _hear(self, lines: Iterator[Line]) -> None:
        for line, _ in lines:
            self.cpu_s += self.takes_s
            self.last_received.append(line)


def lines(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - counted by callbacks, no event
            await asyncio.sleep(0.001)


def test_one_tick_is_processed_immediately_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_receiver, "SLICE_S", 3600.0)  # never reached, however busy the machine is
    receiver = SlowReceiver()
    receiver.fair_reader.add(lines(60), rx=1)
    assert (receiver.last_received, receiver.sizes, receiver.holds) == (lines(60), [60], [])


async def test_large_batch_is_processed_in_ordered_slices_that_yield_to_the_loop() -> None:
    receiver, turns = SlowReceiver(takes_s=0.001), 0

    def other() -> None:
        nonlocal turns
        turns += 1
        if len(receiver.last_received) < 100:
            asyncio.get_running_loop().call_soon(other)

    other()
    receiver.fair_reader.add(lines(100), rx=1)
    await until(lambda: len(receiver.last_received) == 100)
    assert receiver.last_received == lines(100)
    assert turns >= len(receiver.sizes) > 2
    await until(lambda: receiver.holds == [True, False])


async def test_lines_received_during_a_pause_are_processed_after_earlier_lines() -> None:
    receiver = SlowReceiver(takes_s=0.001, share=TokenBucket(0.5, 0.0))
    receiver.fair_reader.add(lines(20), rx=1)
    receiver.fair_reader.add([b"later"], rx=2)
    await until(lambda: len(receiver.last_received) == 21)
    assert receiver.last_received == [*lines(20), b"later"]


async def test_connection_end_is_delivered_after_all_queued_lines() -> None:
    receiver, ended = SlowReceiver(takes_s=0.001), asyncio.Event()
    receiver.fair_reader.add(lines(50), rx=1)
    receiver.fair_reader.finish(ended.set)
    assert not ended.is_set()
    async with asyncio.timeout(20):
        await ended.wait()
    assert receiver.last_received == lines(50)


def test_connection_end_is_delivered_immediately_when_no_lines_are_queued() -> None:
    receiver, ended = SlowReceiver(), asyncio.Event()
    receiver.fair_reader.add(lines(3), rx=1)
    receiver.fair_reader.finish(ended.set)
    assert ended.is_set()


async def test_no_line_is_processed_after_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_receiver, "SLICE_S", 0.0)
    receiver = SlowReceiver()
    receiver.fair_reader.add(lines(100), rx=1)
    before = len(receiver.last_received)
    assert before < 100
    receiver.fair_reader.clear()
    await asyncio.sleep(0.05)
    assert len(receiver.last_received) == before


async def test_node_over_its_quota_is_paused_until_its_share_refills() -> None:
    level = [0.0]
    share = TokenBucket(1.0, 0.0, clock=lambda: level[0])  # a clock that stands still
    receiver = SlowReceiver(takes_s=0.01, share=share)
    receiver.fair_reader.add([b"word"], rx=1)
    assert (receiver.last_received, receiver.holds) == ([b"word"], [True])
    await until(lambda: receiver.holds == [True, False])


@pytest.mark.slow
async def test_lateness_is_reported_once_per_overload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_receiver, "LATE_S", 0.05)
    share = TokenBucket(0.5, 0.1)
    receiver = ChargedReceiver(share=share)
    times = SimpleNamespace(monotonic=time.monotonic, thread_time=lambda: receiver.cpu_s)
    monkeypatch.setattr(record_receiver, "time", times)

    async def flood(times: int) -> None:
        receiver.takes_s = 0.003
        for number in range(times):
            await until(lambda: receiver.holds[-1:] != [True])
            receiver.fair_reader.add(lines(20), rx=number)

    for reports in (1, 2):
        async with asyncio.timeout(20):
            while receiver.told_late < reports:
                await flood(1)
        await flood(5)
        assert receiver.told_late == reports
        receiver.takes_s = 0.0
        await until(lambda: share.level > 0.09)
        receiver.fair_reader.add([b"word"], rx=1)


async def test_short_overload_is_not_reported_as_late() -> None:
    receiver = SlowReceiver(takes_s=0.001, share=TokenBucket(0.5, 0.01))
    receiver.fair_reader.add(lines(40), rx=1)
    await until(lambda: receiver.holds == [True, False])
    receiver.fair_reader.add([b"word"], rx=2)
    assert not receiver.told_late


def test_time_that_other_programs_take_is_not_charged_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    share = TokenBucket(0.1, 0.5)
    receiver = SlowReceiver(takes_s=0.02, share=share)
    cpu_s = iter((1.0, 1.001))
    monkeypatch.setattr(record_receiver, "time", SimpleNamespace(monotonic=time.monotonic, thread_time=cpu_s.__next__))
    monkeypatch.setattr(record_receiver, "SLICE_S", 3600.0)
    receiver.fair_reader.add(lines(50), rx=1)
    assert share.level > 0.49
