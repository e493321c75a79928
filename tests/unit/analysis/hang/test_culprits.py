"""Culprits of a verdict: one case per rule, on synthetic ranks."""

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

from gconsole.analysis.hang.progress import LEAST_COMPUTES_S, LEAST_LONG_WORK_S, LEAST_START_S
from gconsole.records import Local, StackFrame, WaitTarget


def waiting(scene, *but, path=REDUCE):
    for rank in range(scene.world):
        if rank not in but:
            scene.rank(rank, path)
    return scene


def at_line(source):
    return (MAIN, StackFrame("put", "/home/user/job/train.py", 9, source))


@pytest.mark.parametrize(("path", "facts", "cls"), [
    (own(), {"syscall": "clock_nanosleep"}, "sleep"),
    (own(), {"syscall": "pause"}, "sleep"),
    (own(), {"syscall": "rt_sigtimedwait"}, "sleep"),
    (own(), {"syscall": "fsync"}, "file_io"),
    (own(), {"syscall": "fdatasync"}, "file_io"),
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
    ((MAIN, StackFrame("tidy", "/home/user/job/train.py", 9, "freed += gc.collect()")),
     {"state": "R", "syscall": None, "wakes": 40}, "gc"),
    (at_line("self._slots.acquire()"), {"syscall": "futex"}, "python_lock"),
    (at_line("with self.state_lock:"), {"syscall": "futex"}, "python_lock"),
    (own(), {"gil": "MainThread"}, "gil_held"),
])  # fmt: skip
def test_rank_missing_from_the_collective_is_the_culprit_with_its_activity_class(path, facts, cls):
    scene = Scene(every_s=3.0 if cls == "compute" else 0.5)
    verdict = waiting(scene, 2).rank(2, path, **facts).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_missing", [(2, cls)])
    assert verdict.victims == (0, 1, 3)
    assert "rank 2" in verdict.summary and "all_reduce (train.py:30 step)" in verdict.summary


@pytest.mark.parametrize("line", ["handle.wait()", "with self.block:", "with lock: handle.wait()", "with clock():"])
def test_native_call_whose_line_takes_no_lock_may_be_an_operation(line):
    scene = waiting(Scene(), 2).rank(2, at_line(line), syscall="futex")
    assert scene.verdict().state == "undecided"


def test_process_without_any_frame_as_one_that_ends_is_no_error():
    scene = waiting(Scene(), 2).rank(2, (), state="R", syscall=None, wakes=9)
    assert names(scene.verdict()) in ([], [(2, "compute")], [(2, "unknown")])


def test_child_process_without_any_frame_is_no_error():
    pool = (MAIN, StackFrame("get", LIB + "multiprocessing/pool.py", 770), LOCKED[-1])
    scene = waiting(Scene(), 1).rank(1, pool).child(1, (), role="child")
    assert names(scene.verdict()) == [(1, "python_lock")]


def test_verdict_is_certain_for_a_sleeping_culprit_but_not_a_running_one():
    assert waiting(Scene(), 1).rank(1, own(), syscall="fsync").verdict().confidence == "certain"
    spins = waiting(Scene(every_s=3.0), 1).rank(1, own("spin"), state="R", wakes=40).verdict()
    assert spins.confidence == "likely", "it may be slow"


def test_a_rank_that_computes_for_seconds_is_given_time():
    judged = waiting(Scene(), 1).rank(1, own("augment"), state="R", wakes=40).judged()
    assert (judged.verdict.state, judged.verdict.culprits) == ("undecided", ())
    assert judged.missing.more_s == pytest.approx(LEAST_COMPUTES_S - 5.5)
    assert "sampled for 5.5 s of the 30 s that a verdict requires; so far: rank 1" in judged.verdict.summary


