"""asyncio tasks of captured processes in text and JSON."""

from gconsole.analysis.stacks.async_tasks import newest_tasks, task_text
from gconsole.core.store import Store
from gconsole.monitor.captures import capture_lines, newest_of
from gconsole.present.stacks import captures_text
from gconsole.records import AsyncTask, Stack, StackFrame

MAIN = AsyncTask("Task-1", (StackFrame("train", "/home/user/rl.py", 12),), "Task", (1, 2), is_main=True)
ASKS = AsyncTask(
    "rollout-3",
    (
        StackFrame("ask", "/home/user/rl.py", 31),
        StackFrame("StreamReader.read", "/usr/lib/python3.11/asyncio/streams.py", 5),
    ),
    "Future",
    fd=9,
)
SLEEPS = AsyncTask("Task-7", (StackFrame("poll", "/home/user/rl.py", 40),), "Future", wakes_in_s=12.0)
TASKS = (ASKS, SLEEPS, AsyncTask("Task-9", (), ""), MAIN)


def stack(sample, tasks, **more):
    return Stack(
        node="node1", capture="c1", sample=sample, job="rl", rank=3, pid=7, start_ticks=1, status="ok", looked=sample,
        thread_name="MainThread", os_thread_id=7,
        frames=(StackFrame("run", "/usr/lib/python3.11/asyncio/runners.py", 9),),
        tasks=tasks, **more,
    )  # fmt: skip


def test_task_is_its_own_coroutines_and_what_it_awaits():
    tasks = (MAIN, ASKS, SLEEPS)
    assert task_text(MAIN, tasks) == "Task-1 (main): train rl.py:12, awaits rollout-3, Task-7"
    assert task_text(ASKS, tasks) == "rollout-3: ask rl.py:31, awaits Future of descriptor 9"
    assert task_text(SLEEPS, tasks) == "Task-7: poll rl.py:40, sleeps, 12 s left"
    assert task_text(TASKS[2], TASKS) == "Task-9: has not begun, unknown what it awaits"


def test_newest_reading_of_each_process_counts():
    assert [entry.sample for entry in newest_tasks([stack(0, TASKS), stack(2, TASKS), stack(3, None)])] == [2]


def test_tasks_are_in_the_text_and_in_the_json_of_a_capture():
    store = Store()
    store.apply([stack(0, TASKS), stack(1, (MAIN, ASKS, SLEEPS))])
    text = captures_text(newest_of(store.captures.values(), ()))
    assert "ASYNCIO TASKS\n  rank 3  node1 pid 7  3 tasks\n    Task-1 (main): train rl.py:12" in text
    [line] = capture_lines(store)
    assert [task.name for task in line.tasks] == ["Task-1", "rollout-3", "Task-7"]
    assert (line.tasks[0].is_main, line.tasks[0].tasks, line.tasks[1].awaits) == (
        True,
        ["rollout-3", "Task-7"],
        "Future",
    )


def test_text_of_a_capture_without_tasks_has_no_such_section():
    store = Store()
    store.apply([stack(0, None)])
    assert "ASYNCIO" not in captures_text(newest_of(store.captures.values(), ()))
