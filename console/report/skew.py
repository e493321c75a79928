"""Who is late, in a headless run: its part of the report, and what a person reads of it and of the clock it is by."""

from __future__ import annotations

import msgspec

from ..analysis.skew import JobSkew, Lateness, RankSkew
from ..core.store import Store
from ..monitor.skew import SkewSnapshot, skew_of
from ..text.nodeset_fold import fold
from ..text.sanitize import printable
from .clocks import ClocksLine

#: So many of the latest meetings that nobody could be called last at, or somebody was, stand in a report.
MOST_MEETINGS = 200
#: So many ranks stand in a summary.
MOST_RANKS = 5


class RankSkewLine(msgspec.Struct):
    """One rank over all meetings that were judged; lateness is after the first to arrive."""

    job: str
    attempt: int
    rank: int
    node: str
    meetings: int
    resolved: int
    last: int
    share_last: float | None
    chance: float | None
    median_ns: int
    p99_ns: int
    bound_ns: int
    behind_ns: int | None
    behind_bound_ns: int | None
    caused_gpu_s: float
    waited_gpu_s: float
    trend_ns: int | None
    is_resolved: bool


class ShareLine(msgspec.Struct):
    """Ranks with something in common: `of` is node or group."""

    job: str
    attempt: int
    of: str
    name: str
    ranks: int
    last: int
    caused_gpu_s: float


class SyncPointLine(msgspec.Struct):
    """One collective: who came last, or nobody where the clocks cannot tell."""

    job: str
    attempt: int
    group: str
    op: str
    seq: int
    last: list[int]
    behind_ns: int
    bound_ns: int


class UnresolvedLine(msgspec.Struct):
    """Meetings at which everybody was closer together than the clocks are good for, and those not judged."""

    job: str
    attempt: int
    judged: int
    unresolved: int
    incomplete: int


class ViolationLine(msgspec.Struct):
    """A collective that ended before it began, beyond the bounds: the clock is wrong."""

    sync_point: str
    left_rank: int
    left_node: str
    entered_rank: int
    entered_node: str
    early_ns: int


class SkewLine(msgspec.Struct):
    """Who is late. `culprits` are last more often than chance allows, the dearest first."""

    ranks: list[RankSkewLine]
    culprits: list[RankSkewLine]
    unresolved: list[UnresolvedLine]
    shares: list[ShareLine]
    meetings: list[SyncPointLine]  # the latest
    steps: list[RankSkewLine]
    steps_by: str | None  # a watched variable, the pattern of collectives; None: there are no steps
    captures: list[RankSkewLine]
    violations: list[ViolationLine]


def skew_line(store: Store) -> SkewLine:
    """Who is late, of everything that the store has."""
    return _line(skew_of(store))


def _line(seen: SkewSnapshot) -> SkewLine:
    judged = [one for skew in seen.collectives for one in skew.judged]
    return SkewLine(
        ranks=_ranks(seen.collectives),
        culprits=[_rank(rank) for skew in seen.collectives for rank in skew.culprits],
        unresolved=[
            UnresolvedLine(
                collective.job, collective.attempt, len(collective.judged), collective.unresolved, collective.incomplete
            )
            for collective in seen.collectives
        ],
        shares=[
            ShareLine(collective.job, collective.attempt, of, share.name, share.ranks, share.last, share.caused_s)
            for collective in seen.collectives
            for of, shares in (("node", collective.by_node), ("group", collective.by_group))
            for share in shares
        ],
        meetings=[_meeting(one) for one in judged[-MOST_MEETINGS:]],
        steps=_ranks(seen.steps),
        steps_by=seen.steps_by,
        captures=_ranks(seen.captures),
        violations=[
            ViolationLine(
                violation.sync_point.title,
                violation.left.rank,
                violation.left.node,
                violation.entered.rank,
                violation.entered.node,
                violation.early_ns,
            )
            for violation in seen.violations
        ],
    )


def _ranks(found: tuple[JobSkew, ...]) -> list[RankSkewLine]:
    return [_rank(rank) for one in found for rank in one.ranks]


def _rank(one: RankSkew) -> RankSkewLine:
    return RankSkewLine(
        one.job,
        one.attempt,
        one.rank,
        one.node,
        one.meetings,
        one.resolved,
        one.last,
        one.share_last,
        one.chance,
        one.median_ns,
        one.p99_ns,
        one.median_bound_ns,
        one.behind_ns,
        one.behind_bound_ns,
        one.caused_s,
        one.waited_s,
        one.trend_ns,
        one.is_resolved,
    )


def _meeting(one: Lateness) -> SyncPointLine:
    sync_point = one.sync_point
    return SyncPointLine(
        sync_point.job,
        sync_point.attempt,
        sync_point.group,
        sync_point.name,
        sync_point.number,
        list(one.last),
        one.behind_ns,
        one.bound_ns,
    )


# -- for a person ------------------------------------------------------------------------------------------------------


def clock_text(line: ClocksLine) -> str:
    """A line for the fleet and one for each node without a line; empty where nothing is known."""
    if line.reference is None:
        return ""
    known = [(node.bound_ns, node.node) for node in line.nodes if node.bound_ns is not None]
    worst, where = max(known, default=(0, ""))
    head = f"clocks  common clock = {line.reference}  {len(known)}/{len(line.nodes)} nodes known"
    lines = [head + (f", worst to ±{worst / 1e3:.1f} µs ({where})" if where else "")]
    lines += [f"  ◌ {node.node}: {node.status}" for node in line.nodes if node.bound_ns is None]
    return "\n".join(map(printable, lines))


def skew_text(line: SkewLine) -> str:
    """A line a job and one for each of the worst ranks; empty where no collective could be judged."""
    lines = []
    for of in line.unresolved:
        job = f"{of.job}" + (f" attempt {of.attempt}" if of.attempt else "")
        lines.append(
            f"skew  {job}  {of.judged} collectives judged, {of.unresolved} unresolved, {of.incomplete} incomplete"
        )
        own = [culprit for culprit in line.culprits if (culprit.job, culprit.attempt) == (of.job, of.attempt)]
        lines += [f"  ▲ {_culprit_text(one)}" for one in own[:MOST_RANKS]]
        if len(own) > MOST_RANKS:
            nodes = fold(sorted({one.node for one in own[MOST_RANKS:]}))
            lines.append(f"  … and {len(own) - MOST_RANKS} more ranks on {nodes}")
    lines += [f"  ✖ {len(line.violations)} collectives ended before they began: the clock is wrong somewhere"] * bool(
        line.violations
    )
    return "\n".join(map(printable, lines))


def _culprit_text(one: RankSkewLine) -> str:
    behind, bound = (one.behind_ns or 0) / 1e6, (one.behind_bound_ns or 0) / 1e6
    return (
        f"rank {one.rank} on {one.node}: last at {one.last} of {one.resolved}, {behind:.3g} ± {bound:.2g} ms behind, "
        f"{one.caused_gpu_s:.3g} GPU-seconds of waiting"
    )
