"""Clock lines from the error bounds that NTP/PTP services report; used without a better measurement.

Two nodes within 40 us of UTC differ by at most 80 us. These are claims: one that contradicts a measurement is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...records import ClockSnapshot, ClockSource
from ...records.clock import ClockMethod


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's CLOCK_REALTIME at one instant, with the distance from UTC that its time service reports."""

    mono: int
    real: int
    bound_ns: int | None  # None: not reported
    slew: float  # CLOCK_REALTIME against MONOTONIC_RAW, less 1
    method: ClockMethod


def claim(snapshot: ClockSnapshot, source: ClockSource | None, at_mono: int | None = None) -> Claim:
    """Claim of a node at `at_mono` of its MONOTONIC_RAW (default: at the snapshot)."""
    mono = snapshot.raw if at_mono is None else at_mono
    slew = (snapshot.slew_ppm or 0.0) * 1e-6
    gone = mono - snapshot.raw
    real = snapshot.real + gone + int(gone * slew)
    if source is None or source.bound_ns is None or source.synced is False:
        return Claim(mono, real, None, slew, "system")
    bound_ns = source.bound_ns + snapshot.width_ns // 2 + int(abs(gone) * 1e-6)
    return Claim(mono, real, bound_ns, slew, "ptp" if source.daemon == "ptp4l" else "ntp")


def best_reference(claims: Mapping[str, Claim]) -> str | None:
    """Node with the smallest claimed bound, else the first by name; None without nodes."""
    bounds = {name: node_claim.bound_ns for name, node_claim in claims.items() if node_claim.bound_ns is not None}
    if bounds:
        return min(sorted(bounds), key=lambda name: bounds[name])
    return min(claims, default=None)


@dataclass(frozen=True, slots=True)
class ClaimedLine:
    """common = at_common + (mono - at_mono) * alpha, within the sum of both claims' bounds."""

    at_mono: int
    at_common: int
    alpha: float
    bound_ns: int | None
    method: ClockMethod


def claimed_line(own: Claim, reference: Claim, reference_common: int) -> ClaimedLine:
    """Line of a node; the reference's claim is at `reference_common` on the common clock."""
    bound_ns = None
    if own.bound_ns is not None and reference.bound_ns is not None:
        bound_ns = own.bound_ns + reference.bound_ns
    method: ClockMethod = own.method if bound_ns is not None else "system"
    return ClaimedLine(
        own.mono, own.real + reference_common - reference.real, 1.0 + own.slew - reference.slew, bound_ns, method
    )
