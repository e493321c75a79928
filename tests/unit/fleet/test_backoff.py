"""Reconnect back-off: random delays below a doubling bound, reset when the node is reachable again."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator

import pytest

from gconsole.fleet import backoff
from gconsole.fleet.backoff import Backoff
from gconsole.transport.tcp_connect import LastAddresses, answers


async def unknown_state() -> bool | None:
    return None


def test_backoff_is_uniform_below_a_bound_doubling_from_1_to_60_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        bounds.append((low, high))
        return random.Random(1).uniform(low, high)

    monkeypatch.setattr(backoff.random, "uniform", draw)
    one = Backoff(unknown_state)
    waits = [one.draw_s() for _ in range(8)]
    one.reset()
    one.draw_s()
    assert bounds == [(0, most) for most in (1, 2, 4, 8, 16, 32, 60, 60, 1)]
    assert all(wait <= most for wait, (_, most) in zip(waits, bounds, strict=False))


async def test_backoff_ends_when_the_node_becomes_reachable_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "PROBE_INTERVAL_S", 0.01)
    seen: Iterator[bool] = iter([False, False, True])

    async def probe() -> bool | None:
        return next(seen, True)

    async with asyncio.timeout(20):
        await Backoff(probe).wait(3600)


async def test_backoff_ends_at_once_when_the_node_returned_during_the_last_attempt() -> None:
    async def probe() -> bool | None:
        return True

    async with asyncio.timeout(20):
        await Backoff(probe).wait(3600, was_away=True)


async def test_backoff_is_not_shortened_for_a_node_that_stays_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "PROBE_INTERVAL_S", 0.01)
    knocks = 0

    async def probe() -> bool | None:
        nonlocal knocks
        knocks += 1
        return True

    one = Backoff(probe)
    waiting = asyncio.create_task(one.wait(3600))
    async with asyncio.timeout(20):
        while knocks < 5:  # noqa: ASYNC110 - counted by a callback, no event
            await asyncio.sleep(0.01)
    assert not waiting.done()
    one.again.set()
    await waiting


async def test_probes_of_a_reachable_node_are_spaced_ever_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def probe() -> bool | None:
        return True if len(pauses) < 4 else None

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(backoff.asyncio, "sleep", sleep)
    await Backoff(probe)._watch_reachability(was_away=False)
    assert pauses == [pytest.approx(backoff.PROBE_INTERVAL_S * 2**doubling, rel=0.3) for doubling in (1, 2, 3, 4)]


async def test_wait_without_a_timeout_ends_only_on_a_manual_retry() -> None:
    one = Backoff(unknown_state)
    waiting = asyncio.create_task(one.wait(None))
    await asyncio.sleep(0)
    assert not waiting.done()
    one.again.set()
    await waiting
    assert not one.again.is_set(), "the next wait blocks again"


async def test_probe_of_the_last_address_succeeds_only_while_the_port_is_open() -> None:
    known = LastAddresses()
    assert await known.answer("node1") is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        known.note("node1", address)
        assert await known.answer("node1") is True
    assert await answers(address) is False
    known.note("node2", None)  # a connection that has already ended
    assert await known.answer("node2") is None
