"""The whole report, a pure fold of the store (equal live and in replay), its JSON, its summary and its exit codes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import get_args

import msgspec

from ..analysis.checks.result import CheckResult
from ..analysis.crash.verdict import CrashKind, CrashVerdict
from ..analysis.finding_selection import RANKING, counts
from ..analysis.hang.verdict import Verdict
from ..analysis.rank_progress import shown_state
from ..analysis.skew.findings import SkewSnapshot
from ..core.store import Store
from ..monitor.captures import CaptureLine, capture_lines, is_partial
from ..monitor.coverage import coverage_of
from ..monitor.crash import crash_verdicts
from ..monitor.hang import jobs_of, verdict_finding, verdicts
from ..monitor.node_checks import CheckedNode, append_results, check_nodes
from ..monitor.progress import progress_in
from ..monitor.skew import skew_of
from ..monitor.step_length import step_lengths
from ..monitor.unrecognised import unrecognised
from ..records import Finding, Log, Severity
from ..text.documents import pretty
from ..text.format import age, duration, iso, plural, state_word, step_time
from ..text.nodeset_fold import fold, fold_ranks, natural, replace_node_name
from ..text.sanitize import Printable, join_lines, printable
from .collectives import CollectivesLine, collectives_line
from .nodes import (
    WATCHED_STEP,
    CostLine,
    GpuLine,
    JobLine,
    NicLine,
    NodeLine,
    ProcessLine,
    RankLine,
    TopologyLines,
    cost_lines,
    gpu_lines,
    job_line,
    line_of,
    nic_lines,
    node_line,
    rank_line,
    topology_lines,
)
from .skew import ClocksLine, SkewLine, clocks_line, skew_line


class FindingLine(msgspec.Struct):
    """One finding, with its instants as ISO 8601."""

    id: str
    severity: Severity
    confidence: str
    culprits: tuple[str, ...]
    victims: tuple[str, ...]
    text: str
    evidence: tuple[str, ...]
    first_seen: str
    cleared_at: str | None


def finding_lines(store: Store) -> list[FindingLine]:
    """Every finding in the store, most severe first."""
    return [_finding_line(finding) for finding in _worst_first(store.findings.values())]


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Open before cleared, by severity, then by first occurrence."""
    return sorted(
        findings,
        key=lambda finding: (
            finding.cleared_at is not None,
            -RANKING[finding.severity],
            finding.first_seen,
            finding.id,
            finding.culprits,
        ),
    )


def _finding_line(finding: Finding) -> FindingLine:
    cleared_at = iso(finding.cleared_at) if finding.cleared_at else None
    return line_of(FindingLine, finding, first_seen=iso(finding.first_seen) or "", cleared_at=cleared_at)


class EventLine(msgspec.Struct):
    """What a node already knew when the agent came: a message of its kernel or journal, a boot, a core dump."""

    node: str
    at: str | None  # ISO 8601
    at_ns: int  # CLOCK_REALTIME of the node
    age: str  # before the agent reported it: "37 min"
    source: str
    severity: Severity
    fault: str | None  # class of a kernel message
    subject: str | None
    pid: int | None
    text: str


#: Earlier events of one node in a report, the newest.
MAX_EVENTS = 64


def event_lines(store: Store) -> list[EventLine]:
    """What happened on the nodes before the agents came, as far as it is kept, in order of time."""
    earlier: dict[str, deque[tuple[int, Log]]] = {}
    for _, record in store.events:
        if isinstance(record, Log) and record.is_earlier and record.at is not None:
            earlier.setdefault(record.node, deque(maxlen=MAX_EVENTS)).append((record.at, record))
    events = sorted(
        (event for events in earlier.values() for event in events),
        key=lambda event: (event[0], event[1].node, event[1].seq),
    )
    return [
        line_of(EventLine, log, at=iso(at_ns), at_ns=at_ns, age=age(log.t - at_ns), text=printable(log.text))
        for at_ns, log in events
    ]


SCHEMA = "gconsole.report/1"


class Report(msgspec.Struct):
    """`gconsole.report/1`. Instants are ISO-8601 UTC, with the nanoseconds of the console's clock beside them."""

    schema: str
    cluster: str
    simulated: bool  # whether any node's data is
    started_at: str | None
    started_at_ns: int
    ended_at: str | None
    ended_at_ns: int
    nodes: list[NodeLine]
    jobs: list[JobLine]
    ranks: list[RankLine]
    gpus: list[GpuLine]
    nics: list[NicLine]
    topology: TopologyLines
    captures: list[CaptureLine]
    collectives: CollectivesLine
    clocks: ClocksLine
    skew: SkewLine
    verdicts: list[Verdict]  # of every job with a capture
    crashes: list[CrashVerdict]  # of every job that died, at its last attempt; the newest first
    findings: list[FindingLine]
    agent_cost: list[CostLine]
    unrecognised: list[ProcessLine]  # Python processes that may be jobs, where there is no rank
    events: list[EventLine]  # of the time before the agents came, oldest first
    checks: list[CheckedNode]  # as of `gconsole check`, at the end of the run


