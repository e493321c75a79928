"""Jobs that appear to stand still, by the sleep of main threads and by watched steps."""

import pytest

from gconsole.analysis.stalls import RankActivity, least_stall_s, suspicions


def ranks(*asleep_s, job="llama", attempt=0, **more):
    return [RankActivity(job, attempt, rank, asleep, **more) for rank, asleep in enumerate(asleep_s)]


def test_job_with_a_main_thread_that_has_slept_for_the_limit_is_suspected():
    [suspicion] = suspicions(ranks(41.0, 40.0, 0.0), 30.0)
    assert (suspicion.job, suspicion.ranks, suspicion.since_s) == (("llama", 0), (0, 1), 40.0)
    assert suspicion.text == "the main thread of ranks 0-1 has not run for 40 s"


@pytest.mark.parametrize("asleep", [(29.0, 3.0), (0.0, 0.0), (None, None)], ids=["shorter", "awake", "unknown"])
def test_job_whose_main_threads_ran_lately_or_are_unknown_is_not(asleep):
    assert suspicions(ranks(*asleep), 30.0) == []


def test_job_whose_steps_advance_is_not_although_its_main_threads_sleep():
    assert suspicions(ranks(90.0, 90.0, step_age_s=4.0, step_s=1.0), 30.0) == []


def test_step_that_stands_still_is_suspected_although_every_rank_runs():
    [suspicion] = suspicions(ranks(0.0, 0.0, step_age_s=45.0, step_s=1.0, read_every_s=10.0), 30.0)
    assert (suspicion.ranks, suspicion.text) == ((), "the watched step has not changed for 45 s")


def test_step_that_is_read_rarely_stands_still_only_after_several_readings():
    assert suspicions(ranks(0.0, step_age_s=45.0, step_s=1.0, read_every_s=60.0), 30.0) == []


def test_long_steps_raise_the_limit():
    slow = ranks(80.0, 80.0, step_age_s=80.0, step_s=40.0)
    assert least_stall_s(slow, 30.0) == 120.0
    assert suspicions(slow, 30.0) == []


def test_only_the_newest_attempt_of_a_job_counts():
    assert suspicions([*ranks(600.0, attempt=0), *ranks(2.0, attempt=1)], 30.0) == []


def test_each_job_stands_for_itself():
    found = suspicions([*ranks(50.0, job="b"), *ranks(0.0, job="a"), *ranks(60.0, job="c")], 30.0)
    assert [suspicion.job[0] for suspicion in found] == ["b", "c"]