@pytest.mark.parametrize(
    ("own_function", "ended_s_ago", "samples", "state"),
    [("spin", 8.0, 4, "hung"), ("train", 8.0, 4, "undecided"), ("spin", 40.0, 4, "undecided"),
     ("spin", 8.0, 1, "undecided")],
    ids=["in the same calls", "elsewhere", "long before", "once"],
)  # fmt: skip
def test_light_samples_before_the_capture_count_for_a_rank_that_computes(own_function, ended_s_ago, samples, state):
    scene = waiting(Scene(), 1).rank(1, own("spin"), state="R", wakes=40)
    scene.light_samples(1, own(own_function, 77), for_s=30.0, ago_s=ended_s_ago, samples=samples)
    assert scene.verdict().state == state


def test_majority_outside_the_collective_are_the_culprits():
    verdict = waiting(Scene(), 1, 2, 3)
    for rank in (1, 2, 3):
        verdict.rank(rank, LOADER, syscall="poll")
    verdict = verdict.verdict()
    assert names(verdict) == [(1, "dataloader"), (2, "dataloader"), (3, "dataloader")]
    assert verdict.victims == (0,)


def test_ranks_missing_for_different_reasons_are_all_culprits():
    scene = waiting(Scene(8), 1, 4).rank(1, LOCKED).rank(4, own(), syscall="fsync")
    assert names(scene.verdict()) == [(1, "python_lock"), (4, "file_io")]


def test_stopped_rank_is_the_culprit_even_inside_the_collective():
    verdict = waiting(Scene(), 3).rank(3, REDUCE, state="T").verdict()
    assert (verdict.kind, names(verdict), verdict.confidence) == ("rank_stopped", [(3, "stopped")], "certain")
    assert "kill -CONT 103 on node2" in verdict.next_step


@pytest.mark.parametrize("letter", ["S", "D"], ids=["cgroup v2", "cgroup v1"])
def test_rank_in_a_frozen_cgroup_is_the_culprit_whatever_its_stack_shows(letter):
    verdict = waiting(Scene(), 3).rank(3, REDUCE, state=letter, frozen=True).verdict()
    assert (verdict.kind, names(verdict), verdict.confidence) == ("rank_stopped", [(3, "stopped")], "certain")
    assert "its cgroup is frozen" in verdict.summary
    assert verdict.next_step.startswith("thaw its cgroup on node2")


def test_rank_traced_by_a_debugger_is_reported_as_stopped_by_it():
    verdict = waiting(Scene(), 0).rank(0, own(), state="t", tracer_pid=77).verdict()
    assert (verdict.kind, names(verdict)) == ("rank_stopped", [(0, "debugger")])
    assert "pid 77" in verdict.summary


def test_rank_in_d_state_in_every_sample_is_reported_as_blocked():
    verdict = waiting(Scene(), 1).rank(1, own(), state="D", syscall="openat", wchan="nfs_wait_bit_killable").verdict()
    assert (verdict.kind, names(verdict)) == ("rank_blocked", [(1, "uninterruptible")])
    assert "nfs_wait_bit_killable" in verdict.summary and "nfs_wait_bit_killable" in verdict.next_step


def test_rank_in_d_state_in_some_samples_is_classified_as_file_io():
    scene = waiting(Scene(looks=4, every_s=2.0), 1).rank(1, own("load"), state="D", syscall="pread64")
    for stack in scene.stacks[:]:
        if stack.rank == 1 and stack.sample % 2:
            scene.stacks.remove(stack)
            scene.stacks.append(msgspec.structs.replace(stack, proc_state="S"))
    assert names(scene.verdict()) == [(1, "file_io")]


def test_stopped_rank_takes_precedence_over_a_computing_one():
    scene = waiting(Scene(), 1, 2).rank(1, REDUCE, state="T").rank(2, own("spin"), state="R", wakes=9)
    assert names(scene.verdict()) == [(1, "stopped")]


def test_exited_rank_is_the_only_culprit_and_its_waiters_are_not():
    verdict = waiting(Scene(), 3).exited(3, "killed by signal 9 (SIGKILL)").verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_dead", [(3, "dead")])
    assert "killed by signal 9 (SIGKILL)" in verdict.summary
    assert (verdict.culprits[0].node, verdict.culprits[0].pid) == ("node2", 103)


