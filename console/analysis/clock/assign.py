"""Clock line of every node for one window: measured if that has the smallest bound, else claimed, else unknown.

Claims are error bounds that NTP/PTP services report: two nodes within 40 us of UTC differ by at most 80 us. A claim
that contradicts a measurement is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import structs

from ...records import ClockNode, ClockSnapshot, ClockSource
from ...records.clock import ClockMethod, NodeStatus, Stamps
from .node_bounds import EdgeKey, NodeAt, Settled
from .pair_bounds import EdgeWindow

#: Thresholds of the node warnings.
STEP_NS: Final = 20_000
SLEW_PPM: Final = 100.0
RATE_PPM: Final = 100.0
LOSS_PCT: Final = 1.0
MISSED_PCT: Final = 5.0
#: A node with this many flagged edges is itself inconsistent.
FLAGGED_EDGES: Final = 3

_WORST_STAMPS: Final[tuple[Stamps, ...]] = ("ssh", "user", "kernel_rx")


class ClockMesh(msgspec.Struct, frozen=True):
    """Inputs of the node lines at the end of one window."""

    window_id: int
    reference: str
    epoch: int  # common clock minus MONOTONIC_RAW of the reference
    settled: Settled | None
    edges: tuple[EdgeWindow, ...]
    flagged: frozenset[EdgeKey]
    claims: Mapping[str, Claim]
    snapshots: Mapping[str, Sequence[ClockSnapshot]]


class _Line(msgspec.Struct, frozen=True):
    """A line without its context; `bound_ns` None is unknown."""

    at_mono: int
    at_common: int
    alpha: float
    bound_ns: int | None
    method: ClockMethod
    drift_bound_ppm: float | None = None


def node_lines(fleet: ClockMesh, method: str, max_bound_ns: int) -> list[ClockNode]:
    """Clock lines of all nodes with clock records, the reference first."""
    ends = {name for edge in fleet.edges for name in (edge.src, edge.dst)}
    names = sorted({*ends, *fleet.claims, fleet.reference}, key=lambda name: (name != fleet.reference, name))
    by_node: dict[str, list[EdgeWindow]] = {}
    for edge in fleet.edges:
        by_node.setdefault(edge.src, []).append(edge)
        by_node.setdefault(edge.dst, []).append(edge)
    return _from_reference([_node(fleet, name, by_node.get(name, []), method, max_bound_ns) for name in names])


def _from_reference(lines: list[ClockNode]) -> list[ClockNode]:
    """Lines with offsets relative to the CLOCK_REALTIME of the reference (the first line).

    Relative to MONOTONIC_RAW, the common clock, every CLOCK_REALTIME is slewed by tens of ppm, which is not node skew.
    Without a bound the line takes the node's own clock for the common one, and its offset is unknown, not 0.
    """
    own = lines[0].offset_ns
    offsets = (
        None if own is None or line.offset_ns is None or line.bound_ns is None else line.offset_ns - own
        for line in lines
    )
    return [structs.replace(line, offset_ns=offset) for line, offset in zip(lines, offsets, strict=True)]


def _node(fleet: ClockMesh, name: str, edges: Sequence[EdgeWindow], method: str, max_bound_ns: int) -> ClockNode:
    line = _chosen(fleet, name, edges, method)
    at_mono = line.at_mono if line else fleet.claims[name].mono if name in fleet.claims else 0
    flagged = sum((edge.src, edge.dst) in fleet.flagged for edge in edges)
    used = [edge for edge in edges if edge.region is not None and (edge.src, edge.dst) not in _wrong(fleet)]
    own = fleet.claims.get(name)
    real = None if own is None else own.real + at_mono - own.mono
    repeats = [edge.repeat_ns for edge in used if edge.repeat_ns is not None]
    fits = [edge.r_squared for edge in used if edge.r_squared is not None]
    # without a bound the line takes the node's own clock for the common one: its rate is not measured
    drift = None if line is None or line.bound_ns is None else (1.0 / line.alpha - 1.0) * 1e6
    return ClockNode(
        node=name,
        window_id=fleet.window_id,
        reference=fleet.reference,
        at_mono=at_mono,
        at_common=line.at_common if line else None,
        alpha=line.alpha if line else None,
        offset_ns=None if line is None or real is None else real - line.at_common,
        drift_ppm=drift,
        drift_bound_ppm=line.drift_bound_ppm if line else None,
        bound_ns=line.bound_ns if line else None,
        repeat_ns=None if not repeats else int(max(repeats)) + 1,
        r_squared=min(fits, default=None),
        edges=len(used),
        min_rtt_ns=min((edge.min_rtt_ns for edge in used if edge.min_rtt_ns is not None), default=None),
        method=line.method if line else "system",
        stamps=next(
            (worst_stamp for worst_stamp in _WORST_STAMPS if any(edge.stamps == worst_stamp for edge in used)), None
        ),
        status=_status(fleet, name, edges, line, flagged),
        warnings=tuple(_warnings(fleet, name, edges, line, drift, max_bound_ns)),
    )


def _wrong(fleet: ClockMesh) -> frozenset[EdgeKey]:
    return fleet.settled.inconsistent if fleet.settled else frozenset()


def _status(fleet: ClockMesh, name: str, edges: Sequence[EdgeWindow], line: _Line | None, flagged: int) -> NodeStatus:
    if flagged >= FLAGGED_EDGES:
        return "inconsistent"
    if line is not None and line.bound_ns is not None:
        return "ok"
    if any(edge.region is not None for edge in edges):
        return "inconsistent" if all((edge.src, edge.dst) in _wrong(fleet) for edge in edges) else "island"
    return "no_data"


# -- which line --------------------------------------------------------------------------------------------------------


def _chosen(fleet: ClockMesh, name: str, edges: Sequence[EdgeWindow], method: str) -> _Line | None:
    """Line with the smallest bound that the configured method allows; a claim must not contradict probes."""
    if name == fleet.reference:
        return _of_reference(fleet, edges)
    node_at = fleet.settled.nodes.get(name) if fleet.settled else None
    measured = _measured(fleet, node_at, edges) if node_at is not None else None
    claimed = _claimed(fleet, name)
    if method in ("probe", "ssh"):
        return measured
    if method == "system":
        return _Line(claimed.at_mono, claimed.at_common, claimed.alpha, None, "system") if claimed else None
    if method in ("ntp", "ptp"):
        return claimed if claimed is not None and claimed.method == method else None
    if measured is None or measured.bound_ns is None:
        return claimed
    if claimed is None or claimed.bound_ns is None or claimed.bound_ns >= measured.bound_ns:
        return measured
    apart = abs(claimed.at_common - measured.at_common - (claimed.at_mono - measured.at_mono))
    return claimed if apart <= measured.bound_ns + claimed.bound_ns else measured


def _of_reference(fleet: ClockMesh, edges: Sequence[EdgeWindow]) -> _Line | None:
    """The common clock is the reference's own, so its bound is 0."""
    if fleet.settled is not None and fleet.reference in fleet.settled.nodes:
        mono = fleet.settled.nodes[fleet.reference].mono
    elif fleet.reference in fleet.claims:
        mono = fleet.claims[fleet.reference].mono
    else:
        return None
    return _Line(mono, mono + fleet.epoch, 1.0, 0, _way(edges), 0.0)


