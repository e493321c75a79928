"""Cases in which a verdict must not name a culprit."""

import random

import msgspec
import pytest
from analysis.hang.scenes import LOADER, LOCKED, MAIN, REDUCE, SAVE, SETUP, Scene, at, collective, names, own

from gconsole.analysis.hang.verdict import Absence, Circle, CollectiveEvidence, Mismatch
from gconsole.analysis.stacks.frame_models import Model
from gconsole.records import Local, StackFrame


def waiting(scene, *but, path=REDUCE):
    for rank in range(scene.world):
        if rank not in but:
            scene.rank(rank, path)
    return scene


def no_culprit(scene, *states):
    verdict = scene.verdict()
    assert (verdict.state in states, names(verdict)) == (True, []), verdict
    return verdict


class TestRestart:
    def test_job_that_restarts_during_the_capture_is_named_as_restarted_and_no_rank_is_blamed(self):
        scene, earlier = Scene(attempt=1), Scene(attempt=0)
        for rank in range(4):
            scene.ranks.append(earlier._rank(rank))
            scene.ranks.append(scene._rank(rank))
        verdict = no_culprit(scene, "undecided")
        assert "the job was restarted while it was monitored" in verdict.summary
        assert (verdict.next_step, verdict.stalled) == ("diagnose again when its ranks have started", False)


class TestStallDuration:
    def test_one_sample_is_undecided_but_its_summary_names_the_rank(self):
        verdict = no_culprit(waiting(Scene(looks=1), 1).rank(1, LOCKED), "undecided")
        assert "rank 1" in verdict.summary and verdict.next_step

    def test_capture_under_five_seconds_is_undecided_and_requests_more_time(self):
        scene = waiting(Scene(looks=6), 1).rank(1, LOCKED)
        no_culprit(scene, "undecided")
        assert scene.judged().missing.more_s == pytest.approx(2.5)

    def test_waiting_rank_sampled_for_less_time_than_the_others_requests_the_rest(self):
        scene = waiting(Scene(), 1, 3).rank(1, LOCKED).rank(3, REDUCE, from_look=3)
        assert scene.judged().missing.more_s == pytest.approx(1.0), "rank 3 was sampled for 4 s"

    def test_last_rank_to_arrive_requests_the_rest_of_the_time(self):
        scene = waiting(Scene(), 1, 3).rank(1, LOCKED).rank(3, own("forward", 20), *[REDUCE] * 11)
        assert scene.judged().missing.more_s == pytest.approx(0.0)
        scene = waiting(Scene(), 1, 3).rank(1, LOCKED).rank(3, *[own("forward", 20)] * 4, *[REDUCE] * 8)
        assert scene.judged().missing.more_s == pytest.approx(1.5), "it arrived 3.5 s before the last sample"

    def test_waiting_rank_that_wakes_up_does_not_request_more_time(self):
        scene = waiting(Scene(), 1, 3).rank(1, LOCKED).rank(3, *[own("forward", 20)] * 4, *[REDUCE] * 8, wakes=9)
        assert scene.judged().missing.more_s == 0.0

    def test_stall_time_observed_before_the_capture_counts(self):
        scene = waiting(Scene(looks=3, every_s=0.3), 1).rank(1, LOCKED)
        for rank in range(4):
            scene.watched(rank, 40.7)
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(1, "python_lock")])
        assert "≥ 40 s" in verdict.summary, "a lower bound is not rounded up"

    def test_stall_time_observed_after_the_capture_counts(self):
        scene = waiting(Scene(looks=3, every_s=0.3), 1).rank(1, LOCKED)
        for rank in range(4):
            scene.watched(rank, 40.0, ago_s=-9.0)
        assert scene.verdict().state == "hung"

    def test_stall_time_observed_an_hour_ago_does_not_count(self):
        scene = waiting(Scene(looks=3, every_s=0.3), 1).rank(1, LOCKED)
        for rank in range(4):
            scene.watched(rank, 40.0, ago_s=3600.0)
        no_culprit(scene, "undecided")

    def test_job_that_stalls_during_the_capture_requests_more_time(self):
        scene = Scene(looks=14)
        for rank in range(4):
            scene.rank(rank, *(own("forward", 20 + step % 3) for step in range(8)), *[REDUCE] * 6, wakes=0)
        judged = scene.judged()
        assert names(judged.verdict) == []
        assert judged.missing.more_s > 0

    def test_waiting_time_is_that_of_the_last_unbroken_run_of_samples(self):
        paths = [own("forward", 20)] * 3 + [REDUCE] * 11
        scene = Scene(looks=14)
        for rank in range(3):
            scene.rank(rank, *paths)
        assert "≥ 5 s" in scene.rank(3, LOCKED).verdict().summary