def test_rank_killed_by_a_signal_is_the_culprit_among_several_dead():
    scene = waiting(Scene(), 1, 2).exited(1, "exit code 1", 1).exited(2, "killed by signal 11 (SIGSEGV)", -11)
    verdict = scene.verdict()
    assert names(verdict) == [(2, "dead")]
    assert "then rank 1" in verdict.summary


def test_first_rank_to_exit_is_the_culprit_among_several_dead():
    scene = waiting(Scene(), 1, 2).exited(1, "exit code 1", 1, after_s=9.0).exited(2, "exit code 1", 1)
    assert names(scene.verdict()) == [(2, "dead")]


def test_dead_ranks_with_unknown_exit_order_are_all_culprits_with_likely_confidence():
    verdict = waiting(Scene(), 1, 2).exited(1, "exit code 1", 1).exited(2, "exit code 1", 1).verdict()
    assert (names(verdict), verdict.confidence) == ([(1, "dead"), (2, "dead")], "likely")


def test_rank_missing_during_setup_is_reported_as_absent_when_it_had_time_to_start():
    early = waiting(Scene(), 2, path=SETUP).judged()
    assert (early.verdict.state, early.verdict.culprits) == ("undecided", ())
    assert "so far: rank 2 of 4 was never found" in early.verdict.summary
    assert early.missing.more_s == pytest.approx(LEAST_START_S - 5.5)
    verdict = waiting(Scene(every_s=3.0), 2, path=SETUP).verdict()
    assert (verdict.kind, names(verdict), verdict.state) == ("rank_absent", [(2, "missing")], "hung")
    assert (verdict.culprits[0].node, verdict.culprits[0].site) == (None, None)


def test_all_ranks_of_a_node_without_processes_are_reported_missing():
    assert names(waiting(Scene(6, every_s=3.0), 2, 3, path=SETUP).verdict()) == [(2, "missing"), (3, "missing")]


def test_rank_missing_after_setup_is_reported_as_dead():
    verdict = waiting(Scene(), 3).verdict()
    assert (verdict.kind, names(verdict), verdict.culprits[0].node) == ("rank_dead", [(3, "dead")], "node2")
    assert verdict.confidence == "likely", "its exit was not observed"


def test_culprit_site_is_the_busy_worker_of_a_waiting_data_loader():
    idle = (StackFrame("_worker_loop", SITE + "torch/utils/data/_utils/worker.py", 200),)
    busy = (*idle, StackFrame("fetch", SITE + "torch/utils/data/_utils/fetch.py", 50), at(12, "__getitem__"))
    scene = waiting(Scene(), 1).rank(1, LOADER, syscall="poll").child(1, idle)
    for look in range(scene.looks):
        scene._look(1, look, busy, role="dataloader_worker", pid=950, syscall="read", wchan="pipe_read")
    verdict = scene.verdict()
    assert names(verdict) == [(1, "dataloader")]
    assert (verdict.culprits[0].site.function, verdict.culprits[0].site.line) == ("__getitem__", 12)
    assert any("pid 950" in line and "file io" in line for line in verdict.evidence)


def test_stopped_data_loader_worker_makes_its_rank_the_culprit():
    verdict = waiting(Scene(), 1).rank(1, LOADER, syscall="poll").child(1, REDUCE, state="T").verdict()
    assert names(verdict) == [(1, "dataloader")]
    assert any("stopped" in line for line in verdict.evidence)


def test_main_thread_in_join_takes_the_position_of_the_joined_thread():
    joins = (MAIN, StackFrame("join", LIB + "threading.py", 1100))
    in_reduce = Scene().rank(0, joins, threads=[("trainer", REDUCE)])
    for rank in (1, 2):
        in_reduce.rank(rank, REDUCE)
    verdict = in_reduce.rank(3, own(), syscall="fsync").verdict()
    assert (names(verdict), verdict.victims) == ([(3, "file_io")], (0, 1, 2))


