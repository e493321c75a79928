"""Exit codes of headless commands, derived from the report."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.finding_catalog import IDS
from ..core.store import Store
from .captures import is_partial
from .document import Report
from .findings import RANKING, FindingLine


def exit_code(report: Report, fail_on: Sequence[str] = ("error",)) -> int:
    """The exit code of a headless command: 4 nothing reachable, 1 a finding that counts, 3 partial, 0 fine.

    `fail_on` is a severity (that or a worse one counts), ids of findings, or both.
    """
    if any(_counts(line, fail_on) for line in report.findings) and any(line.state == "ok" for line in report.nodes):
        return 1
    unseen = any(job.ranks_missing for job in report.jobs) or any(is_partial(line) for line in report.captures)
    return _coverage([line.state for line in report.nodes], unseen)


def coverage_code(store: Store) -> int:
    """The exit code of a command that makes no findings: 4 nothing reachable, 3 some nodes unseen, 0 all seen."""
    return _coverage([now.state.state if now.state else "failed" for now in store.nodes.values()], False)


def _coverage(states: Sequence[str], unseen: bool) -> int:
    if "ok" not in states:
        return 4
    return 3 if unseen or any(state != "ok" for state in states) else 0


def _counts(line: FindingLine, fail_on: Sequence[str]) -> bool:
    if line.cleared_at is not None:
        return False
    thresholds = [RANKING[word] for word in fail_on if word in RANKING]
    return line.id in fail_on or any(RANKING[line.severity] >= threshold for threshold in thresholds)


def unknown_words(fail_on: Sequence[str]) -> list[str]:
    """Words of `--fail-on` that are neither a severity nor a finding id."""
    return [word for word in fail_on if word not in RANKING and word not in IDS]
