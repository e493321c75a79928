"""The memory of the console with 512 nodes after an hour."""

from __future__ import annotations

import asyncio
import time

from tests.bench.process_usage import memory_bytes

from .process import in_new_process
from .result import Outcome, Row
from .screen_live import SIZE, Fleet

NODES = 512
SECOND = 1_000_000_000
HOUR_S, COARSE_S, FINE_S = 3_600, 10, 60


def measure(quick: bool) -> Outcome:
    nodes, hour_s = (64, 300) if quick else (NODES, HOUR_S)
    rss, highest = in_new_process(_hour, nodes, hour_s)
    row = Row(f"the console after {hour_s / 3600:g} h of {nodes} nodes", f"{rss / 1e6:.0f} MB RSS"
              f" ({highest / 1e6:.0f} at its highest)")  # fmt: skip
    return Outcome([row], [
        f"an hour told in ticks of {COARSE_S} s and, in its last {FINE_S} s, of one, drawn after each; history is"
        " bounded by history_bytes = 1 GiB",
    ])  # fmt: skip


def _hour(nodes: int, hour_s: int) -> tuple[int, int]:
    return asyncio.run(_memory_after(nodes, hour_s))


async def _memory_after(nodes: int, hour_s: int) -> tuple[int, int]:
    """(RSS, peak RSS) of a console after that many seconds of data."""
    fleet = Fleet(nodes)
    now = start = time.time_ns()
    app = fleet.app(now=lambda: now)
    async with app.run_test(size=SIZE):
        for second in [*range(0, hour_s - FINE_S, COARSE_S), *range(hour_s - FINE_S, hour_s)]:
            now = start + second * SECOND
            for index in range(nodes):
                fleet.send(index, second, now)
            app.frames.draw()
            await asyncio.sleep(0.001)
        return memory_bytes()
