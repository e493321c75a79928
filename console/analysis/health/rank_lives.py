"""Processes of ranks by pid, also ended ones, and which of them a message of the kernel names."""

from __future__ import annotations

from typing import Final

import msgspec

from ... import records

SECOND_NS: Final = 1_000_000_000
#: Clock ticks per second of /proc/PID/stat (USER_HZ of all mainstream architectures).
TICKS_S: Final = 100
#: Processes kept per node, the newest ones.
MOST_LIVES: Final = 4_096
#: Nanoseconds: between a kill and the end that the agent notices, and by how much the kernel's clock may be wrong.
NOTICED_NS, WRONG_NS = 60 * SECOND_NS, 2 * SECOND_NS


class RankLife(msgspec.Struct):
    """One process of a rank, or below one. Times of the node's clock, ns; `ended_t` is None while it lives."""

    job: str
    attempt: int | None
    rank: int | None
    world_size: int | None
    start_ticks: int
    started_t: int  # about: from the ticks of its start
    seen_t: int  # when it was first reported
    is_rank: bool  # the rank's own process, not one below it
    ended_t: int | None = None


class RankLives:
    """The newest processes of the ranks of one node by pid."""

    def __init__(self) -> None:
        self._lives: dict[int, RankLife] = {}

    def add_rank(self, record: records.Rank) -> None:
        """Fold a `rank` record."""
        self._add(record, record.rank, record.attempt, record.world_size, record.status in ("exited", "withdrawn"))

    def add_process(self, record: records.Process) -> None:
        """Fold a `process` record of a process below a rank."""
        if record.rank is not None and record.role != "rank":
            self._add(record, record.rank, None, None, record.gone)

    def _add(
        self, record: records.Rank | records.Process, rank: int | None, attempt: int | None, world_size: int | None,
        has_ended: bool,
    ) -> None:  # fmt: skip
        life = self._lives.get(record.pid)
        if life is None or life.start_ticks != record.start_ticks:
            if has_ended:
                return
            started_t = record.t - max(0, record.mono - record.start_ticks * SECOND_NS // TICKS_S)
            life = RankLife(
                record.job or "", attempt, rank, world_size, record.start_ticks, started_t, seen_t=record.t,
                is_rank=isinstance(record, records.Rank),
            )  # fmt: skip
            self._lives.pop(record.pid, None)
            self._lives[record.pid] = life
            if len(self._lives) > MOST_LIVES:
                del self._lives[next(iter(self._lives))]
        elif has_ended and life.ended_t is None:
            life.ended_t = record.t

    def present(self) -> list[RankLife]:
        """The ranks whose processes live."""
        return [life for life in self._lives.values() if life.is_rank and life.ended_t is None]

    def end(self, t: int) -> None:
        """The node rebooted: all have ended."""
        for life in self._lives.values():
            life.ended_t = t if life.ended_t is None else life.ended_t

    def named_by(self, log: records.Log, newest_t: int) -> RankLife | None:
        """The process that a message names, if it was a rank's and ended then, or was just killed; else None."""
        life = self._lives.get(log.pid) if log.pid is not None else None
        logged_t = log.at if log.at is not None else log.t
        if life is None or logged_t < life.seen_t - WRONG_NS:  # a process that had that pid before
            return None
        if life.ended_t is None:
            return life if newest_t - logged_t <= NOTICED_NS else None
        return life if -WRONG_NS <= life.ended_t - logged_t <= NOTICED_NS else None
