"""Whom a verdict names: every rule on ranks that were made up for it."""

import msgspec
import pytest
from analysis.hang.scenes import (
    LIB,
    LOADER,
    LOCKED,
    MAIN,
    REDUCE,
    SAVE,
    SETUP,
    SITE,
    Scene,
    at,
    collective,
    names,
    own,
)  # fmt: skip

from gconsole.records import Local, StackFrame


def waiting(scene, *but, path=REDUCE):
    for rank in range(scene.world):
        if rank not in but:
            scene.rank(rank, path)
    return scene


@pytest.mark.parametrize(("path", "facts", "cls"), [
    (own(), {"syscall": "clock_nanosleep"}, "sleep"),
    (own(), {"syscall": "fsync"}, "file_io"),
    (own(), {"syscall": "recvfrom"}, "network_io"),
    (own(), {"syscall": "wait4"}, "subprocess"),
    (own(), {"syscall": "read", "wchan": "wait_woken"}, "input"),
    (LOADER, {"syscall": "poll"}, "dataloader"),
    (SAVE, {"syscall": "write"}, "checkpoint_io"),
    (LOCKED, {}, "python_lock"),
    ((MAIN, StackFrame("compile_fx", SITE + "torch/_inductor/compile_fx.py", 1)), {}, "compile"),
    ((MAIN, StackFrame("_find_and_load", "<frozen importlib._bootstrap>", 1)), {}, "import"),
    ((MAIN, StackFrame("interaction", LIB + "pdb.py", 1)), {"syscall": "read"}, "debugger"),
    (own("spin"), {"state": "R", "syscall": None, "wakes": 40}, "compute"),
    (own(), {"gil": "MainThread"}, "gil_held"),
])  # fmt: skip
def test_the_rank_that_is_elsewhere_is_named_with_what_it_does(path, facts, cls):
    verdict = waiting(Scene(), 2).rank(2, path, **facts).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_missing", [(2, cls)])
    assert verdict.victims == (0, 1, 3)
    assert "rank 2" in verdict.summary and "all_reduce (train.py:30 step)" in verdict.summary


def test_certain_is_only_who_sleeps_while_all_others_sleep():
    assert waiting(Scene(), 1).rank(1, own(), syscall="fsync").verdict().confidence == "certain"
    spins = waiting(Scene(), 1).rank(1, own("spin"), state="R", wakes=40).verdict()
    assert spins.confidence == "likely", "it may only take its time"


def test_the_majority_is_named_where_the_majority_is_behind():
    verdict = waiting(Scene(), 1, 2, 3)
    for rank in (1, 2, 3):
        verdict.rank(rank, LOADER, syscall="poll")
    verdict = verdict.verdict()
    assert names(verdict) == [(1, "dataloader"), (2, "dataloader"), (3, "dataloader")]
    assert verdict.victims == (0,)


def test_several_ranks_that_do_different_things_are_all_behind():
    scene = waiting(Scene(8), 1, 4).rank(1, LOCKED).rank(4, own(), syscall="fsync")
    assert names(scene.verdict()) == [(1, "python_lock"), (4, "file_io")]


def test_a_stopped_rank_is_the_culprit_whatever_its_stack_says():
    verdict = waiting(Scene(), 3).rank(3, REDUCE, state="T").verdict()
    assert (verdict.kind, names(verdict), verdict.confidence) == ("rank_stopped", [(3, "stopped")], "certain")
    assert "kill -CONT 103 on node2" in verdict.next_step


def test_a_rank_in_the_hands_of_a_debugger_is_stopped_by_it():
    verdict = waiting(Scene(), 0).rank(0, own(), state="t", tracer_pid=77).verdict()
    assert (verdict.kind, names(verdict)) == ("rank_stopped", [(0, "debugger")])
    assert "pid 77" in verdict.summary


