"""The dead-man heartbeat: sent while the sentinel sees the nodes, so that its absence is an alarm elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ...text.atomic_files import write_atomically
from ...text.format import iso, some
from .events import Emit, WatchEvent
from .http_client import HttpError, request

#: Seconds. A pass whose event loop was blocked for longer is blind.
MOST_LAG_S: Final = 5.0
#: Seconds since the analyses last ran without an error, after which a pass is blind.
MOST_ANALYSIS_AGE_S: Final = 30.0
#: Nodes that a message names.
_NAMED: Final = 4


class PassHealth(msgspec.Struct, frozen=True):
    """What one pass of the sentinel saw. `analysis_age_s` is None before the analyses ran once."""

    seen: int
    expected: int
    unseen: tuple[str, ...] = ()  # names of nodes, with the reason if it is known
    lag_s: float = 0.0
    analysis_age_s: float | None = None
    failing: tuple[str, ...] = ()  # analyses that failed the last time they ran

    def blindness(self, nodes_pct: float) -> str:
        """Why the pass is blind; empty if it saw enough: `nodes_pct` of the nodes, and all analyses ran."""
        if not self.expected or self.seen * 100.0 < nodes_pct * self.expected:
            names = f": {some(self.unseen, _NAMED)}" if self.unseen else ""
            return f"{self.seen} of {self.expected} nodes seen{names}"
        if self.lag_s > MOST_LAG_S:
            return f"this process was blocked for {self.lag_s:.0f} s"
        if self.analysis_age_s is None:
            return "the analyses have not run yet"
        if self.analysis_age_s > MOST_ANALYSIS_AGE_S:
            return f"the analyses last ran {self.analysis_age_s:.0f} s ago"
        if self.failing:
            return f"analyses failed: {', '.join(self.failing)}"
        return ""


class Heartbeat:
    """Requests a URL and replaces a file every `every_s` seconds, at most one request at a time."""

    def __init__(self, emit: Emit, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit, self._clock = emit, clock
        self._url: str | None = None
        self._file: Path | None = None
        self._every_s = 60.0
        self._due_s = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._problem = ""
        self.sent = 0

    def follow(self, url: str | None, file: str | None, every_s: float) -> None:
        """Use this configuration from now on."""
        self._url, self._file, self._every_s = url, Path(file) if file else None, every_s

    def beat(self, health: PassHealth, open_findings: int) -> None:
        """Send a heartbeat if one is due. Called only after a pass that was not blind."""
        now_s = self._clock()
        if now_s < self._due_s or (self._url is None and self._file is None):
            return
        if self._task is not None and not self._task.done():
            return
        self._due_s = now_s + self._every_s
        self._task = asyncio.create_task(self._send(health, open_findings), name="heartbeat")

    async def stop(self) -> None:
        """Cancel a request that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _send(self, health: PassHealth, open_findings: int) -> None:
        problem = ""
        if self._file is not None:
            document = {
                "at": iso(time.time_ns()), "nodes_seen": health.seen, "nodes_expected": health.expected,
                "findings_open": open_findings,
            }  # fmt: skip
            try:
                write_atomically(self._file, msgspec.json.encode(document) + b"\n")
            except OSError as error:
                problem = f"{self._file} cannot be written ({error.strerror})"
        if self._url is not None:
            try:
                await request(self._url, deadline_s=min(20.0, self._every_s))
            except HttpError as error:
                problem = _without_path(str(error), self._url)
        if not problem:
            self.sent += 1
        if problem != self._problem:
            self._problem = problem
            self._emit(WatchEvent("heartbeat_failed" if problem else "heartbeat", problem or "sent again"))


def _without_path(text: str, url: str) -> str:
    path = url.partition("://")[2].partition("/")[2]
    return text.replace(path, "***") if len(path) > 3 else text
