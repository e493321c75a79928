"""A hang verdict as lines: state and confidence, culprits with their source line, evidence, next step, coverage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ..analysis.hang.verdict import Culprit, State, Verdict
from ..text.cells import clean, width_of
from ..text.format import UNKNOWN, plural, seconds
from ..text.sanitize import Printable
from .spans import GLYPHS, Line, Span, Status, as_text, confidence_word, plain, state_word, wrapped

#: Status of each verdict state, the worst first: the order in which jobs are listed.
VERDICT_STATUS: Final[dict[State, Status]] = {
    "hung": "failed", "slow": "warning", "undecided": "unknown", "no_ranks": "unknown", "moving": "ok",
}  # fmt: skip
#: Cells of the label column.
_LABEL: Final = 10
#: Width of text that is not wrapped.
_UNWRAPPED: Final = 100_000


class VerdictLineKey(NamedTuple):
    """Job of a verdict line, and the rank where the line names one; `part` distinguishes lines."""

    job: str
    rank: int | None = None
    part: int = 0


def verdict_lines(verdict: Verdict, width: int, *, watched_s: float | None = None, wrap: bool = True) -> list[Line]:
    """All lines of a verdict, wrapped to `width` cells; `watched_s`: seconds between first and last sample."""
    return list(_lines(verdict, watched_s, width, width if wrap else _UNWRAPPED))


def verdict_text(verdict: Verdict, width: int = 110) -> Printable:
    """The same lines as plain text, not wrapped."""
    return as_text(verdict_lines(verdict, width, wrap=False))


def _lines(verdict: Verdict, watched_s: float | None, width: int, room: int) -> Iterator[Line]:
    status = VERDICT_STATUS[verdict.state]
    key = VerdictLineKey(verdict.job)
    state = f"{GLYPHS[status]} {state_word(verdict.state)}"
    kind = f"  {verdict.kind}" if verdict.kind != "none" else ""
    job = f"  {clean(verdict.job)}"
    right = "" if verdict.confidence == "none" else f"confidence: {confidence_word(verdict.confidence)}"
    gap = " " * max(2, width - width_of(state + kind + job + right))
    yield Line((Span(state, status), Span(kind, "strong"), Span(job, "muted"), Span(gap), Span(right)), key)
    for part in wrapped(clean(verdict.summary), room - 2):
        yield Line((Span(f"  {part}", "strong" if verdict.culprits else "text"),), key)
    for culprit in verdict.culprits:
        yield from _culprit_lines(verdict.job, culprit, room)
    for number, text in enumerate(verdict.evidence):
        label = "evidence" if number == 0 else ""
        yield from _labelled(label, text, room, VerdictLineKey(verdict.job, part=number + 1))
    yield from _labelled("next", verdict.next_step, room, VerdictLineKey(verdict.job, part=-1), "accent")
    if watched_s is not None:
        coverage = verdict.coverage
        ranks = f"{coverage.captured} of {plural(coverage.ranks, 'rank')}"
        text = f"{ranks}, {plural(coverage.samples, 'sample')}, over {seconds(watched_s)}"
        yield from _labelled("coverage", text, room, VerdictLineKey(verdict.job, part=-2), "muted")


def _culprit_lines(job: str, culprit: Culprit, room: int) -> Iterator[Line]:
    """Rank, node, pid and call site; below them the line of source."""
    key = VerdictLineKey(job, culprit.rank)
    rank = UNKNOWN if culprit.rank is None else str(culprit.rank)
    words = [f"rank {rank}", clean(culprit.node or "no node")]
    words += [f"pid {culprit.pid}"] if culprit.pid is not None else []
    site = culprit.site
    where = f"  in  {clean(site.file.rsplit('/', 1)[-1])}:{site.line} {clean(site.function)}" if site else ""
    for number, part in enumerate(wrapped(" · ".join(words) + where, room - 4 - width_of(culprit.class_))):
        spans = [Span(f"  {part}", "failed")]
        spans += [Span(f"  {state_word(culprit.class_)}", "muted")] if number == 0 else []
        yield Line(tuple(spans), key)
    if site is not None and site.source:
        yield Line((Span(f"    {site.line:>5} │ ", "muted"), Span(clean(site.source.strip()))), key)


def _labelled(label: str, text: str, room: int, key: VerdictLineKey, style: str = "text") -> Iterator[Line]:
    for number, part in enumerate(wrapped(clean(text), room - _LABEL - 2)):
        yield Line((Span(f"  {label if number == 0 else '':{_LABEL}}", "muted"), Span(part, style)), key)


#: What the Hang view shows before any capture.
NO_STACKS: Final = (
    plain("No stacks captured yet."),
    plain(""),
    Line((Span("d", "key"), Span("  diagnose: sample until a culprit is found"))),
    Line((Span("s", "key"), Span("  take one stack snapshot of all ranks"))),
    plain(""),
    plain("Read-only; no instrumentation needed.", "muted"),
)
