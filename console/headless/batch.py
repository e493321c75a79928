"""The console without a screen: watch for a while, then a report, a summary and an exit code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from ..core.bus import Hub
from ..core.control import CaptureRequest, Control
from ..core.store import Store
from ..monitor.diagnose import Diagnosis, diagnose
from ..monitor.finding_tracker import FindingTracker
from ..monitor.hang import verdict_finding, verdicts
from ..monitor.topology import TopologyFold
from ..monitor.topology_findings import TopologyFindings
from ..records import Failure, Finding, Log, NodeState, Record
from ..report import Report
from ..report.skew import clock_text, skew_text
from ..text.nodeset_fold import fold, fold_ranks, replace_node_name
from ..text.sanitize import printable

#: How often the progress line and the end are looked at; records themselves are folded as they arrive.
LOOK_S = 0.1
#: How often what comes is folded while something else is waited for.
FOLD_S = 1.0
#: So many findings stand in a summary, the worst first.
MOST_FINDINGS = 50
#: A node that is still connecting when this is over is reported as failed, whatever `--for` says.
CONNECT_S = 45.0


class ProgressLine:
    """One line on stderr that says how far things are; `write` is None where nobody wants it, `more` adds to it."""

    def __init__(
        self, store: Store, write: Callable[[str], None] | None, more: Callable[[], str] | None = None
    ) -> None:
        self._store, self._write, self._more, self._last = store, write, more, ""

    def show(self, capture: str | None = None) -> None:
        """Say how far things are, where that is news; `capture` is the one under way."""
        if self._write is None:
            return
        states = [now.state.state if now.state else "expected" for now in self._store.nodes.values()]
        ready = sum(1 for now in self._store.nodes.values() if now.cost)
        failed = sum(state in ("failed", "lost") for state in states)
        line = f"nodes {ready}/{len(states)} sampled" + (f", {failed} failed" if failed else "")
        line += f" · ranks {len(self._store.ranks)}"
        if capture is not None:
            now = self._store.captures.get(capture)
            line = f"captured {len(now.ranks) if now else 0}/{len(self._store.ranks)} ranks"
        if self._more is not None:
            line += self._more()
        self.show_text(line)

    def show_text(self, line: str) -> None:
        """Say something of one's own, where that is news."""
        if self._write is not None and line != self._last:
            self._last = line
            self._write(line)


