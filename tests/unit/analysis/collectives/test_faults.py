"""Missing and mismatched ranks of collectives, from real torch dumps and from synthetic edge cases."""

import pytest
from analysis.collectives.builders import READ_AT, S, a_rank, a_status, an_op, recorded, said


def only(found):
    [fault] = found.faults
    return fault


# -- real dumps of torch 2.13 over gloo --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_missing_rank_is_named_from_json_and_pickle_dumps(form):
    fault = only(recorded("missing", form))
    assert (fault.kind, fault.ranks, fault.waiting, fault.seq, fault.op) == (
        "missing_rank", (1,), (0, 2), 3, "all_reduce",
    )  # fmt: skip
    assert fault.confidence == "likely", "dumps in files have no timestamp: duration unknown"
    assert "seq 3 gloo:all_reduce [64] Float retired false" in fault.evidence[0]
    assert fault.evidence[-1].endswith("last_enqueued_collective 2 gloo:all_reduce")


def test_missing_rank_is_named_after_the_buffer_wrapped():
    fault = only(recorded("wrapped"))
    assert (fault.ranks, fault.waiting, fault.seq) == ((1,), (0, 2), 15)


def test_rank_with_a_different_op_is_named_by_the_majority():
    fault = only(recorded("order"))
    assert (fault.kind, fault.ranks, fault.seq, fault.confidence) == ("op_mismatch", (1,), 3, "likely")
    assert [(side.what, side.ranks) for side in fault.sides] == [("all_reduce", (0, 2)), ("broadcast", (1,))]


@pytest.mark.parametrize(("kind", "what"), [("size", "65 elements Float"), ("dtype", "64 elements Double")])
def test_mismatch_between_two_ranks_names_no_culprit(kind, what):
    fault = only(recorded(kind))
    assert (fault.kind, fault.ranks, fault.confidence) == ("shape_dtype_mismatch", (), "none")
    assert fault.sides[1].what == what
    assert fault.unseen == (1,), "the third rank exited before its dump: state unknown"


def test_rank_waiting_in_another_group_is_not_the_root_cause():
    found = recorded("subgroup")
    default, pairs = found.faults
    assert (default.title, default.ranks, default.held) == ("default_pg (0)", (0, 1), ((0, "pairs (1)"),))
    assert (pairs.ranks, pairs.confidence) == ((), "none"), "gloo does not report members of subgroups"
    assert "group members are not recorded" in pairs.text
    assert found.graph.causes == (1,)


def test_gloo_job_with_only_send_and_recv_has_no_fault():
    assert recorded("p2p").faults == ()


def test_gather_and_scatter_with_a_larger_root_are_not_a_mismatch():
    assert recorded("mixed").faults == ()


# -- edge cases --------------------------------------------------------------------------------------------------------


def test_majority_of_ranks_can_be_the_missing_ones():
    fault = only(said(an_op(0, 5, waits=True), *(an_op(rank, 4) for rank in (1, 2, 3))))
    assert (fault.ranks, fault.waiting, fault.confidence) == ((1, 2, 3), (0,), "certain")


def test_missing_rank_is_only_likely_when_a_group_member_was_not_read():
    members = (0, 1, 2, 3)
    groups = [a_status(rank, 5 if rank == 0 else 4, members) for rank in (0, 1, 2)]
    fault = only(said(*groups, an_op(0, 5, waits=True), an_op(1, 4), an_op(2, 4)))
    assert (fault.ranks, fault.unseen, fault.confidence) == ((1, 2), (3,), "likely")


def test_collective_entered_moments_ago_is_not_a_fault():
    entered = READ_AT - S // 10
    assert said(
        an_op(0, 5, waits=True, time_created_ns=entered), an_op(1, 5, waits=True, time_created_ns=entered),
        an_op(2, 4), an_op(3, 4),
    ).faults == ()  # fmt: skip


def test_a_rank_without_a_record_is_unseen_and_not_missing():
    fault = only(said(*(an_op(rank, 5, waits=True) for rank in (0, 1, 2))))
    assert (fault.ranks, fault.unseen, fault.confidence) == ((), (3,), "none")
    assert "no data on [3]" in fault.text


def test_operation_evicted_from_the_buffer_is_not_missing():
    """A rank whose oldest record is newer than the operation that the others wait in has completed it."""
    there = [an_op(2, 900), a_status(3, 950, oldest_record_id=400)]
    assert said(an_op(0, 5, waits=True), an_op(1, 5, waits=True), *there).faults == ()


