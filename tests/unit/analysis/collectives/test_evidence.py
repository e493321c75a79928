"""Which facts of collectives become evidence of a verdict."""

from analysis.collectives.builders import a_status, an_op, recorded, said

from gconsole.analysis.collectives.communication import evidence_of


def test_missing_rank_is_evidence_with_the_ranks_that_entered():
    [evidence] = evidence_of(recorded("missing"))
    [absence] = evidence.absences
    assert (evidence.source, evidence.complete) == ("flight recorder", (0, 1, 2))
    assert (absence.group, absence.op, absence.seq, absence.ranks, absence.entered) == (
        "default_pg (0)", "all_reduce", 3, (1,), (0, 2),
    )  # fmt: skip


def test_rank_waiting_in_another_group_is_not_reported_absent():
    [evidence] = evidence_of(recorded("subgroup"))
    assert [absence.ranks for absence in evidence.absences] == [(1,)]


def test_op_mismatch_is_evidence_with_both_sides():
    [evidence] = evidence_of(recorded("order"))
    [mismatch] = evidence.mismatches
    assert (mismatch.seq, mismatch.sides) == (3, (("all_reduce", (0, 2)), ("broadcast", (1,))))


def test_mismatch_without_a_known_majority_is_not_evidence():
    ops = [an_op(0, 5, waits=True), an_op(1, 5, waits=True), an_op(2, 5, "nccl:broadcast", waits=True)]
    [evidence] = evidence_of(said(*ops))
    assert evidence.mismatches == ()


def test_launch_counts_are_not_evidence_of_absence():
    lines = [
        a_status(None, source="ras", process_group=("0x8c", ""), group_rank=rank, group_size=4, group_state="running",
                 op_counts={"AllReduce": 7 - (rank == 2)}) for rank in range(4)
    ]  # fmt: skip
    [evidence] = evidence_of(said(*lines))
    assert evidence.absences == ()


def test_no_source_yields_no_evidence():
    assert evidence_of(said()) == ()
