"""What an analysis found, before anybody knows since when: the common answer of every analysis that blames somebody."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import Confidence, Severity


@dataclass(frozen=True, slots=True)
class FindingDraft:
    """One thing that is wrong now. Whoever keeps findings turns it into a `Finding` record, with its instants.

    Two of the same `id` and `culprits` are the same finding, seen again; the text and the evidence may have changed.
    """

    id: str  # stable, from a closed list: what `--fail-on` and filters name
    severity: Severity
    confidence: Confidence
    culprits: tuple[str, ...]  # nodes (`node019`), GPUs (`node019:gpu4`), ranks (`rank 137`): whom it blames
    text: str  # one sentence with figures and units
    evidence: tuple[str, ...] = ()  # each names its record and field: `gpu.temp_c node019:gpu4 91`
    victims: tuple[str, ...] = ()  # who suffers from it without being at fault
    parts: tuple[str, ...] = ()  # what of a culprit it is about, where that is told: NVLinks by number; `width`
