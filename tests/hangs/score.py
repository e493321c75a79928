"""Compares verdicts with labels and counts the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .labels import Label

#: `right`: all that the label requires. `inexact`: the right ranks under another class, kind or state, or only some of
#: them. `refused`: no rank blamed where one should be. `wrong`: an innocent rank blamed, or an alarm for a job that
#: makes progress.
Outcome = Literal["right", "inexact", "refused", "wrong"]


@dataclass(frozen=True)
class VerdictSummary:
    """One method's answer for one job."""

    state: str
    kind: str = "none"
    culprits: frozenset[int] = frozenset()
    classes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        whom = f" {sorted(self.culprits)} {'/'.join(sorted(self.classes))}" if self.culprits else ""
        return f"{self.state} {self.kind}{whom}"


NOTHING = VerdictSummary("no answer")


def summary_of(verdict: dict[str, Any]) -> VerdictSummary:
    """The answer in a verdict of the report."""
    return VerdictSummary(
        verdict["state"], verdict["kind"], frozenset(culprit["rank"] for culprit in verdict["culprits"]),
        frozenset(culprit["class"] for culprit in verdict["culprits"]),
    )  # fmt: skip


def grade(label: Label, answer: VerdictSummary) -> Outcome:
    """Grade an answer against the label."""
    if answer.culprits - label.culprits - label.may_name or (answer.state == "hung" and "moving" in label.states):
        return "wrong"
    if not label.decidable:
        return "right"
    exact = answer.culprits == label.culprits or (not label.culprits and bool(answer.culprits))
    fits = answer.state in label.states and answer.kind in label.kinds
    if exact and fits and answer.classes <= (label.classes or answer.classes):
        return "right"
    return "inexact" if answer.culprits else "refused"


def culprit_outcome(label: Label, culprits: frozenset[int] | None) -> Outcome:
    """Grade a method that only blames ranks; None if it could not be run."""
    culprits = culprits or frozenset()
    if culprits - label.culprits - label.may_name:
        return "wrong"
    if not label.decidable or culprits == label.culprits:
        return "right"
    return "inexact" if culprits else "refused"


@dataclass(frozen=True)
class Score:
    """The outcomes of one method. An undecidable job counts in `wrong` only."""

    method: str
    right: int
    inexact: int
    refused: int
    wrong: int

    @property
    def decidable(self) -> int:
        return self.right + self.inexact + self.refused + self.wrong

    @property
    def share(self) -> float:
        return self.right / self.decidable if self.decidable else 0.0


def score(method: str, outcomes: Sequence[tuple[Label, Outcome]]) -> Score:
    """Count the outcomes of a method over many jobs."""
    counts = Counter(outcome for label, outcome in outcomes if label.decidable or outcome == "wrong")
    return Score(method, counts["right"], counts["inexact"], counts["refused"], counts["wrong"])


def table(scores: Sequence[Score]) -> list[str]:
    """The scores, one line per method."""
    lines = [f"{'':22s} {'right':>6s} {'inexact':>8s} {'refused':>8s} {'wrong':>6s} {'share right':>12s}"]
    lines += [
        f"{row.method:22s} {row.right:6d} {row.inexact:8d} {row.refused:8d} {row.wrong:6d} {row.share:11.0%}"
        for row in scores
    ]
    return lines
