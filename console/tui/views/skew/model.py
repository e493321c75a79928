"""The Skew view as text: lanes with error bars, details of a rank, notes without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ....analysis.skew.findings import SkewSnapshot, gpu_text
from ....analysis.skew.lateness import JobSkew, RankSkew
from ....present.skew import SyncPointKind, of_kind, skew_text, wait_lines
from ....present.spans import Line, Span, Status, plain
from ....present.spans import as_text as text_of
from ....text.cells import clean
from ....text.format import millis
from ...models.detail import Detail, Fact
from ...models.plot import Lane

NOTHING: Final[dict[SyncPointKind, tuple[Line, ...]]] = {
    "collectives": (
        plain("No collectives captured yet."), plain(""),
        Line((Span("s", "key"), Span("  read the PyTorch Flight Recorder of all ranks"))),
        plain(""),
        plain("Ranks on different nodes need a common clock (7 Clocks);", "muted"),
        plain("clocks are probed while this view is open.", "muted"),
    ),
    "steps": (
        plain("No steps recorded yet."), plain(""),
        plain("Steps come from a watched variable, else from repeating collectives.", "muted"),
    ),
    "captures": (
        plain("No stacks captured yet."), plain(""),
        Line((Span("s", "key"), Span("  capture all ranks; shows how far apart they were sampled"))),
    ),
}  # fmt: skip


def of_job(seen: SkewSnapshot, job: str) -> SkewSnapshot:
    """The lateness of one job; of all jobs without a name."""
    if not job:
        return seen
    collectives, steps, captures = (
        tuple(skew for skew in several if skew.job == job) for several in (seen.collectives, seen.steps, seen.captures)
    )
    waits = tuple(entry for entry in seen.waits if entry.job == job)
    return replace(seen, collectives=collectives, steps=steps, captures=captures, waits=waits)


def job_spans(job: str) -> tuple[Span, ...]:
    """`only job llama-70b  Esc all jobs`; nothing if all are shown."""
    if not job:
        return ()
    return (Span("  only job ", "muted"), Span(clean(job), "strong"), Span("  Esc", "key"), Span(" all jobs", "muted"))


def lanes(skews: Sequence[JobSkew]) -> tuple[Lane, ...]:
    """One lane per rank with its median lateness after the first, late ranks first; grey if within the clock error."""
    several = len(skews) > 1
    ranks = [rank for skew in skews for rank in skew.ranks]
    ranks.sort(key=lambda skew: (not skew.is_culprit, not skew.is_resolved, -skew.median_ns, skew.job, skew.rank))
    return tuple(
        Lane(
            skew.key, f"{clean(skew.job) + ' ' if several else ''}{skew.rank} {clean(skew.node)}",
            f"{millis(skew.median_ns)} ±{millis(skew.bound_ns)}", skew.median_ns / 1e6,
            skew.bound_ns / 1e6, status_of(skew),
        )
        for skew in ranks
    )  # fmt: skip


def status_of(rank: RankSkew) -> Status:
    """`failed` for consistent stragglers, `unknown` for lateness within the clock error."""
    if rank.is_culprit:
        return "failed"
    return "ok" if rank.is_resolved else "unknown"


def rank_of(seen: SkewSnapshot, kind: SyncPointKind, key: object) -> RankSkew | None:
    """The rank of the lane or line with that key."""
    return next((rank for skew in of_kind(seen, kind) for rank in skew.ranks if rank.key == key), None)


def _when(rank: RankSkew) -> str:
    step = rank.per_step
    if step is None:
        return "when it was last"
    return f"per step of {step.size} collectives" if step.is_step else f"in {step.size} collectives together"


def rank_skew_detail(rank: RankSkew, seen: SkewSnapshot, kind: SyncPointKind) -> Detail:
    """Details of one rank's lateness."""
    gpu = gpu_text(rank, seen.gpus)
    share = "" if rank.share_last is None else f" ({100 * rank.share_last:.0f} %)"
    chance = "" if rank.chance is None else f"; p = {rank.chance:.2g}"
    facts = [
        Fact("node", clean(rank.node)), Fact("job", clean(rank.job)),
        Fact("lateness", f"{millis(rank.median_ns)} ± {millis(rank.bound_ns)} ms after the first (median)"),
        Fact("p99", f"{millis(rank.p99_ns)} ms"),
        Fact("vs. median", f"{millis(rank.median_after_median_ns, signed=True)} ms"),
        Fact("was last", f"at {rank.last} of {rank.resolved} resolved {kind}{share}{chance}"),
        Fact("late by", f"{millis(rank.behind_ns)} ± {millis(rank.behind_bound_ns)} ms {_when(rank)} (median)"),
        Fact("cost others", f"{rank.caused_gpu_s:.3g} GPU-seconds of waiting"),
        Fact("own wait", f"{rank.waited_gpu_s:.3g} s"),
        Fact("trend", f"{millis(rank.trend_ns, signed=True)} ms, second half minus first"),
        Fact("analysed", f"{rank.sync_points} {kind}, {rank.sync_points - rank.resolved} within clock error"),
    ]  # fmt: skip
    if gpu:
        facts.append(Fact("GPU", clean(gpu), "warning"))
    late = "late" if rank.last else "on time"
    word = "culprit" if rank.is_culprit else late if rank.is_resolved else "within clock error"
    return Detail(f"rank {rank.rank}  {word}", status_of(rank), tuple(facts))


def as_text(seen: SkewSnapshot, kind: SyncPointKind) -> str:
    """Lanes and tables as text, for the clipboard."""
    if not of_kind(seen, kind) and seen.waits and kind != "captures":
        return text_of(wait_lines(seen.waits, 200)).lstrip()
    return skew_text(seen, kind, 200, [f"{lane.label}  {lane.figure} ms" for lane in lanes(of_kind(seen, kind))])