def test_last_enqueued_counter_is_used_when_the_rank_has_no_operation_records():
    fault = only(said(an_op(0, 9, waits=True), an_op(1, 9, waits=True), an_op(2, 9, waits=True), a_status(3, 8)))
    assert fault.ranks == (3,)


def test_member_that_never_used_its_group_is_missing():
    found = said(
        an_op(0, 1, waits=True, group=("7", "tp")), a_status(0, 1, (0, 1), process_group=("7", "tp")),
        an_op(1, 3), a_status(1, 3),
    )  # fmt: skip
    assert (found.faults[0].title, found.faults[0].ranks) == ("tp (7)", (1,))


def test_member_with_a_wrapped_buffer_is_unseen_and_not_missing():
    found = said(
        an_op(0, 1, waits=True, group=("7", "tp")), a_status(0, 1, (0, 1), process_group=("7", "tp")),
        an_op(1, 3), a_status(1, 3, oldest_record_id=70),
    )  # fmt: skip
    assert (found.faults[0].ranks, found.faults[0].unseen) == ((), (1,))


def test_groups_are_matched_by_name_not_by_local_group_id():
    found = said(
        an_op(0, 5, waits=True, pg_id=0), an_op(1, 5, waits=True, pg_id=3), an_op(2, 5, waits=True, pg_id=1),
        an_op(3, 4, pg_id=7),
    )  # fmt: skip
    assert only(found).ranks == (3,)


def test_mismatch_with_a_tie_names_no_culprit():
    fault = only(said(
        an_op(0, 5, waits=True), an_op(1, 5, waits=True), an_op(2, 5, "nccl:broadcast", waits=True),
        an_op(3, 5, "nccl:broadcast", waits=True),
    ))  # fmt: skip
    assert (fault.kind, fault.ranks, fault.confidence) == ("op_mismatch", (), "none")


def test_majority_of_the_read_ranks_alone_names_no_culprit():
    ops = [an_op(0, 5, waits=True), an_op(1, 5, waits=True), an_op(2, 5, "nccl:broadcast", waits=True)]
    fault = next(one for one in said(*ops).faults if one.kind == "op_mismatch")
    assert (fault.ranks, fault.unseen) == ((), (3,)), "with the fourth rank it may be a tie"


def test_rank_zero_can_be_the_culprit_of_a_mismatch():
    fault = only(said(an_op(0, 5, numel=65, waits=True), *(an_op(rank, 5, waits=True) for rank in (1, 2, 3))))
    assert (fault.kind, fault.ranks) == ("shape_dtype_mismatch", (0,))


def test_aliases_of_one_operation_are_not_a_mismatch():
    assert said(
        an_op(0, 5, "nccl:_all_gather_base"), an_op(1, 5, "nccl:all_gather_into_tensor_coalesced"),
        an_op(2, 5, "nccl:all_gather"), an_op(3, 5, "nccl:ALLGATHER_coalesced"),
    ).faults == ()  # fmt: skip


def test_shapes_with_equal_element_counts_are_not_a_mismatch():
    shapes = (((64,),), ((8, 8),), ((1, 64),), ((64,),))
    assert said(*(an_op(rank, 5, input_sizes=shapes[rank]) for rank in range(4))).faults == ()


def test_uneven_all_to_all_is_a_mismatch_only_when_the_sums_differ():
    sent, got = (10, 20, 30, 40), (40, 30, 20, 10)
    ops = [an_op(rank, 5, "nccl:all_to_all", input_numel=sent[rank], output_numel=got[rank]) for rank in range(4)]
    assert said(*ops).faults == ()
    ops[3] = an_op(3, 5, "nccl:all_to_all", input_numel=41, output_numel=10, waits=True)
    fault = only(said(*ops))
    assert (fault.kind, fault.ranks) == ("shape_dtype_mismatch", ())
    assert "101 elements are sent and 100 expected" in fault.evidence[0]


def test_coalesced_operations_of_one_sequence_number_are_compared_together():
    def both(rank, second="nccl:all_reduce"):
        return [an_op(rank, 5, record_id=4), an_op(rank, 5, second, record_id=5, waits=True)]

    assert said(*both(0), *both(1), *both(2), *both(3)).faults == ()
    fault = only(said(*both(0), *both(1), *both(2), *both(3, "nccl:reduce_scatter")))
    assert fault.ranks == (3,)