def make_report(
    store: Store, skew: SkewSnapshot | None = None, crashes: Sequence[CrashVerdict] = (),
    own_checks: Mapping[str, Sequence[CheckResult]] = MappingProxyType({}),
) -> Report:  # fmt: skip
    """Report of the store; `skew` is that of the store where it was computed before.

    `own_checks`: results of the user's checks by node.
    """
    table, progress, coverage = jobs_of(store), progress_in(store), coverage_of(store)
    steps = step_lengths(store)
    nodes = sorted(store.nodes.values(), key=lambda now: natural(now.name))
    return Report(
        schema=SCHEMA,
        cluster=store.console.cluster if store.console else "",
        simulated=any(now.node.simulated for now in nodes if now.node),
        started_at=iso(store.started_rx),
        started_at_ns=store.started_rx,
        ended_at=iso(store.newest_rx),
        ended_at_ns=store.newest_rx,
        nodes=[node_line(now, coverage[now.name]) for now in nodes],
        jobs=[job_line(job, steps) for job in table.jobs],
        ranks=[rank_line(row, progress) for job in table.jobs for row in job.rows],
        gpus=gpu_lines(store),
        nics=nic_lines(store),
        topology=topology_lines(store),
        captures=capture_lines(store),
        collectives=collectives_line(store),
        clocks=clocks_line(store),
        skew=skew_line(skew or skew_of(store)),
        verdicts=verdicts(store),
        crashes=[*crash_verdicts(store), *crashes],
        findings=finding_lines(store),
        agent_cost=cost_lines(nodes),
        unrecognised=[line_of(ProcessLine, process) for process in unrecognised(store)],
        events=event_lines(store),
        checks=append_results(check_nodes(store), own_checks),
    )


def to_json(report: Report) -> bytes:
    """The report as indented JSON with a newline at its end."""
    return pretty(report).encode() + b"\n"


def exit_code(report: Report, fail_on: Sequence[str] = ("error",), *, is_diagnosis: bool = False) -> int:
    """The exit code of a headless command: 4 nothing reachable, 1 a finding that counts, 3 partial, 0 fine.

    Nodes whose GPUs have neither reported nor failed make it partial, too; in a diagnosis also jobs that could not be
    judged.
    `fail_on` is a severity (that or a worse one counts), ids of findings, or both.
    """
    if any(counts(line, fail_on) for line in report.findings) and any(line.state == "ok" for line in report.nodes):
        return 1
    unseen = any(job.ranks_missing for job in report.jobs) or any(is_partial(line) for line in report.captures)
    unseen |= bool(report.unrecognised) and not report.captures  # of a capture of processes, these are known
    if is_diagnosis:
        unseen |= any(verdict.state == "undecided" and not verdict.idle for verdict in report.verdicts)
    unseen |= any(line.awaits and (line.gpus_expected is None or line.gpu_fault is not None) for line in report.nodes)
    return _coverage([line.state for line in report.nodes], unseen)


def coverage_code(store: Store) -> int:
    """The exit code of a command that makes no findings: 4 nothing reachable, 3 some nodes unseen, 0 all seen."""
    return _coverage([now.state.state if now.state else "failed" for now in store.nodes.values()], False)


def _coverage(states: Sequence[str], unseen: bool) -> int:
    if "ok" not in states:
        return 4
    return 3 if unseen or any(state != "ok" for state in states) else 0


#: Max findings in a summary, most severe first, and of earlier events, the newest.
MAX_FINDINGS = 50
SHOWN_EVENTS = 8


def summary(report: Report) -> Printable:
    """The text summary: cluster, jobs, failed nodes, findings, and what happened before."""
    parts = (_job_lines, _failure_lines, _unreadable_lines, _unrecognised_lines, _finding_lines, _event_lines)
    return join_lines([_head(report), *(line for part in parts for line in part(report))])


def _head(report: Report) -> str:
    ok = sum(line.state == "ok" for line in report.nodes)
    sim = "  SIM" if report.simulated else ""
    ranks = plural(len(report.ranks), "rank")
    watched = duration(report.ended_at_ns - report.started_at_ns)
    return f"{report.cluster}{sim}  {ok}/{len(report.nodes)} nodes connected  {ranks}  watched {watched}"


