"""Result type shared by all analyses that yield findings."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import Confidence, Severity


@dataclass(frozen=True, slots=True)
class FindingDraft:
    """A finding without instants; the findings monitor turns it into a `Finding` record.

    Drafts with the same `id` and `culprits` are the same finding, whose text and evidence may change.
    """

    id: str  # stable, from the finding catalog; used by `--fail-on` and filters
    severity: Severity
    confidence: Confidence
    culprits: tuple[str, ...]  # nodes (`node019`), GPUs (`node019:gpu4`), ranks (`rank 137`)
    text: str  # one sentence with figures and units
    evidence: tuple[str, ...] = ()  # each with record and field: `gpu.temp_c node019:gpu4 91`
    victims: tuple[str, ...] = ()  # affected, not at fault
    parts: tuple[str, ...] = ()  # affected parts of a culprit: NVLink numbers; `width`
