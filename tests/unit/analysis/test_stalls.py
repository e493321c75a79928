"""Jobs that appear to stand still, by the sleep of main threads and by watched steps."""

import pytest

from gconsole.analysis.pace import Pulse
from gconsole.analysis.stalls import RankActivity, least_stall_s, suspicions


def ranks(*asleep_s, job="llama", attempt=0, **more):
    return [RankActivity(job, attempt, rank, asleep, **more) for rank, asleep in enumerate(asleep_s)]


def test_limit_is_three_steps_where_only_traffic_shows_them():
    pulse = Pulse("nic", "the traffic of node1", "node1", 20.0, 5.0, 20.0)
    assert suspicions(ranks(50.0, 50.0, pulse=pulse), 30.0) == []
    assert len(suspicions(ranks(61.0, 61.0, pulse=pulse), 30.0)) == 1


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


def held(*path_s, **more):
    fields = {"asleep_s": 0.0, "place_s": 0.0, "samples": 5, **more}
    return [RankActivity("llama", 0, rank, path_s=path, **fields) for rank, path in enumerate(path_s)]


def test_job_that_spins_is_suspected_where_its_data_connections_are_silent():
    [suspicion] = suspicions(held(50.0, 41.0, quiet_s=45.0), 30.0)
    assert (suspicion.since_s, suspicion.ranks) == (41.0, ())
    assert suspicion.text == "no rank has left its place for 41 s and its connections carry no data"


def test_job_without_data_connections_is_only_where_it_stays_at_one_line():
    assert suspicions(held(60.0, 60.0, place_s=10.0), 30.0) == []
    [suspicion] = suspicions(held(60.0, 60.0, place_s=35.0), 30.0)
    assert suspicion.since_s == 35.0


@pytest.mark.parametrize(
    "healthy",
    [
        held(60.0, 3.0, quiet_s=60.0),  # one rank changes its place
        held(60.0, 60.0, quiet_s=0.0),  # a native loop that exchanges data
        held(60.0, None, quiet_s=60.0),  # a rank that was not sampled
        held(60.0, 60.0, quiet_s=60.0, samples=2),
        held(60.0, 60.0, quiet_s=60.0, advances=True),
        held(60.0, 60.0, quiet_s=60.0, step_age_s=5.0, step_s=1.0),
    ],
    ids=["another place", "bytes", "no sample", "few samples", "gpu", "steps"],
)
def test_job_that_shows_any_sign_of_progress_is_not(healthy):
    assert suspicions(healthy, 30.0) == []


def test_job_that_starts_compiles_or_writes_a_checkpoint_may_take_twenty_times_as_long():
    busy = held(300.0, 300.0, quiet_s=300.0, is_patient=True)
    assert suspicions(busy, 30.0) == []
    assert suspicions(ranks(300.0, 300.0, is_patient=True), 30.0) == []
    assert len(suspicions(held(601.0, 601.0, quiet_s=601.0, is_patient=True), 30.0)) == 1
