"""Conversion between the clocks of one node, and from node clocks to the common clock, in integer ns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, Literal, Self

import msgspec

from ...records import ClockNode, ClockSnapshot

#: Source clock of an instant. Flight Recorder, Kineto and CUPTI use `real`; `mono` of a gconsole record is `raw`.
NodeClock = Literal["raw", "real", "monotonic", "boot"]

#: Rate change of a disciplined clock between snapshots, as a share of the elapsed time.
UNSEEN: Final = 1e-6
#: Growth of the bound with the time since the last window: healthy clock (0.3 ppm measured), clock with warnings.
GROWS: Final = 0.5e-6
GROWS_WARNED: Final = 200e-6
#: Fixed-point denominator of rates.
_PARTS: Final = 10**15
#: Maximum age of windows used for the rate, ns.
_REMEMBERED: Final = 600_000_000_000
#: Ratio of bounds from which extrapolating the previous window may be better than using the new one.
_MUCH_WIDER: Final = 2
#: Warnings after which a line is not extrapolated with its own rate bound.
_SHAKEN: Final = frozenset({"step", "noncausal", "rate", "inconsistent"})


class ClockReading(msgspec.Struct, frozen=True):
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


class ClusterInstant(msgspec.Struct, frozen=True):
    """Instant on the common clock and its error bound, ns."""

    ns: int
    bound_ns: int


class _Knot(msgspec.Struct, frozen=True):
    mono: int
    common: int
    bound_ns: int
    rate: float  # common ns a ns of `mono`, less 1: of its window alone
    rate_bound: float
    is_shaken: bool


class NodeTimeline:
    """Clock model of one node: piecewise linear through the middles of its windows."""

    def __init__(self, lines: Iterable[ClockNode]) -> None:
        self._knots: list[_Knot] = []
        self._rates: dict[int, tuple[int, float]] = {}
        for line in lines:
            self._add(line)

    def common(self, mono: int) -> ClusterInstant | None:
        """Convert MONOTONIC_RAW (ns) to the common clock; None without a line."""
        if not self._knots:
            return None
        index = bisect_right(self._knots, mono, key=lambda knot: knot.mono)
        if index == 0:
            return self._beyond(0, mono)
        if index == len(self._knots):
            return self._beyond(index - 1, mono)
        near, far = self._knots[index - 1], self._knots[index]
        gone, width = mono - near.mono, far.mono - near.mono
        common = near.common + gone * (far.common - near.common) // width
        bound = near.bound_ns + (far.bound_ns - near.bound_ns) * gone // width
        grows = GROWS_WARNED if near.is_shaken or far.is_shaken else GROWS
        return ClusterInstant(common, bound + 1 + int(min(gone, width - gone) * grows))

    def _add(self, line: ClockNode) -> None:
        if line.at_common is None or line.alpha is None or line.bound_ns is None:
            return
        if self._knots and line.at_mono <= self._knots[-1].mono:
            self._knots.clear()  # rebooted: MONOTONIC_RAW began anew
            self._rates.clear()
        if self._knots and line.bound_ns > _MUCH_WIDER * self._knots[-1].bound_ns:
            before = self._beyond(len(self._knots) - 1, line.at_mono)
            if before.bound_ns <= line.bound_ns:
                return  # the extrapolation has the smaller bound
        own = GROWS_WARNED if line.drift_bound_ppm is None else line.drift_bound_ppm * 1e-6
        shaken = not _SHAKEN.isdisjoint(line.warnings) or line.status == "inconsistent"
        self._rates.pop(len(self._knots), None)
        self._knots.append(_Knot(line.at_mono, line.at_common, line.bound_ns, line.alpha - 1.0, own, shaken))

    def _beyond(self, index: int, mono: int) -> ClusterInstant:
        knot = self._knots[index]
        if index not in self._rates:
            self._rates[index] = self._rate(index)
        rate, rate_bound = self._rates[index]
        gone = mono - knot.mono
        grows = GROWS_WARNED if knot.is_shaken else rate_bound + GROWS
        return ClusterInstant(knot.common + gone + gone * rate // _PARTS, knot.bound_ns + 1 + int(abs(gone) * grows))

    def _rate(self, index: int) -> tuple[int, float]:
        """Rate at the first or last window (in `_PARTS`) and its bound: its own, narrowed by the other windows."""
        knot = self._knots[index]
        low, high = knot.rate - knot.rate_bound, knot.rate + knot.rate_bound
        for other in self._knots[1:] if index == 0 else reversed(self._knots[:index]):
            gone = knot.mono - other.mono
            if abs(gone) > _REMEMBERED:
                break
            secant = (knot.common - other.common - gone) / gone
            off = (knot.bound_ns + other.bound_ns) / abs(gone) + GROWS
            if secant - off > high or secant + off < low:
                break  # the rate was different then
            low, high = max(low, secant - off), min(high, secant + off)
        rate = min(max(knot.rate, low), high)
        return round(rate * _PARTS), max(high - rate, rate - low)


class CommonClock:
    """Conversion of node time to common time for views, exports and queries; recorded stamps are never rewritten.

    The error of a difference between two nodes is at most the sum of their bounds.
    """

    def __init__(
        self, lines: Mapping[str, Iterable[ClockNode]], snapshots: Mapping[str, Iterable[ClockSnapshot]]
    ) -> None:
        self._given = lines, snapshots
        self._lines: dict[str, NodeTimeline] = {}  # built on first use
        self._readings: dict[str, Readings] = {}

    @classmethod
    def of(cls, records: Iterable[object]) -> Self:
        """The common clock from clock records, in order of arrival; other records are ignored."""
        lines: dict[str, list[ClockNode]] = {}
        snapshots: dict[str, list[ClockSnapshot]] = {}
        for record in records:
            if isinstance(record, ClockNode):
                lines.setdefault(record.node, []).append(record)
            elif isinstance(record, ClockSnapshot):
                snapshots.setdefault(record.node, []).append(record)
        return cls(lines, snapshots)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that have lines."""
        return frozenset(self._given[0])

    def to_cluster(self, node: str, instant: int, clock: NodeClock = "raw") -> ClusterInstant | None:
        """Convert an instant of a node's clock (ns) to the common clock; None if the node has no line."""
        if node not in self._lines:
            lines, snapshots = self._given
            self._lines[node] = NodeTimeline(lines.get(node, ()))
            self._readings[node] = Readings(snapshots.get(node, ()))
        reading = self._readings[node].raw(instant, clock)
        instant_common = None if reading is None else self._lines[node].common(reading.raw)
        return (
            None
            if instant_common is None or reading is None
            else ClusterInstant(instant_common.ns, instant_common.bound_ns + reading.bound_ns)
        )
