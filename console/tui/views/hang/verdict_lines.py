"""Verdicts in lines: the worst job first; who holds it, where in the source, the proof, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ....analysis.hang import Culprit, Verdict
from ....analysis.hang.verdict import State
from ....present.spans import Line, Span, plain
from ....present.status import GLYPHS, Status, state_word
from ....text import format
from ....text.cells import clean, width_of
from ...folds.verdicts import JobDiagnosis
from ...models.page import wrapped

#: How bad a state is, and in which order jobs are told.
STATUS: Final[dict[State, Status]] = {
    "hung": "failed", "slow": "warning", "undecided": "unknown", "no_ranks": "unknown", "moving": "ok",
}  # fmt: skip
_ORDER: Final = tuple(STATUS)
_LABEL = 10

NOTHING: Final = (
    plain("No stacks captured yet."),
    plain(""),
    Line((Span("d", "key"), Span("  diagnose: sample until a culprit is found"))),
    Line((Span("s", "key"), Span("  take one stack snapshot of all ranks"))),
    plain(""),
    plain("Read-only; no instrumentation needed.", "muted"),
)


class VerdictLineKey(NamedTuple):
    """What a line is about: a job, and a rank of it where it names one."""

    job: str
    rank: int | None = None
    part: int = 0  # tells lines of one thing apart


def worst_first(seen: Sequence[JobDiagnosis]) -> list[JobDiagnosis]:
    """Hung jobs first."""
    return sorted(seen, key=lambda one: (_ORDER.index(one.judged.verdict.state), one.job))


def verdict_lines(seen: Sequence[JobDiagnosis], width: int) -> tuple[Line, ...]:
    """All verdicts, a free line between two."""
    lines: list[Line] = []
    for one in worst_first(seen):
        lines += [plain("")] if lines else []
        lines += _lines(one.judged.verdict, one.judged.watched_s, width)
    return tuple(lines)


def _lines(verdict: Verdict, watched_s: float, width: int) -> Iterator[Line]:
    status = STATUS[verdict.state]
    about = VerdictLineKey(verdict.job)
    said = f"{GLYPHS[status]} {state_word(verdict.state)}"
    kind = f"  {verdict.kind}" if verdict.kind != "none" else ""
    right = "" if verdict.confidence == "none" else f"confidence: {verdict.confidence}"
    room = max(2, width - width_of(f"{said}{kind}  {clean(verdict.job)}{right}"))
    job = Span(f"  {clean(verdict.job)}", "muted")
    yield Line((Span(said, status), Span(kind, "strong"), job, Span(" " * room), Span(right)), about)
    for part in wrapped(clean(verdict.summary), width - 2):
        yield Line((Span(f"  {part}", "strong" if verdict.culprits else "text"),), about)
    for culprit in verdict.culprits:
        yield from _culprit_lines(verdict.job, culprit, width)
    for number, text in enumerate(verdict.evidence):
        yield from _labelled(
            "evidence" if number == 0 else "", text, width, VerdictLineKey(verdict.job, part=number + 1)
        )
    yield from _labelled("next", verdict.next_step, width, VerdictLineKey(verdict.job, part=-1), "accent")
    covered = verdict.coverage
    ranks = f"{covered.captured} of {_unknown(covered.ranks)} rank{'s' * (covered.ranks != 1)}"
    text = f"{ranks}, {format.plural(covered.samples, 'sample')}, over {watched_s:.1f} s"
    yield from _labelled("coverage", text, width, VerdictLineKey(verdict.job, part=-2), "muted")


def _culprit_lines(job: str, culprit: Culprit, width: int) -> Iterator[Line]:
    """Who and where; below it the guilty line of source, as it stands in the file."""
    about = VerdictLineKey(job, culprit.rank)
    words = [f"rank {_unknown(culprit.rank)}", clean(culprit.node or "no node")]
    words += [f"pid {culprit.pid}"] if culprit.pid is not None else []
    site = culprit.site
    where = f"  in  {clean(site.file.rsplit('/', 1)[-1])}:{site.line} {clean(site.function)}" if site else ""
    parts = wrapped(" · ".join(words) + where, width - 4 - width_of(culprit.class_))
    for number, part in enumerate(parts):
        spans = [Span(f"  {part}", "failed")]
        spans += [Span(f"  {state_word(culprit.class_)}", "muted")] if number == 0 else []
        yield Line(tuple(spans), about)
    if site is not None and site.source:
        yield Line((Span(f"    {site.line:>5} │ ", "muted"), Span(clean(site.source.strip()), "text")), about)


def _labelled(label: str, text: str, width: int, about: VerdictLineKey, style: str = "text") -> Iterator[Line]:
    for number, part in enumerate(wrapped(clean(text), width - _LABEL - 2)):
        yield Line((Span(f"  {label if number == 0 else '':{_LABEL}}", "muted"), Span(part, style)), about)


def culprits_of(seen: JobDiagnosis | None) -> tuple[int, ...]:
    """The ranks that a verdict names."""
    found = (culprit.rank for culprit in seen.judged.verdict.culprits) if seen else ()
    return tuple(rank for rank in found if rank is not None)


def _unknown(value: int | None) -> str:
    return "–" if value is None else str(value)
