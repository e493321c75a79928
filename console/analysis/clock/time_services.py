"""What the nodes' own time services claim, as lines to the common clock: used where nothing better was measured.

A service that says "within 40 us of UTC" on two nodes says that their CLOCK_REALTIME differ by 80 us at most. That is a
claim, not a measurement; the bound says as much, and a claim that a measurement contradicts is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...records import ClockSnapshot, ClockSource
from ...records.clock import ClockMethod


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's CLOCK_REALTIME at one instant, and how far from UTC its own service says it is."""

    mono: int
    real: int
    bound_ns: int | None  # None: nothing is claimed
    slew: float  # CLOCK_REALTIME against MONOTONIC_RAW, less 1
    method: ClockMethod


def claim(snapshot: ClockSnapshot, source: ClockSource | None, at: int | None = None) -> Claim:
    """What a node claims, at an instant of its MONOTONIC_RAW, by its last snapshot (None: at that snapshot)."""
    mono = snapshot.raw if at is None else at
    slew = (snapshot.slew_ppm or 0.0) * 1e-6
    gone = mono - snapshot.raw
    real = snapshot.real + gone + int(gone * slew)
    if source is None or source.bound_ns is None or source.synced is False:
        return Claim(mono, real, None, slew, "system")
    bound_ns = source.bound_ns + snapshot.width_ns // 2 + int(abs(gone) * 1e-6)
    return Claim(mono, real, bound_ns, slew, "ptp" if source.daemon == "ptp4l" else "ntp")


def best_reference(claims: Mapping[str, Claim]) -> str | None:
    """The node with the smallest claimed bound; without any claim the first by name, None without nodes."""
    known = {name: one.bound_ns for name, one in claims.items() if one.bound_ns is not None}
    if known:
        return min(sorted(known), key=lambda name: known[name])
    return min(claims, default=None)


@dataclass(frozen=True, slots=True)
class ClaimedLine:
    """common = at_common + (mono - at_mono) * alpha, with the bound that both ends' claims add up to."""

    at_mono: int
    at_common: int
    alpha: float
    bound_ns: int | None
    method: ClockMethod


def claimed_line(own: Claim, reference: Claim, reference_common: int) -> ClaimedLine:
    """A node's line, when the reference's `mono` of its claim is `reference_common` on the common clock."""
    bound_ns = None
    if own.bound_ns is not None and reference.bound_ns is not None:
        bound_ns = own.bound_ns + reference.bound_ns
    method: ClockMethod = own.method if bound_ns is not None else "system"
    return ClaimedLine(
        own.mono, own.real + reference_common - reference.real, 1.0 + own.slew - reference.slew, bound_ns, method
    )