def test_native_stack_resolves_an_undecided_verdict_to_a_python_lock():
    locked = own("flush", 16)
    scene = waiting(Scene(), 2).rank(2, locked)
    assert scene.verdict().state == "undecided"
    assert [key[1] for key in scene.judged().missing.native] == [102]
    verdict = scene.native(2, locked, ["lock_PyThread_acquire_lock", "PyThread_acquire_lock_timed"]).verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(2, "python_lock")])


def test_native_work_wait_is_recognized_as_a_collective():
    handle = own("finish", 17)
    scene = Scene().rank(3, own(), syscall="clock_nanosleep")
    for rank in range(3):
        scene.rank(rank, handle)
    scene.native(0, handle, ["THPFunction_apply", "c10d::Work::wait(std::chrono::duration)"])
    verdict = scene.verdict()
    assert (names(verdict), verdict.victims, verdict.confidence) == ([(3, "sleep")], (0, 1, 2), "certain")


def test_native_stack_distinguishes_garbage_collection_from_computing():
    scene = waiting(Scene(), 0).rank(0, own("tidy"), state="R", wakes=9).native(0, own("tidy"), ["gc_collect_main"])
    assert names(scene.verdict()) == [(0, "gc")]


def peer(path, name, rank):
    return (Local(len(path) - 1, name, str(rank)),)


def test_ranks_receiving_from_each_other_in_a_ring_are_a_p2p_cycle():
    path = collective("recv")
    scene = Scene()
    for rank in range(4):
        scene.rank(rank, path, locals=peer(path, "src", (rank - 1) % 4))
    verdict = scene.verdict()
    assert (verdict.kind, [rank for rank, _ in names(verdict)]) == ("p2p_cycle", [0, 1, 2, 3])
    assert "0→3→2→1→0" in verdict.summary


def test_p2p_cycle_without_locals_is_undecided_and_requests_the_locals():
    scene = waiting(Scene(), path=collective("recv"))
    assert (scene.verdict().state, names(scene.verdict())) == ("undecided", [])
    assert len(scene.judged().missing.variables) == 4


def test_send_matched_by_its_receive_is_not_a_p2p_cycle():
    send, recv = collective("send"), collective("recv", 31)
    scene = Scene(2).rank(0, send, locals=peer(send, "dst", 1)).rank(1, recv, locals=peer(recv, "src", 0))
    assert names(scene.verdict()) == []


def test_rank_in_a_different_collective_is_a_mismatch_with_likely_confidence():
    verdict = waiting(Scene(), 1).rank(1, collective("broadcast", 41)).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "collective_mismatch", [(1, "collective")])
    assert verdict.confidence == "likely"


def test_a_job_of_one_rank_has_one_culprit():
    assert names(Scene(1, 1).rank(0, LOCKED).verdict()) == [(0, "python_lock")]


@pytest.mark.parametrize("frames", [own("ask"), LOCKED], ids=["sleep", "wait with a limit"])
@pytest.mark.parametrize(
    ("left_s", "state"),
    [(9.0, "undecided"), (3600.0, "hung"), (None, "hung")],
    ids=["pause", "for an hour", "no limit"],
)
def test_a_rank_in_a_pause_that_is_about_to_end_is_given_time(frames, left_s, state):
    syscall = "clock_nanosleep" if frames is not LOCKED else "futex"
    scene = waiting(Scene(), 1).rank(1, frames, syscall=syscall, thread_wakes_in_s=left_s)
    assert scene.verdict().state == state


def test_a_rank_that_polls_by_short_sleeps_is_given_time_too():
    facts = {"syscall": "clock_nanosleep", "thread_wakes_in_s": 0.4, "wakes": 2}
    assert waiting(Scene(), 1).rank(1, own("ask"), **facts).verdict().state == "undecided"
    verdict = waiting(Scene(every_s=3.0), 1).rank(1, own("ask"), **facts).verdict()
    assert (verdict.state, names(verdict), verdict.confidence) == ("hung", [(1, "sleep")], "likely")
    assert "caveat: its waits are limited, so it may poll or try again" in verdict.evidence


