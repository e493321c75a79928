"""Which findings a list of severities and ids selects: `--fail-on` and the rules of `gconsole watch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from ..records import Confidence, Severity
from .finding import IDS

#: Rank of a severity; higher is worse.
RANKING: Final[dict[Severity, int]] = {"info": 0, "warning": 1, "error": 2}
#: Rank of a confidence; higher is surer.
CONFIDENCE_RANKING: Final[dict[Confidence, int]] = {"none": 0, "possible": 1, "likely": 2, "certain": 3}


class Selectable(Protocol):
    """A finding, as a record or as a line of the report."""

    @property
    def id(self) -> str:
        """Stable id of its kind."""

    @property
    def severity(self) -> Severity:
        """Its severity."""

    @property
    def cleared_at(self) -> object | None:
        """When it cleared; None while it is open."""


def counts(finding: Selectable, words: Sequence[str]) -> bool:
    """Whether a finding is open and of one of these severities (or a worse one) or ids."""
    if finding.cleared_at is not None:
        return False
    thresholds = [RANKING[word] for word in words if word in RANKING]
    return finding.id in words or any(RANKING[finding.severity] >= threshold for threshold in thresholds)


def unknown_words(words: Sequence[str]) -> list[str]:
    """Words that are neither a severity nor the id of a finding."""
    return [word for word in words if word not in RANKING and word not in IDS]
