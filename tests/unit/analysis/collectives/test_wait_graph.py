"""Wait graph between faults: causes, consequences and cycles."""

from analysis.collectives.builders import a_status, an_op, said

TP0, TP1, DP0, DP1 = ("1", "tp"), ("2", "tp"), ("3", "dp"), ("4", "dp")


def member(rank, seq, group, ranks, *, waits=False):
    return [an_op(rank, seq, group=group, waits=waits), a_status(rank, seq, ranks, process_group=group)]


def test_rank_missing_from_its_tensor_group_causes_the_data_group_wait():
    """Tensor groups are ranks 0-1 and 2-3, data groups are ranks 0, 2 and 1, 3; rank 3 is missing."""
    found = said(
        *member(2, 5, TP1, (2, 3), waits=True), *member(3, 4, TP1, (2, 3)),
        *member(0, 9, DP0, (0, 2), waits=True), *member(2, 8, DP0, (0, 2)),
        *member(1, 9, DP1, (1, 3), waits=True), *member(3, 8, DP1, (1, 3)),
    )  # fmt: skip
    assert found.graph.causes == (3,)
    assert [(fault.ranks, fault.follows) for fault in found.faults] == [((3,), False), ((3,), False), ((2,), True)]
    assert found.faults[2].held == ((2, "tp (2)"),)


def test_groups_entered_in_opposite_order_form_a_wait_cycle():
    found = said(
        *member(0, 5, TP0, (0, 1), waits=True), *member(1, 4, TP0, (0, 1)),
        *member(1, 9, DP0, (0, 1), waits=True), *member(0, 8, DP0, (0, 1)),
    )  # fmt: skip
    assert found.graph.cycles == ((0, 1),)
    assert found.graph.causes == ()
    assert all(fault.follows for fault in found.faults)


def recv(rank, source, **more):
    return an_op(rank, 0, f"nccl:recv {rank}<-{source}", is_p2p=True, p2p_seq_id=1, waits=True, **more)


def whole(world_size=3):
    return [a_status(rank, 0, tuple(range(world_size))) for rank in range(world_size)]


def test_ring_of_receives_without_sends_is_a_wait_cycle():
    found = said(*(recv(rank, (rank - 1) % 3) for rank in range(3)), *whole(), world_size=3)
    assert found.graph.cycles == ((0, 2, 1),)


def test_the_end_of_a_chain_of_receives_is_the_cause():
    found = said(recv(1, 0), recv(2, 1), *whole(), world_size=3)
    assert (found.graph.causes, found.graph.cycles) == ((0,), ())


def test_receive_with_a_matching_send_adds_no_wait_edge():
    send = an_op(0, 0, "nccl:send 0->1", is_p2p=True, p2p_seq_id=1, waits=True)
    assert said(recv(1, 0), send, *whole(), world_size=3).graph.waits == ()


def test_group_local_ranks_are_mapped_to_global_ranks():
    pp = ("5", "pp")
    lines = [a_status(rank, 0, (1, 3), process_group=pp) for rank in (1, 3)]
    op = an_op(3, 0, "nccl:recv 1<-0", is_p2p=True, waits=True, group=pp)
    [wait] = said(op, *lines).graph.waits
    assert (wait.rank, wait.on) == (3, 1)


def test_group_with_unknown_members_adds_no_wait_edge():
    op = an_op(3, 0, "nccl:recv 1<-0", is_p2p=True, waits=True, group=("5", "pp"))
    assert said(op).graph.waits == ()
