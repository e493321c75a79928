"""Detects an agent that replies but has stopped sampling, so that its node is not shown as ok."""

from __future__ import annotations

from typing import Final

#: Seconds without a full tick after which the agent counts as failed, and the same in sampling intervals.
LATE_S: Final = 20.0
LATE_INTERVALS: Final = 10
#: Seconds until the first full tick of a connection.
FIRST_TICK_S: Final = 90.0
#: ns of the node's clock between two signs of life that count.
_SIGN_NS: Final = 1_000_000_000


class SamplingMonitor:
    """Counts an agent's signs of life since its last full tick: records, and pongs while no record is queued.

    At most one sign counts per second of the node's own clock. So neither data that is delayed (a slow network, a
    node above its quota, a late console) nor the time in which the agent was stopped counts as time without ticks.
    """

    def __init__(self, interval_s: float) -> None:
        """`interval_s`: the sampling interval, until a tick comes with the effective one."""
        self._limit_s = max(FIRST_TICK_S, LATE_INTERVALS * interval_s)
        self._signs = 0
        self._last_ns: int | None = None  # CLOCK_MONOTONIC_RAW of the node at the last sign that counts
        self._has_record = False  # since the last pong: pongs overtake records

    def on_tick(self, interval_s: float) -> None:
        """Note a full tick of the agent, with its effective sampling interval."""
        self._limit_s = max(LATE_S, LATE_INTERVALS * interval_s)
        self._signs = 0

    def on_records(self, mono_ns: int) -> None:
        """Note records, the last of which was made then."""
        self._has_record = True
        self._count(mono_ns)

    def on_pong(self, mono_ns: int) -> None:
        """Note a pong; the first one after a record may have overtaken others."""
        if not self._has_record:
            self._count(mono_ns)
        self._has_record = False

    @property
    def silent_s(self) -> float:
        """Seconds for which the agent has shown signs of life without a full tick; a lower bound."""
        return float(self._signs)

    @property
    def is_overdue(self) -> bool:
        """Whether the next full tick is so late that the agent must have failed in part."""
        return self._signs > self._limit_s

    def _count(self, mono_ns: int) -> None:
        if self._last_ns is None or mono_ns >= self._last_ns + _SIGN_NS:
            self._last_ns = mono_ns
            self._signs += 1
