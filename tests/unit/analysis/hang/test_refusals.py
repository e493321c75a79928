"""Whom a verdict does not name: the traps. A wrong name costs more than no name."""

import random

import msgspec
import pytest
from analysis.hang.scenes import LOADER, LOCKED, MAIN, REDUCE, SAVE, SETUP, Scene, at, collective, names, own

from gconsole.analysis.hang.verdict import Absence, CollectiveEvidence, Mismatch
from gconsole.analysis.stacks.frame_models import Model
from gconsole.records import Local, StackFrame


def waiting(scene, *but, path=REDUCE):
    for rank in range(scene.world):
        if rank not in but:
            scene.rank(rank, path)
    return scene


def nobody(scene, *states):
    verdict = scene.verdict()
    assert (verdict.state in states, names(verdict)) == (True, []), verdict
    return verdict


class TestTime:
    def test_one_look_is_never_a_hang_but_says_what_it_saw(self):
        verdict = nobody(waiting(Scene(looks=1), 1).rank(1, LOCKED), "undecided")
        assert "rank 1" in verdict.summary and verdict.next_step

    def test_less_than_five_seconds_are_no_hang_and_more_is_asked_for(self):
        scene = waiting(Scene(looks=6), 1).rank(1, LOCKED)
        nobody(scene, "undecided")
        assert scene.judged().missing.more_s == pytest.approx(2.5)

    def test_what_was_watched_before_the_capture_counts(self):
        scene = waiting(Scene(looks=3, every_s=0.3), 1).rank(1, LOCKED)
        for rank in range(4):
            scene.watched(rank, 40.0)
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(1, "python_lock")])
        assert "40.0 s" in verdict.summary

    def test_what_was_watched_while_it_was_judged_counts_as_well(self):
        scene = waiting(Scene(looks=3, every_s=0.3), 1).rank(1, LOCKED)
        for rank in range(4):
            scene.watched(rank, 40.0, ago_s=-9.0)
        assert scene.verdict().state == "hung"

    def test_what_was_watched_an_hour_ago_does_not(self):
        scene = waiting(Scene(looks=3, every_s=0.3), 1).rank(1, LOCKED)
        for rank in range(4):
            scene.watched(rank, 40.0, ago_s=3600.0)
        nobody(scene, "undecided")

    def test_a_job_that_stopped_while_it_was_watched_is_watched_on(self):
        scene = Scene(looks=14)
        for rank in range(4):
            scene.rank(rank, *(own("forward", 20 + step % 3) for step in range(8)), *[REDUCE] * 6, wakes=0)
        judged = scene.judged()
        assert names(judged.verdict) == []
        assert judged.missing.more_s > 0

    def test_the_time_is_that_of_the_last_unbroken_run(self):
        paths = [own("forward", 20)] * 3 + [REDUCE] * 11
        scene = Scene(looks=14)
        for rank in range(3):
            scene.rank(rank, *paths)
        assert "5.0 s" in scene.rank(3, LOCKED).verdict().summary