def _step_words(job: JobLine) -> str:
    if job.step_s is None:
        return ""
    time = step_time(job.step_s)
    return f"  {time} a step" if job.step_source == WATCHED_STEP else f"  {job.step_source} repeats every {time}"


def _job_lines(report: Report) -> list[str]:
    lines = []
    for job in report.jobs:
        states: dict[str, int] = {}
        for row in report.ranks:
            if row.job == job.job and row.attempt == job.attempt:
                state = shown_state(row.state, row.progress)
                states[state] = states.get(state, 0) + 1
        world = job.world_size if job.world_size is not None else "–"
        by_count = sorted(states.items(), key=lambda item: -item[1])
        words = " · ".join(f"{state_word(state)} {count}" for state, count in by_count)
        lines.append(f"  {job.job}  {len(job.ranks_found)}/{world} ranks  {words}{_step_words(job)}")
        reasons: dict[str, list[int | None]] = {}
        for missing in job.ranks_missing:
            reasons.setdefault(missing.reason, []).append(missing.rank)
        lines += [f"    ◌ rank {fold_ranks(ranks)}: {reason}" for reason, ranks in reasons.items()]
        lines += [f"    ▲ {conflict}" for conflict in job.conflicts]
    return lines


def _failure_lines(report: Report) -> list[str]:
    """Failed nodes, grouped by reason."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for line in report.nodes:
        if line.state != "ok" and line.error:
            text, try_ = (replace_node_name(words, line.node, "%n") for words in (line.error.text, line.error.try_))
            key = (line.error.name, text, try_)
            reasons.setdefault(key, []).append(line.node)
    lines = []
    for (name, text, try_), nodes in reasons.items():
        name_or_placeholder = nodes[0] if len(nodes) == 1 else "NODE"
        lines.append(f"  ✖ {fold(nodes)}  {name}: {text.replace('%n', name_or_placeholder)}")
        if try_:
            lines.append(f"    try: {try_.replace('%n', name_or_placeholder)}")
    return lines


def _unreadable_lines(report: Report) -> list[str]:
    """Possible ranks of other users that are not readable."""
    nodes: dict[int, list[str]] = {}
    for line in report.nodes:
        if line.unreadable:
            nodes.setdefault(line.unreadable, []).append(line.node)
    return [
        f'  ▲ {fold(names)}  {count} Python processes of other users not readable; try: run_as = "sudo"'
        for count, names in nodes.items()
    ]


def _unrecognised_lines(report: Report) -> list[str]:
    """Python processes that were seen and not judged."""
    if not report.unrecognised or report.captures:
        return []
    count, first = len(report.unrecognised), report.unrecognised[0]
    nodes = fold(sorted({line.node for line in report.unrecognised}))
    what = f"pid {first.pid} on {first.node}" + (f": {first.cmdline[:100]}" if first.cmdline else "")
    words = "not recognised as a rank was" if count == 1 else "not recognised as ranks were"
    return [
        f"  ▲ {nodes}  {plural(count, 'Python process')} {words} not judged, e.g. {what}",
        f"    try: --capture --pid {first.node}:{first.pid}; or a launcher that sets RANK and WORLD_SIZE",
    ]


def _finding_lines(report: Report) -> list[str]:
    glyphs = {"error": "✖", "warning": "▲", "info": "·"}
    verdict_ids = {finding.id for verdict in report.verdicts if (finding := verdict_finding(verdict))}
    verdict_ids |= {verdict.kind for verdict in report.crashes}
    # verdicts are printed separately, but not that a job was restarted since
    others = [line for line in report.findings if line.id not in verdict_ids or _is_of_restart(line)]
    lines = [
        f"  {glyphs[line.severity] if line.cleared_at is None else '○'} {line.id}  {line.text}"
        + (" (cleared)" if line.cleared_at is not None else "")
        for line in others[:MAX_FINDINGS]
    ]
    more = len(others) - len(lines)
    return [*lines, f"  … and {more} more findings; full list in the report (-o FILE)"] if more else lines


def _is_of_restart(line: FindingLine) -> bool:
    """Whether a finding is that of a job that died and was restarted."""
    return line.severity != "error" and line.id in get_args(CrashKind)


def _event_lines(report: Report) -> list[str]:
    """The newest events of the time before that deserve attention, unless a finding tells them."""
    texts = [line.text for line in report.findings]
    wanted = [
        line for line in report.events if line.severity != "info" and not any(line.text in text for text in texts)
    ]
    return [f"  · {line.age} before you came  {line.node}: {line.text}" for line in wanted[-SHOWN_EVENTS:]]
