"""Conversion between the clocks of one node and its MONOTONIC_RAW, in integer ns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from ...records import ClockSnapshot

#: Source clock of an instant. Flight Recorder, Kineto and CUPTI use `real`; `mono` of a gconsole record is `raw`.
NodeClock = Literal["raw", "real", "monotonic", "boot"]

#: Rate change of a disciplined clock between snapshots, as a share of the elapsed time.
UNSEEN: Final = 1e-6


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Instant on a node's MONOTONIC_RAW and its error bound, ns."""

    raw: int
    bound_ns: int


class Readings:
    """Clock snapshots of one node and boot, sorted by time."""

    def __init__(self, snapshots: Iterable[ClockSnapshot]) -> None:
        self._snapshots = list(
            {snapshot.raw: snapshot for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.raw)}.values()
        )

    def __bool__(self) -> bool:
        return bool(self._snapshots)

    def raw(self, instant: int, clock: NodeClock) -> ClockReading | None:
        """Convert an instant to MONOTONIC_RAW; None without a snapshot.

        Linear between two snapshots, extrapolated beyond the ends; steps and rate changes widen the bound.
        """
        if clock == "raw":
            return ClockReading(instant, 0)
        if not self._snapshots:
            return None
        index = bisect_right(self._snapshots, instant, key=lambda snapshot: int(getattr(snapshot, clock)))
        before = self._snapshots[max(0, index - 1)]
        if len(self._snapshots) == 1:
            gone = instant - int(getattr(before, clock))
            return ClockReading(before.raw + gone, before.width_ns // 2 + _unseen(gone))
        left = min(max(0, index - 1), len(self._snapshots) - 2)
        near, far = self._snapshots[left], self._snapshots[left + 1]
        near_at, far_at = int(getattr(near, clock)), int(getattr(far, clock))
        step = abs(far.step_ns) if clock == "real" else 0
        if far_at <= near_at:  # set back in between
            return ClockReading(near.raw, abs(far.raw - near.raw) + step)
        raw = near.raw + (instant - near_at) * (far.raw - near.raw) // (far_at - near_at)
        width = max(near.width_ns, far.width_ns) // 2
        if near_at <= instant <= far_at:
            return ClockReading(raw, width + step + self._bend(left, min(instant - near_at, far_at - instant)))
        gone = near_at - instant if instant < near_at else instant - far_at
        return ClockReading(raw, width + step + _unseen(gone) + self._bend(left, gone))

    def real(self, raw: int) -> int | None:
        """CLOCK_REALTIME at an instant of MONOTONIC_RAW, from the preceding snapshot; None without a snapshot."""
        if not self._snapshots:
            return None
        index = bisect_right(self._snapshots, raw, key=lambda snapshot: snapshot.raw)
        near = self._snapshots[max(0, index - 1)]
        return near.real + raw - near.raw

    def _bend(self, segment: int, away: int) -> int:
        """Maximum deviation from a segment's line, `away` ns from its nearer end."""
        own = self._rate(segment)
        others = [
            self._rate(neighbour)
            for neighbour in (segment - 1, segment + 1)
            if 0 <= neighbour < len(self._snapshots) - 1
        ]
        return int(max((abs(own - other) for other in others), default=UNSEEN) * away)

    def _rate(self, segment: int) -> float:
        """CLOCK_REALTIME against MONOTONIC_RAW over a segment, less 1."""
        near, far = self._snapshots[segment], self._snapshots[segment + 1]
        took = far.raw - near.raw
        return (far.real - near.real - took) / took if took else 0.0


def _unseen(gone: int) -> int:
    return int(abs(gone) * UNSEEN)
