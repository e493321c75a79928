"""Step progress: when each rank was seen to reach a step, from a watched variable."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from ...records import RankStat

#: Steps kept per rank at most, of all ranks together about, and per rank at least: a few show who is late, and those of
#: thousands of ranks are folded again and again.
KEPT: Final = 256
KEPT_IN_ALL: Final = 65_536
KEPT_AT_LEAST: Final = 16
#: Ranks per node whose steps are kept, ended attempts included; the oldest are dropped. A node that invents ranks must
#: not fill the memory or displace those of other nodes.
MOST_RANKS: Final = 1_024

#: (job, attempt, rank)
RankKey = tuple[str, int, int]


class StepObservation(NamedTuple):
    """A rank was first seen at a step at `mono`, and was last seen before it at `before`: it came in between."""

    step: int
    before: int  # MONOTONIC_RAW of the node, ns
    mono: int


class RankSteps(msgspec.Struct, frozen=True):
    """One rank: where it is, since the last reading, and the steps before that, oldest first."""

    node: str
    process: tuple[int, int]
    step: int
    read: int  # MONOTONIC_RAW of the last reading
    gained: int | None = None  # steps between the last two readings; None where there was one only
    seen: tuple[StepObservation, ...] = ()
    watched_at: int | None = None  # CLOCK_REALTIME of the node at the last reading, ns; identifies the reading


class StepTable:
    """Steps by rank, from `rank_stat` records; a rank with a new process starts again."""

    def __init__(self) -> None:
        self._ranks: dict[RankKey, RankSteps] = {}
        self._kept: dict[RankKey, deque[StepObservation]] = {}
        self._of_node: dict[str, dict[RankKey, None]] = {}  # node that reported a rank last; oldest first
        self._changed = -1

    def changed_since(self, version: int) -> bool:
        """Whether any rank's step was read after that version of the store."""
        return self._changed > version

    def touch(self, version: int) -> None:
        """Mark all steps as changed at a version of the store."""
        self._changed = version

    def add(self, record: RankStat, version: int) -> None:
        """Record when a rank reached a step; a record without one is ignored."""
        if record.step is None or record.rank is None:
            return
        key = (record.job, record.attempt, record.rank)
        process = (record.pid, record.start_ticks)
        before, read = self._ranks.get(key), _read_at(record)
        # not by `read`: each record converts the reading to the other clock anew, some nanoseconds apart
        is_same = before is not None and (
            read == before.read if record.watched_at is None else record.watched_at == before.watched_at
        )
        if before is not None and before.process == process and is_same:
            return  # sent again, not read again
        gained = None
        if before is None or before.process != process or read < before.read:
            self._kept[key] = deque()
        else:
            gained = max(0, record.step - before.step)
            if gained:
                self._kept[key].append(StepObservation(record.step, before.read, read))
                self._forget(self._kept[key])
        self._changed = version
        self._ranks[key] = RankSteps(record.node, process, record.step, read, gained, watched_at=record.watched_at)
        if before is None or before.node != record.node:
            self._set_reporter(record.node, key, before)

    def _set_reporter(self, node: str, key: RankKey, before: RankSteps | None) -> None:
        if before is not None:
            self._of_node[before.node].pop(key, None)
        keys = self._of_node.setdefault(node, {})
        keys[key] = None
        if len(keys) > MOST_RANKS:
            oldest = next(iter(keys))
            del keys[oldest], self._ranks[oldest], self._kept[oldest]

    def _forget(self, kept: deque[StepObservation]) -> None:
        room = min(KEPT, max(KEPT_AT_LEAST, KEPT_IN_ALL // len(self._ranks)))
        while len(kept) > room:
            kept.popleft()

    def newest(self, key: RankKey, most: int) -> tuple[tuple[int, int], list[StepObservation]] | None:
        """The process of one rank, and the newest steps that it was seen at, newest first; None without a step."""
        rank = self._ranks.get(key)
        return None if rank is None else (rank.process, list(islice(reversed(self._kept[key]), most)))

    def last_read(self, key: RankKey) -> int | None:
        """When the step of one rank was read last, MONOTONIC_RAW of its node in ns; None without a step."""
        rank = self._ranks.get(key)
        return None if rank is None else rank.read

    def ranks(self) -> dict[RankKey, RankSteps]:
        """Every rank with a step."""
        return {
            key: RankSteps(rank.node, rank.process, rank.step, rank.read, rank.gained, tuple(self._kept[key]))
            for key, rank in self._ranks.items()
        }


def _read_at(record: RankStat) -> int:
    """MONOTONIC_RAW of the node when the step was read; its record may come a while later, and again and again."""
    return record.mono if record.watched_at is None else record.mono - (record.t - record.watched_at)
