"""The Overview as lines: verdicts on jobs, nodes with their errors, jobs with their ranks, findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ....analysis.finding import name_of
from ....analysis.late_rank import StepLength
from ....present.spans import (
    BY_WEIGHT,
    GLYPHS,
    SEVERITY_STATUS,
    Line,
    Span,
    Status,
    cut,
    glyph,
    plain,
    rank_status,
    wrapped,
)
from ....records import Finding
from ....text import format
from ....text.cells import clean, fit, width_of
from ....text.nodeset_fold import fold_ranks, replace_node_name
from ...models.finding_fold import CRASHED, VERDICTS, FoldedFinding
from ...models.job_ranks import JobsSummary, JobSummary, state_spans
from ...models.node_summary import FleetSummary, NodeSummary, folded

_BAR_CELLS, _LEAST_BAR = 24, 8
_ID_WIDTH = 16
#: Errors are shown with their whole text while there are at most this many findings, in at most this many lines each.
MOST_WHOLE, MOST_LINES = 4, 4
#: Verdicts on jobs: above everything else with their whole text, at most this many of them, in at most this many lines
#: each.
MOST_VERDICTS, MOST_LINES_OF_VERDICT = 3, 6
#: Reasons of missing ranks, and ranks of several processes, that a job names one by one: of 512 ranks that a signal
#: ended, or of a job that was started twice, each has its own, and nothing else would have room.
MOST_REASONS, MOST_CONFLICTS = 6, 3
#: Textures of the statuses, for terminals without colour.
_TEXTURES: dict[Status, str] = {"ok": "█", "warning": "▓", "failed": "▒", "stale": "░", "unknown": "░"}


def node_lines(fleet: FleetSummary, width: int) -> tuple[Line, ...]:
    """Counts of nodes, then every problem once, with its nodes and what to try. The key is the first node."""
    if not fleet.nodes:
        return (plain("no nodes; ^p adds nodes", "muted"),)
    lines = [_counts_line(fleet, width)]
    troubles: dict[tuple[Status, str, str, str], list[NodeSummary]] = defaultdict(list)
    for node in fleet.nodes:
        if node.status != "ok":
            troubles[node.status, node.word, _general(node.reason, node), _general(node.try_, node)].append(node)
    ordered = sorted(troubles.items(), key=lambda item: BY_WEIGHT.index(item[0][0]))
    for (status, word, reason, try_), nodes in ordered:
        if len(nodes) == 1:
            reason, try_ = nodes[0].reason, nodes[0].try_
        lines += _trouble_lines(status, _facts(word, reason, nodes), try_, nodes, width)
    return tuple(lines)


def _general(text: str, node: NodeSummary) -> str:
    """The text without the node's name, so that equal problems of several nodes are equal."""
    return replace_node_name(text, node.name, "NODE")


def _counts_line(fleet: FleetSummary, width: int) -> Line:
    counts: list[Span] = []
    for status in reversed(BY_WEIGHT):
        if fleet.counts.get(status):
            counts += [Span("  "), Span(f"{fleet.counts[status]} {GLYPHS[status]}", status)]
    room = width - sum(width_of(span.text) for span in counts)
    names = fit(folded(tuple(node.name for node in fleet.nodes)), room)
    return Line((Span(names.rstrip() if not counts else names), *counts))


def _facts(word: str, reason: str, nodes: Sequence[NodeSummary]) -> str:
    """The problem of these nodes in one phrase, with the age of the newest data of any."""
    age = min((node.age_ns for node in nodes if node.age_ns is not None), default=None)
    if word == "expected":
        return "queued to connect"
    if word == "lost":
        return f"lost {format.age(age)} ago: {reason}" if age is not None else f"lost: {reason}"
    if word == "stale":
        return f"no data for {format.age(age)}"
    return reason or word


