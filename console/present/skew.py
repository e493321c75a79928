"""Skew of the jobs as lines: stragglers, what they share, the histogram of lateness, desynchronised ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from ..analysis.late_rank import JobWaits, late_text
from ..analysis.skew.findings import SkewSnapshot, gpu_text
from ..analysis.skew.lateness import JobSkew, Share
from ..text.cells import clean, fit, width_of
from ..text.format import millis
from ..text.nodeset_fold import fold_numbers
from ..text.sanitize import Printable
from .spans import Line, Span, as_text, cut, glyph, plain

SyncPointKind = Literal["collectives", "steps", "captures"]
KINDS: Final[tuple[SyncPointKind, ...]] = ("collectives", "steps", "captures")
#: Listed stragglers, and nodes or groups that share them.
_MOST: Final = 8
_MOST_SHARES: Final = 3
_BAR: Final = 24


def of_kind(seen: SkewSnapshot, kind: SyncPointKind) -> tuple[JobSkew, ...]:
    """Jobs with analysed sync points of that kind."""
    by_kind = {"collectives": seen.collectives, "steps": seen.steps, "captures": seen.captures}[kind]
    return tuple(skew for skew in by_kind if skew.analysed)


def skew_text(
    seen: SkewSnapshot, kind: SyncPointKind = "collectives", width: int = 110, rows: Sequence[str] = ()
) -> Printable:
    """The head, `rows`, and the tables as text; "" if nothing was analysed."""
    if not (of_kind(seen, kind) or seen.desyncs or seen.violations):
        return as_text(())
    head = Line((Span("skew"), *head_spans(seen, kind)))
    return as_text([head, *map(plain, rows), *([plain("")] if rows else []), *table_lines(seen, kind, width)])


def head_spans(seen: SkewSnapshot, kind: SyncPointKind) -> tuple[Span, ...]:
    """`collectives  240 analysed  12 within clock error  3 incomplete`, and the source of steps."""
    skews = of_kind(seen, kind)
    analysed, unresolved = sum(len(skew.analysed) for skew in skews), sum(skew.unresolved for skew in skews)
    incomplete = sum(skew.incomplete for skew in skews)
    spans = [Span(f"  {kind}", "text")]
    if kind == "steps" and seen.steps_by:
        spans.append(Span(f" (by {seen.steps_by})", "muted"))
    if analysed:
        spans += [Span(f"  {analysed} analysed", "muted"), Span(f"  {unresolved} within clock error", "muted")]
    if incomplete:
        spans.append(Span(f"  {incomplete} incomplete", "muted"))
    if seen.violations and kind == "collectives":
        spans.append(Span(f"  ✖ {len(seen.violations)} end before they start: clock error", "failed"))
    return (*spans, Span(" "))


def table_lines(seen: SkewSnapshot, kind: SyncPointKind, width: int) -> tuple[Line, ...]:
    """Stragglers, their nodes and groups, the histogram of lateness, desynchronised ranks."""
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
    lines += [
        Line(
            (
                glyph("warning"),
                Span(f" ranks {fold_numbers(members)} are late together: the record does not show which"),
            )
        )
        for members in skew.together
    ]
    if not skew.culprits and skew.together:
        return lines
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
        if rank.per_step is not None:
            unit = "steps" if rank.per_step.is_step else "parts"
            last_at = f"{rank.per_step.caused}/{rank.per_step.parts} {unit}"
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


def wait_lines(jobs: Sequence[JobWaits], width: int) -> tuple[Line, ...]:
    """How much of the time the ranks wait for others, by light stack samples; those that wait least first."""
    lines: list[Line] = []
    for job in jobs:
        title = Span("WAITING FOR OTHERS", "accent"), Span(f"  {clean(job.job)}  by light stack samples, 95 %", "muted")
        lines += [plain(""), Line(cut(title, width))]
        for rank in job.ranks[:_MOST]:
            share, is_late = rank.wait, job.late is not None and job.late.rank == rank.rank
            spans = (
                glyph("failed" if is_late else "ok"), Span(f" {rank.rank:<4}  ", "strong"),
                Span(f"{clean(rank.node)}  ", "muted"),
                Span(f"{share.share:4.0%}  ({100 * share.low:.0f}–{100 * share.high:.0f} %)  {share.samples} samples"),
            )  # fmt: skip
            lines.append(Line(cut(spans, width)))
        if len(job.ranks) > _MOST:
            lines.append(plain(f"  … and {len(job.ranks) - _MOST} more, which wait more", "muted"))
        lines.append(
            plain("  no rank stands out", "muted")
            if job.late is None
            else Line((Span(f"  {late_text(job.late, job.step)}", "warning"),))
        )
    return tuple(lines)