class TestProgress:
    @pytest.mark.parametrize(
        ("slept_s", "more_s"),
        [((0.2, 0.2, 0.2, 0.3), 0.0), ((0.4, 0.4, 0.4, 0.4), 4.6), ((0.1, 4.0, 4.0, 4.0), 4.9)],
        ids=["as before", "longer", "one has just arrived"],
    )
    def test_only_sleeps_no_longer_than_those_before_show_that_a_job_still_progresses(self, slept_s, more_s):
        """Else a job whose ranks wait in most of each step would be sampled until the time for it is spent."""
        scene = Scene()
        for rank in range(4):
            scene.rank(rank, own("forward", 20), REDUCE, wakes=9, thread_slept_s=0.3)
        last = scene.looks - 1
        scene.stacks = [
            msgspec.structs.replace(stack, thread_slept_s=slept_s[stack.rank]) if stack.sample == last else stack
            for stack in scene.stacks
        ]
        judged = scene.judged()
        assert judged.verdict.state == "moving"
        assert judged.missing.more_s == pytest.approx(more_s)

    def test_working_job_is_reported_as_moving(self):
        scene = Scene()
        for rank in range(4):
            scene.moving(rank, rank)
        assert scene.verdict().state == "moving"

    def test_job_sampled_in_collectives_but_waking_up_is_not_hung(self):
        scene = Scene()
        for rank in range(4):
            scene.rank(rank, REDUCE, wakes=30)
        no_culprit(scene, "moving", "undecided")

    def test_rank_progressing_slowly_through_its_phases_is_slow_without_a_culprit(self):
        phases = [own(f"layer_{number}", number) for number in range(12)]
        verdict = no_culprit(waiting(Scene(), 2).rank(2, *phases, state="R", wakes=20), "slow")
        assert "rank 2" in verdict.summary and verdict.kind == "none"

    def test_rank_0_writing_a_checkpoint_is_not_a_culprit(self):
        writes = [(*SAVE[:2], at(number, f"write_{number}")) for number in range(12)]
        no_culprit(waiting(Scene(), 0, path=collective("barrier")).rank(0, *writes, syscall="write", wakes=20), "slow")

    def test_rank_0_logging_every_step_is_not_a_culprit(self):
        scene = Scene()
        for rank in range(1, 4):
            scene.moving(rank, rank)
        no_culprit(scene.moving(0, 0, [own("forward", 20), own("log", 33), own("log_loss", 35), REDUCE]), "moving")

    def test_waiting_pipeline_stages_have_no_culprit(self):
        recv = collective("recv", 40)
        scene = Scene(looks=20)
        for rank in range(3):
            scene.moving(rank, rank, [recv, recv, recv, own("forward", 20)])
        no_culprit(scene.moving(3, 0, [own("forward", 20), own("backward", 21), own("backward", 22)]), "moving")

    def test_a_rank_that_waits_least_and_works_longest_is_a_straggler(self):
        scene = Scene(looks=20)
        for rank in range(3):
            scene.moving(rank, rank, [REDUCE, REDUCE, REDUCE, own("forward", 20)])
        verdict = scene.moving(3, 0, [own("forward", 20), own("augment", 22), own("augment", 23)]).verdict()
        assert (verdict.state, verdict.kind, [rank for rank, _ in names(verdict)]) == ("slow", "straggler", [3])
        assert verdict.confidence == "likely"

    def test_place_of_a_straggler_is_that_of_most_of_its_samples(self):
        scene = Scene(looks=20)
        for rank in range(3):
            scene.moving(rank, rank, [REDUCE, REDUCE, REDUCE, own("forward", 20)])
        augments = [own("augment", 22)] * 4
        verdict = scene.moving(3, 0, [*augments, own("log", 30)]).verdict()
        assert verdict.culprits[0].site.function == "augment"
        assert "in train.py:22 augment" in verdict.summary

    def test_four_samples_are_too_few_for_a_straggler(self):
        scene = Scene(looks=4)
        for rank in range(3):
            scene.moving(rank, rank, [REDUCE, REDUCE, REDUCE, own("forward", 20)])
        no_culprit(scene.moving(3, 0, [own("forward", 20), own("augment", 22)]), "moving")

    def test_samples_that_all_saw_one_wait_are_too_few_for_a_straggler(self):
        scene = Scene(looks=9)
        switches = [50, 70, 70, 70, 90, 110, 130, 130, 130]  # in a burst of samples, the ranks wake up between few
        for rank in range(4):
            scene.rank(rank, REDUCE, from_look=9)
            for look, count in enumerate(switches):
                works = rank == 0 and look in (4, 5, 6, 7)
                scene._look(rank, look, own("load_batch", 41) if works else REDUCE, ctx_switches=count)
        no_culprit(scene, "moving")

    def test_two_outlier_ranks_are_uneven_work_and_not_stragglers(self):
        scene = Scene(looks=20)
        for rank in range(2):
            scene.moving(rank, rank, [REDUCE, REDUCE, REDUCE, own("forward", 20)])
        for rank in (2, 3):
            scene.moving(rank, rank, [own("forward", 20), own("augment", 22), own("augment", 23)])
        no_culprit(scene, "moving")

    def test_ranks_that_all_sleep_between_epochs_are_not_hung(self):
        no_culprit(waiting(Scene(), path=own("pause", 90)), "undecided")