def test_a_rank_in_the_kernel_is_blocked():
    verdict = waiting(Scene(), 1).rank(1, own(), state="D", syscall="openat", wchan="nfs_wait_bit_killable").verdict()
    assert (verdict.kind, names(verdict)) == ("rank_blocked", [(1, "uninterruptible")])
    assert "nfs_wait_bit_killable" in verdict.summary and "nfs_wait_bit_killable" in verdict.next_step


def test_a_rank_that_is_now_and_then_in_the_kernel_is_doing_io():
    scene = waiting(Scene(looks=4, every_s=2.0), 1).rank(1, own("load"), state="D", syscall="pread64")
    for stack in scene.stacks[:]:
        if stack.rank == 1 and stack.sample % 2:
            scene.stacks.remove(stack)
            scene.stacks.append(msgspec.structs.replace(stack, proc_state="S"))
    assert names(scene.verdict()) == [(1, "file_io")]


def test_a_stopped_rank_is_named_before_one_that_only_computes():
    scene = waiting(Scene(), 1, 2).rank(1, REDUCE, state="T").rank(2, own("spin"), state="R", wakes=9)
    assert names(scene.verdict()) == [(1, "stopped")]


def test_a_rank_that_ended_is_dead_and_who_waits_for_it_is_not_blamed():
    verdict = waiting(Scene(), 3).exited(3, "killed by signal 9 (SIGKILL)").verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_dead", [(3, "dead")])
    assert "killed by signal 9 (SIGKILL)" in verdict.summary
    assert (verdict.culprits[0].node, verdict.culprits[0].pid) == ("node2", 103)


def test_of_several_dead_the_one_that_crashed_took_the_others_with_it():
    scene = waiting(Scene(), 1, 2).exited(1, "exit code 1", 1).exited(2, "killed by signal 11 (SIGSEGV)", -11)
    verdict = scene.verdict()
    assert names(verdict) == [(2, "dead")]
    assert "then rank 1" in verdict.summary


def test_of_several_dead_the_first_is_named():
    scene = waiting(Scene(), 1, 2).exited(1, "exit code 1", 1, after_s=9.0).exited(2, "exit code 1", 1)
    assert names(scene.verdict()) == [(2, "dead")]


def test_of_several_dead_whose_order_nobody_saw_none_is_certain():
    verdict = waiting(Scene(), 1, 2).exited(1, "exit code 1", 1).exited(2, "exit code 1", 1).verdict()
    assert (names(verdict), verdict.confidence) == ([(1, "dead"), (2, "dead")], "likely")


def test_a_rank_that_was_never_started_is_absent():
    verdict = waiting(Scene(), 2, path=SETUP).verdict()
    assert (verdict.kind, names(verdict), verdict.state) == ("rank_absent", [(2, "missing")], "hung")
    assert (verdict.culprits[0].node, verdict.culprits[0].site) == (None, None)


def test_a_node_of_the_list_on_which_nothing_was_started_lacks_its_ranks():
    assert names(waiting(Scene(6), 2, 3, path=SETUP).verdict()) == [(2, "missing"), (3, "missing")]


def test_a_rank_that_is_gone_from_a_job_past_its_setup_is_dead():
    verdict = waiting(Scene(), 3).verdict()
    assert (verdict.kind, names(verdict), verdict.culprits[0].node) == ("rank_dead", [(3, "dead")], "node2")
    assert verdict.confidence == "likely", "nobody saw it end"


def test_the_worker_that_a_data_loader_waits_for_is_where_to_look():
    idle = (StackFrame("_worker_loop", SITE + "torch/utils/data/_utils/worker.py", 200),)
    busy = (*idle, StackFrame("fetch", SITE + "torch/utils/data/_utils/fetch.py", 50), at(12, "__getitem__"))
    scene = waiting(Scene(), 1).rank(1, LOADER, syscall="poll").child(1, idle)
    for look in range(scene.looks):
        scene._look(1, look, busy, role="dataloader_worker", pid=950, syscall="read", wchan="pipe_read")
    verdict = scene.verdict()
    assert names(verdict) == [(1, "dataloader")]
    assert (verdict.culprits[0].site.function, verdict.culprits[0].site.line) == ("__getitem__", 12)
    assert any("pid 950" in line and "file_io" in line for line in verdict.evidence)


