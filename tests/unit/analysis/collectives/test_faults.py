"""Who is missing from a collective, who does something else: on real dumps of torch, and on every trap known."""

import pytest
from analysis.collectives.builders import READ_AT, S, a_rank, a_status, an_op, recorded, said


def only(found):
    [fault] = found.faults
    return fault


# -- real dumps of torch 2.13 over gloo --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_the_rank_that_never_entered_is_named(form):
    fault = only(recorded("missing", form))
    assert (fault.kind, fault.ranks, fault.waiting, fault.seq, fault.op) == (
        "missing_rank", (1,), (0, 2), 3, "all_reduce",
    )  # fmt: skip
    assert fault.confidence == "likely", "dumps in files have no instant: nobody knows for how long"
    assert "seq 3 gloo:all_reduce [64] Float retired false" in fault.evidence[0]
    assert fault.evidence[-1].endswith("last_enqueued_collective 2 gloo:all_reduce")


def test_it_is_named_too_when_the_buffer_has_wrapped():
    fault = only(recorded("wrapped"))
    assert (fault.ranks, fault.waiting, fault.seq) == ((1,), (0, 2), 15)


def test_the_rank_that_calls_something_else_is_named_by_the_majority():
    fault = only(recorded("order"))
    assert (fault.kind, fault.ranks, fault.seq, fault.confidence) == ("op_mismatch", (1,), 3, "likely")
    assert [(side.what, side.ranks) for side in fault.sides] == [("all_reduce", (0, 2)), ("broadcast", (1,))]


@pytest.mark.parametrize(("kind", "what"), [("size", "65 elements Float"), ("dtype", "64 elements Double")])
def test_two_ranks_that_differ_are_two_camps_and_nobody_is_named(kind, what):
    fault = only(recorded(kind))
    assert (fault.kind, fault.ranks, fault.confidence) == ("shape_dtype_mismatch", (), "none")
    assert fault.sides[1].what == what
    assert fault.unseen == (1,), "the third died before it could dump: of it nothing is known"


def test_a_rank_that_waits_in_another_group_is_a_victim_and_not_the_cause():
    found = recorded("subgroup")
    default, pairs = found.faults
    assert (default.title, default.ranks, default.held) == ("default_pg (0)", (0, 1), ((0, "pairs (1)"),))
    assert (pairs.ranks, pairs.confidence) == ((), "none"), "gloo does not say who is in a subgroup"
    assert "group members are not recorded" in pairs.text
    assert found.graph.causes == (1,)


def test_a_job_that_only_sends_and_receives_over_gloo_says_nothing():
    assert recorded("p2p").faults == ()


def test_gathers_and_scatters_whose_root_has_more_are_no_mismatch():
    assert recorded("mixed").faults == ()


# -- traps -------------------------------------------------------------------------------------------------------------


def test_the_majority_may_be_behind():
    fault = only(said(an_op(0, 5, waits=True), *(an_op(rank, 4) for rank in (1, 2, 3))))
    assert (fault.ranks, fault.waiting, fault.confidence) == ((1, 2, 3), (0,), "certain")


def test_a_missing_rank_is_only_likely_while_a_member_of_the_group_was_not_read():
    members = (0, 1, 2, 3)
    groups = [a_status(rank, 5 if rank == 0 else 4, members) for rank in (0, 1, 2)]
    fault = only(said(*groups, an_op(0, 5, waits=True), an_op(1, 4), an_op(2, 4)))
    assert (fault.ranks, fault.unseen, fault.confidence) == ((1, 2), (3,), "likely")


def test_a_job_that_moves_has_no_fault():
    entered = READ_AT - S // 10
    assert said(
        an_op(0, 5, waits=True, time_created_ns=entered), an_op(1, 5, waits=True, time_created_ns=entered),
        an_op(2, 4), an_op(3, 4),
    ).faults == ()  # fmt: skip


def test_a_rank_without_a_record_is_unseen_and_not_missing():
    fault = only(said(*(an_op(rank, 5, waits=True) for rank in (0, 1, 2))))
    assert (fault.ranks, fault.unseen, fault.confidence) == ((), (3,), "none")
    assert "no data on [3]" in fault.text


def test_an_operation_that_has_left_the_buffer_was_not_missed():
    """A rank whose oldest record is younger than the number others wait in has been there."""
    there = [an_op(2, 900), a_status(3, 950, oldest_record_id=400)]
    assert said(an_op(0, 5, waits=True), an_op(1, 5, waits=True), *there).faults == ()


