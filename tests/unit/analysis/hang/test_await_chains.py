"""Ranks that wait in an event loop: the place and the class of the task that matters, or none."""

import pytest
from analysis.hang.scenes import LIB, MAIN, REDUCE, Scene, at, names

from gconsole.records import AsyncTask, StackFrame, WaitTarget

ASYNCIO = LIB + "asyncio/"
LOOP = (
    MAIN, StackFrame("run", ASYNCIO + "runners.py", 190), StackFrame("run_forever", ASYNCIO + "base_events.py", 607),
    StackFrame("_run_once", ASYNCIO + "base_events.py", 1884), StackFrame("select", LIB + "selectors.py", 468),
)  # fmt: skip
SLEEP = StackFrame("sleep", ASYNCIO + "tasks.py", 649)
GET = StackFrame("Queue.get", ASYNCIO + "queues.py", 158)
ACQUIRE = StackFrame("Lock.acquire", ASYNCIO + "locks.py", 114)
READ = (StackFrame("StreamReader.readline", ASYNCIO + "streams.py", 563),
        StackFrame("StreamReader._wait_for_data", ASYNCIO + "streams.py", 540))  # fmt: skip
SERVES = StackFrame("Server.serve_forever", ASYNCIO + "base_events.py", 372)
RUN = at(10, "main")
OF_THREAD = "concurrent.futures.Future"


def task(name, *frames, awaits="Future", tasks=(), main=False, fd=None):
    return AsyncTask(name=name, frames=frames, awaits=awaits, tasks=tasks, is_main=main, fd=fd)


def waiting(*tasks, scene=None, looks=12, **more):
    """Ranks 0, 2 and 3 wait in a collective, rank 1 in an event loop with these tasks."""
    scene = scene or Scene(looks=looks)
    for rank in (0, 2, 3):
        scene.rank(rank, REDUCE)
    return scene.rank(1, LOOP, syscall="epoll_wait", tasks=tuple(tasks) or None, **more)


def place(verdict):
    [culprit] = verdict.culprits
    return culprit.class_, culprit.site.function, culprit.site.line


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([task("Task-1", RUN, at(22, "fetch"), *READ, main=True)], ("network_io", "fetch", 22)),
        ([task("Task-1", RUN, at(22, "poll"), SLEEP, main=True)], ("sleep", "poll", 22)),
        ([task("Task-1", RUN, at(22, "take"), GET, main=True)], ("python_lock", "take", 22)),
        ([task("Task-1", RUN, at(22, "answer"), main=True)], ("python_lock", "answer", 22)),
        ([task("Task-1", RUN, main=True, awaits="Task", tasks=(1,)), task("b", at(40, "fetch"), *READ)],
         ("network_io", "fetch", 40)),
        ([task("Task-1", RUN, main=True, awaits="_GatheringFuture", tasks=(1, 2)), task("b", at(40, "fetch"), *READ),
          task("c", at(40, "fetch"), *READ)], ("network_io", "fetch", 40)),
        ([task("Task-1", RUN, at(22, "enter"), ACQUIRE, main=True, tasks=(1,)),
          task("b", at(50, "refresh"), *READ)], ("network_io", "refresh", 50)),
        ([task("Task-1", RUN, main=True, awaits="_GatheringFuture", tasks=(1, 2)), task("b", at(40, "fetch"), *READ),
          task("c", at(60, "train"), GET)], ("network_io", "fetch", 40)),
        ([task("Task-1", RUN, StackFrame("wait_for", ASYNCIO + "tasks.py", 507), at(22, "take"), GET, main=True)],
         ("python_lock", "take", 22)),
        ([task("one", at(40, "fetch"), *READ)], ("network_io", "fetch", 40)),
        ([task("Task-1", RUN, SERVES, main=True), task("b", at(40, "handle"), SLEEP)], ("sleep", "handle", 40)),
        ([task("Task-1", RUN, main=True, tasks=(1,)), task("b", at(40, "enter"), ACQUIRE, tasks=(2,)),
          task("c", at(41, "enter"), ACQUIRE, tasks=(1,))], ("python_lock", "enter", 41)),
    ],
    ids=["stream", "sleep", "queue", "future", "task", "gather of equals", "lock", "waits for a task that reads",
         "with a limit", "only task", "request of a server", "locks in a circle"],
)  # fmt: skip
def test_rank_is_where_the_task_is_that_its_event_loop_runs(tasks, expected):
    verdict = waiting(*tasks).verdict()
    assert (verdict.state, place(verdict)) == ("hung", expected)


