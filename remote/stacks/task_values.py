"""Tasks of event loops as values of JSON, read by a child where the process is of another user, and checked."""

import time

from ..proc.apart import as_fields, as_list, as_number, as_text
from ..proc.procfs import printable
from .coroutines import MAX_FILE, MAX_NAME
from .objects import Unreadable
from .tasks import MAX_AWAITED, MAX_DEPTH, MAX_INSTANT_S, MAX_TASKS, TaskMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from ..proc.procfs import ProcFs
    from .py_spy import Frame
    from .tasks import Task


def read(procfs: "ProcFs", pid: int, request: "Any") -> "list[Any] | None":
    """The tasks of each thread, by its `loop_variables`, as JSON has them; None where the process cannot be read so."""
    try:
        with TaskMemory(procfs, pid) as memory:
            return [_values(memory.tasks(variables)) for variables in request]
    except Unreadable:
        return None


def _values(tasks: "Sequence[Task] | None") -> "list[Any] | None":
    """Name, frames, what it awaits, descriptor, instant of its timer, positions of the tasks it waits for, is_main."""
    if tasks is None:
        return None
    index_of = {task.address: index for index, task in enumerate(tasks)}
    return [
        [
            task.name, [list(frame) for frame in task.as_frames()], task.awaits, task.fd, task.wakes_at_s,
            sorted({index_of[address] for address in task.awaited if address in index_of})[:MAX_AWAITED], task.is_main,
        ]
        for task in tasks
    ]  # fmt: skip


def to_fields(values: "Any", encode: "Callable[[Sequence[Frame]], list[dict[str, Any]]]") -> "list[dict[str, Any]]":
    """The tasks of a thread as in a record, which refers to them by their position. Raises ValueError.

    `values` are those of `read`, which a child may have made up; `encode` makes frames those of a record.
    """
    tasks = [as_fields(task, 7) for task in as_list(values, MAX_TASKS)]
    fields = []
    for name, frames, awaits, fd, instant, awaited, is_main in tasks:
        if instant is not None and not (isinstance(instant, float) and 0.0 <= instant < MAX_INSTANT_S):
            raise ValueError("invalid answer")
        places = [as_fields(frame, 4) for frame in as_list(frames, MAX_DEPTH)]
        fields.append({
            "name": _text(name, MAX_NAME),
            "frames": encode([
                (_text(function, MAX_NAME), _text(file, MAX_FILE), as_number(line, 1 << 31), native is True)
                for function, file, line, native in places
            ]),
            "awaits": _text(awaits, MAX_NAME), "fd": None if fd is None else as_number(fd, 1 << 31),
            "wakes_in_s": None if instant is None else round(max(0.0, instant - time.monotonic()), 2),
            "tasks": [as_number(index, len(tasks)) for index in as_list(awaited, MAX_AWAITED)],
            "is_main": is_main is True,
        })  # fmt: skip
    return fields


def _text(value: "Any", longest: int) -> str:
    return printable(as_text(value, longest), longest)