#: A rank that pauses again and again, as one does whose work is done by a GPU, a service or a file system.
PAUSES = {"syscall": "clock_nanosleep", "thread_wakes_in_s": 0.4, "wakes": 2}


@pytest.mark.parametrize(
    ("function", "verb"),
    [("evaluate", "evaluate"), ("_run_validation", "evaluate"), ("save_checkpoint", "save"), ("T.write_ckpt", "save")],
)
def test_rank_that_evaluates_or_saves_may_do_so_for_ten_minutes(function, verb):
    frames = (*own(function), at(12, "wait_for_batch"))
    verdict = waiting(Scene(every_s=4.0), 1).rank(1, frames, **PAUSES).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("slow", "none", [])
    assert f"Rank 1 may {verb} for 10 min." in verdict.summary
    scene = waiting(Scene(every_s=4.0), 1).rank(1, frames, **PAUSES)
    scene.light_samples(1, frames, for_s=LEAST_LONG_WORK_S, ago_s=40.0)
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(1, "sleep")])


@pytest.mark.parametrize("function", ["checkpointed_block", "save_figure", "evaluator"])
def test_function_that_only_sounds_so_is_no_evaluation_or_checkpoint(function):
    frames = (*own(function), at(12, "wait_for_batch"))
    assert waiting(Scene(every_s=4.0), 1).rank(1, frames, **PAUSES).verdict().state == "hung"


def test_rank_that_evaluates_but_waits_for_a_file_is_a_hang():
    frames = (*own("evaluate"), at(12, "read"))
    assert names(waiting(Scene(), 1).rank(1, frames, syscall="read", wchan="pipe_read").verdict()) == [(1, "file_io")]


def test_data_loader_whose_worker_pauses_is_given_time():
    def scene(every_s):
        return waiting(Scene(every_s=every_s), 1).rank(1, LOADER, syscall="poll").child(1, own("read"), **PAUSES)

    assert scene(1.0).verdict().state == "undecided"
    assert names(scene(3.0).verdict()) == [(1, "dataloader")]


def test_short_capture_does_not_show_that_a_rank_that_pauses_stands_still():
    scene = waiting(Scene(looks=3, every_s=0.12), 1).rank(1, own("ask"), **PAUSES)
    for rank in (0, 2, 3):
        scene.watched(rank, 60.0)
    scene.light_samples(1, own("ask"), for_s=60.0, ago_s=3.0)
    assert scene.verdict().state == "undecided"


def test_a_pause_that_lasts_all_the_same_is_a_hang():
    scene = waiting(Scene(every_s=3.0), 1).rank(1, own("ask"), syscall="clock_nanosleep", thread_wakes_in_s=9.0)
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(1, "sleep")])
    assert "ends by itself in ≤ 9 s" in verdict.evidence[0]


@pytest.mark.parametrize("frames", [own("ask"), LOCKED], ids=["sleep", "wait with a limit"])
def test_long_wait_that_ends_by_itself_is_no_hang(frames):
    syscall = "clock_nanosleep" if frames is not LOCKED else "futex"
    scene = waiting(Scene(), 1).rank(1, frames, syscall=syscall, thread_wakes_in_s=41.0, thread_slept_s=4.0)
    verdict = scene.verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("slow", "none", [])
    assert "Rank 1 goes on by itself within 41 s." in verdict.summary


def test_long_wait_that_was_repeated_in_vain_is_a_hang():
    facts = {"syscall": "clock_nanosleep", "thread_wakes_in_s": 41.0, "thread_slept_s": 4.0}
    verdict = waiting(Scene(every_s=9.0), 1).rank(1, own("ask"), **facts).verdict()
    assert (verdict.state, names(verdict), verdict.confidence) == ("hung", [(1, "sleep")], "likely")