@pytest.mark.parametrize(
    "tasks",
    [
        [task("a", at(40, "fetch"), *READ), task("b", at(50, "report"), SLEEP)],
        [task("Task-1", RUN, SERVES, main=True), task("b", at(40, "handle"), SLEEP), task("c", at(50, "other"), GET)],
        [],
    ],
    ids=["no main task", "several requests of a server", "no tasks"],
)
def test_rank_keeps_the_place_of_its_event_loop_where_nothing_decides(tasks):
    verdict = waiting(*tasks).verdict()
    assert (verdict.state, place(verdict)) == ("hung", ("network_io", MAIN.function, MAIN.line))
    lines = [line for line in verdict.evidence if line.startswith("task ")]
    assert len(lines) == len(tasks), "they are listed all the same"


def test_gathered_tasks_in_different_places_leave_the_place_that_gathers():
    verdict = waiting(
        task("Task-1", RUN, main=True, awaits="_GatheringFuture", tasks=(1, 2)),
        task("b", at(40, "fetch"), *READ), task("c", at(50, "report"), SLEEP),
    ).verdict()  # fmt: skip
    assert place(verdict)[1:] == ("main", 10)
    assert "task c of rank 1: report (train.py:50), awaits sleep" in verdict.evidence
    assert "task Task-1 of rank 1: main (train.py:10), awaits 2 tasks" in verdict.evidence


def test_evidence_lists_at_most_8_tasks():
    others = [task(f"t{number}", at(number, "fetch"), *READ) for number in range(60)]
    evidence = waiting(task("Task-1", RUN, at(22, "take"), GET, main=True), *others).verdict().evidence
    listed = [line for line in evidence if line.startswith("task ")]
    assert len(listed) == 8
    assert listed[0] == "task Task-1 of rank 1: main (train.py:10) → take (train.py:22), awaits Queue.get"


def test_thread_whose_result_a_task_awaits_is_analysed():
    worker = (StackFrame("_worker", LIB + "concurrent/futures/thread.py", 83),
              StackFrame("run", LIB + "concurrent/futures/thread.py", 58))  # fmt: skip
    reads, idle = (*worker, at(70, "read_shard")), worker[:1]
    main = task("Task-1", RUN, at(22, "load"), awaits=OF_THREAD, main=True)
    scene = waiting(main, threads=[("asyncio_0", reads), ("asyncio_1", idle)],
                    thread_state="S", thread_syscall="openat")  # fmt: skip
    verdict = scene.verdict()
    assert place(verdict) == ("file_io", "read_shard", 70)
    assert any(line.endswith("load (train.py:22), awaits a thread") for line in verdict.evidence)
    both = waiting(main, threads=[("asyncio_0", reads), ("asyncio_1", (*worker, at(80, "other")))]).verdict()
    assert place(both) == ("python_lock", "load", 22), "which of them is unknown"
    collective = Scene().rank(1, LOOP, tasks=(main,), syscall="epoll_wait", threads=[("asyncio_0", (*worker, *REDUCE[1:]))])  # fmt: skip # noqa: E501
    for rank in (0, 2):
        collective.rank(rank, REDUCE)
    collective.rank(3, (MAIN, at(7, "rest")), syscall="clock_nanosleep")
    assert names(collective.verdict()) == [(3, "sleep")], "rank 1 waits in a collective"


def tcp(fd, rank):
    return WaitTarget(kind="tcp", direction="read", fd=fd, local=f"10.0.0.1 {fd}", remote="x 1", pids=(100 + rank,))


def test_only_the_connection_that_the_task_waits_for_is_an_edge():
    scene = Scene(per_node=4)
    polls = (tcp(5, 1), tcp(6, 2), tcp(7, 3))
    main = task("Task-1", RUN, at(22, "ask"), *READ, fd=6, main=True)
    scene.rank(0, LOOP, syscall="epoll_wait", waits_for=polls, tasks=(main,))
    for rank, fd in ((1, 15), (3, 17)):
        serves = task("Task-1", RUN, at(30, "serve"), *READ, fd=fd, main=True)
        scene.rank(rank, LOOP, syscall="epoll_wait", waits_for=(tcp(fd, 0),), tasks=(serves,))
    scene.rank(2, (MAIN, at(9, "render")), syscall="clock_nanosleep")
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(2, "sleep")])
    assert "Rank 0 waits for rank 2" in verdict.summary or "rank 0 waits for rank 2" in verdict.summary


def test_a_sleep_is_not_ended_by_a_connection():
    scene = Scene(per_node=4).rank(1, REDUCE).rank(2, REDUCE).rank(3, REDUCE)
    main = task("Task-1", RUN, at(22, "pause"), SLEEP, main=True)
    verdict = scene.rank(0, LOOP, syscall="epoll_wait", waits_for=(tcp(5, 1),), tasks=(main,)).verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(0, "sleep")])


