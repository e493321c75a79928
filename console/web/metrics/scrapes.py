"""What several scrapers share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

#: So many scrapes are sent at a time; the others wait. Of a large fleet each holds 30 MB while it is sent.
MAX_SCRAPES: Final = 4


@dataclass
class Scrapes:
    """The newest text, when it was made and in which format; and who may make and send it."""

    texts: dict[str, tuple[float, list[bytes]]] = field(default_factory=dict)
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    sending: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_SCRAPES))
