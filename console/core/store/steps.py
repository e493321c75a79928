"""What the store knows of steps: when each rank was seen to reach one, of a variable that is watched."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ...records import RankStat

#: So many steps of a rank are kept, of all ranks together about so many, and of each at least so many: who is late is
#: seen in a few, and what is kept of thousands of ranks is folded again and again.
KEPT: Final = 256
KEPT_IN_ALL: Final = 65_536
KEPT_AT_LEAST: Final = 16
#: Ranks of one node whose steps are kept, those of attempts that are over among them; the oldest go. A node can invent
#: any number, and what it invents must neither fill the memory nor take the place of others.
MOST_RANKS: Final = 1_024

#: (job, attempt, rank)
RankKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A rank was first seen at a step at `mono`, and was last seen before it at `before`: it came in between."""

    step: int
    before: int  # MONOTONIC_RAW of the node, ns
    mono: int


@dataclass(frozen=True, slots=True)
class RankSteps:
    """One rank: where it is, since the last reading, and the steps before that, oldest first."""

    node: str
    process: tuple[int, int]
    step: int
    read: int  # MONOTONIC_RAW of the last reading
    gained: int | None = None  # steps between the last two readings; None where there was one only
    seen: tuple[StepSeen, ...] = ()


class StepTable:
    """The fold of `rank_stat` records that have a step; a rank whose process is a new one begins anew."""

    def __init__(self) -> None:
        self._ranks: dict[RankKey, RankSteps] = {}
        self._kept: dict[RankKey, deque[StepSeen]] = {}
        self._of_node: dict[str, dict[RankKey, None]] = {}  # whose word is what is kept of a rank; the oldest first
        self._changed = -1

    def changed_since(self, version: int) -> bool:
        """Whether any rank's step was read after that version of the store."""
        return self._changed > version

    def touch(self, version: int) -> None:
        """All of it is news to whoever looks since before that version of the store."""
        self._changed = version

    def add(self, record: RankStat, version: int) -> None:
        """Remember when a rank reached a step; a record without one says nothing."""
        if record.step is None or record.rank is None:
            return
        key = (record.job, record.attempt, record.rank)
        process = (record.pid, record.start_ticks)
        known, read = self._ranks.get(key), _read_at(record)
        if known is not None and known.process == process and read == known.read:
            return  # told again, not read again
        gained = None
        if known is None or known.process != process or read < known.read:
            self._kept[key] = deque()
        else:
            gained = max(0, record.step - known.step)
            if gained:
                self._kept[key].append(StepSeen(record.step, known.read, read))
                self._forget(self._kept[key])
        self._changed = version
        self._ranks[key] = RankSteps(record.node, process, record.step, read, gained)
        if known is None or known.node != record.node:
            self._is_told_by(record.node, key, known)

    def _is_told_by(self, node: str, key: RankKey, before: RankSteps | None) -> None:
        if before is not None:
            self._of_node[before.node].pop(key, None)
        told = self._of_node.setdefault(node, {})
        told[key] = None
        if len(told) > MOST_RANKS:
            oldest = next(iter(told))
            del told[oldest], self._ranks[oldest], self._kept[oldest]

    def _forget(self, kept: deque[StepSeen]) -> None:
        room = min(KEPT, max(KEPT_AT_LEAST, KEPT_IN_ALL // len(self._ranks)))
        while len(kept) > room:
            kept.popleft()

    def ranks(self) -> dict[RankKey, RankSteps]:
        """Every rank with a step, as it is now."""
        return {
            key: RankSteps(one.node, one.process, one.step, one.read, one.gained, tuple(self._kept[key]))
            for key, one in self._ranks.items()
        }


def _read_at(record: RankStat) -> int:
    """MONOTONIC_RAW of the node when the step was read; its record may come a while later, and again and again."""
    return record.mono if record.watched_at is None else record.mono - (record.t - record.watched_at)