class TestSplitGroups:
    def test_equal_split_between_two_collectives_is_undecided(self):
        scene = waiting(Scene(), 2, 3).rank(2, collective("broadcast", 41)).rank(3, collective("broadcast", 41))
        verdict = no_culprit(scene, "undecided")
        assert "all_reduce" in verdict.summary and "broadcast" in verdict.summary

    def test_split_between_three_collectives_is_undecided(self):
        scene = waiting(Scene(8), 6, 7).rank(6, collective("broadcast", 41)).rank(7, collective("barrier", 50))
        no_culprit(scene, "undecided")

    def test_same_collective_called_from_another_line_is_not_a_mismatch(self):
        no_culprit(waiting(Scene(), 0).rank(0, collective("all_reduce", 77)), "undecided")

    def test_ranks_in_separate_process_groups_are_not_a_mismatch(self):
        given = (Local(1, "kwargs", "{'group': <ProcessGroup at 0x7f>}"),)
        no_culprit(waiting(Scene(), 1).rank(1, collective("broadcast", 41), locals=given), "undecided")

    def test_all_ranks_in_one_collective_are_hung_by_an_external_cause(self):
        verdict = waiting(Scene()).verdict()
        assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "external", [])

    def test_all_ranks_in_their_data_loaders_are_undecided_with_an_external_kind(self):
        verdict = no_culprit(waiting(Scene(), path=LOADER), "undecided")
        assert verdict.kind == "external"