def test_controller_waits_for_the_rank_whose_answer_it_awaits():
    scene = Scene(per_node=4)
    for rank in (0, 1, 3):
        scene.rank(rank, (MAIN, at(5, "serve")), syscall="recvfrom", waits_for=(
            WaitTarget(kind="tcp", direction="read", fd=4, local="x 2", remote="x 3", pids=(4242,)),))  # fmt: skip
    scene.rank(2, (MAIN, at(9, "render")), syscall="clock_nanosleep")
    main = task("Task-1", RUN, at(22, "ask"), *READ, fd=6, main=True)
    scene.peer(4242, LOOP, syscall="epoll_wait", waits_for=(tcp(5, 1), tcp(6, 2), tcp(7, 3), tcp(8, 0)), tasks=(main,))
    verdict = scene.verdict()
    assert (verdict.state, names(verdict)) == ("hung", [(2, "sleep")])
    assert any("of process 4242 on node1" in line for line in verdict.evidence)


def test_tasks_are_requested_of_what_waits_in_an_event_loop_and_only_once():
    unread = waiting()
    assert unread.judged().missing.tasks == (("node1", 101, 7),)
    assert waiting(task("Task-1", RUN, main=True)).judged().missing.tasks == ()
    busy = Scene().rank(1, (*LOOP[:4], at(80, "callback")), syscall=None, state="R")
    assert busy.judged().missing.tasks == ()


def test_tasks_that_were_read_before_the_rank_moved_on_do_not_count():
    scene = Scene()
    for rank in (0, 2, 3):
        scene.rank(rank, REDUCE)
    scene.looks = 2
    scene.rank(1, (MAIN, at(12, "other")), syscall="read", tasks=(task("a", RUN, at(22, "old"), *READ, main=True),))
    scene.looks = 14
    scene.rank(1, LOOP, syscall="epoll_wait", from_look=2)
    assert place(scene.verdict())[1] == MAIN.function


@pytest.mark.parametrize(
    "tasks",
    [
        [task("a", main=True)],
        [task("a", RUN, main=True, tasks=(7, 0, 99999))],
        [task("", *[at(5, "deep")] * 1000, main=True, tasks=(1,)), task("b", *[at(6, "deep")] * 1000)],
        [task(f"t{number}", RUN, main=True, tasks=tuple(range(80))) for number in range(80)],
    ],
    ids=["no frames", "positions of no task", "deep", "all wait for all"],
)
def test_odd_tasks_raise_nothing(tasks):
    assert waiting(*tasks).verdict().state == "hung"


@pytest.mark.parametrize(
    ("others", "waits"),
    [([task("b", at(50, "report"), SLEEP)], False), ([task("b", at(50, "receive"))], True)],
    ids=["nothing from outside", "future of a library"],
)
def test_queue_is_filled_through_a_library_only_if_a_task_waits_for_one(others, waits):
    main = task("Task-1", RUN, at(22, "take"), GET, main=True)
    event, sockets = (WaitTarget(kind="event", fd=4),), (tcp(8, 0),)
    scene = Scene(per_node=4)
    judged = waiting(main, *others, scene=scene, waits_for=event, native_waits=sockets).judged()
    assert (1 in judged.view.waited_for) == waits
    if not waits:
        assert (judged.verdict.kind, names(judged.verdict)) == ("rank_missing", [(1, "python_lock")])


@pytest.mark.parametrize(("left_s", "state"), [(9.0, "undecided"), (3600.0, "hung"), (None, "hung")])
def test_rank_whose_task_sleeps_is_given_time_if_the_sleep_is_about_to_end(left_s, state):
    sleeps = AsyncTask(name="a", frames=(RUN, SLEEP), awaits="Future", is_main=True, wakes_in_s=left_s)
    assert waiting(sleeps).verdict().state == state


def test_event_loop_in_a_thread_of_its_own_is_followed():
    main = (MAIN, at(5, "wait"), StackFrame("result", LIB + "concurrent/futures/_base.py", 451),
            StackFrame("wait", LIB + "threading.py", 320))  # fmt: skip
    loop = (StackFrame("run", LIB + "threading.py", 975), *LOOP[2:])
    scene = Scene()
    for rank in (0, 2, 3):
        scene.rank(rank, REDUCE)
    scene.rank(1, main, threads=[("loop", loop)], thread_state="S", thread_syscall="epoll_wait")
    assert scene.judged().missing.tasks == (("node1", 101, 7),)
    scene = Scene()
    for rank in (0, 2, 3):
        scene.rank(rank, REDUCE)
    read = (task("Task-1", at(22, "fetch"), *READ),)
    scene.rank(1, main, threads=[("loop", loop)], thread_state="S", thread_syscall="epoll_wait", tasks=read)
    assert place(scene.verdict()) == ("network_io", "fetch", 22)
