"""Ranks that poll: a hand-made barrier over files, a store or an HTTP server."""

import pytest
from analysis.hang.scenes import LIB, LOCKED, MAIN, REDUCE, SITE, TRAIN, Scene, at, names, own
from msgspec.structs import replace

from gconsole.records import StackFrame

HEAD = "while not arrived():"
WAITS = (MAIN, StackFrame("meet", TRAIN, 16, "time.sleep(0.1)", loop=HEAD))
ASKS = (MAIN, StackFrame("meet", TRAIN, 15), at(9, "arrived"), StackFrame("urlopen", LIB + "urllib/request.py", 216))
ELSEWHERE = (MAIN, StackFrame("await_licence", TRAIN, 44, "time.sleep(1)", loop="while not granted:"))
FACTS = {"wakes": 5, "syscall": "clock_nanosleep", "thread_wakes_in_s": 0.1}


def polling(*ranks: int, every_s: float = 3.0, paths=(WAITS, ASKS, WAITS), **more) -> Scene:
    scene = Scene(every_s=every_s, **more)
    for rank in ranks:
        scene.rank(rank, *paths, **FACTS)
    return scene


def test_rank_that_stands_still_while_the_others_poll_is_named_as_likely():
    scene = polling(0, 1, 3).rank(2, own("read_manifest"), syscall="openat")
    verdict = scene.verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_missing", [(2, "file_io")])
    assert (verdict.confidence, verdict.victims) == ("likely", (0, 1, 3))
    assert "while the others poll: ranks 0-1,3 in train.py:16 meet (while not arrived():)" in verdict.summary


def test_rank_that_waits_for_its_own_queue_is_named_as_possible():
    verdict = polling(0, 1, 3).rank(2, LOCKED).verdict()
    assert (names(verdict), verdict.confidence) == ([(2, "python_lock")], "possible")


def test_job_whose_ranks_all_poll_is_undecided_and_never_progressing():
    verdict = polling(0, 1, 2, 3).verdict()
    assert (verdict.state, names(verdict), verdict.stalled) == ("undecided", [], False)
    assert verdict.summary.startswith("all observed ranks poll: ranks 0-3 in train.py:16 meet")


def test_ranks_that_poll_in_two_places_are_listed_and_the_smaller_group_is_not_blamed():
    verdict = polling(0, 1, 3).rank(2, ELSEWHERE, **FACTS).verdict()
    assert (verdict.state, names(verdict)) == ("undecided", [])
    assert verdict.next_step.startswith(
        "check what train.py:44 await_licence (while not granted:) and train.py:16 meet"
    )


def test_rank_that_never_came_is_named_where_all_others_poll():
    verdict = polling(0, 1, 3).verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_absent", [(2, "missing")])


def test_short_polling_is_no_reason_for_a_verdict():
    scene = polling(0, 1, 3, every_s=0.5).rank(2, own("read_manifest"), syscall="openat")
    judged = scene.judged()
    assert (judged.verdict.state, names(judged.verdict)) == ("undecided", [])
    assert judged.missing.more_s > 0


@pytest.mark.parametrize(
    "paths",
    [(WAITS, own("forward", 20), WAITS), (WAITS, (replace(MAIN, line=55), *WAITS[1:]), WAITS)],
    ids=["computes between", "calls it from another line"],
)
def test_ranks_that_leave_the_loop_make_progress(paths):
    verdict = polling(0, 1, 2, 3, paths=paths).verdict()
    assert (verdict.state, names(verdict)) == ("moving", [])


def test_loop_for_ever_is_no_poll_loop():
    works = (MAIN, StackFrame("train", TRAIN, 16, "time.sleep(0.1)"))
    assert polling(0, 1, 2, 3, paths=(works,)).verdict().state == "moving"


def test_rank_that_polls_while_others_are_in_a_collective_is_given_time():
    scene = Scene(every_s=1.0).rank(1, WAITS, **FACTS)
    for rank in (0, 2, 3):
        scene.rank(rank, REDUCE)
    assert scene.verdict().state == "undecided"