class TestMissingData:
    def test_rank_without_a_stack_is_not_a_culprit(self):
        verdict = no_culprit(waiting(Scene(), 3).rank(3, None), "undecided")
        assert "rank 3" in verdict.next_step and "use sudo" in verdict.next_step

    def test_unreadable_rank_lowers_the_confidence_of_another_culprit(self):
        verdict = waiting(Scene(), 2, 3).rank(3, None).rank(2, LOCKED).verdict()
        assert (names(verdict), verdict.confidence) == ([(2, "python_lock")], "likely")

    def test_ranks_of_a_lost_node_are_not_blamed_for_its_loss(self):
        verdict = no_culprit(waiting(Scene(8), 6, 7).rank(6, REDUCE).rank(7, REDUCE).lost("node4"), "undecided")
        assert "node4" in verdict.next_step

    def test_ranks_on_nodes_outside_the_node_list_are_not_absent(self):
        scene = waiting(Scene(8), 4, 5, 6, 7, path=SETUP)
        scene.nodes = {"node1": "ok", "node2": "ok"}
        no_culprit(scene, "undecided")

    def test_rank_with_an_unclassified_frame_is_not_a_culprit(self):
        no_culprit(waiting(Scene(), 1).rank(1, own("finish", 17)), "undecided")

    def test_rank_possibly_waiting_for_its_gpu_is_not_a_culprit(self):
        scene = waiting(Scene(), 1).rank(1, own("loss_item", 17), state="R", wakes=9, gpu="0")
        no_culprit(scene, "undecided")
        waits = scene.native(1, own("loss_item", 17), ["cudaStreamSynchronize", "cuStreamSynchronize"])
        assert names(waits.verdict()) == []

    def test_job_whose_ranks_have_all_exited_has_state_no_ranks(self):
        scene = Scene(2)
        assert scene.exited(0).exited(1).verdict().state == "no_ranks"


