"""Findings in the report, most severe first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ..core.store import Store
from ..records import Finding, Severity
from ..text.format import iso

#: Rank of a severity; higher is worse.
RANKING: Final[dict[Severity, int]] = {"info": 0, "warning": 1, "error": 2}


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
    own = {name: getattr(finding, name) for name in FindingLine.__struct_fields__}
    own["first_seen"] = iso(finding.first_seen) or ""
    own["cleared_at"] = iso(finding.cleared_at) if finding.cleared_at else None
    return FindingLine(**own)