def _trouble_lines(status: Status, text: str, try_: str, nodes: Sequence[NodeSummary], width: int) -> list[Line]:
    """The problem and what to try, wrapped."""
    names = fit(folded(tuple(node.name for node in nodes)), min(28, max(10, width // 3))).rstrip()
    head = (glyph(status), Span(" "), Span(names, "strong"), Span("  "))
    lines = _paragraph(head, text, status, width)
    if try_:
        lines += _paragraph((Span("  try ", "muted"),), try_, "text", width)
    return [Line(spans, nodes[0].name) for spans in lines]


def _paragraph(head: tuple[Span, ...], text: str, style: str, width: int) -> list[tuple[Span, ...]]:
    """The text after its head, wrapped with an indent."""
    text = " ".join(clean(text).split())
    first = wrapped(text, max(12, width - sum(width_of(span.text) for span in head)))[0]
    rest = text[len(first) :].lstrip()
    below = wrapped(rest, width - 4) if rest else []
    return [cut((*head, Span(first, style)), width), *((Span("    "), Span(part, style)) for part in below)]


def job_lines(
    jobs: JobsSummary, settled: bool, width: int, *, whole: bool = False, reports: bool = True
) -> tuple[Line, ...]:
    """A block a job: how many of its ranks are here and what they do; the missing ones with their reason.

    Reasons that do not fit are cut, and with `whole` wrapped. `reports`: whether any node does.
    """
    if not jobs.jobs and settled and not reports:
        return (plain("jobs are unknown: no node reports", "muted"),)
    if not jobs.jobs:
        return (plain("no jobs on these nodes" if settled else "discovering ranks …", "muted"),)
    lines: list[Line] = []
    for job in jobs.jobs:
        lines += _job_lines(job, width, whole)
    return tuple(lines)


def _job_lines(job: JobSummary, width: int, whole: bool) -> list[Line]:
    count = Span(format.seen(job.discovered, job.world_size), "text" if job.is_complete else "warning")
    room = width - width_of(count.text) - 4
    title = fit(job.title, min(width_of(job.title), max(8, room - _LEAST_BAR)))
    bar = share_bar(job, max(_LEAST_BAR, min(_BAR_CELLS, room - width_of(title))))
    lines = [Line((Span(title, "strong"), Span("  "), count, Span("  "), *bar), job.job)]
    if spans := _step_spans(job):  # first: whether the job progresses counts most where there is little room
        lines.append(Line(cut((Span("  "), *spans), width), job.job))
    lines += [Line(spans, job.job) for spans in _wrapped(state_spans(job.counts), width)]
    for reason, ranks in job.missing[:MOST_REASONS]:
        head = (Span("  "), glyph("unknown"), Span(f" rank {fold_ranks(ranks)} ", "text"))
        parts = (
            _paragraph(head, reason, "muted", width) if whole else [cut((*head, Span(clean(reason), "muted")), width)]
        )
        lines += [Line(spans, job.job) for spans in parts]
    further = sum(len(ranks) for _, ranks in job.missing[MOST_REASONS:])
    if further:
        lines.append(Line((Span(f"    and {format.plural(further, 'further rank')}: see 2 Ranks", "muted"),), job.job))
    for conflict in job.conflicts[:MOST_CONFLICTS]:
        lines.append(Line(cut((Span("  "), glyph("warning"), Span(f" {conflict}", "warning")), width), job.job))
    if len(job.conflicts) > MOST_CONFLICTS:
        number = format.plural(len(job.conflicts) - MOST_CONFLICTS, "further rank")
        text = f"    and {number} claimed by several processes"
        lines.append(Line(cut((Span(text, "warning"),), width), job.job))
    return lines


def _wrapped(spans: Sequence[Span], width: int) -> list[tuple[Span, ...]]:
    """States over as many lines as they need; a state is not torn apart."""
    lines: list[tuple[Span, ...]] = []
    line: list[Span] = [Span("  ")]
    used = 2
    for index in range(0, len(spans), 3):  # glyph and count, name, the gap after it
        piece = spans[index : index + 2]
        size = sum(width_of(span.text) for span in piece)
        if used > 2 and used + 2 + size > width:
            lines.append(tuple(line))
            line, used = [Span("  ")], 2
        elif used > 2:
            line.append(Span("  "))
            used += 2
        line += piece
        used += size
    return [*lines, cut(line, width)]


def _step_spans(job: JobSummary) -> list[Span]:
    spans: list[Span] = []
    if job.step is not None:
        spans = [Span("step ", "muted"), Span(format.count(job.step)), Span(" (median)", "muted")]
    if job.step_length is not None:
        spans += [Span("   ")] if spans else []
        spans += _length_spans(job.step_length)
    for step, ranks in job.steps[:3]:
        spans += [Span("   at ", "muted"), Span(format.count(step)), Span(f": {ranks}", "muted")]
    return spans


def _length_spans(length: StepLength) -> list[Span]:
    time = Span(format.step_time(length.seconds))
    return [Span(f"{length.curve} repeats every ", "muted"), time] if length.curve else [time, Span(" a step", "muted")]


def share_bar(job: JobSummary, cells: int) -> list[Span]:
    """States of a job's ranks as a bar; every state has at least one cell."""
    total = sum(job.counts.values())
    by_status: dict[Status, int] = defaultdict(int)
    for state, count in job.counts.items():
        by_status[rank_status(state)] += count
    shares = {status: max(1, round(cells * count / total)) for status, count in by_status.items() if count}
    if not shares:
        return []
    largest = max(shares, key=lambda status: shares[status])
    shares[largest] = max(1, shares[largest] + cells - sum(shares.values()))
    return [Span(_TEXTURES[status] * shares[status], status) for status in reversed(BY_WEIGHT) if status in shares]


def verdict_lines(findings: Sequence[Finding], width: int) -> tuple[Line, ...]:
    """The verdicts on jobs that hang or died, with their whole text; none where no job does.

    Without such an error, those of jobs that died before the console came, or that run again: these are warnings.
    """
    verdicts = [finding for finding in findings if _is_verdict(finding)]
    verdicts = verdicts or [finding for finding in findings if finding.id in CRASHED]
    shown = verdicts[:MOST_VERDICTS]
    lines = [line for finding in shown for line in _lines_of(finding, width, MOST_LINES_OF_VERDICT, finding.text)]
    if len(verdicts) > len(shown):
        lines.append(plain(f"  and {format.plural(len(verdicts) - len(shown), 'further job')}: see FINDINGS", "muted"))
    return tuple(lines)


def _is_verdict(finding: Finding) -> bool:
    return finding.id in VERDICTS and finding.severity == "error"


def finding_lines(
    findings: Sequence[FoldedFinding], fleet: FleetSummary, jobs: JobsSummary, settled: bool, width: int, *,
    diagnosed: bool = False, whole: bool = False,
) -> tuple[Line, ...]:  # fmt: skip
    """The findings, worst first; without any, what has not been checked.

    The whole text of a few errors, and with `whole` of a few findings, is wrapped; that of verdicts stands above, and
    is wrapped only with `whole`, where rows would stay empty.
    """
    if findings:
        is_whole = len(findings) <= MOST_WHOLE
        lines: list[Line] = []
        for folded_finding in findings:
            finding = folded_finding.first
            is_long = is_whole and (whole or (finding.severity == "error" and not _is_verdict(finding)))
            lines += _lines_of(finding, width, MOST_LINES if is_long else 1, folded_finding.text)
        return tuple(lines)
    if not fleet.nodes:
        return (plain("no nodes", "muted"),)
    if not settled:
        return (plain("checking …", "muted"),)
    unseen = fleet.expected - fleet.ok
    absent = sum(len(ranks) for job in jobs.jobs for _, ranks in job.missing)
    if unseen or absent:
        parts = ((unseen, "node"), (absent, "rank"))
        what = " and ".join(format.plural(number, noun) for number, noun in parts if number)
        return (Line((glyph("unknown"), Span(f" no alerts, but {what} not reporting", "muted"))),)
    text = " no alerts" if diagnosed else " no alerts · d checks the progress of the job"
    return (Line((glyph("ok"), Span(text, "muted"))),)


def _lines_of(finding: Finding, width: int, most: int, text: str) -> list[Line]:
    """A finding with this text in at most `most` lines; what does not fit is cut."""
    status = SEVERITY_STATUS[finding.severity]
    name = fit(clean(name_of(finding.id)), _ID_WIDTH)
    head = (glyph(status), Span(" "), Span(name, status), Span("  "))
    text, target = clean(text), (finding.id, finding.culprits, finding.job)
    if most == 1:
        return [Line(cut((*head, Span(text)), width), target)]
    first = wrapped(text, max(12, width - _ID_WIDTH - 4))[0]
    rest = text[len(first) :].lstrip()
    below = wrapped(rest, width - 2) if rest else []
    below = [*below[: most - 2], " ".join(below[most - 2 :])] if len(below) >= most else below
    spans = [(*head, Span(first)), *((Span(f"  {line}"),) for line in below)]
    return [Line(cut(line, width), target) for line in spans]