async def watch(
    store: Store, hub: Hub, control: Control, for_s: float, progress: ProgressLine,
    order: CaptureRequest | Diagnosis | None = None, before: Callable[[], Awaitable[None]] | None = None,
    findings: FindingTracker | None = None, is_over: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Let records arrive for `for_s` seconds; with 0 until every node has sent a full tick or failed. Then stop.

    Before that, where there is an `order`, capture or diagnose; `before` is awaited first. `findings` are looked for
    meanwhile; `is_over` ends it early.
    """
    differing = TopologyFindings(store, TopologyFold(store), findings) if findings is not None else None

    async def look(*, at_last: bool = False) -> None:
        if findings is not None and differing is not None and (at_last or findings.is_due):
            await findings.evaluate(is_last=at_last)
            await differing.evaluate(at_last=at_last)

    try:
        await _watch(store, for_s, progress, look, is_over)
        if before is not None:
            await _meanwhile(before(), findings)
        if order is not None:
            await _capture(store, hub, control, order, progress)
    finally:
        await look(at_last=True)
        fail_unsettled(store, hub)
        progress.show()
        await control.stop()
        if isinstance(order, Diagnosis):
            hub.publish_own(*verdict_findings(store))
        if store.console:
            hub.publish_own(msgspec.structs.replace(store.console, state="ended"))


async def _watch(
    store: Store, for_s: float, progress: ProgressLine, look: Callable[[], Awaitable[None]], is_over: Callable[[], bool]
) -> None:
    began = time.monotonic()
    while not is_over():
        progress.show()
        await look()
        elapsed = time.monotonic() - began
        if elapsed >= for_s > 0 or (for_s == 0 and (is_settled(store) or elapsed > CONNECT_S)):
            return
        await asyncio.sleep(min(LOOK_S, for_s - elapsed) if for_s else LOOK_S)


async def _meanwhile(work: Awaitable[None], findings: FindingTracker | None) -> None:
    """Await some work of any length. What is found is judged after it; but what comes is folded all the while."""
    working = asyncio.ensure_future(work)
    try:
        while not working.done():
            await asyncio.wait({working}, timeout=FOLD_S)
            if findings is not None:
                await findings.fold_pending()
    finally:
        working.cancel()
        await asyncio.wait({working})
    await working


async def _capture(
    store: Store, hub: Hub, control: Control, order: CaptureRequest | Diagnosis, progress: ProgressLine
) -> None:
    under_way = order.id if isinstance(order, CaptureRequest) else ""

    def begins(next_order: CaptureRequest) -> None:
        nonlocal under_way
        under_way = next_order.id

    work: Coroutine[Any, Any, object] = (
        control.capture(order) if isinstance(order, CaptureRequest) else diagnose(store, control, order, begins)
    )
    capturing = asyncio.create_task(work, name="capture")
    try:
        while not capturing.done():
            progress.show(under_way)
            await asyncio.wait({capturing}, timeout=LOOK_S)
    finally:
        capturing.cancel()
    await capturing
    if not len(store.captures):
        hub.publish_own(Log(source="console", severity="warning", text="no rank was found, so there are no stacks"))


def verdict_findings(store: Store) -> list[Finding]:
    """What the verdicts of a store mean, as records; one that is known already keeps the instant it was first seen."""
    made = []
    for verdict in verdicts(store):
        found = verdict_finding(verdict)
        if found is None:
            continue
        known = store.findings.get((found.id, found.culprits))
        made.append(
            Finding(
                id=found.id, severity=found.severity, confidence=found.confidence, culprits=found.culprits,
                victims=found.victims, text=found.text, evidence=found.evidence,
                first_seen=known.first_seen if known is not None else store.newest_rx,
            )
        )  # fmt: skip
    return made


def is_settled(store: Store) -> bool:
    """Whether every node has sent its first full tick or failed to."""
    nodes = store.nodes.values()
    return bool(nodes) and all(now.cost or (now.state and now.state.state in ("failed", "lost")) for now in nodes)


def fail_unsettled(store: Store, hub: Hub) -> None:
    """Nodes that are still on their way when the time is up have failed, with that as their reason."""
    failure = Failure("timeout", "still connecting when the time was up", "give it longer: --for")
    for now in store.nodes.values():
        if now.state and now.state.state in ("expected", "connecting"):
            hub.publish_own(
                NodeState(node=now.name, state="failed", error=failure, attempt=now.state.attempt, tags=now.state.tags)
            )


def summary(report: Report) -> str:
    """What a person reads in a CI log: a line for the cluster, a line a job, a line a group of troubles."""
    parts = (_job_lines, _trouble_lines, _unreadable_lines, _time_lines, _finding_lines)
    return "\n".join(map(printable, [_head(report), *(line for part in parts for line in part(report))]))


def _head(report: Report) -> str:
    ok = sum(line.state == "ok" for line in report.nodes)
    sim = "  SIM" if report.simulated else ""
    took = (report.ended_at_ns - report.started_at_ns) / 1e9
    return f"{report.cluster}{sim}  {ok}/{len(report.nodes)} nodes ok  {len(report.ranks)} ranks  watched {took:.1f} s"


def _job_lines(report: Report) -> list[str]:
    lines = []
    for job in report.jobs:
        states: dict[str, int] = {}
        for row in report.ranks:
            if row.job == job.job and row.attempt == job.attempt:
                states[row.state] = states.get(row.state, 0) + 1
        world = job.world_size if job.world_size is not None else "–"
        words = " · ".join(f"{state} {count}" for state, count in sorted(states.items(), key=lambda item: -item[1]))
        lines.append(f"  {job.job}  {len(job.ranks_found)}/{world} ranks  {words}")
        reasons: dict[str, list[int | None]] = {}
        for missing in job.ranks_missing:
            reasons.setdefault(missing.reason, []).append(missing.rank)
        lines += [f"    ◌ rank {fold_ranks(ranks)}: {reason}" for reason, ranks in reasons.items()]
        lines += [f"    ▲ {conflict}" for conflict in job.conflicts]
    return lines


def _trouble_lines(report: Report) -> list[str]:
    """Failed nodes, folded over equal reasons."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for line in report.nodes:
        if line.state != "ok" and line.error:
            text, try_ = (replace_node_name(words, line.node, "%n") for words in (line.error.text, line.error.try_))
            key = (line.error.name, text, try_)
            reasons.setdefault(key, []).append(line.node)
    lines = []
    for (name, text, try_), nodes in reasons.items():
        one = nodes[0] if len(nodes) == 1 else "NODE"
        lines.append(f"  ✖ {fold(nodes)}  {name}: {text.replace('%n', one)}")
        if try_:
            lines.append(f"    try: {try_.replace('%n', one)}")
    return lines


def _unreadable_lines(report: Report) -> list[str]:
    """Processes that may be ranks, but belong to somebody else: never silently absent."""
    nodes: dict[int, list[str]] = {}
    for line in report.nodes:
        if line.unreadable:
            nodes.setdefault(line.unreadable, []).append(line.node)
    return [
        f'  ▲ {fold(names)}  {count} Python processes of other users may not be read; to see them: run_as = "sudo"'
        for count, names in nodes.items()
    ]


def _time_lines(report: Report) -> list[str]:
    """The common clock and who is late on it, where anything is known of them."""
    texts = (clock_text(report.clocks), skew_text(report.skew))
    return [f"  {line}" for text in texts if text for line in text.splitlines()]


def _finding_lines(report: Report) -> list[str]:
    glyphs = {"error": "✖", "warning": "▲", "info": "·"}
    judged = {found.id for verdict in report.verdicts if (found := verdict_finding(verdict))}  # told at length below
    told = [line for line in report.findings if line.id not in judged]
    lines = [
        f"  {glyphs[line.severity] if line.cleared_at is None else '○'} {line.id}  {line.text}"
        + (" (cleared)" if line.cleared_at is not None else "")
        for line in told[:MOST_FINDINGS]
    ]
    more = len(told) - len(lines)
    return [*lines, f"  … and {more} more findings; the report has them all (-o FILE)"] if more else lines


def is_warning(record: Record) -> bool:
    """Whether `warnings` tells of it: the only events that anybody reads where there is no screen."""
    return isinstance(record, Log) and record.severity != "info"


def warnings(store: Store) -> list[str]:
    """What the console or an agent logged as a warning or worse, for stderr."""
    logs = [record for _, record in store.events if isinstance(record, Log) and is_warning(record)]
    texts = [f"{log.node}: {log.text}" if log.node else log.text for log in logs]
    return ["\n  ".join(map(printable, text.splitlines())) for text in texts]
