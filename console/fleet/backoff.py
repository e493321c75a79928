"""How long a link waits before it tries again: full jitter, longer each time, and no longer than the node is away."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

from ..transport.reachability import ReachabilityProbe

FIRST_S, MOST_S = 1.0, 60.0
#: How often it is looked whether a node that did not answer does again. While it answers, each pause is twice the one
#: before: sshd (9.8 and newer, PerSourcePenalties) counts a second against whoever leaves without a login, and refuses
#: them once fifteen have come together.
PROBE_INTERVAL_S = 0.5


class Backoff:
    """The waits of one link. `again` ends the present one: a person wants it."""

    def __init__(self, knock: ReachabilityProbe) -> None:
        self.again = asyncio.Event()
        self._knock = knock
        self._most_s = FIRST_S

    def reset(self) -> None:
        """The last attempt led to something: the next wait is a short one."""
        self._most_s = FIRST_S

    def draw_s(self) -> float:
        """The next wait: anything up to a bound that doubles, so that many nodes do not come back all at once."""
        most_s, self._most_s = self._most_s, min(self._most_s * 2, MOST_S)
        return random.uniform(0, most_s)

    async def wait(self, wait_s: float | None, *, was_away: bool = False) -> None:
        """Wait that long (None: until `again`), or until a node that does not answer answers.

        One that answers all the while has another trouble, and waits its time. `was_away`: it did not answer just now.
        """
        knocking = asyncio.create_task(self._comes_back(was_away)) if wait_s is not None else None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.again.wait()
        finally:
            if knocking is not None:
                knocking.cancel()
                await asyncio.wait({knocking})
        self.again.clear()

    async def _comes_back(self, was_away: bool) -> None:
        pause_s, began = PROBE_INTERVAL_S, time.monotonic()
        while (answers := await self._knock()) is not None:
            if answers and was_away:
                self.again.set()
            was_away = not answers
            pause_s = pause_s * 2 if answers else PROBE_INTERVAL_S
            await asyncio.sleep(max(0.0, began + pause_s - time.monotonic()))
            began = time.monotonic()
