"""Headless run: watch, capture or diagnose, summarise."""

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
from ..monitor.topology import TopologyFindings, TopologyFold
from ..records import Failure, Finding, Log, NodeState, Record
from ..report import Report
from ..text.nodeset_fold import fold, fold_ranks, replace_node_name
from ..text.sanitize import printable

#: Seconds between checks of progress and end conditions; records are folded as they arrive.
POLL_S = 0.1
#: Seconds between folds of new records while other work is awaited.
FOLD_S = 1.0
#: Max findings in a summary, most severe first.
MAX_FINDINGS = 50
#: Seconds. Nodes still connecting after this are reported as failed, regardless of `--for`.
CONNECT_S = 45.0


class ProgressLine:
    """Progress line; `write` is None to suppress it, `more` returns a suffix."""

    def __init__(
        self, store: Store, write: Callable[[str], None] | None, more: Callable[[], str] | None = None
    ) -> None:
        self._store, self._write, self._more, self._last = store, write, more, ""

    def show(self, capture: str | None = None) -> None:
        """Write the current progress if it changed; `capture` is the id of the running capture."""
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
        """Write a line if it differs from the previous one."""
        if self._write is not None and line != self._last:
            self._last = line
            self._write(line)


async def watch(
    store: Store, hub: Hub, control: Control, for_s: float, progress: ProgressLine,
    order: CaptureRequest | Diagnosis | None = None, before: Callable[[], Awaitable[None]] | None = None,
    findings: FindingTracker | None = None, is_over: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Watch for `for_s` seconds, or with 0 until every node has sent a full sample or failed. Then stop the fleet.

    Before stopping, `before` is awaited and `order` (capture or diagnosis) carried out. `findings` are updated
    throughout; `is_over()` ends the watch early.
    """
    differing = TopologyFindings(store, TopologyFold(store), findings) if findings is not None else None

    async def evaluate(*, at_last: bool = False) -> None:
        if findings is not None and differing is not None and (at_last or findings.is_due):
            await findings.evaluate(is_last=at_last)
            await differing.evaluate(at_last=at_last)

    try:
        await _watch(store, for_s, progress, evaluate, is_over)
        if before is not None:
            await _meanwhile(before(), findings)
        if order is not None:
            await _capture(store, hub, control, order, progress)
    finally:
        await evaluate(at_last=True)
        fail_unsettled(store, hub)
        progress.show()
        await control.stop()
        if isinstance(order, Diagnosis):
            hub.publish_own(*verdict_findings(store))
        if store.console:
            hub.publish_own(msgspec.structs.replace(store.console, state="ended"))


async def _watch(
    store: Store,
    for_s: float,
    progress: ProgressLine,
    evaluate: Callable[[], Awaitable[None]],
    is_over: Callable[[], bool],
) -> None:
    began = time.monotonic()
    while not is_over():
        progress.show()
        await evaluate()
        elapsed = time.monotonic() - began
        if elapsed >= for_s > 0 or (for_s == 0 and (is_settled(store) or elapsed > CONNECT_S)):
            return
        await asyncio.sleep(min(POLL_S, for_s - elapsed) if for_s else POLL_S)


async def _meanwhile(work: Awaitable[None], findings: FindingTracker | None) -> None:
    """Await `work` while folding new records; findings are evaluated afterwards."""
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
    capture_id = order.id if isinstance(order, CaptureRequest) else ""

    def begins(next_order: CaptureRequest) -> None:
        nonlocal capture_id
        capture_id = next_order.id

    work: Coroutine[Any, Any, object] = (
        control.capture(order) if isinstance(order, CaptureRequest) else diagnose(store, control, order, begins)
    )
    capturing = asyncio.create_task(work, name="capture")
    try:
        while not capturing.done():
            progress.show(capture_id)
            await asyncio.wait({capturing}, timeout=POLL_S)
    finally:
        capturing.cancel()
    await capturing
    if not len(store.captures):
        hub.publish_own(Log(source="console", severity="warning", text="no stacks captured: no ranks found"))


def verdict_findings(store: Store) -> list[Finding]:
    """Findings of the verdicts of a store; existing findings keep their `first_seen`."""
    findings = []
    for verdict in verdicts(store):
        finding = verdict_finding(verdict)
        if finding is None:
            continue
        previous = store.findings.get((finding.id, finding.culprits))
        findings.append(
            Finding(
                id=finding.id, severity=finding.severity, confidence=finding.confidence, culprits=finding.culprits,
                victims=finding.victims, text=finding.text, evidence=finding.evidence,
                first_seen=previous.first_seen if previous is not None else store.newest_rx,
            )
        )  # fmt: skip
    return findings


def is_settled(store: Store) -> bool:
    """Whether every node has sent its first full sample or failed."""
    nodes = store.nodes.values()
    return bool(nodes) and all(now.cost or (now.state and now.state.state in ("failed", "lost")) for now in nodes)


def fail_unsettled(store: Store, hub: Hub) -> None:
    """Mark nodes that are still connecting as failed with a timeout."""
    failure = Failure("timeout", "still connecting at the end of the run", "increase --for")
    for now in store.nodes.values():
        if now.state and now.state.state in ("expected", "connecting"):
            hub.publish_own(
                NodeState(node=now.name, state="failed", error=failure, attempt=now.state.attempt, tags=now.state.tags)
            )


def summary(report: Report) -> str:
    """The text summary: cluster, jobs, failed nodes and findings."""
    parts = (_job_lines, _failure_lines, _unreadable_lines, _finding_lines)
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


def _finding_lines(report: Report) -> list[str]:
    glyphs = {"error": "✖", "warning": "▲", "info": "·"}
    verdict_ids = {finding.id for verdict in report.verdicts if (finding := verdict_finding(verdict))}
    others = [line for line in report.findings if line.id not in verdict_ids]  # verdicts are printed separately
    lines = [
        f"  {glyphs[line.severity] if line.cleared_at is None else '○'} {line.id}  {line.text}"
        + (" (cleared)" if line.cleared_at is not None else "")
        for line in others[:MAX_FINDINGS]
    ]
    more = len(others) - len(lines)
    return [*lines, f"  … and {more} more findings; full list in the report (-o FILE)"] if more else lines


def is_warning(record: Record) -> bool:
    """Whether a record is a log of severity warning or error."""
    return isinstance(record, Log) and record.severity != "info"


def warnings(store: Store) -> list[str]:
    """Log messages of severity warning or error, for stderr."""
    logs = [record for _, record in store.events if isinstance(record, Log) and is_warning(record)]
    texts = [f"{log.node}: {log.text}" if log.node else log.text for log in logs]
    return ["\n  ".join(map(printable, text.splitlines())) for text in texts]
