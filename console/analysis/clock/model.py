"""From a node's clock to the common clock: straight between windows, in integers, with a bound that grows with age."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...records import ClockNode, ClockSnapshot
from .readings import NodeClock, Readings

#: By how much the bound grows with the time since the last window: a clock in order (0.3 ppm was measured of a wander
#: of 2 us in 30 s), and one that its node was warned of.
GROWS: Final = 0.5e-6
GROWS_WARNED: Final = 200e-6
#: Rates are carried as integers of this many parts.
_PARTS: Final = 10**15
#: Windows further back say nothing about the rate now, ns.
_REMEMBERED: Final = 600_000_000_000
#: A window whose bound is so many times that of the one before may be worth less than that one's line, carried on.
_MUCH_WIDER: Final = 2
#: Warnings after which a line is not to be trusted beyond its window.
_SHAKEN: Final = frozenset({"step", "noncausal", "rate", "inconsistent"})


@dataclass(frozen=True, slots=True)
class ClusterTime:
    """An instant on the common clock, ns, and how far off it can be."""

    ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class _Knot:
    mono: int
    common: int
    bound_ns: int
    rate: float  # common ns a ns of `mono`, less 1: of its window alone
    rate_bound: float
    is_shaken: bool


class NodeTimeline:
    """One node's line, through the middles of its windows."""

    def __init__(self, lines: Iterable[ClockNode]) -> None:
        self._knots: list[_Knot] = []
        self._rates: dict[int, tuple[int, float]] = {}
        for line in lines:
            self._add(line)

    def common(self, mono: int) -> ClusterTime | None:
        """When an instant of MONOTONIC_RAW was on the common clock; None before the node had a line."""
        if not self._knots:
            return None
        found = bisect_right(self._knots, mono, key=lambda knot: knot.mono)
        if found == 0:
            return self._beyond(0, mono)
        if found == len(self._knots):
            return self._beyond(found - 1, mono)
        near, far = self._knots[found - 1], self._knots[found]
        gone, width = mono - near.mono, far.mono - near.mono
        common = near.common + gone * (far.common - near.common) // width
        bound = near.bound_ns + (far.bound_ns - near.bound_ns) * gone // width
        grows = GROWS_WARNED if near.is_shaken or far.is_shaken else GROWS
        return ClusterTime(common, bound + 1 + int(min(gone, width - gone) * grows))

    def _add(self, line: ClockNode) -> None:
        if line.at_common is None or line.alpha is None or line.bound_ns is None:
            return
        if self._knots and line.at_mono <= self._knots[-1].mono:
            self._knots.clear()  # rebooted: MONOTONIC_RAW began anew
            self._rates.clear()
        if self._knots and line.bound_ns > _MUCH_WIDER * self._knots[-1].bound_ns:
            before = self._beyond(len(self._knots) - 1, line.at_mono)
            if before.bound_ns <= line.bound_ns:
                return  # what was known before is still better, as old as it is
        own = GROWS_WARNED if line.drift_bound_ppm is None else line.drift_bound_ppm * 1e-6
        shaken = not _SHAKEN.isdisjoint(line.warnings) or line.status == "inconsistent"
        self._rates.pop(len(self._knots), None)
        self._knots.append(_Knot(line.at_mono, line.at_common, line.bound_ns, line.alpha - 1.0, own, shaken))

    def _beyond(self, index: int, mono: int) -> ClusterTime:
        knot = self._knots[index]
        if index not in self._rates:
            self._rates[index] = self._rate(index)
        rate, rate_bound = self._rates[index]
        gone = mono - knot.mono
        grows = GROWS_WARNED if knot.is_shaken else rate_bound + GROWS
        return ClusterTime(knot.common + gone + gone * rate // _PARTS, knot.bound_ns + 1 + int(abs(gone) * grows))

    def _rate(self, index: int) -> tuple[int, float]:
        """The rate at the first or the last window, in `_PARTS`, and how far off it can be.

        That window's own, narrowed by the other windows: the rate between two is known as well as their bounds allow
        over the time between them.
        """
        knot = self._knots[index]
        low, high = knot.rate - knot.rate_bound, knot.rate + knot.rate_bound
        for other in self._knots[1:] if index == 0 else reversed(self._knots[:index]):
            gone = knot.mono - other.mono
            if abs(gone) > _REMEMBERED:
                break
            secant = (knot.common - other.common - gone) / gone
            off = (knot.bound_ns + other.bound_ns) / abs(gone) + GROWS
            if secant - off > high or secant + off < low:
                break  # it ran otherwise then
            low, high = max(low, secant - off), min(high, secant + off)
        rate = min(max(knot.rate, low), high)
        return round(rate * _PARTS), max(high - rate, rate - low)


class CommonClock:
    """The one conversion of node time to common time, which every view, export and query uses.

    Stamps are never rewritten: whoever compares nodes asks here. A difference of two instants of different nodes is
    known to the sum of their bounds; of one node, to what its own readings are worth.
    """

    def __init__(
        self, lines: Mapping[str, Iterable[ClockNode]], snapshots: Mapping[str, Iterable[ClockSnapshot]]
    ) -> None:
        self._given = lines, snapshots
        self._lines: dict[str, NodeTimeline] = {}  # made for those that are asked for: there may be hundreds
        self._readings: dict[str, Readings] = {}

    def to_cluster(self, node: str, instant: int, clock: NodeClock = "raw") -> ClusterTime | None:
        """When an instant of a node's clock was on the common clock; None where nothing ties that node to it."""
        if node not in self._lines:
            lines, snapshots = self._given
            self._lines[node] = NodeTimeline(lines.get(node, ()))
            self._readings[node] = Readings(snapshots.get(node, ()))
        reading = self._readings[node].raw(instant, clock)
        at = None if reading is None else self._lines[node].common(reading.raw)
        return None if at is None or reading is None else ClusterTime(at.ns, at.bound_ns + reading.bound_ns)
