"""Of several ranks that have ended: which of them ended first, and took the others with it."""

from __future__ import annotations

import signal
from typing import Final

from .job_view import JobView

#: The agent looks at ranks once a tick, and nodes tick apart: deaths closer than this have no order, ns.
TOGETHER_NS: Final = 2_500_000_000
#: What launchers send to the ranks of a job that they end.
_SENT_BY_LAUNCHERS: Final = frozenset({-signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT})
#: What nobody sends: a rank that ends so has come to it by itself.
_BY_ITSELF: Final = frozenset({-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE})


def first_deaths(scene: JobView) -> tuple[tuple[int, ...], bool]:
    """The ranks that ended first, and whether that is certain.

    Those that nobody saw end at another time are ordered by how they ended: a crash before a kill, a kill before an
    exit, because the ranks that lose a neighbour raise an error and exit.
    """
    dead = scene.dead
    if len(dead) == 1:
        return dead, True
    records = {rank: scene.last_record(rank) for rank in dead}
    ends = {rank: record.rx for rank, record in records.items() if record is not None and record.status == "exited"}
    if ends:
        earliest = min(ends.values())
        dead = tuple(rank for rank in dead if rank not in ends or ends[rank] - earliest <= TOGETHER_NS)
    codes = {rank: record.exit_code if (record := records[rank]) is not None else None for rank in dead}
    for telling in (_BY_ITSELF, _SENT_BY_LAUNCHERS):
        found = tuple(rank for rank in dead if codes[rank] in telling)
        if found and len(found) < len(dead) and all(code is not None for code in codes.values()):
            return found, len(found) == 1
    return dead, len(dead) == 1
