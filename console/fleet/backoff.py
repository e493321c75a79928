"""Reconnect back-off: full jitter, doubling, cut short when the node becomes reachable."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

from ..transport.tcp_connect import ReachabilityProbe

FIRST_S, MOST_S = 1.0, 60.0
#: Seconds between reachability probes of an unreachable node; doubles while it is reachable: sshd's
#: PerSourcePenalties (9.8 and newer) adds 1 s per connection without login and refuses the source at 15 s.
PROBE_INTERVAL_S = 0.5


class Backoff:
    """Delays of one link; setting `again` ends the current one (manual reconnect)."""

    def __init__(self, probe: ReachabilityProbe) -> None:
        self.again = asyncio.Event()
        self._probe = probe
        self._max_s = FIRST_S

    def reset(self) -> None:
        """Start again with a short delay after a successful connection."""
        self._max_s = FIRST_S

    def draw_s(self) -> float:
        """The next delay in seconds: uniform up to a doubling bound, so that many nodes do not reconnect at once."""
        max_s, self._max_s = self._max_s, min(self._max_s * 2, MOST_S)
        return random.uniform(0, max_s)

    async def wait(self, wait_s: float | None, *, was_away: bool = False) -> None:
        """Wait for `wait_s` seconds (None: until `again`), or until an unreachable node becomes reachable.

        A reachable node has another fault and waits the full delay. `was_away`: the node was unreachable just now.
        """
        watching = asyncio.create_task(self._watch_reachability(was_away)) if wait_s is not None else None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.again.wait()
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
        self.again.clear()

    async def _watch_reachability(self, was_away: bool) -> None:
        pause_s, started = PROBE_INTERVAL_S, time.monotonic()
        while (answers := await self._probe()) is not None:
            if answers and was_away:
                self.again.set()
            was_away = not answers
            pause_s = pause_s * 2 if answers else PROBE_INTERVAL_S
            await asyncio.sleep(max(0.0, started + pause_s - time.monotonic()))
            started = time.monotonic()