class TestMoving:
    def test_a_job_that_works_moves(self):
        scene = Scene()
        for rank in range(4):
            scene.moving(rank, rank)
        assert scene.verdict().state == "moving"

    def test_a_job_that_communicates_at_every_look_is_woken_by_each_step(self):
        scene = Scene()
        for rank in range(4):
            scene.rank(rank, REDUCE, wakes=30)
        nobody(scene, "moving", "undecided")

    def test_a_rank_that_is_slower_in_its_own_phase_goes_on(self):
        phases = [own(f"layer_{number}", number) for number in range(12)]
        verdict = nobody(waiting(Scene(), 2).rank(2, *phases, state="R", wakes=20), "slow")
        assert "rank 2" in verdict.summary and verdict.kind == "none"

    def test_rank_0_that_writes_a_checkpoint_while_others_wait_is_not_named(self):
        writes = [(*SAVE[:2], at(number, f"write_{number}")) for number in range(12)]
        nobody(waiting(Scene(), 0, path=collective("barrier")).rank(0, *writes, syscall="write", wakes=20), "slow")

    def test_rank_0_that_logs_every_step_is_not_named(self):
        scene = Scene()
        for rank in range(1, 4):
            scene.moving(rank, rank)
        nobody(scene.moving(0, 0, [own("forward", 20), own("log", 33), own("log_loss", 35), REDUCE]), "moving")

    def test_stages_of_a_pipeline_wait_for_each_other_by_design(self):
        recv = collective("recv", 40)
        scene = Scene(looks=20)
        for rank in range(3):
            scene.moving(rank, rank, [recv, recv, recv, own("forward", 20)])
        nobody(scene.moving(3, 0, [own("forward", 20), own("backward", 21), own("backward", 22)]), "moving")

    def test_a_rank_that_waits_least_and_works_longest_is_a_straggler(self):
        scene = Scene(looks=20)
        for rank in range(3):
            scene.moving(rank, rank, [REDUCE, REDUCE, REDUCE, own("forward", 20)])
        verdict = scene.moving(3, 0, [own("forward", 20), own("augment", 22), own("augment", 23)]).verdict()
        assert (verdict.state, verdict.kind, [rank for rank, _ in names(verdict)]) == ("slow", "straggler", [3])
        assert verdict.confidence == "likely"

    def test_a_few_looks_make_no_straggler(self):
        scene = Scene(looks=4)
        for rank in range(3):
            scene.moving(rank, rank, [REDUCE, REDUCE, REDUCE, own("forward", 20)])
        nobody(scene.moving(3, 0, [own("forward", 20), own("augment", 22)]), "moving")

    def test_two_that_stand_out_are_uneven_work_and_no_straggler(self):
        scene = Scene(looks=20)
        for rank in range(2):
            scene.moving(rank, rank, [REDUCE, REDUCE, REDUCE, own("forward", 20)])
        for rank in (2, 3):
            scene.moving(rank, rank, [own("forward", 20), own("augment", 22), own("augment", 23)])
        nobody(scene, "moving")

    def test_ranks_that_all_sleep_between_epochs_are_not_hung(self):
        nobody(waiting(Scene(), path=own("pause", 90)), "undecided")


class TestCamps:
    def test_two_camps_of_the_same_size_are_undecided(self):
        scene = waiting(Scene(), 2, 3).rank(2, collective("broadcast", 41)).rank(3, collective("broadcast", 41))
        verdict = nobody(scene, "undecided")
        assert "all_reduce" in verdict.summary and "broadcast" in verdict.summary

    def test_three_camps_are_undecided(self):
        scene = waiting(Scene(8), 6, 7).rank(6, collective("broadcast", 41)).rank(7, collective("barrier", 50))
        nobody(scene, "undecided")

    def test_the_same_operation_from_another_line_is_no_mismatch(self):
        nobody(waiting(Scene(), 0).rank(0, collective("all_reduce", 77)), "undecided")

    def test_ranks_known_to_be_in_groups_of_their_own_may_wait_in_different_places(self):
        given = (Local(1, "kwargs", "{'group': <ProcessGroup at 0x7f>}"),)
        nobody(waiting(Scene(), 1).rank(1, collective("broadcast", 41), locals=given), "undecided")

    def test_all_in_one_collective_with_nobody_behind_names_nobody(self):
        verdict = waiting(Scene()).verdict()
        assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "external", [])

    def test_all_in_their_data_loaders_point_at_what_they_share(self):
        verdict = nobody(waiting(Scene(), path=LOADER), "undecided")
        assert verdict.kind == "external"


class TestUnseen:
    def test_a_rank_without_a_stack_is_not_behind(self):
        verdict = nobody(waiting(Scene(), 3).rank(3, None), "undecided")
        assert "rank 3" in verdict.next_step and "use sudo" in verdict.next_step

    def test_a_rank_that_cannot_be_read_makes_another_name_less_sure(self):
        verdict = waiting(Scene(), 2, 3).rank(3, None).rank(2, LOCKED).verdict()
        assert (names(verdict), verdict.confidence) == ([(2, "python_lock")], "likely")

    def test_ranks_of_a_lost_node_are_not_blamed_for_its_loss(self):
        verdict = nobody(waiting(Scene(8), 6, 7).rank(6, REDUCE).rank(7, REDUCE).lost("node4"), "undecided")
        assert "node4" in verdict.next_step

    def test_ranks_on_nodes_that_nobody_named_are_not_absent(self):
        scene = waiting(Scene(8), 4, 5, 6, 7, path=SETUP)
        scene.nodes = {"node1": "ok", "node2": "ok"}
        nobody(scene, "undecided")

    def test_a_place_that_says_nothing_is_not_behind(self):
        nobody(waiting(Scene(), 1).rank(1, own("finish", 17)), "undecided")

    def test_a_rank_that_may_wait_for_its_gpu_is_not_taken_to_compute(self):
        scene = waiting(Scene(), 1).rank(1, own("loss_item", 17), state="R", wakes=9, gpu="0")
        nobody(scene, "undecided")
        waits = scene.native(1, own("loss_item", 17), ["cudaStreamSynchronize", "cuStreamSynchronize"])
        assert names(waits.verdict()) == []

    def test_a_job_whose_ranks_have_all_ended_has_none(self):
        scene = Scene(2)
        assert scene.exited(0).exited(1).verdict().state == "no_ranks"