def _way(edges: Sequence[EdgeWindow]) -> ClockMethod:
    sound = [edge for edge in edges if edge.region is not None]
    if not sound:
        return "system"
    return "ssh" if all(edge.method == "ssh" for edge in sound) else "probe"


def _measured(fleet: ClockMesh, node_at: NodeAt, edges: Sequence[EdgeWindow]) -> _Line:
    assert fleet.settled is not None
    common = fleet.settled.nodes[fleet.reference].mono + fleet.epoch
    return _Line(
        node_at.mono,
        common,
        1.0 / (1.0 + node_at.rate),
        int(node_at.bound_ns) + 1,
        _way(edges),
        node_at.rate_bound * 1e6,
    )


def _claimed(fleet: ClockMesh, name: str) -> _Line | None:
    """The line by time services, within the sum of both claims' bounds."""
    own, reference = fleet.claims.get(name), fleet.claims.get(fleet.reference)
    if own is None or reference is None:
        return None
    has_bound = own.bound_ns is not None and reference.bound_ns is not None
    return _Line(
        own.mono, own.real + reference.mono + fleet.epoch - reference.real, 1.0 + own.slew - reference.slew,
        (own.bound_ns or 0) + (reference.bound_ns or 0) if has_bound else None, own.method if has_bound else "system",
    )  # fmt: skip


# -- warnings ----------------------------------------------------------------------------------------------------------

ClockWarning = Literal[
    "step",
    "slew",
    "timens",
    "noncausal",
    "loss",
    "wide",
    "asym",
    "noloop",
    "userstamp",
    "loaded",
    "rate",
    "island",
]


def _warnings(
    fleet: ClockMesh, name: str, edges: Sequence[EdgeWindow], line: _Line | None, drift: float | None, max_bound_ns: int
) -> list[ClockWarning]:
    snapshots = fleet.snapshots.get(name, ())
    sent, lost = sum(edge.sent for edge in edges), sum(edge.lost for edge in edges)
    keys = [(edge.src, edge.dst) for edge in edges if edge.region is not None]
    settled = fleet.settled
    holds: dict[ClockWarning, bool] = {
        "step": any(abs(snapshot.step_ns) > STEP_NS for snapshot in snapshots),
        "slew": any(abs(snapshot.slew_ppm or 0.0) > SLEW_PPM for snapshot in snapshots),
        "timens": any(snapshot.timens_monotonic_ns or snapshot.timens_boot_ns for snapshot in snapshots),
        "noncausal": any(edge.status == "noncausal" for edge in edges),
        "loss": bool(sent) and 100.0 * lost / sent > LOSS_PCT,
        "wide": line is not None and line.bound_ns is not None and line.bound_ns > max_bound_ns,
        "asym": any(key in fleet.flagged for key in keys),
        "noloop": settled is not None and bool(keys) and all(key in settled.bridges for key in keys),
        "userstamp": any(edge.stamps == "user" for edge in edges),
        "loaded": any(edge.missed_pct > MISSED_PCT for edge in edges if edge.src == name),
        "rate": line is not None and drift is not None and abs(drift) - (line.drift_bound_ppm or 0.0) > RATE_PPM,
        "island": bool(keys) and (settled is None or name not in settled.nodes),
    }
    return [word for word, is_so in holds.items() if is_so]


class Claim(msgspec.Struct, frozen=True):
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