def test_the_counter_of_a_rank_counts_where_its_operations_have_left_the_buffer():
    fault = only(said(an_op(0, 9, waits=True), an_op(1, 9, waits=True), an_op(2, 9, waits=True), a_status(3, 8)))
    assert fault.ranks == (3,)


def test_a_member_that_has_never_used_its_group_has_not_entered():
    found = said(
        an_op(0, 1, waits=True, group=("7", "tp")), a_status(0, 1, (0, 1), process_group=("7", "tp")),
        an_op(1, 3), a_status(1, 3),
    )  # fmt: skip
    assert (found.faults[0].title, found.faults[0].ranks) == ("tp (7)", (1,))


def test_a_member_whose_buffer_has_wrapped_may_have_used_the_group_before():
    found = said(
        an_op(0, 1, waits=True, group=("7", "tp")), a_status(0, 1, (0, 1), process_group=("7", "tp")),
        an_op(1, 3), a_status(1, 3, oldest_record_id=70),
    )  # fmt: skip
    assert (found.faults[0].ranks, found.faults[0].unseen) == ((), (1,))


def test_groups_are_matched_by_name_and_never_by_the_processs_own_number():
    found = said(
        an_op(0, 5, waits=True, pg_id=0), an_op(1, 5, waits=True, pg_id=3), an_op(2, 5, waits=True, pg_id=1),
        an_op(3, 4, pg_id=7),
    )  # fmt: skip
    assert only(found).ranks == (3,)


def test_a_tie_names_nobody():
    fault = only(said(
        an_op(0, 5, waits=True), an_op(1, 5, waits=True), an_op(2, 5, "nccl:broadcast", waits=True),
        an_op(3, 5, "nccl:broadcast", waits=True),
    ))  # fmt: skip
    assert (fault.kind, fault.ranks, fault.confidence) == ("op_mismatch", (), "none")


def test_a_majority_among_those_that_were_seen_is_none_of_the_group():
    ops = [an_op(0, 5, waits=True), an_op(1, 5, waits=True), an_op(2, 5, "nccl:broadcast", waits=True)]
    fault = next(one for one in said(*ops).faults if one.kind == "op_mismatch")
    assert (fault.ranks, fault.unseen) == ((), (3,)), "with the fourth it may be two against two"


def test_the_first_rank_is_no_reference():
    fault = only(said(an_op(0, 5, numel=65, waits=True), *(an_op(rank, 5, waits=True) for rank in (1, 2, 3))))
    assert (fault.kind, fault.ranks) == ("shape_dtype_mismatch", (0,))


def test_two_names_of_one_exchange_are_no_mismatch():
    assert said(
        an_op(0, 5, "nccl:_all_gather_base"), an_op(1, 5, "nccl:all_gather_into_tensor_coalesced"),
        an_op(2, 5, "nccl:all_gather"), an_op(3, 5, "nccl:ALLGATHER_coalesced"),
    ).faults == ()  # fmt: skip


def test_shapes_of_as_many_elements_move_the_same():
    shapes = (((64,),), ((8, 8),), ((1, 64),), ((64,),))
    assert said(*(an_op(rank, 5, input_sizes=shapes[rank]) for rank in range(4))).faults == ()


def test_an_uneven_all_to_all_is_fine_while_its_sums_agree():
    sent, got = (10, 20, 30, 40), (40, 30, 20, 10)
    ops = [an_op(rank, 5, "nccl:all_to_all", input_numel=sent[rank], output_numel=got[rank]) for rank in range(4)]
    assert said(*ops).faults == ()
    ops[3] = an_op(3, 5, "nccl:all_to_all", input_numel=41, output_numel=10, waits=True)
    fault = only(said(*ops))
    assert (fault.kind, fault.ranks) == ("shape_dtype_mismatch", ())
    assert "101 elements are sent and 100 expected" in fault.evidence[0]


def test_coalesced_operations_share_a_number_and_are_compared_together():
    def both(rank, second="nccl:all_reduce"):
        return [an_op(rank, 5, record_id=4), an_op(rank, 5, second, record_id=5, waits=True)]

    assert said(*both(0), *both(1), *both(2), *both(3)).faults == ()
    fault = only(said(*both(0), *both(1), *both(2), *both(3, "nccl:reduce_scatter")))
    assert fault.ranks == (3,)


