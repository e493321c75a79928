"""The scoring itself: what counts as right, and that blaming a wrong rank is always wrong."""

import pytest

from .baselines import minority
from .labels import JOBS, Label
from .score import NOTHING, VerdictSummary, culprit_outcome, grade, score, summary_of

BEHIND = Label(frozenset({"hung"}), frozenset({"rank_missing"}), frozenset({1, 3}), frozenset({"file_io"}))
MOVING = Label(frozenset({"moving"}), frozenset({"none"}))
CYCLE = Label(frozenset({"hung"}), frozenset({"p2p_cycle"}), classes=frozenset({"p2p"}), may_name=frozenset({0, 1}))
OPEN = Label(frozenset({"undecided"}), frozenset({"none"}), may_name=frozenset({3}), decidable=False)


def answer_of(*culprits: int, state: str = "hung", kind: str = "rank_missing", cls: str = "file_io") -> VerdictSummary:
    return VerdictSummary(state, kind, frozenset(culprits), frozenset({cls} if culprits else ()))


@pytest.mark.parametrize(("truth", "answer", "is_"), [
    (BEHIND, answer_of(1, 3), "right"),
    (BEHIND, answer_of(1, 3, cls="sleep"), "inexact"),
    (BEHIND, answer_of(1, 3, state="slow"), "inexact"),
    (BEHIND, answer_of(1), "inexact"),
    (BEHIND, answer_of(1, 2, 3), "wrong"),
    (BEHIND, answer_of(state="undecided", kind="none"), "refused"),
    (BEHIND, NOTHING, "refused"),
    (MOVING, answer_of(state="moving", kind="none"), "right"),
    (MOVING, answer_of(state="undecided", kind="none"), "refused"),
    (MOVING, answer_of(state="hung", kind="external"), "wrong"),
    (MOVING, answer_of(2, state="slow", kind="straggler"), "wrong"),
    (CYCLE, answer_of(kind="p2p_cycle"), "right"),
    (CYCLE, answer_of(0, 1, kind="p2p_cycle", cls="p2p"), "right"),
    (CYCLE, answer_of(0, 2, kind="p2p_cycle", cls="p2p"), "wrong"),
    (OPEN, answer_of(state="undecided", kind="none"), "right"),
    (OPEN, answer_of(3, kind="collective_mismatch"), "right"),
    (OPEN, answer_of(0, kind="collective_mismatch"), "wrong"),
])  # fmt: skip
def test_verdict_scores_right_only_if_it_matches_the_whole_label(
    truth: Label, answer: VerdictSummary, is_: str
) -> None:
    assert grade(truth, answer) == is_


def test_refusal_lowers_the_share_and_an_undecidable_job_counts_only_if_wrong() -> None:
    counted = score("m", [(BEHIND, "right"), (BEHIND, "refused"), (OPEN, "right"), (OPEN, "wrong")])
    assert (counted.right, counted.refused, counted.wrong, counted.decidable, counted.share) == (1, 1, 1, 3, 1 / 3)


def test_rank_only_methods_are_scored_by_culprit_ranks() -> None:
    assert culprit_outcome(BEHIND, frozenset({1, 3})) == "right"
    assert culprit_outcome(BEHIND, None) == "refused"
    assert culprit_outcome(BEHIND, frozenset({0})) == "wrong"


def test_verdict_of_a_report_is_converted_for_scoring() -> None:
    verdict = {"state": "hung", "kind": "rank_stopped", "culprits": [{"rank": 2, "class": "stopped"}]}
    assert summary_of(verdict) == VerdictSummary("hung", "rank_stopped", frozenset({2}), frozenset({"stopped"}))


def test_minority_vote_without_stacks_is_empty() -> None:
    assert minority([]) == frozenset()


def test_labelled_jobs_have_unique_ids_and_enough_are_decidable() -> None:
    assert len({job.id for job in JOBS}) == len(JOBS) >= 30
    assert sum(job.label.decidable for job in JOBS) >= 30
    assert len([job for job in JOBS if job.live]) == 4