def test_a_stopped_worker_holds_its_rank():
    verdict = waiting(Scene(), 1).rank(1, LOADER, syscall="poll").child(1, REDUCE, state="T").verdict()
    assert names(verdict) == [(1, "dataloader")]
    assert any("stopped" in line for line in verdict.evidence)


def test_a_main_thread_that_joins_another_stands_where_that_one_stands():
    joins = (MAIN, StackFrame("join", LIB + "threading.py", 1100))
    in_reduce = Scene().rank(0, joins, threads=[("trainer", REDUCE)])
    for rank in (1, 2):
        in_reduce.rank(rank, REDUCE)
    verdict = in_reduce.rank(3, own(), syscall="fsync").verdict()
    assert (names(verdict), verdict.victims) == ([(3, "file_io")], (0, 1, 2))


def test_the_native_calls_tell_what_a_python_call_does_not():
    locked = own("flush", 16)
    scene = waiting(Scene(), 2).rank(2, locked)
    assert scene.verdict().state == "undecided"
    assert [key[1] for key in scene.judged().missing.native] == [102]
    verdict = scene.native(2, locked, ["lock_PyThread_acquire_lock", "PyThread_acquire_lock_timed"]).verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(2, "python_lock")])


def test_a_handle_that_is_waited_for_is_a_collective():
    handle = own("finish", 17)
    scene = Scene().rank(3, own(), syscall="clock_nanosleep")
    for rank in range(3):
        scene.rank(rank, handle)
    scene.native(0, handle, ["THPFunction_apply", "c10d::Work::wait(std::chrono::duration)"])
    verdict = scene.verdict()
    assert (names(verdict), verdict.victims, verdict.confidence) == ([(3, "sleep")], (0, 1, 2), "certain")


def test_what_python_cannot_tell_from_computing_the_native_calls_do():
    scene = waiting(Scene(), 0).rank(0, own("tidy"), state="R", wakes=9).native(0, own("tidy"), ["gc_collect_main"])
    assert names(scene.verdict()) == [(0, "gc")]


def peer(path, name, rank):
    return (Local(len(path) - 1, name, str(rank)),)


def test_ranks_that_wait_for_each_others_messages_are_a_circle():
    path = collective("recv")
    scene = Scene()
    for rank in range(4):
        scene.rank(rank, path, locals=peer(path, "src", (rank - 1) % 4))
    verdict = scene.verdict()
    assert (verdict.kind, [rank for rank, _ in names(verdict)]) == ("p2p_cycle", [0, 1, 2, 3])
    assert "0→3→2→1→0" in verdict.summary


def test_without_their_variables_the_ranks_of_a_circle_are_asked_for_them():
    scene = waiting(Scene(), path=collective("recv"))
    assert (scene.verdict().state, names(scene.verdict())) == ("undecided", [])
    assert len(scene.judged().missing.variables) == 4


def test_a_message_on_its_way_is_no_circle():
    send, recv = collective("send"), collective("recv", 31)
    scene = Scene(2).rank(0, send, locals=peer(send, "dst", 1)).rank(1, recv, locals=peer(recv, "src", 0))
    assert names(scene.verdict()) == []


def test_the_one_that_is_in_another_collective_may_be_named_but_never_for_certain():
    verdict = waiting(Scene(), 1).rank(1, collective("broadcast", 41)).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "collective_mismatch", [(1, "collective")])
    assert verdict.confidence == "likely"


def test_a_job_of_one_rank_has_one_culprit():
    assert names(Scene(1, 1).rank(0, LOCKED).verdict()) == [(0, "python_lock")]
