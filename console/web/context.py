"""What every operation works with: the parts of one running console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..config import Config
from ..core.bus import Hub
from ..core.control import Control
from ..core.store import Store
from ..monitor.finding_tracker import FindingTracker
from .metrics.scrapes import Scrapes

_LOOK_S: Final = 0.1


@dataclass
class WebContext:
    """One console. `capturing` and `starting` keep two clients from getting into each other's way."""

    config: Config
    hub: Hub
    store: Store
    control: Control
    findings: FindingTracker
    sessions: Path  # where recordings are kept
    capturing: asyncio.Lock = field(default_factory=asyncio.Lock)
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)  # output of jobs: one reader at a time
    scrapes: Scrapes = field(default_factory=Scrapes)
    streams: int = 0  # of events, that are open
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Wait until something in the store is true; False where it is not in time."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > deadline_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True
