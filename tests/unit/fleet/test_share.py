"""A node that says too much waits; one that says what agents say never does."""

from __future__ import annotations

import asyncio

from gconsole.fleet.share import BURST_S, Share


class Door:
    """A channel that only notes whether it is read."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.resumed = asyncio.Event()

    def write(self, data: bytes) -> None: ...

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")
        self.resumed.set()

    def close(self) -> None: ...


async def test_a_burst_is_read_at_once_and_a_flood_has_to_wait() -> None:
    share, door = Share(), Door()
    share.used(BURST_S / 2, door)
    assert door.said == []
    share.used(BURST_S, door)
    share.used(BURST_S, door)
    assert door.said == ["pause"], "once, however much more was on its way"
    await asyncio.wait_for(door.resumed.wait(), 10)
    assert door.said == ["pause", "resume"]


async def test_a_connection_that_has_ended_is_not_read_on() -> None:
    share, door = Share(), Door()
    share.used(2 * BURST_S, door)
    share.close()
    share.used(2 * BURST_S, None)  # what came while it was being opened
    assert door.said == ["pause"]