def test_a_difference_that_everybody_has_passed_was_none():
    ops = [an_op(rank, 4, numel=64 + rank) for rank in range(4)] + [an_op(rank, 5) for rank in range(4)]
    assert said(*ops).faults == ()


def test_an_operation_nobody_has_heard_of_is_compared_by_its_name():
    ops = [an_op(rank, 5, "hccl:all_shuffle", waits=True) for rank in range(3)]
    assert only(said(*ops, an_op(3, 5, "hccl:other", waits=True))).ranks == (3,)


def test_dumps_that_are_not_of_one_instant_prove_little():
    late = READ_AT + 600 * S
    ops = [an_op(rank, 5, waits=True, read_at=late, time_created_ns=late - 60 * S) for rank in (0, 1, 2)]
    assert only(said(*ops, an_op(3, 4))).confidence == "possible"


def test_a_rank_that_is_two_behind_is_named_at_the_number_others_wait_in():
    fault = only(said(*(an_op(rank, 5, waits=True) for rank in (0, 1, 2)), an_op(3, 2)))
    assert (fault.seq, fault.ranks) == (5, (3,))


def test_the_lowest_number_that_somebody_waits_in_decides():
    """Rank 0 ran ahead (async): its later operations wait behind the one that counts."""
    fault = only(said(
        an_op(0, 5, waits=True), an_op(0, 6, waits=True), an_op(0, 7, waits=True), an_op(1, 5, waits=True),
        an_op(2, 5, waits=True), an_op(3, 4),
    ))  # fmt: skip
    assert (fault.seq, fault.ranks) == (5, (3,))


def test_a_failed_source_is_a_trouble_and_no_witness():
    found = said(a_status(0, status="refused", reason="no answer", try_="do", process_group=None))
    assert (found.faults, found.sources) == ((), ())
    assert (found.troubles[0].text, found.troubles[0].try_) == ("no answer", "do")


# -- counts ------------------------------------------------------------------------------------------------------------


def ras(rank, count=7, **more):
    known = {"op_counts": {"AllReduce": count}, "group_state": "running", "group_rank": rank, "group_size": 4,
             "process_group": ("0x8c", ""), "pid": 100 + rank, "source": "ras", "read_at": None}  # fmt: skip
    return a_status(None, **{**known, **more})


def test_ras_blames_who_is_behind_and_not_the_few_who_are_ahead():
    """NCCL itself prints the minority: the two that are ahead (issue 1911 of NVIDIA/nccl)."""
    fault = only(said(ras(0, 8), ras(1, 7), ras(2, 7), ras(3, 7)))
    assert (fault.witness, fault.ranks, fault.waiting, fault.confidence) == ("NCCL RAS", (1, 2, 3), (0,), "possible")
    assert fault.op == "all_reduce"


def test_equal_counts_of_ras_say_nothing():
    assert said(*(ras(rank) for rank in range(4))).faults == ()


def test_a_rank_that_ras_thinks_dead_is_named():
    fault = only(said(*(ras(rank) for rank in range(3)), ras(3, op_counts={}, group_state="considered_dead")))
    assert (fault.ranks, fault.confidence) == ((3,), "likely")


def test_a_rank_of_a_small_communicator_is_known_by_its_process():
    lines = [ras(0, 7, group_size=2), ras(1, 6, group_size=2, pid=103)]
    assert only(said(*lines)).ranks == (3,)


def test_a_pid_that_two_nodes_have_names_no_rank():
    ranks = [a_rank(0), a_rank(1, pid=100), a_rank(2), a_rank(3)]
    fault = only(said(ras(0, 6, group_size=2, host="10.0.0.1"), ras(1, 7, group_size=2, pid=102), ranks=ranks))
    assert fault.ranks == ()
    assert "group rank 0 (pid 100 on 10.0.0.1)" in fault.evidence[0]


def test_a_log_of_launches_says_who_launched_least():
    ops = [an_op(rank, seq, "nccl:AllReduce", source="nccl_log", retired=None, time_created_ns=None, group=("0x8c", ""),
                 group_size=4) for rank, seq in ((0, 12), (1, 12), (2, 11), (3, 12))]  # fmt: skip
    fault = only(said(*ops))
    assert (fault.ranks, fault.confidence, fault.witness) == ((2,), "possible", "NCCL log")


def test_inspectors_log_holds_what_is_over_and_blames_nobody():
    ops = [an_op(rank, seq, source="inspector", group=("0x8c", "")) for rank, seq in ((0, 12), (1, 11))]
    assert said(*ops).faults == ()