class TestRankIdentity:
    def test_leftover_process_of_an_older_attempt_is_not_a_culprit(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        old = Scene(attempt=0).rank(2, own("stale"), syscall="fsync")
        scene.attempt = 1
        for record in (*scene.ranks, *scene.stacks):
            record.attempt = 1
        for record in (*old.ranks, *old.stacks):
            record.pid += 50
        scene.ranks += old.ranks
        scene.stacks += old.stacks
        assert names(scene.verdict()) == [(1, "python_lock")]

    def test_samples_of_the_previous_attempt_do_not_count_for_the_next(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        for record in scene.ranks:
            record.attempt = 1
        for stack in scene.stacks:
            stack.attempt = int(stack.sample >= 8)
        no_culprit(scene, "undecided")

    def test_reused_pid_is_treated_as_a_different_process(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        for stack in scene.stacks:
            if stack.rank == 1 and stack.sample < 10:
                stack.start_ticks = 1
        no_culprit(scene, "undecided", "slow")

    def test_two_jobs_get_separate_verdicts(self):
        mine, other = waiting(Scene(), 1).rank(1, LOCKED), Scene(job="other")
        for rank in range(4):
            other.moving(rank, rank)
        for record in (*other.ranks, *other.stacks):
            record.pid += 500
        mine.ranks += other.ranks
        mine.stacks += other.stacks
        assert names(mine.verdict()) == [(1, "python_lock")]
        mine.job = "other"
        assert mine.verdict().state == "moving"

    def test_the_order_of_records_does_not_matter(self):
        scene = waiting(Scene(8), 1, 4).rank(1, LOCKED).rank(4, LOADER)
        expected = msgspec.json.encode(scene.verdict())
        random.Random(5).shuffle(scene.stacks)
        random.Random(6).shuffle(scene.ranks)
        assert msgspec.json.encode(scene.verdict()) == expected


class TestPartialJob:
    def test_hang_in_one_half_of_a_moving_job_is_reported_as_slow(self):
        scene = Scene(8)
        for rank in range(4, 8):
            scene.moving(rank, rank)
        verdict = scene.rank(0, REDUCE).rank(1, LOCKED).rank(2, REDUCE).rank(3, REDUCE).verdict()
        assert verdict.state == "slow"
        assert names(verdict) in ([], [(1, "python_lock")])

    def test_a_heartbeat_thread_does_not_hide_a_deadlock(self):
        scene = waiting(Scene(), 1)
        scene.rank(1, LOCKED, threads=[("heartbeat", (at(5, "beat", "/home/user/job/beat.py"),))])
        verdict = scene.verdict()
        assert names(verdict) == [(1, "python_lock")]
        assert verdict.culprits[0].site.function == "flush"

    def test_polling_rank_is_not_a_culprit_beside_a_rank_that_sleeps(self):
        scene = waiting(Scene(), 0, 1).rank(0, own("wait_patiently"), syscall="clock_nanosleep", wakes=5)
        verdict = scene.rank(1, own("fetch"), syscall="recvfrom").verdict()
        assert (names(verdict), verdict.confidence) == ([(1, "network_io")], "likely")

    def test_ranks_that_all_poll_outside_the_collective_are_culprits(self):
        scene = waiting(Scene(), 1, 2, 3)
        for rank in (1, 2, 3):
            scene.rank(rank, own("wait_for_file"), syscall="clock_nanosleep", wakes=5)
        assert names(scene.verdict()) == [(1, "sleep"), (2, "sleep"), (3, "sleep")]


class TestConflictingSources:
    def recorder(self, *ranks, entered=(0, 2, 3), seq=1423):
        absence = Absence("dp_17", "all_reduce", seq, ranks, entered)
        return (CollectiveEvidence("flight recorder", (0, 1, 2, 3), (absence,)),)

    def test_agreeing_flight_recorder_evidence_is_cited_in_the_summary(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        scene.collectives = self.recorder(1)
        verdict = scene.verdict()
        assert (names(verdict), verdict.confidence) == ([(1, "python_lock")], "certain")
        assert "never entered all_reduce #1423 of group dp_17" in verdict.summary

    def test_conflicting_flight_recorder_evidence_is_listed_and_lowers_confidence(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        scene.collectives = self.recorder(2)
        verdict = scene.verdict()
        assert (names(verdict), verdict.confidence) == ([(1, "python_lock")], "likely")
        assert any("points at rank 2" in line for line in verdict.evidence)

    def test_flight_recorder_names_a_culprit_that_stacks_cannot_identify(self):
        scene = waiting(Scene(), 1).rank(1, own("finish", 17))
        scene.collectives = self.recorder(1)
        verdict = scene.verdict()
        assert (verdict.kind, names(verdict), verdict.confidence) == ("rank_missing", [(1, "unknown")], "possible")

    def test_flight_recorder_cannot_blame_a_rank_whose_stack_is_in_the_collective(self):
        scene = waiting(Scene())
        scene.collectives = self.recorder(1)
        assert names(scene.verdict()) == []

    def test_mismatch_blames_the_minority_and_a_tie_blames_no_rank(self):
        scene = waiting(Scene())
        camps = (("shape [4]", (0, 2, 3)), ("shape [8]", (1,)))
        scene.collectives = (CollectiveEvidence("flight recorder", (0, 1, 2, 3), (), (Mismatch("world", 7, camps),)),)
        verdict = scene.verdict()
        assert (verdict.kind, verdict.confidence) == ("collective_mismatch", "likely")
        assert names(verdict) == [(1, "collective")]
        tie = (("shape [4]", (0, 2)), ("shape [8]", (1, 3)))
        scene.collectives = (CollectiveEvidence("flight recorder", (0, 1, 2, 3), (), (Mismatch("world", 7, tie),)),)
        assert names(scene.verdict()) == []

    def test_circle_over_groups_is_a_hang_that_names_the_rank_out_of_order(self):
        scene = waiting(Scene())
        waits = ("rank 1 waits for rank 3 in all_reduce #10 of group 4", "rank 3 waits for rank 1 in barrier #2 of tp")
        for odd, culprits in (((3,), [(3, "collective")]), ((), [])):
            circle = Circle((1, 3), odd, waits)
            scene.collectives = (CollectiveEvidence("flight recorder", (0, 1, 2, 3), circles=(circle,)),)
            verdict = scene.verdict()
            assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "wait_cycle", culprits)
            assert waits[0] in verdict.summary
            assert "Flight Recorder" not in verdict.next_step, "it was read already"

    def test_circle_does_not_override_a_rank_that_sleeps_elsewhere(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        circle = Circle((1, 3), (3,), ("rank 1 waits for rank 3 in barrier #2 of tp",))
        scene.collectives = (CollectiveEvidence("flight recorder", (0, 1, 2, 3), circles=(circle,)),)
        assert names(scene.verdict()) == [(1, "python_lock")]


def test_custom_frame_model_is_recognized_as_a_collective():
    ring = (MAIN, StackFrame("ring_reduce", "/home/user/mylib/comm.py", 9))
    scene = waiting(Scene(), 1, path=ring).rank(1, own(), syscall="recvfrom")
    scene.models = (Model("collective", r"(^|/)mylib/comm\.py$", "ring_reduce"),)
    assert names(scene.verdict()) == [(1, "network_io")]