@pytest.mark.parametrize(("left_s", "confidence"), [(3600.0, "possible"), (1e6, "certain"), (None, "certain")])
def test_wait_whose_known_end_has_not_passed_is_never_likely(left_s, confidence):
    facts = {"syscall": "clock_nanosleep", "thread_wakes_in_s": left_s}
    verdict = waiting(Scene(), 1).rank(1, own("ask"), **facts).verdict()
    assert (verdict.state, verdict.confidence) == ("hung", confidence)


def test_rank_that_called_exec_is_named_by_what_the_kernel_says_of_it():
    facts = {"status": "not_python", "syscall": "clock_nanosleep"}
    verdict = waiting(Scene(), 1).rank(1, None, **facts).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_missing", [(1, "sleep")])
    assert "rank 1 runs a program other than Python (exec) and has not entered" in verdict.summary
    assert verdict.next_step == "check what it runs on node1: ps -fp 101"
    assert verdict.evidence[0].startswith("stack rank 1 node1 pid 101 MainThread: sleep, no stack (not_python)")


def test_cause_is_not_outside_of_the_ranks_if_one_of_them_was_found_after_the_capture_began():
    scene = Scene()
    verdict = waiting(scene, 1).rank(1, from_look=scene.looks).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("undecided", "none", [])
    assert "no data on rank 1" in verdict.summary


#: A thread that communicates for the job, and the same thread when it has nothing to do.
SENDS = (StackFrame("run", LIB + "threading.py", 1), at(12, "reduce_for_ever"), *REDUCE[2:])
IDLES = (*SENDS[:2], StackFrame("get", LIB + "queue.py", 1), StackFrame("wait", LIB + "threading.py", 300))


@pytest.mark.parametrize(
    ("main", "slept_s", "named"),
    [(own("read_labels"), 9.0, "read_labels"), (own("pause"), 9.0, "pause"), (own("supervise"), 0.1, "reduce_for_ever"),
     (LOCKED, 9.0, "reduce_for_ever")],
    ids=["reads", "sleeps", "polls its thread", "waits for its thread"],
)  # fmt: skip
def test_main_thread_that_keeps_a_training_thread_waiting_is_named(main, slept_s, named):
    syscall = {"read_labels": "openat", "pause": "clock_nanosleep", "supervise": "clock_nanosleep"}
    scene = Scene()
    for rank in (0, 2, 3):
        scene.rank(rank, LOCKED, threads=[("Thread-1", SENDS)])
    scene.rank(1, main, syscall=syscall.get(main[-1].function, "futex"), threads=[("Thread-1", IDLES)],
               thread_slept_s=slept_s)  # fmt: skip
    verdict = scene.verdict()
    assert (verdict.state, [culprit.site.function for culprit in verdict.culprits]) == ("hung", [named])


@pytest.mark.parametrize(
    ("waits", "facts"),
    [
        (LOCKED, {}), (own("recv_result", 9), {"syscall": "epoll_wait"}),
        (own("poll", 9), {"syscall": "clock_nanosleep"}),
        (own("collect", 9), {"waits_for": (WaitTarget(kind="listener", direction="read", local="0.0.0.0 80"),)}),
    ],
    ids=["lock", "event loop", "sleep", "event loop with a server"],
)  # fmt: skip
def test_rank_waits_for_its_child_that_is_stopped(waits, facts):
    """Such as an inference engine, which the rank awaits in an event loop or through threads of a library."""
    scene = waiting(Scene(), 1).rank(1, waits, **facts).child(1, own("busy_loop", 40), role="child", state="T")
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(1, "subprocess")])
    assert "waits for a child process" in verdict.summary
    assert "Process 901 of rank 1 is stopped." in verdict.summary
    assert "kill -CONT 901" in verdict.next_step


