"""One timer for all connections: it checks them for silence, and knows when the console itself is late.

Records count as a sign of life, so that pings are sent only to silent nodes. While the event loop is late, data of
nodes waits unread in its sockets, so no node is shown as lost.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

from ..core.bus import Hub
from ..records import Log

#: Seconds between two checks of a connection that may be silent; checks are made at multiples of it. No connection may
#: ask for a time much longer than `LATE_S`: the next check is also what notices that the event loop is late.
CHECK_S: Final = 0.25
#: Seconds. If a check is later than the first, silence is not judged; if it is later than the second, as long as the
#: silence after which a node is shown as lost, the lateness is reported.
LATE_S: Final = 1.0
REPORTED_S: Final = 2.2
#: Seconds after a late check until silence is judged again: what waits in the sockets is read by then.
SETTLE_S: Final = 1.0
#: Seconds without a late check after which the console is on time again.
ON_TIME_S: Final = 30.0
#: `Log.fault` of the records that report it.
FAULT: Final = "console_late"


#: A check of one connection: whether silence must not be judged → seconds until the connection needs the next check.
Check = Callable[[bool], float]


class LivenessTimer:
    """Calls the check of each connection when it is due, or up to `CHECK_S` later, together with others."""

    def __init__(self, hub: Hub, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub, self._clock = hub, clock
        self._checks: dict[int, Check] = {}
        self._dues: dict[int, float] = {}  # monotonic time from which each is due
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # monotonic time of the next check
        self.has_unread = False  # whether the check that runs is late: what nodes sent meanwhile waits in the sockets
        self._late_at = -math.inf  # monotonic time of the last late check
        self._late_s = 0.0  # its lateness
        self._reported_s = 0.0  # largest lateness reported since the console was on time; 0: on time

    def add(self, check: Check) -> Callable[[], None]:
        """Call `check(is_late)` periodically until the returned function is called."""
        self._number += 1
        number = self._number
        self._checks[number], self._dues[number] = check, -math.inf
        if self._timer is not None and self._due > self._clock() + CHECK_S:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._schedule()
        return lambda: self._remove(number)

    @property
    def is_late(self) -> bool:
        """Whether the event loop was late within the last `SETTLE_S`."""
        return self._clock() < self._late_at + SETTLE_S

    def late_s(self, within_s: float) -> float:
        """The lateness of the last late check, if it was within this time or is due now; else 0."""
        now = self._clock()
        overdue_s = now - self._due if self._timer is not None else 0.0
        return max(overdue_s, self._late_s if now - self._late_at <= within_s else 0.0)

    def _remove(self, number: int) -> None:
        self._checks.pop(number, None)
        self._dues.pop(number, None)
        if not self._checks and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        now = self._clock()
        due = max(now + CHECK_S / 2, min(self._dues.values()))
        self._due = math.ceil(due / CHECK_S) * CHECK_S  # as the timers of other fleets: the process wakes once for all
        self._timer = asyncio.get_running_loop().call_later(self._due - now, self.check)

    def check(self) -> None:
        """Check every connection that is due, and note how late this is."""
        now = self._clock()
        late_s = now - self._due
        self.has_unread = late_s > LATE_S
        if self.has_unread:
            self._late_at, self._late_s = now, late_s
            if late_s > REPORTED_S:
                self._report(late_s)
        elif self._reported_s and now - self._late_at > ON_TIME_S:
            self._reported_s = 0.0
            self._hub.publish_own(Log(source="console", text="the console is on time again", fault=FAULT, is_over=True))
        is_late = self.is_late
        for number in [number for number, due in self._dues.items() if due <= now]:
            check = self._checks.get(number)
            if check is not None:  # else an earlier check has ended that connection
                self._dues[number] = now + check(is_late)
        if self._checks:
            self._schedule()

    def _report(self, late_s: float) -> None:
        """Report a lateness that is the first one or twice the last one reported."""
        if late_s < 2 * self._reported_s:
            return
        self._reported_s = late_s
        self._hub.publish_own(Log(
            source="console", fault=FAULT,
            text=f"the console is late by {late_s:.1f} s: figures are older than they look, and silent nodes are not"
            " shown as lost meanwhile",
            try_="watch fewer nodes, or run the console on a machine with more free CPU time",
        ))  # fmt: skip
