"""What one node may take of the console's time: who says too much is read more slowly, so that the others are not."""

from __future__ import annotations

import asyncio
import time

from .transport import Channel

#: Of one core, while a node says more than can be read beside the others. What it says is then recorded, folded and
#: drawn, which takes several times as long again.
SHARE = 0.1
#: So much may be taken at once: the burst of a capture, the first words after a cut.
BURST_S = 0.02
#: Not read for longer than that, a node would be taken for lost.
LONGEST_S = 1.0


class Share:
    """Counts the time that one connection's words took; `used` has its channel wait once that is too much.

    What waits then fills the window of its SSH channel, and after that the buffer of the agent, which counts what it
    has to drop.
    """

    def __init__(self) -> None:
        self._debt_s = 0.0
        self._counted = time.monotonic()
        self._waiting: asyncio.TimerHandle | None = None

    def used(self, spent_s: float, channel: Channel | None) -> None:
        now = time.monotonic()
        self._debt_s = max(0.0, self._debt_s - (now - self._counted) * SHARE) + spent_s
        self._counted = now
        if self._debt_s > BURST_S and channel is not None and self._waiting is None:
            channel.pause()
            wait_s = min(self._debt_s / SHARE, LONGEST_S)
            self._waiting = asyncio.get_running_loop().call_later(wait_s, self._resume, channel)

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _resume(self, channel: Channel) -> None:
        self._waiting = None
        channel.resume()
