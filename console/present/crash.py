"""A crash verdict as lines: kind and confidence, culprits with their source line, cascade, teardown, evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..analysis.crash.verdict import AttemptEnd, CrashCulprit, CrashVerdict
from ..text.cells import clean, width_of
from ..text.format import UNKNOWN, plural
from ..text.nodeset_fold import fold_ranks
from ..text.sanitize import Printable
from .spans import GLYPHS, Line, Span, Status, as_text, confidence_word, wrapped
from .verdict import VerdictLineKey

#: Cells of the label column.
_LABEL: Final = 10
#: Width of text that is not wrapped.
_UNWRAPPED: Final = 100_000
#: Culprits, groups of the cascade and attempts that are listed; the report has all of them.
_MOST_LINES: Final = 8


def crash_lines(verdict: CrashVerdict, width: int, *, wrap: bool = True) -> list[Line]:
    """All lines of a verdict, wrapped to `width` cells."""
    return list(_lines(verdict, width, width if wrap else _UNWRAPPED))


def crash_text(verdict: CrashVerdict, width: int = 110) -> Printable:
    """The same lines as plain text, not wrapped."""
    return as_text(crash_lines(verdict, width, wrap=False))


def _lines(verdict: CrashVerdict, width: int, room: int) -> Iterator[Line]:
    key = VerdictLineKey(verdict.job)
    status: Status = "warning" if verdict.is_deliberate else "failed"
    state = f"{GLYPHS[status]} {'ended' if verdict.is_deliberate else 'crashed'}"
    job = f"  {clean(verdict.job)}"
    attempt = f" attempt {verdict.attempt}" if verdict.attempt else ""
    right = "" if verdict.confidence == "none" else f"confidence: {confidence_word(verdict.confidence)}"
    kind = _cause(verdict.kind)
    gap = " " * max(2, width - width_of(state + kind + job + attempt + right) - 2)
    yield Line(
        (
            Span(state, status),
            Span(f"  {kind}", "strong"),
            Span(job + attempt, "muted"),
            Span(gap),
            Span(right),
        ),
        key,
    )
    for part in wrapped(clean(verdict.summary), room - 2):
        yield Line((Span(f"  {part}", "strong" if verdict.culprits else "text"),), key)
    yield from _culprits(verdict, room)
    for number, group in enumerate(verdict.cascade[:_MOST_LINES]):
        ranks = f"[{fold_ranks(group.ranks)}]" if group.ranks else plural(group.count, "process", "processes")
        yield from _labelled(
            "cascade" if number == 0 else "",
            f"{ranks} {group.text}",
            room,
            VerdictLineKey(verdict.job, part=100 + number),
        )
    if len(verdict.cascade) > _MOST_LINES:
        yield from _labelled("", f"… and {len(verdict.cascade) - _MOST_LINES} more", room, key, "muted")
    if verdict.teardown:
        text = f"[{fold_ranks(verdict.teardown)}] ended by the launcher"
        yield from _labelled("teardown", text, room, VerdictLineKey(verdict.job, part=200))
    for number, text in enumerate(verdict.evidence):
        yield from _labelled(
            "evidence" if number == 0 else "", text, room, VerdictLineKey(verdict.job, part=number + 1)
        )
    yield from _attempts(verdict, room)
    yield from _labelled("next", verdict.next_step, room, VerdictLineKey(verdict.job, part=-1), "accent")


def _culprits(verdict: CrashVerdict, room: int) -> Iterator[Line]:
    """Culprits with the same site share a line; below it is the line of source."""
    sites: dict[object, list[CrashCulprit]] = {}
    for culprit in verdict.culprits:
        sites.setdefault((culprit.site.file, culprit.site.line) if culprit.site else None, []).append(culprit)
    for culprits in list(sites.values())[:_MOST_LINES]:
        first = culprits[0]
        ranks = [culprit.rank for culprit in culprits]
        key = VerdictLineKey(verdict.job, first.rank)
        words = [f"rank {UNKNOWN if ranks == [None] else fold_ranks(ranks)}"] if first.rank is not None else []
        words += [clean(first.node)] if len(culprits) == 1 and first.node else []
        words += [f"pid {first.pid}"] if len(culprits) == 1 and first.pid is not None else []
        words += [f"exit code {first.exit_code}"] if len(culprits) == 1 and first.exit_code is not None else []
        site = first.site
        where = f"  in  {clean(site.file.rsplit('/', 1)[-1])}:{site.line} {clean(site.function)}" if site else ""
        for part in wrapped(" · ".join(words) + where, room - 4):
            yield Line((Span(f"  {part}", "failed"),), key)
        if site is not None and site.source:
            yield Line((Span(f"    {site.line:>5} │ ", "muted"), Span(clean(site.source.strip()))), key)


def _attempts(verdict: CrashVerdict, room: int) -> Iterator[Line]:
    for number, attempt in enumerate(verdict.attempts[-_MOST_LINES:]):
        yield from _labelled(
            "attempts" if number == 0 else "", _attempt(attempt), room, VerdictLineKey(verdict.job, part=300 + number)
        )


def _attempt(attempt: AttemptEnd) -> str:
    ranks = f" [{fold_ranks(attempt.ranks)}]" if attempt.ranks else ""
    number = UNKNOWN if attempt.attempt is None else attempt.attempt
    return f"{number}  {_cause(attempt.kind)}{ranks}  {attempt.text}"


def _cause(kind: str) -> str:
    """The kind of a crash as people read it, who see no other kind beside it."""
    return "cause unknown" if kind == "unknown" else kind


def _labelled(label: str, text: str, room: int, key: VerdictLineKey, style: str = "text") -> Iterator[Line]:
    for number, part in enumerate(wrapped(clean(text), room - _LABEL - 2)):
        yield Line((Span(f"  {label if number == 0 else '':{_LABEL}}", "muted"), Span(part, style)), key)
