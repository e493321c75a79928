"""The findings in the report, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ..core.store import Store
from ..records import Finding, Severity
from ..text.format import iso

#: Severities, a worse one higher.
RANKING: Final[dict[Severity, int]] = {"info": 0, "warning": 1, "error": 2}


class FindingLine(msgspec.Struct):
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
    """Every finding that the store has, the worst first."""
    return [_finding_line(finding) for finding in _worst_first(store.findings.values())]


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Open ones before those that were cleared, errors first, then as they were seen."""
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
    return FindingLine(
        id=finding.id,
        severity=finding.severity,
        confidence=finding.confidence,
        culprits=finding.culprits,
        victims=finding.victims,
        text=finding.text,
        evidence=finding.evidence,
        first_seen=iso(finding.first_seen) or "",
        cleared_at=iso(finding.cleared_at) if finding.cleared_at else None,
    )