@pytest.mark.parametrize(
    ("waits", "facts", "child"),
    [(LOCKED, {}, {"state": "D", "wakes": 3}), (own("spin", 9), {"state": "R", "wakes": 9}, {"state": "T"})],
    ids=["child that reads a disk", "rank that computes"],
)
def test_rank_does_not_wait_for_each_child_that_does_not_run(waits, facts, child):
    scene = waiting(Scene(), 1).rank(1, waits, **facts).child(1, own("load", 40), role="child", **child)
    assert "subprocess" not in {cls for _, cls in names(scene.verdict())}


def test_rank_that_waits_for_its_pool_is_blocked_by_the_process_in_its_own_code():
    pool = StackFrame("get", LIB + "multiprocessing/pool.py", 770)
    waits = (MAIN, pool, StackFrame("wait", LIB + "threading.py", 300))
    works = (StackFrame("worker", LIB + "multiprocessing/pool.py", 125), at(9, "tokenize"))
    scene = waiting(Scene(), 1).rank(1, waits).child(1, works, role="child", syscall="openat")
    verdict = scene.verdict()
    assert names(verdict) == [(1, "subprocess")] and verdict.culprits[0].site.function == "tokenize"
    assert "(process 901)" in verdict.next_step
    beside = waiting(Scene(), 1).rank(1, LOCKED).child(1, works, role="child", syscall="openat").verdict()
    assert names(beside) == [(1, "python_lock")], "nothing shows that it waits for this process"


@pytest.mark.parametrize(
    ("every_s", "movers", "state"),
    [(3.0, (own("forward"), REDUCE), "hung"), (0.5, (own("forward"), REDUCE), "slow"),
     (3.0, (own("forward", 20), own("backward", 24)), "hung")],
    ids=["the others pass steps", "not for long", "the others work"],
)  # fmt: skip
def test_part_of_a_job_that_stands_still_for_long_is_hung(every_s, movers, state):
    scene = Scene(every_s=every_s)
    for rank in (0, 1):
        scene.rank(rank, *movers, wakes=1)
    scene.rank(2, REDUCE).rank(3, own("fetch"), syscall="recvfrom")
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == (state, [(3, "network_io")])


def streaming(received_ago_s):
    ends = (WaitTarget(kind="tcp", direction="read", fd=5, local="10.0.0.1 9", remote="10.0.0.9 80",
                       received_ago_s=received_ago_s),)  # fmt: skip
    return waiting(Scene(), 1).rank(1, own("read"), syscall="recvfrom", waits_for=ends).verdict()


@pytest.mark.parametrize(
    ("received_ago_s", "state"),
    [(9.0, "undecided"), (45.0, "hung"), (None, "hung")],
    ids=["lately", "long ago", "never"],
)
def test_a_stream_on_which_data_arrived_lately_may_only_pause(received_ago_s, state):
    assert streaming(received_ago_s).state == state


@pytest.mark.parametrize(
    ("work", "state"),
    [({"children_cpu_s": 0.0}, "hung"), ({"children_cpu_s": 2.0}, "slow"), ({"children_bytes": 10**6}, "slow"),
     ({}, "hung")],
    ids=["idle", "computes", "reads", "unknown"],
)  # fmt: skip
def test_child_processes_that_work_are_no_hang(work, state):
    scene = waiting(Scene(), 1).rank(1, own("build"), syscall="wait4", **dict.fromkeys(work, 0))
    _last_of(scene, 1, work)
    assert scene.verdict().state == state


@pytest.mark.parametrize(("cpu_s", "state"), [(0.0, "hung"), (2.0, "slow")])
def test_a_compiler_with_threads_of_its_own_works(cpu_s, state):
    compiles = (MAIN, StackFrame("backend_compile", SITE + "jax/_src/compiler.py", 1))
    scene = waiting(Scene(), 1).rank(1, compiles, cpu_s=0.0)
    _last_of(scene, 1, {"cpu_s": cpu_s})
    assert scene.verdict().state == state


def _last_of(scene, rank, facts):
    """Change the last sample of a rank."""
    index = max(index for index, stack in enumerate(scene.stacks) if stack.rank == rank)
    scene.stacks[index] = msgspec.structs.replace(scene.stacks[index], **facts)