class TestIdentity:
    def test_a_leftover_of_an_older_attempt_is_nobody(self):
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

    def test_looks_of_the_attempt_before_do_not_count_for_the_one_after_it(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        for record in scene.ranks:
            record.attempt = 1
        for stack in scene.stacks:
            stack.attempt = int(stack.sample >= 8)
        nobody(scene, "undecided")

    def test_another_process_under_the_same_pid_is_another(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        for stack in scene.stacks:
            if stack.rank == 1 and stack.sample < 10:
                stack.start_ticks = 1
        nobody(scene, "undecided", "slow")

    def test_two_jobs_are_judged_apart(self):
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


class TestPartOfAJob:
    def test_ranks_that_go_on_in_groups_of_their_own_lower_the_confidence(self):
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

    def test_one_who_polls_in_its_own_code_is_not_named_beside_one_who_sleeps(self):
        scene = waiting(Scene(), 0, 1).rank(0, own("wait_patiently"), syscall="clock_nanosleep", wakes=5)
        verdict = scene.rank(1, own("fetch"), syscall="recvfrom").verdict()
        assert (names(verdict), verdict.confidence) == ([(1, "network_io")], "likely")

    def test_ranks_that_all_poll_are_behind(self):
        scene = waiting(Scene(), 1, 2, 3)
        for rank in (1, 2, 3):
            scene.rank(rank, own("wait_for_file"), syscall="clock_nanosleep", wakes=5)
        assert names(scene.verdict()) == [(1, "sleep"), (2, "sleep"), (3, "sleep")]


class TestOtherSources:
    def recorder(self, *ranks, entered=(0, 2, 3), seq=1423):
        absence = Absence("dp_17", "all_reduce", seq, ranks, entered)
        return (CollectiveEvidence("flight recorder", (0, 1, 2, 3), (absence,)),)

    def test_a_source_that_agrees_is_in_the_sentence(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        scene.collectives = self.recorder(1)
        verdict = scene.verdict()
        assert (names(verdict), verdict.confidence) == ([(1, "python_lock")], "certain")
        assert "never entered all_reduce #1423 of group dp_17" in verdict.summary

    def test_a_source_that_differs_is_shown_and_lowers_the_confidence(self):
        scene = waiting(Scene(), 1).rank(1, LOCKED)
        scene.collectives = self.recorder(2)
        verdict = scene.verdict()
        assert (names(verdict), verdict.confidence) == ([(1, "python_lock")], "likely")
        assert any("points at rank 2" in line for line in verdict.evidence)

    def test_a_source_may_name_whom_the_stacks_cannot(self):
        scene = waiting(Scene(), 1).rank(1, own("finish", 17))
        scene.collectives = self.recorder(1)
        verdict = scene.verdict()
        assert (verdict.kind, names(verdict), verdict.confidence) == ("rank_missing", [(1, "unknown")], "possible")

    def test_a_source_that_misses_one_who_is_seen_waiting_names_nobody(self):
        scene = waiting(Scene())
        scene.collectives = self.recorder(1)
        assert names(scene.verdict()) == []

    def test_a_mismatch_names_the_smaller_camp_and_a_tie_nobody(self):
        scene = waiting(Scene())
        camps = (("shape [4]", (0, 2, 3)), ("shape [8]", (1,)))
        scene.collectives = (CollectiveEvidence("flight recorder", (0, 1, 2, 3), (), (Mismatch("world", 7, camps),)),)
        verdict = scene.verdict()
        assert (verdict.kind, verdict.confidence) == ("collective_mismatch", "likely")
        assert names(verdict) == [(1, "collective")]
        tie = (("shape [4]", (0, 2)), ("shape [8]", (1, 3)))
        scene.collectives = (CollectiveEvidence("flight recorder", (0, 1, 2, 3), (), (Mismatch("world", 7, tie),)),)
        assert names(scene.verdict()) == []


def test_a_framework_of_ones_own_waits_as_torch_does():
    ring = (MAIN, StackFrame("ring_reduce", "/home/user/mylib/comm.py", 9))
    scene = waiting(Scene(), 1, path=ring).rank(1, own(), syscall="recvfrom")
    scene.models = (Model("collective", r"(^|/)mylib/comm\.py$", "ring_reduce"),)
    assert names(scene.verdict()) == [(1, "network_io")]
