"""Skew findings: stragglers, desynchronised ranks, clock violations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from ...records import Confidence
from ...text.format import micro
from ...text.nodeset_fold import fold_numbers
from ..finding import FindingDraft
from ..late_rank import JobWaits
from .consistency import Desync, Violation
from .lateness import JobSkew, RankSkew
from .sync_points import RankKey

#: Share of the peers' median SM clock below which a straggler's GPU is named.
SLOW_CLOCK: Final = 0.95
#: Record field of an arrival, by kind of sync point.
_EVIDENCE: Final = {
    "collective": "collective.time_created_ns", "step": "rank_stat.step", "capture": "stack.began",
}  # fmt: skip
#: Maximum number of victims listed.
MOST_NAMED: Final = 64


class RankGpu(msgspec.Struct, frozen=True):
    """Latest figures of a rank's GPU; None is unknown."""

    name: str  # node019:gpu4
    sm_clock_mhz: float | None
    power_w: float | None


class SkewSnapshot(msgspec.Struct, frozen=True):
    """Lateness of all jobs in a store. `steps_by` names the source of the steps; None without steps."""

    collectives: tuple[JobSkew, ...]
    steps: tuple[JobSkew, ...]
    steps_by: str | None
    captures: tuple[JobSkew, ...]
    violations: tuple[Violation, ...]
    desyncs: tuple[Desync, ...]
    gpus: dict[RankKey, RankGpu]
    waits: tuple[JobWaits, ...] = ()  # on the screen: how much of the time each rank waits, without any record

    @property
    def primary(self) -> tuple[JobSkew, ...]:
        """Each job by its collectives, or by its steps where no collective could be analysed."""
        covered = {(collective.job, collective.attempt) for collective in self.collectives if collective.analysed}
        return (*self.collectives, *(step for step in self.steps if (step.job, step.attempt) not in covered))


NO_SKEW: Final = SkewSnapshot((), (), None, (), (), (), {})


def skew_findings(
    skews: Sequence[JobSkew], broken: Sequence[Violation], apart: Iterable[Desync], max_ms: float,
    gpus: Mapping[RankKey, RankGpu] | None = None,
) -> Iterator[FindingDraft]:  # fmt: skip
    """`straggler` (significantly often last, by more than `max_ms` beyond chance), `desync` and `clock_violated`.

    Ranks that are late together are judged by the one that is latest beyond chance.
    """
    for skew in skews:
        for rank in skew.culprits:
            if rank.beyond_chance_ns > max_ms * 1e6:
                yield _straggler(skew, rank, gpus or {})
        for members in skew.together:
            late = [rank for rank in skew.ranks if rank.rank in members]
            if max(rank.beyond_chance_ns for rank in late) > max_ms * 1e6:
                yield _together(skew, members, max(rank.behind_ns or 0 for rank in late))
    for desync in apart:
        yield _desync(desync)
    if broken:
        yield _violated(broken, sum(len(skew.analysed) for skew in skews))


def _straggler(skew: JobSkew, rank: RankSkew, gpus: Mapping[RankKey, RankGpu]) -> FindingDraft:
    assert rank.behind_ns is not None
    behind, bound = rank.behind_ns / 1e6, (rank.behind_bound_ns or 0) / 1e6
    victims = [other.rank for other in skew.ranks if other.rank != rank.rank and other.waited_gpu_s > 0]
    gpu = gpu_text(rank, gpus)
    kind = skew.analysed[0].sync_point.kind
    text = f"rank {rank.rank} on {rank.node} {_lateness_text(rank, kind)}" + (f"; {gpu}" if gpu else "")
    evidence = (
        f"{_EVIDENCE[kind]} rank {rank.rank}: {behind:.3f} ± {bound:.3f} ms behind, last {rank.last} of "
        f"{rank.resolved}, p = {_chance_of(rank):.1g}",
        *((f"gpu.sm_clock_mhz {gpu}",) if gpu else ()),
    )
    # readings of a step variable tell when a step was seen, not when it began
    confidence: Confidence = "certain" if kind == "collective" else "likely"
    return FindingDraft(
        "straggler", "warning", confidence, (f"rank {rank.rank}",), text, evidence,
        tuple(f"rank {victim}" for victim in sorted(victims)[:MOST_NAMED]), job=skew.job,
    )  # fmt: skip


