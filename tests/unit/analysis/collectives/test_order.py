"""Which rank of a circular wait departs from its own order of collectives; progress beside sends and receives."""

import pytest
from analysis.collectives.builders import a_status, an_op, said

from gconsole.analysis.collectives.communication import evidence_of
from gconsole.analysis.collectives.order import departs

TP0, TP1, DP0, DP1 = ("1", "undefined"), ("2", "undefined"), ("3", "undefined"), ("4", "undefined")
#: Tensor groups are ranks 0-1 and 2-3, data groups are ranks 0, 2 and 1, 3.
MEMBERS = {TP0: (0, 1), TP1: (2, 3), DP0: (0, 2), DP1: (1, 3), ("0", "default_pg"): (0, 1, 2, 3)}
WORLD = ("0", "default_pg")


def issued(rank, *groups):
    """The operations of a rank in order; it waits in the last one."""
    counts, entries = {}, []
    for number, group in enumerate(groups):
        counts[group] = counts.get(group, 0) + 1
        waits = number == len(groups) - 1
        entries.append(an_op(rank, counts[group], group=group, record_id=number, waits=waits))
    lines = [
        a_status(rank, count, MEMBERS[group], process_group=group, entries=len(entries))
        for group, count in counts.items()
    ]
    return [*entries, *lines]


def deadlock(steps=4, odd=3):
    """An extra operation of rank `odd` in its tensor group makes all ranks wait for each other."""
    records = []
    for rank in range(4):
        step = (TP0 if rank < 2 else TP1, DP0 if rank % 2 == 0 else DP1, WORLD)
        tail = {0: step, 2: step, 1: step[:2], 3: (step[0], step[0])}
        records += issued(rank, *(step * steps), *tail[rank])
    return said(*records)


def test_rank_with_an_extra_operation_is_the_odd_one_of_its_circle():
    found = deadlock()
    assert [(set(circle.ranks), circle.odd) for circle in found.circles] == [({1, 2, 3}, (3,))]
    [evidence] = evidence_of(found)
    assert evidence.circles == found.circles
    assert "rank 3 waits for rank 2 in all_reduce #6 of group 2" in evidence.circles[0].waits


def test_circle_of_a_job_without_a_pattern_has_no_odd_rank():
    [circle] = deadlock(steps=1).circles
    assert circle.odd == ()


@pytest.mark.parametrize(
    ("text", "departed"),
    [
        ("abcabcabcabc", False),
        ("abcabcabcab", False),
        ("xxyabcabcabcabc", False),
        ("abcabcabcaba", True),
        ("abcabcabcaa", True),
        ("iabcabcabcabb", True),
        ("aaaaaaaaab", True),
        ("abcabcxbcabcabcabc", False),  # an old departure from which it has returned
        ("abcdefgh", None),
        ("abab", None),
        ("", None),
    ],
)
def test_sequence_departs_from_its_pattern_only_at_its_end(text, departed):
    assert departs([(letter, "all_reduce", 1) for letter in text]) is departed


def test_departure_that_ranks_outside_of_the_circle_share_is_intended():
    def records(*odd):
        for rank in range(4):
            tail = (WORLD, TP0 if rank < 2 else TP1) if rank in odd else (WORLD,)
            step = (TP0 if rank < 2 else TP1, DP0 if rank % 2 == 0 else DP1)
            yield from (entry for entry in issued(rank, *(step * 4), *tail) if hasattr(entry, "profiling_name"))

    from gconsole.analysis.collectives.order import odd_ranks

    assert odd_ranks((2, 3), [*records(0, 1, 3)]) == ()


# -- collectives beside sends and receives -----------------------------------------------------------------------------


def test_counter_that_counts_sends_does_not_hide_the_missing_rank():
    """gloo counts sends and receives in the group's counter, without an entry for them."""
    records = [an_op(rank, 5, op_id=11, waits=True, record_id=4) for rank in (0, 1, 2)]
    records += [an_op(3, 4, op_id=9, record_id=3)]
    lines = [a_status(rank, 11 if rank < 3 else 12, (0, 1, 2, 3), entries=5) for rank in range(4)]
    [fault] = said(*records, *lines).faults
    assert (fault.kind, fault.seq, fault.ranks) == ("missing_rank", 5, (3,))


def test_rank_that_only_sends_and_receives_in_a_wrapped_buffer_is_unseen():
    records = [an_op(rank, 5, op_id=11, waits=True, record_id=4) for rank in (0, 1, 2)]
    lines = [a_status(rank, 11, (0, 1, 2, 3), entries=5) for rank in range(3)]
    only_p2p = a_status(3, 40, (0, 1, 2, 3), oldest_record_id=900, entries=64, entries_sent=64)
    [fault] = said(*records, *lines, only_p2p).faults
    assert (fault.ranks, fault.unseen, fault.confidence) == ((), (3,), "none")
