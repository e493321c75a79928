"""Frees what lost connections leave: their parts refer to each other, so that only the garbage collector can.

By itself it would come to that about once in an hour, with a megabyte piled up; a process keeps the most it ever took.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

#: After a loss, so that many nodes that are lost together are swept up after together. A sweep takes some
#: milliseconds where the modules are passed over (`cli.live.leave_modules_alone`).
AFTER_S: Final = 15.0


class Sweep:
    """The garbage collection of one fleet."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """A connection was lost."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(AFTER_S, self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self._timer = None
        gc.collect()
