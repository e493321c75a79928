"""Compares crash verdicts with labels and counts the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .labels import Label

#: `right`: all that the label requires. `inexact`: the right ranks under another kind, without the words, or only some
#: of them. `refused`: no verdict, or no rank named where one should be. `wrong`: an innocent rank is named, or an error
#: is raised for a job that ended well or on purpose.
Outcome = Literal["right", "inexact", "refused", "wrong"]

KINDS = ("exception", "oom_killed", "signalled", "node_lost", "hardware", "launcher", "unknown")


@dataclass(frozen=True)
class Answer:
    """The verdict on one job in a report, and whether an error was raised for it."""

    kind: str = ""
    culprits: frozenset[int] = frozenset()
    text: str = ""
    repeats: bool | None = None
    is_error: bool = False
    nodes: frozenset[str] = frozenset()  # of culprits without a rank

    def __str__(self) -> str:
        ranks = f" {sorted(self.culprits)}" if self.culprits else ""
        return f"{self.kind or 'nothing'}{ranks}{'' if self.is_error else ' (no error)'}: {self.text[:300]}"


def answer_of(report: dict[str, Any]) -> Answer:
    """The answer in a report about one job."""
    is_error = any(
        line["id"] in KINDS and line["severity"] == "error" and line["cleared_at"] is None
        for line in report["findings"]
    )
    crashes = report.get("crashes", [])
    if not crashes:
        return Answer(is_error=is_error)
    crash = crashes[0]  # the newest
    cause = crash["first_cause"]
    words = [crash["summary"], *crash["evidence"]]
    if cause is not None:
        site = cause["failure"]["site"]
        words += [cause["failure"]["type"], cause["failure"]["message"], site["file"] if site else ""]
    culprits = frozenset(culprit["rank"] for culprit in crash["culprits"] if culprit["rank"] is not None)
    nodes = frozenset(culprit["node"] for culprit in crash["culprits"] if culprit["rank"] is None)
    return Answer(crash["kind"], culprits, " | ".join(words), crash["repeats"], is_error, nodes)


def grade(label: Label, answer: Answer) -> Outcome:
    """Grade an answer against the label."""
    if not (label.kinds and label.is_error) and answer.is_error:
        return "wrong"
    if not label.kinds:
        return "right"
    if answer.culprits - label.culprits - label.may_name or answer.nodes - {label.node}:
        return "wrong"
    if not label.decidable:
        return "right" if answer.kind else "refused"
    if not answer.kind or answer.is_error != label.is_error:
        return "refused"
    is_exact = label.culprits <= answer.culprits or (label.is_any and bool(answer.culprits))
    is_exact |= label.is_common and not answer.culprits and not answer.nodes
    is_exact |= bool(label.node) and answer.nodes == {label.node}
    fits = answer.kind in label.kinds and all(word in answer.text for word in label.says)
    if is_exact and fits and (label.repeats is None or answer.repeats == label.repeats):
        return "right"
    return "inexact" if answer.culprits or not label.culprits else "refused"


def counts(outcomes: Sequence[tuple[Label, Outcome]]) -> tuple[Counter[str], float]:
    """The outcomes by name, and the share that is right of the decidable ones."""
    decidable = [outcome for label, outcome in outcomes if label.decidable]
    share = decidable.count("right") / len(decidable) if decidable else 0.0
    return Counter(outcome for _, outcome in outcomes), share
