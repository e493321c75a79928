"""What changed from one snapshot to the next, as statements of one line each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...analysis.finding import name_of
from ...analysis.hang.verdict import Verdict
from ...present.spans import confidence_word, rank_status, state_word
from ...records import Finding
from ...text import format
from ...text.cells import clean
from ...text.nodeset_fold import fold, fold_ranks

if TYPE_CHECKING:
    from ...tui.models.job_ranks import JobSummary
    from ...tui.models.node_summary import NodeSummary
    from ...tui.snapshot import ScreenSnapshot

FindingKey = tuple[str, tuple[str, ...], str | None]
#: Seconds. Ranks are described once their states have not changed for this long, and at the latest after the second.
STEADY_S: Final = 2.0
LATEST_S: Final = 15.0
#: Findings that opened or cleared at once and are described one by one; of more only the number is given.
MOST_FINDINGS: Final = 20


class FindingNumbers:
    """Numbers by which a person names findings: each keeps its number as long as the console runs."""

    def __init__(self) -> None:
        self._numbers: dict[FindingKey, int] = {}

    def of(self, finding: Finding) -> int:
        """The number of a finding; a new finding gets the next one."""
        return self._numbers.setdefault(finding_key(finding), len(self._numbers) + 1)

    def find(self, number: int, findings: Sequence[Finding]) -> Finding | None:
        """The finding of that number among these."""
        return next((finding for finding in findings if self._numbers.get(finding_key(finding)) == number), None)


def finding_key(finding: Finding) -> FindingKey:
    """Identity of a finding over its later texts."""
    return finding.id, finding.culprits, finding.job


class ChangeStatements:
    """Compares each snapshot with those before it. `numbers` are of the findings."""

    def __init__(self, numbers: FindingNumbers) -> None:
        self._numbers = numbers
        self._nodes: dict[str, tuple[str, str]] = {}  # name: (state, reason) as last stated
        self._findings: dict[FindingKey, Finding] = {}
        self._jobs: dict[str, _JobChanges] = {}
        self._verdicts: dict[str, tuple[object, ...]] = {}
        self._recordings: dict[str, str] = {}

    def statements(self, frame: ScreenSnapshot, now_s: float) -> list[str]:
        """What is new in this snapshot; `now_s` is monotonic, in seconds."""
        return [
            *self._node_changes(frame.fleet.nodes),
            *self._job_changes(frame.jobs.jobs, now_s),
            *self._finding_changes(frame.findings),
            *self._verdict_changes([job.judgement.verdict for job in frame.hang]),
            *self._recording_changes(frame),
        ]

    def _node_changes(self, nodes: Sequence[NodeSummary]) -> Iterator[str]:
        """Nodes that changed in the same way are one statement."""
        changed: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        present = {node.name for node in nodes}
        for node in nodes:
            word, reason = node.word, "" if node.fresh else node.reason  # findings are statements of their own
            before = self._nodes.get(node.name)
            if before == (word, reason) or (before is None and word in ("expected", "connecting")):
                continue
            self._nodes[node.name] = (word, reason)
            verb = _node_verb(before[0] if before else None, word)
            changed[verb, reason, node.try_ if reason else ""].append(node.name)
        gone = [name for name in self._nodes if name not in present]
        for name in gone:
            del self._nodes[name]
        if gone:
            changed["removed", "", ""] = gone
        count = f"{sum(node.fresh for node in nodes)} of {format.plural(len(nodes), 'node')} connected"
        for (verb, reason, try_), names in changed.items():
            why = f": {reason}" if reason else ""
            remedy = f"; try: {try_}" if try_ else ""
            yield f"node {clean(fold(names))} {verb}{why}{remedy}. {count}."

    def _job_changes(self, jobs: Sequence[JobSummary], now_s: float) -> Iterator[str]:
        for job in jobs:
            changes = self._jobs.setdefault(job.job, _JobChanges())
            text = changes.update(_job_text(job), now_s)
            if text:
                yield f"job {job.title}: {text}"
        for name in [name for name in self._jobs if name not in {job.job for job in jobs}]:
            del self._jobs[name]
            yield f"job {clean(name)}: gone"

    def _finding_changes(self, findings: Sequence[Finding]) -> Iterator[str]:
        current = {finding_key(finding): finding for finding in findings}
        opened = [finding for key, finding in current.items() if self._is_news(key, finding)]
        cleared = [finding for key, finding in self._findings.items() if key not in current]
        self._findings = current
        for finding in opened[:MOST_FINDINGS]:
            yield f"{finding_text(self._numbers.of(finding), finding)}"
        for finding in cleared[:MOST_FINDINGS]:
            yield f"finding {self._numbers.of(finding)} cleared: {clean(name_of(finding.id))}: {clean(finding.text)}"
        more = max(0, len(opened) - MOST_FINDINGS), max(0, len(cleared) - MOST_FINDINGS)
        if any(more):
            yield f"findings: {more[0]} more opened, {more[1]} more cleared; findings lists them"

    def _is_news(self, key: FindingKey, finding: Finding) -> bool:
        before = self._findings.get(key)
        return before is None or before.severity != finding.severity

    def _verdict_changes(self, verdicts: Sequence[Verdict]) -> Iterator[str]:
        for verdict in verdicts:
            basis = (verdict.state, verdict.kind, tuple((each.rank, each.node) for each in verdict.culprits))
            if self._verdicts.get(verdict.job) != basis:
                self._verdicts[verdict.job] = basis
                yield f"verdict: job {clean(verdict.job)}: {verdict_statement(verdict)}"

    def _recording_changes(self, frame: ScreenSnapshot) -> Iterator[str]:
        recordings = {each.name: each.trouble for each in frame.header.recordings}
        for name, trouble in recordings.items():
            if trouble and trouble != self._recordings.get(name):
                yield f"recording {clean(name)}: {clean(trouble)}"
        self._recordings = recordings


def _node_verb(before: str | None, word: str) -> str:
    if word == "ok":
        return "back" if before in ("lost", "failed", "stale") else "connected"
    return state_word(word)


def finding_text(number: int, finding: Finding) -> str:
    """`finding 2 opened: error: job_stalled: text`."""
    return f"finding {number} opened: {finding.severity}: {clean(name_of(finding.id))}: {clean(finding.text)}"


def verdict_statement(verdict: Verdict) -> str:
    """State, confidence and summary of a verdict."""
    confidence = "" if verdict.confidence == "none" else f", confidence {confidence_word(verdict.confidence)}"
    return f"{state_word(verdict.state)}{confidence}: {clean(verdict.summary)}"


class _JobChanges:
    """States of the ranks of one job: described once they are steady, since single samples differ."""

    def __init__(self) -> None:
        self._stated = ""
        self._pending = ""
        self._since_s = 0.0  # of the pending text
        self._changing_s: float | None = None  # since when it differs from what was stated

    def update(self, text: str, now_s: float) -> str:
        """The text if it is to be stated now, else ""."""
        if text == self._stated:
            self._changing_s, self._pending = None, ""
            return ""
        if text != self._pending:
            self._pending, self._since_s = text, now_s
        if self._changing_s is None:
            self._changing_s = now_s
        if now_s - self._since_s < STEADY_S and now_s - self._changing_s < LATEST_S:
            return ""
        self._stated, self._changing_s = text, None
        return text


def _job_text(job: JobSummary) -> str:
    """Ranks by state; those in a state that is not ok are named."""
    numbers: Mapping[str, list[int | None]] = defaultdict(list)
    newest = max((row.attempt for row in job.rows), default=0)
    for row in job.rows:
        if row.attempt == newest:
            numbers["moving" if row.state == "progressing" else row.state].append(
                row.number
            )  # alternate in a sound job
    parts = []
    for state, count in Counter({state: len(ranks) for state, ranks in numbers.items()}).most_common():
        named = "" if rank_status(state) == "ok" else f" (rank {fold_ranks(numbers[state])})"
        parts.append(f"{count} {state_word(state)}{named}")
    attempt = f", attempt {newest}" if newest else ""
    return f"{format.seen(job.discovered, job.world_size)} ranks{attempt}: {', '.join(parts) or 'none'}"