def test_difference_that_every_rank_has_passed_is_not_a_fault():
    ops = [an_op(rank, 4, numel=64 + rank) for rank in range(4)] + [an_op(rank, 5) for rank in range(4)]
    assert said(*ops).faults == ()


def test_unknown_operation_is_compared_by_name():
    ops = [an_op(rank, 5, "hccl:all_shuffle", waits=True) for rank in range(3)]
    assert only(said(*ops, an_op(3, 5, "hccl:other", waits=True))).ranks == (3,)


def test_dumps_read_at_different_times_lower_the_confidence():
    late = READ_AT + 600 * S
    ops = [an_op(rank, 5, waits=True, read_at=late, time_created_ns=late - 60 * S) for rank in (0, 1, 2)]
    assert only(said(*ops, an_op(3, 4))).confidence == "possible"


def test_rank_several_operations_behind_is_named_at_the_waiting_sequence_number():
    fault = only(said(*(an_op(rank, 5, waits=True) for rank in (0, 1, 2)), an_op(3, 2)))
    assert (fault.seq, fault.ranks) == (5, (3,))


def test_lowest_waiting_sequence_number_determines_the_fault():
    """Rank 0 is ahead (async): its later operations wait for the first one."""
    fault = only(said(
        an_op(0, 5, waits=True), an_op(0, 6, waits=True), an_op(0, 7, waits=True), an_op(1, 5, waits=True),
        an_op(2, 5, waits=True), an_op(3, 4),
    ))  # fmt: skip
    assert (fault.seq, fault.ranks) == (5, (3,))


def test_failed_source_is_reported_as_trouble_and_not_as_a_source():
    found = said(a_status(0, status="refused", reason="no answer", try_="do", process_group=None))
    assert (found.faults, found.sources) == ((), ())
    assert (found.troubles[0].text, found.troubles[0].try_) == ("no answer", "do")


# -- counts ------------------------------------------------------------------------------------------------------------


def ras(rank, count=7, **more):
    known = {"op_counts": {"AllReduce": count}, "group_state": "running", "group_rank": rank, "group_size": 4,
             "process_group": ("0x8c", ""), "pid": 100 + rank, "source": "ras", "read_at": None}  # fmt: skip
    return a_status(None, **{**known, **more})


def test_ras_names_the_ranks_behind_and_not_the_minority_ahead():
    """NCCL itself names the minority, which is the two ranks ahead (NVIDIA/nccl issue 1911)."""
    fault = only(said(ras(0, 8), ras(1, 7), ras(2, 7), ras(3, 7)))
    assert (fault.witness, fault.ranks, fault.waiting, fault.confidence) == ("NCCL RAS", (1, 2, 3), (0,), "possible")
    assert fault.op == "all_reduce"


def test_equal_ras_counts_yield_no_fault():
    assert said(*(ras(rank) for rank in range(4))).faults == ()


def test_rank_considered_dead_by_ras_is_named():
    fault = only(said(*(ras(rank) for rank in range(3)), ras(3, op_counts={}, group_state="considered_dead")))
    assert (fault.ranks, fault.confidence) == ((3,), "likely")


def test_rank_of_a_small_communicator_is_identified_by_pid():
    lines = [ras(0, 7, group_size=2), ras(1, 6, group_size=2, pid=103)]
    assert only(said(*lines)).ranks == (3,)


def test_ambiguous_pid_on_two_nodes_names_no_rank():
    ranks = [a_rank(0), a_rank(1, pid=100), a_rank(2), a_rank(3)]
    fault = only(said(ras(0, 6, group_size=2, host="10.0.0.1"), ras(1, 7, group_size=2, pid=102), ranks=ranks))
    assert fault.ranks == ()
    assert "group rank 0 (pid 100 on 10.0.0.1)" in fault.evidence[0]


def test_nccl_log_names_the_rank_with_the_fewest_launches():
    ops = [an_op(rank, seq, "nccl:AllReduce", source="nccl_log", retired=None, time_created_ns=None, group=("0x8c", ""),
                 group_size=4) for rank, seq in ((0, 12), (1, 12), (2, 11), (3, 12))]  # fmt: skip
    fault = only(said(*ops))
    assert (fault.ranks, fault.confidence, fault.witness) == ((2,), "possible", "NCCL log")


def test_inspector_log_of_completed_operations_yields_no_fault():
    ops = [an_op(rank, seq, source="inspector", group=("0x8c", "")) for rank, seq in ((0, 12), (1, 11))]
    assert said(*ops).faults == ()