def _together(skew: JobSkew, members: Sequence[int], behind_ns: int) -> FindingDraft:
    """Ranks that are late at the same time: one finding; names none of them, or their node if that has no others."""
    nodes = sorted({rank.node for rank in skew.ranks if rank.rank in members})
    is_node = len(nodes) == 1 and all(rank.rank in members for rank in skew.ranks if rank.node == nodes[0])
    where = f"on {nodes[0]}" if len(nodes) == 1 else f"on {len(nodes)} nodes"
    text = (
        f"ranks {fold_numbers(members)} {where} are late together, by up to {behind_ns / 1e6:.3g} ms (median). The "
        "recorded collectives do not show which of them the others wait for: gconsole why compares their stacks"
    )
    victims = [
        rank.rank for rank in skew.ranks if rank.rank not in members and rank.waited_gpu_s > 0
    ]  # fmt: skip
    return FindingDraft(
        "straggler", "warning", "possible", tuple(nodes) if is_node else (), text, ("collective.time_created_ns",),
        tuple(f"rank {victim}" for victim in sorted(victims)[:MOST_NAMED]), job=skew.job,
    )  # fmt: skip


def _chance_of(rank: RankSkew) -> float:
    return rank.per_step.chance if rank.per_step is not None else rank.chance or 0.0


def _lateness_text(rank: RankSkew, kind: str) -> str:
    assert rank.behind_ns is not None
    late = f"{rank.behind_ns / 1e6:.3g} ± {(rank.behind_bound_ns or 0) / 1e6:.2g} ms"
    cost = f"{rank.caused_gpu_s:.3g} GPU-seconds of waiting"
    step = rank.per_step
    if step is None:
        return f"was last at {rank.last} of {rank.resolved} {kind}s, {late} behind the others (median): {cost}"
    parts = f"steps of {step.size} {kind}s" if step.is_step else f"stretches of {step.size} {kind}s"
    if step.is_placed:
        return f"was last in {step.caused} of {step.parts} {parts}, at the same place, {late} behind (median): {cost}"
    return f"caused most of the waiting in {step.caused} of {step.parts} {parts}, {late} in each (median): {cost}"


def gpu_text(rank: RankSkew, gpus: Mapping[RankKey, RankGpu]) -> str:
    """How the GPU of a late rank is slower than its peers; empty if it is not, or unknown."""
    own = gpus.get(rank.key)
    peers = [gpu for key, gpu in gpus.items() if key[:2] == rank.key[:2] and key != rank.key]
    clocks = [gpu.sm_clock_mhz for gpu in peers if gpu.sm_clock_mhz is not None]
    if own is None or own.sm_clock_mhz is None or not clocks or own.sm_clock_mhz >= SLOW_CLOCK * median(clocks):
        return ""
    watts = [gpu.power_w for gpu in peers if gpu.power_w is not None]
    power = f", {own.power_w:.0f} W, peers {median(watts):.0f} W" if own.power_w is not None and watts else ""
    return f"{own.name} runs at {own.sm_clock_mhz:.0f} MHz, its peers at {median(clocks):.0f} MHz{power}"


def _desync(desync: Desync) -> FindingDraft:
    what = "steps" if desync.what == "step" else f"collectives of {desync.what}"
    by = desync.others - desync.furthest
    where = f"at {desync.furthest}, others at {desync.others}"
    who = f"rank {desync.behind[0]} is" if len(desync.behind) == 1 else f"ranks {fold_numbers(desync.behind)} are"
    text = f"{who} {by} {what} behind the others ({where})"
    confidence: Confidence = "likely" if desync.readings > 1 else "possible"
    return FindingDraft(
        "desync", "warning", confidence, tuple(f"rank {rank}" for rank in desync.behind), text, desync.evidence,
        job=desync.job,
    )  # fmt: skip


def _violated(broken: Sequence[Violation], analysed: int) -> FindingDraft:
    worst = max(broken, key=lambda violation: violation.early_ns)
    nodes = tuple(sorted({worst.left.node, worst.entered.node}))
    text = (
        f"{len(broken)} of {analysed} collectives ended on one rank before they began on another, by up to "
        f"{micro(worst.early_ns)} µs beyond the error bounds: the clock of {' or '.join(nodes)} is wrong"
    )
    evidence = (
        f"collective.time_discovered_completed_ns rank {worst.left.rank} {worst.sync_point.title}",
        f"collective.time_created_ns rank {worst.entered.rank} {worst.sync_point.title}",
    )
    return FindingDraft("clock_violated", "warning", "certain", nodes, text, evidence)