STEPS = "while goes_on:"
PAUSE = (StackFrame("train", TRAIN, 38, "time.sleep(0.05)", loop=STEPS),)
REDUCES = (StackFrame("train", TRAIN, 30, loop=STEPS), *REDUCE[1:])


@pytest.mark.parametrize("every_s", [0.5, 3.0], ids=["usual", "long"])
@pytest.mark.parametrize("present", [(PAUSE, REDUCES), (REDUCES,)], ids=["seen in both", "only seen waiting"])
def test_loop_whose_condition_is_the_end_of_the_training_polls_nothing(present, every_s):
    scene = Scene(every_s=every_s, looks=12)
    scene.rank(1, *present[:-1], *[present[-1]] * 11, wakes=20)
    for rank in (0, 2, 3):  # never seen outside of the pause between two steps
        scene.rank(rank, PAUSE, **{**FACTS, "wakes": 20, "thread_wakes_in_s": 0.05})
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == ("moving", [])


def test_rank_that_polls_beside_the_collectives_of_the_same_function_is_late():
    waits = (StackFrame("train", TRAIN, 38, "time.sleep(0.05)", loop="while not granted:"),)
    steps = (StackFrame("train", TRAIN, 30), *REDUCE[1:])
    scene = Scene(every_s=3.0, looks=12).rank(1, steps, *[waits] * 11, **FACTS)
    for rank in (0, 2, 3):
        scene.rank(rank, steps)
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(1, "sleep")])


def test_poll_loop_of_a_library_counts():
    acquires = (MAIN, at(7, "lock"), StackFrame("acquire", SITE + "filelock/_api.py", 300, loop="while True:"))
    assert polling(0, 1, 2, 3, paths=(acquires,)).verdict().state == "undecided"


def test_ranks_that_poll_in_each_step_progress_if_they_leave_the_loop_now_and_then():
    paths = (WAITS,) * 9 + (own("forward", 20),) + (WAITS,) * 4
    assert polling(0, 1, 2, 3, every_s=1.0, paths=paths, looks=14).verdict().state == "moving"


def test_loop_that_ranks_entered_before_an_earlier_capture_ended_is_no_progress():
    scene = polling(0, 1, 2, 3, every_s=0.5)
    for rank in range(4):  # an earlier capture, in which they trained
        earlier = Scene(looks=3).rank(rank, own("forward", 20), **FACTS).stacks
        scene.stacks += [replace(stack, capture="b", looked=stack.looked - 60_000_000_000) for stack in earlier]
    assert scene.verdict().state == "undecided"


def test_ranks_that_poll_and_write_data_make_progress():
    scene = Scene(every_s=3.0)
    for rank in range(4):
        scene.rank(rank, WAITS, written_bytes=0, **FACTS)
        own_stacks = [index for index, stack in enumerate(scene.stacks) if stack.rank == rank]
        for number, index in enumerate(own_stacks):
            scene.stacks[index] = replace(scene.stacks[index], written_bytes=9000 * number)
    assert scene.verdict().state == "moving"


BARRIER = (
    MAIN, StackFrame("Barrier.wait", LIB + "threading.py", 690), StackFrame("Barrier._wait", LIB + "threading.py", 1),
    StackFrame("Condition.wait", LIB + "multiprocessing/synchronize.py", 261),
)  # fmt: skip


def test_ranks_in_a_barrier_of_processes_wait_for_the_one_that_has_not_come():
    scene = Scene().rank(2, (MAIN, at(9, "take"), StackFrame("get", LIB + "multiprocessing/queues.py", 103)))
    for rank in (0, 1, 3):
        scene.rank(rank, BARRIER)
    verdict = scene.verdict()
    assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_missing", [(2, "python_lock")])


def test_idle_worker_that_waits_in_a_loop_for_its_next_task_polls_nothing():
    idle = (MAIN, StackFrame("_worker", LIB + "concurrent/futures/thread.py", 81, loop="while True:"))
    scene = Scene(every_s=3.0)
    for rank in range(4):
        scene.rank(rank, idle, wakes=5)
    assert scene.verdict().state == "moving"
