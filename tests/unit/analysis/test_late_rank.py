"""The rank that the others lastingly wait for, by light stack samples of the ranks."""

import random

import pytest

from gconsole.analysis.late_rank import LATE_S, PlaceSample, StepLength, late_rank, late_text, wait_share, waits_of


def samples(waits, *, every_s=10.0, count=14, cls="compute", activity=None, slept=False):
    """Samples of one rank, which waits in a collective in those whose number `waits` returns True for."""
    return [
        PlaceSample(1_000.0 + every_s * number, "collective" if waits(number) else cls, activity, slept)
        for number in range(count)
    ]  # fmt: skip


def quiet_but_every_third(of_rank):
    """The same samples where a step has passed in every third of them: the samples of one step are of one wait."""
    return [each._replace(is_quiet=number % 3 > 0) for number, each in enumerate(of_rank)]


def always(number):
    return True


def never(number):
    return False


def job(late=never, **more):
    return {0: samples(always), 1: samples(late, **more), 2: samples(always), 3: samples(always)}


def test_rank_that_never_waits_while_the_others_do_is_late():
    late = late_rank(job())
    assert late is not None
    assert (late.rank, late.since_s) == (1, 120.0)


@pytest.mark.parametrize(
    "ranks",
    [
        {},
        {0: samples(never)},
        {0: samples(always), 1: samples(always)},
        {0: samples(never), 1: samples(never), 2: samples(always), 3: samples(always)},
        job(lambda number: number % 3 > 0),
        {**job(), 0: samples(always, count=5)},
        {rank: samples(always if rank else never, every_s=LATE_S / 14) for rank in range(4)},
        {rank: samples(always if rank else never, slept=True) for rank in range(4)},
        job(cls="p2p"),
        {rank: samples(always if rank else never, count=12)[:11] for rank in range(4)},
        {rank: quiet_but_every_third(samples(always if rank else never)) for rank in range(4)},
    ],
    ids=[
        "no ranks",
        "one rank",
        "all wait",
        "two late",
        "waits as well",
        "too few",
        "too short",
        "asleep",
        "messages",
        "few waits",
        "long steps",
    ],
)
def test_no_rank_is_late_where_none_stands_out_lastingly(ranks):
    assert late_rank(ranks) is None


@pytest.mark.parametrize("activity", ["evaluating", "compiling", "checkpointing", "starting"])
def test_samples_before_the_end_of_another_activity_do_not_count(activity):
    ranks = job()
    ranks[3][4] = ranks[3][4]._replace(activity=activity)
    assert late_rank(ranks) is None


@pytest.mark.parametrize("waits_share", [0.0, 0.3, 0.7, 0.95])
def test_ranks_that_are_late_in_turn_are_hardly_ever_taken_for_one_late_rank(waits_share):
    chance = random.Random(3)
    taken = 0
    for _ in range(2_000):
        ranks = {rank: samples(lambda _: chance.random() < waits_share, count=12) for rank in range(4)}
        taken += late_rank(ranks) is not None
    assert taken <= 20


def test_interval_of_a_share_contains_the_true_one_in_95_percent_of_the_cases():
    chance, contained, tries = random.Random(5), 0, 2_000
    for _ in range(tries):
        share = wait_share(samples(lambda _: chance.random() < 0.7, count=12))
        contained += share.low <= 0.7 <= share.high
    assert contained >= 0.93 * tries


def test_waiting_of_each_rank_is_listed_with_its_interval_and_the_cost_per_step():
    waits = waits_of("llama", 0, job(), dict.fromkeys(range(4), "node1"), StepLength(0.5))
    assert [entry.rank for entry in waits.ranks] == [1, 0, 2, 3]
    assert waits.late.rank == 1
    assert waits.late.low < waits.late.lead == 1.0 == waits.late.high
    text = late_text(waits.late, waits.step)
    assert "rank 1 in 0% (0–23 %)" in text
    assert text.endswith("500 ms of each step (339–500 ms)"), text
    by_curve = late_text(waits.late, StepLength(6.0, "the RDMA traffic of node1"))
    assert by_curve.endswith(
        "6,000 ms of each step (4,064–6,000 ms); a step takes 6.00 s by the RDMA traffic of node1"
    ), by_curve


def test_ranks_sampled_at_one_instant_do_not_count_as_independent():
    many = {rank: samples(always if rank != 1 else never) for rank in range(64)}
    assert late_rank(many).others.samples == 13
