"""Who is late, on the screen: lanes with error bars, the table of culprits, what they share, a histogram, the story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from ....analysis.skew import JobSkew, RankSkew
from ....analysis.skew.culprits import Share
from ....analysis.skew.findings import gpu_text
from ....monitor.skew import SkewSnapshot
from ....present.spans import Line, Span, cut, glyph, plain
from ....present.status import Status
from ....text.cells import clean, fit, width_of
from ....text.nodeset_fold import fold_numbers
from ...models.detail import Detail, Fact
from ...models.error_bar import Lane

SyncPointKind = Literal["collectives", "steps", "captures"]
KINDS: Final[tuple[SyncPointKind, ...]] = ("collectives", "steps", "captures")
#: So many culprits, nodes and groups are listed.
_MOST: Final = 8
_MOST_SHARES: Final = 3
_BAR: Final = 24

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


def of_kind(seen: SkewSnapshot, kind: SyncPointKind) -> tuple[JobSkew, ...]:
    """The jobs at that kind of meeting; only those at which anything could be judged."""
    by_kind = {"collectives": seen.collectives, "steps": seen.steps, "captures": seen.captures}[kind]
    return tuple(skew for skew in by_kind if skew.judged)


def of_job(seen: SkewSnapshot, job: str) -> SkewSnapshot:
    """What is seen of one job; all of it where none is named."""
    if not job:
        return seen
    collectives, steps, captures = (
        tuple(skew for skew in several if skew.job == job) for several in (seen.collectives, seen.steps, seen.captures)
    )
    return replace(seen, collectives=collectives, steps=steps, captures=captures)


def job_spans(job: str) -> tuple[Span, ...]:
    """`only llama-70b · Esc all jobs`."""
    if not job:
        return ()
    return (Span("  only job ", "muted"), Span(clean(job), "strong"), Span("  Esc", "key"), Span(" all jobs", "muted"))


def head_spans(seen: SkewSnapshot, kind: SyncPointKind) -> tuple[Span, ...]:
    """`at collectives · 240 judged · 12 unresolved · 3 incomplete`, and where steps come from."""
    skews = of_kind(seen, kind)
    judged, unresolved = sum(len(skew.judged) for skew in skews), sum(skew.unresolved for skew in skews)
    incomplete = sum(skew.incomplete for skew in skews)
    spans = [Span(f"  {kind}", "text")]
    if kind == "steps" and seen.steps_by:
        spans.append(Span(f" (by {seen.steps_by})", "muted"))
    if judged:
        spans += [Span(f"  {judged} analysed", "muted"), Span(f"  {unresolved} within clock error", "muted")]
    if incomplete:
        spans.append(Span(f"  {incomplete} incomplete", "muted"))
    if seen.violations and kind == "collectives":
        spans.append(Span(f"  ✖ {len(seen.violations)} end before they start: clock error", "failed"))
    return (*spans, Span(" "))


def millis(ns: float | None, *, signed: bool = False) -> str:
    """Nanoseconds as milliseconds, three digits that matter, microseconds where it is less: `41.2`, `0.203`."""
    if ns is None:
        return "–"
    ms = ns / 1e6
    size = abs(ms)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{ms:{'+' if signed else ''}.{digits}f}"


def lanes(skews: Sequence[JobSkew]) -> tuple[Lane, ...]:
    """A lane a rank: its median lateness after the first, late ranks at the top; grey where it is below the bound."""
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
    """Red who is last beyond chance, grey what the clocks cannot tell."""
    if rank.is_culprit:
        return "failed"
    return "ok" if rank.is_resolved else "unknown"


# -- tables ------------------------------------------------------------------------------------------------------------


def table_lines(seen: SkewSnapshot, kind: SyncPointKind, width: int) -> tuple[Line, ...]:
    """Culprits, what they have in common, the histogram, ranks out of step."""
    lines: list[Line] = []
    for skew in of_kind(seen, kind):
        lines += [plain("")] if lines else []
        lines += _culprit_lines(skew, seen, width)
        lines += _share_lines("by node", skew.by_node, width)
        lines += _share_lines("by process group", skew.by_group, width) if kind == "collectives" else []
        lines += _histogram_lines(skew, width)
    for desync in seen.desyncs:
        what = "steps" if desync.what == "step" else f"collectives of {clean(desync.what)}"
        text = f"rank {fold_numbers(desync.behind)} is {desync.others - desync.furthest} {what} behind"
        lines.append(Line((glyph("warning"), Span(f" desync  {text}", "text"))))
    return tuple(lines)


def _culprit_lines(skew: JobSkew, seen: SkewSnapshot, width: int) -> list[Line]:
    lines = [Line(cut((Span("STRAGGLERS", "accent"), Span(f"  {clean(skew.job)}", "muted")), width))]
    if not skew.culprits:
        words = (
            "no consistent straggler (not significant)"
            if skew.resolved
            else "cannot tell which rank is last: lateness within clock error"
        )
        return [*lines, Line((Span(f"  {words}", "muted"),))]
    ranks = skew.culprits[:_MOST]
    node = max(4, *(width_of(clean(rank.node)) for rank in ranks))
    head = f"  rank  {'node':<{node}}  {'last at':>13}  {'late ms':>12}  {'GPU-s':>6}  {'trend ms':>8}"
    lines.append(Line(cut((Span(head, "muted"),), width)))
    for rank in ranks:
        share = "–" if rank.share_last is None else f"{100 * rank.share_last:.0f} %"
        last_at = f"{rank.last}/{rank.resolved} {share:>5}"
        behind = f"{millis(rank.behind_ns)} ±{millis(rank.behind_bound_ns)}"
        trend = millis(rank.trend_ns, signed=True)
        spans = (
            glyph("failed"), Span(f" {rank.rank:<4}  ", "strong"), Span(fit(clean(rank.node), node), "muted"),
            Span(f"  {last_at:>13}  {behind:>12}  {rank.caused_gpu_s:>6.3g}  {trend:>8}"),
        )  # fmt: skip
        lines.append(Line(cut(spans, width), rank.key))
        gpu = gpu_text(rank, seen.gpus)
        if gpu:
            lines.append(Line(cut((Span(f"  {clean(gpu)}", "warning"),), width), rank.key))
    more = len(skew.culprits) - _MOST
    return [*lines, plain(f"  … and {more} more", "muted")] if more > 0 else lines


def _share_lines(title: str, shares: Sequence[Share], width: int) -> list[Line]:
    last = [share for share in shares if share.last]
    if not last:
        return []
    parts = [f"{clean(share.name)} {share.last}× {share.caused_gpu_s:.3g} GPU-s" for share in last[:_MOST_SHARES]]
    more = f"  … {len(last) - _MOST_SHARES} more" if len(last) > _MOST_SHARES else ""
    return [Line(cut((Span(f"{title}  ", "muted"), Span("   ".join(parts)), Span(more, "muted")), width))]


def _histogram_lines(skew: JobSkew, width: int) -> list[Line]:
    counts = skew.histogram
    most = max((resolved + unresolved for _, resolved, unresolved in counts), default=0)
    if not most:
        return []
    lines = [Line((Span("lateness of the last rank", "muted"), Span("  █ resolved  ░ within clock error", "muted")))]
    room = max(4, min(_BAR, width - 28))
    for end, resolved, unresolved in counts:
        full, grey = round(room * resolved / most), round(room * unresolved / most)
        full, grey = max(full, bool(resolved)), max(grey, bool(unresolved))
        spans = (
            Span(f"  ≤ {millis(end):>7} ms  ", "muted"), Span("█" * full, "accent"), Span("░" * grey, "unknown"),
            Span(f" {resolved + unresolved}", "text"),
        )  # fmt: skip
        lines.append(Line(cut(spans, width)))
    return lines


def rank_of(seen: SkewSnapshot, kind: SyncPointKind, key: object) -> RankSkew | None:
    """The rank of a lane or a line."""
    return next((rank for skew in of_kind(seen, kind) for rank in skew.ranks if rank.key == key), None)


def rank_skew_detail(rank: RankSkew, seen: SkewSnapshot, kind: SyncPointKind) -> Detail:
    """Everything about one rank's lateness."""
    gpu = gpu_text(rank, seen.gpus)
    share = "" if rank.share_last is None else f" ({100 * rank.share_last:.0f} %)"
    chance = "" if rank.chance is None else f"; by chance: {rank.chance:.2g}"
    facts = [
        Fact("node", clean(rank.node)), Fact("job", clean(rank.job)),
        Fact("lateness", f"{millis(rank.median_ns)} ± {millis(rank.bound_ns)} ms after the first (median)"),
        Fact("p99", f"{millis(rank.p99_ns)} ms"),
        Fact("vs. median", f"{millis(rank.median_after_median_ns, signed=True)} ms"),
        Fact("was last", f"at {rank.last} of {rank.resolved} resolved {kind}{share}{chance}"),
        Fact("late by", f"{millis(rank.behind_ns)} ± {millis(rank.behind_bound_ns)} ms when it was last (median)"),
        Fact("cost others", f"{rank.caused_gpu_s:.3g} GPU-seconds of waiting"),
        Fact("own wait", f"{rank.waited_gpu_s:.3g} s"),
        Fact("trend", f"{millis(rank.trend_ns, signed=True)} ms, second half minus first"),
        Fact("analysed", f"{rank.meetings} {kind}, {rank.meetings - rank.resolved} within clock error"),
    ]  # fmt: skip
    if gpu:
        facts.append(Fact("GPU", clean(gpu), "warning"))
    word = (
        "culprit"
        if rank.is_culprit
        else "within clock error"
        if not rank.is_resolved
        else "late"
        if rank.last
        else "on time"
    )
    return Detail(f"rank {rank.rank}  {word}", status_of(rank), tuple(facts))


def as_text(seen: SkewSnapshot, kind: SyncPointKind) -> str:
    """All of it as text, for the clipboard."""
    head = "skew" + "".join(span.text for span in head_spans(seen, kind)).rstrip()
    rows = [f"{lane.label}  {lane.figure} ms" for lane in lanes(of_kind(seen, kind))]
    return "\n".join([head, *rows, "", *(line.text for line in table_lines(seen, kind, 200))])
