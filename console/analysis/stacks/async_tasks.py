"""The asyncio tasks of captured processes: the newest reading of each, and one task as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...records import AsyncTask, Stack, StackFrame
from ...text.format import seconds
from .frames import is_library

#: Awaited tasks that are named, and calls of the job's own code that are listed, for one task.
_MOST_AWAITED, _MOST_CALLS = 4, 6


def newest_tasks(stacks: Iterable[Stack]) -> list[Stack]:
    """Of each process and thread whose tasks were read, the newest record with them; by rank, node and process."""
    newest: dict[tuple[str, int, int | None, int | None], Stack] = {}
    for stack in stacks:
        if stack.tasks:
            key = (stack.node, stack.pid, stack.os_thread_id, stack.thread_id)
            before = newest.get(key)
            if before is None or (stack.looked or 0, stack.sample) >= (before.looked or 0, before.sample):
                newest[key] = stack
    return sorted(newest.values(), key=lambda stack: (stack.rank is None, stack.rank or 0, stack.node, stack.pid))


def main_first(tasks: Sequence[AsyncTask]) -> list[AsyncTask]:
    """Tasks in the order in which they are shown: what the event loop runs until its end first."""
    return sorted(tasks, key=lambda task: not task.is_main)


def awaited_names(task: AsyncTask, tasks: Sequence[AsyncTask]) -> list[str]:
    """Names of the tasks that a task waits for."""
    return [tasks[number].name for number in task.tasks if number < len(tasks)]


def task_text(task: AsyncTask, tasks: Sequence[AsyncTask]) -> str:
    """`Task-1 (main): train loop.py:12 → ask client.py:31, awaits Future`: its own coroutines, and what it awaits."""
    own = [frame for frame in task.frames if not is_library(frame.file)] or list(task.frames[-1:])
    calls = [_call(frame) for frame in own[-_MOST_CALLS:]]
    calls = ["…", *calls] if len(own) > _MOST_CALLS else calls
    where = " → ".join(calls) or "has not begun"
    return f"{task.name}{' (main)' if task.is_main else ''}: {where}, {_awaits(task, tasks)}"


def _call(frame: StackFrame) -> str:
    line = f":{frame.line}" if frame.line else ""
    return f"{frame.function.rpartition('.')[2]} {frame.file.rpartition('/')[2]}{line}"


def _awaits(task: AsyncTask, tasks: Sequence[AsyncTask]) -> str:
    names = awaited_names(task, tasks)
    if names:
        more = f" and {len(names) - _MOST_AWAITED} more" if len(names) > _MOST_AWAITED else ""
        return f"awaits {', '.join(names[:_MOST_AWAITED])}{more}"
    if task.wakes_in_s is not None:
        return f"sleeps, {seconds(max(0.0, task.wakes_in_s))} left"
    if not task.awaits:
        return "unknown what it awaits"
    return f"awaits {task.awaits}" + (f" of descriptor {task.fd}" if task.fd is not None else "")
