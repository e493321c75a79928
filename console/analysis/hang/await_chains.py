"""What a process awaits whose analysed thread waits in an event loop: the innermost call of the task that matters.

The thread itself waits in a poll for whatever comes next; its place is that of the task that it runs until its end,
followed through awaited tasks, gather, wait and locks. Where several tasks may hold it up in different places, and
nothing decides between them, its place remains the one where they part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ...records import AsyncTask, Stack, StackFrame, WaitTarget
from ...text.format import plural
from ..stacks.frame_models import FrameClass
from ..stacks.frames import CallPath, Reader, is_library, is_main
from .rank_state import RankState
from .samples import StackSample
from .wait_for import Processes

#: Calls that run an event loop; of one in C only the call of the job remains.
_LOOP: Final = re.compile(r"(^|/)(asyncio/(base_events|runners)|nest_asyncio)\.py$|(^|/)uvloop/")
#: Calls of asyncio that wait for other tasks: what these do is what counts.
_WRAPPERS: Final = re.compile(r"(^|/)asyncio/(tasks|timeouts|taskgroups)\.py$")
_WRAPPER_CALLS: Final = frozenset(
    {"wait_for", "wait", "_wait", "gather", "_wait_for_one", "__aenter__", "__aexit__", "_aexit"}
)
#: Calls of a thread of an executor.
_EXECUTOR: Final = re.compile(r"(^|/)concurrent/futures/thread\.py$")
#: What the agent calls a future whose result a thread computes.
_OF_THREAD: Final = "concurrent.futures.Future"
#: Awaited objects that another task, or a callback, of the same loop completes.
_IN_LOOP: Final = frozenset({"Future", "Task", "_GatheringFuture", "_PyTask", ""})
#: Tasks of one process that are followed, and frames of one chain.
_MOST_TASKS, _MOST_FRAMES = 64, 256
#: Tasks, and frames of each, that evidence lists.
_LINES, _NAMED_FRAMES = 8, 4


class AwaitChain(msgspec.Struct, frozen=True):
    """The coroutines from the task that a thread runs to what holds it up, outermost first."""

    frames: tuple[StackFrame, ...]
    end: AsyncTask | None  # the innermost task; None: several in different places
    descriptors: frozenset[int]  # of the connections that it waits for, as far as known


def in_event_loop(trace: CallPath | None) -> bool:
    """Whether a thread waits in an event loop, and runs no call of the job within it."""
    return trace is not None and any(_LOOP.search(frame.file) for frame in trace.frames[len(_outside(trace)) :])


def _outside(trace: CallPath) -> tuple[StackFrame, ...]:
    """The calls down to the innermost one in the job's own code; none where a library's thread runs the loop."""
    if trace.site < 0 or is_library(trace.frames[trace.site].file):
        return ()
    return trace.frames[: trace.site + 1]


def with_tasks(
    state: RankState, samples: Sequence[StackSample], reader: Reader, processes: Processes | None
) -> RankState:
    """The state of a process at what it awaits, if its analysed thread waits in an event loop whose tasks were read."""
    newest = tasks_of(state, samples)
    if newest is None or state.trace is None:
        return state
    outer = _outside(state.trace)
    state = replace(state, tasks=newest)
    chain = await_chain(newest, reader)
    if chain is None or not chain.frames:
        return state
    path = reader.trace((*outer, *chain.frames))
    cls = _class_of(chain.end, path) if chain.end is not None else None
    if cls is None:
        cls = state.cls if path.cls is None else path.cls
    wakes_in_s = chain.end.wakes_in_s if chain.end is not None and cls == "sleep" else None
    state = replace(state, trace=path._replace(in_user=False), cls=cls, wakes_in_s=wakes_in_s)
    if cls == "sleep" or (state.by_library and all(_ends_in_loop(task, reader) for task in newest)):
        targets: tuple[WaitTarget, ...] = ()
    else:
        narrowed = tuple(target for target in state.waits_for if target.fd in chain.descriptors)
        targets = narrowed or state.waits_for
    if targets == state.waits_for:
        return state
    stack = replace(state.newest or state.last, waits_for=targets)
    return replace(
        state, waits_for=targets, by_library=state.by_library and bool(targets),
        peer_waits=processes.waits(stack) if processes else (),
        outside=processes.peers(stack) if processes else (),
        has_unknown_end=processes.has_unknown_end(stack) if processes else False,
    )  # fmt: skip


def tasks_of(state: RankState, samples: Sequence[StackSample]) -> tuple[AsyncTask, ...] | None:
    """The tasks of the analysed thread's event loop, read while it was in its present place; None if unknown."""
    if not in_event_loop(state.trace) or not samples:
        return None
    analysed = state.newest or state.last
    for sample in reversed(samples):
        if samples[-1].at_s - sample.at_s > state.place_s:
            break
        for stack in sample.threads:
            is_same = stack.os_thread_id == analysed.os_thread_id and stack.thread_id == analysed.thread_id
            if is_same and stack.tasks is not None:
                return stack.tasks
    return None


def executor_thread(state: RankState, samples: Sequence[StackSample], reader: Reader) -> Stack | None:
    """The thread whose result the task of a process awaits; None if it awaits none, or several are in question."""
    chain = await_chain(state.tasks, reader) if state.tasks else None
    if chain is None or chain.end is None or chain.end.awaits != _OF_THREAD:
        return None
    busy = [
        stack
        for stack in samples[-1].threads
        if stack.frames and not is_main(stack) and any(_EXECUTOR.search(frame.file) for frame in stack.frames)
        and not _EXECUTOR.search(stack.frames[-1].file)  # else it waits for its next task
    ]  # fmt: skip
    places = {reader.trace(stack.frames or ()).calls for stack in busy}
    return busy[0] if len(places) == 1 else None


def await_chain(tasks: Sequence[AsyncTask], reader: Reader) -> AwaitChain | None:
    """What the main task waits for; None if no task is the main one, or the only one that no other task waits for."""
    starts = [index for index, task in enumerate(tasks) if task.is_main]
    if not starts:
        awaited = {index for task in tasks for index in task.tasks}
        starts = [index for index in range(len(tasks)) if index not in awaited]
        if len(starts) != 1:
            return None
    ends = _deciding(_ends(tasks, starts), reader)
    if ends and all(_serves(task) for _, task in ends):
        ends = _deciding(_requests(tasks, starts), reader)
    if not ends:
        return None
    places = {_own_place(frames) for frames, _ in ends}
    classes = {_class_of(task, reader.trace(frames)) for frames, task in ends}
    if len(places) == 1 and len(classes) == 1:
        all_fds = [task.fd for _, task in ends]
        descriptors = frozenset(fd for fd in all_fds if fd is not None) if None not in all_fds else frozenset()
        return AwaitChain(*ends[0], descriptors)
    common = _common([_own(frames) for frames, _ in ends])
    return AwaitChain(common, None, frozenset())


def _ends(tasks: Sequence[AsyncTask], starts: Sequence[int]) -> list[tuple[tuple[StackFrame, ...], AsyncTask]]:
    """(frames on the way, task) of every innermost task that these wait for; each task is followed once."""
    ends: list[tuple[tuple[StackFrame, ...], AsyncTask]] = []
    visited: set[int] = set()
    pending: list[tuple[int, tuple[StackFrame, ...]]] = [(index, ()) for index in reversed(starts)]
    while pending and len(visited) < _MOST_TASKS:
        index, way = pending.pop()
        if index in visited:
            continue
        visited.add(index)
        task = tasks[index]
        frames = (*way, *(frame for frame in task.frames if not _is_wrapper(frame)))[-_MOST_FRAMES:]
        following = [awaited for awaited in task.tasks if awaited < len(tasks) and awaited not in visited]
        if following:
            pending += [(awaited, frames) for awaited in reversed(following)]
        else:
            ends.append((frames, task))  # also of tasks that wait for each other in a circle
    return ends


def _requests(tasks: Sequence[AsyncTask], mains: Sequence[int]) -> list[tuple[tuple[StackFrame, ...], AsyncTask]]:
    """What the other tasks of a server wait for, if all are in one place: a request that it does not answer."""
    awaited = {index for task in tasks for index in task.tasks}
    ends = _ends(tasks, [index for index in range(len(tasks)) if index not in awaited and index not in mains])
    return ends if len({_own_place(frames) for frames, _ in ends}) == 1 else []


def _serves(task: AsyncTask) -> bool:
    """Whether a task waits for clients for ever."""
    return any(frame.function.rpartition(".")[2] == "serve_forever" for frame in task.frames[-1:])


def _deciding(
    ends: list[tuple[tuple[StackFrame, ...], AsyncTask]], reader: Reader
) -> list[tuple[tuple[StackFrame, ...], AsyncTask]]:
    """Those that wait for something outside of the event loop, which the others may wait for in turn; else all."""
    outside = [end for end in ends if _class_of(end[1], reader.trace(end[0])) != "python_lock"]
    return outside or ends


def _class_of(task: AsyncTask, path: CallPath) -> FrameClass | None:
    """The class of what a task awaits; None if unknown."""
    if path.cls is not None:
        return path.cls
    if task.awaits in (*_IN_LOOP, _OF_THREAD):
        return "python_lock"
    return None


def _ends_in_loop(task: AsyncTask, reader: Reader) -> bool:
    """Whether only the event loop itself ends a wait: a timer, another task, a lock, a child process.

    A future of its own may be that of a library, whose I/O threads complete it.
    """
    return bool(task.tasks) or reader.trace(task.frames).cls in ("sleep", "python_lock", "subprocess")


def _is_wrapper(frame: StackFrame) -> bool:
    return frame.function.rpartition(".")[2] in _WRAPPER_CALLS and _WRAPPERS.search(frame.file) is not None


def _own(frames: Iterable[StackFrame]) -> tuple[StackFrame, ...]:
    return tuple(frame for frame in frames if not is_library(frame.file))


def _own_place(frames: Sequence[StackFrame]) -> StackFrame | None:
    """The innermost call in the job's own code."""
    own = _own(frames)
    return own[-1] if own else None


def _common(paths: Iterable[Sequence[StackFrame]]) -> tuple[StackFrame, ...]:
    """The frames that all paths begin with."""
    common: list[StackFrame] = []
    for frames in zip(*paths, strict=False):
        if any(frame != frames[0] for frame in frames):
            break
        common.append(frames[0])
    return tuple(common)


# -- evidence ----------------------------------------------------------------------------------------------------------


def task_lines(states: Iterable[RankState]) -> list[str]:
    """`task rollout-3 of rank 2: main (train.py:10) → fetch (client.py:22), awaits Future`, of up to 8 tasks."""
    lines: list[str] = []
    listed: set[tuple[str, int, int]] = set()
    for state in states:
        if state.key in listed or not state.tasks:
            continue
        listed.add(state.key)
        is_rank = state.rank is not None and state.role == "rank"
        who = f"rank {state.rank}" if is_rank else f"process {state.pid} on {state.node}"
        lines += [_line(task, state.tasks, who) for task in state.tasks[: _LINES - len(lines)]]
        if len(lines) >= _LINES:
            break
    return lines


def _line(task: AsyncTask, tasks: Sequence[AsyncTask], who: str) -> str:
    shown = _own(task.frames)[-_NAMED_FRAMES:] or task.frames[-1:]
    way = " → ".join(f"{frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})" for frame in shown)
    return f"task {task.name or 'without a name'} of {who}: {way}, awaits {_awaited(task, tasks)}"


def _awaited(task: AsyncTask, tasks: Sequence[AsyncTask]) -> str:
    awaited = [tasks[index].name for index in task.tasks if index < len(tasks)]
    if len(awaited) == 1:
        return f"task {awaited[0]}"
    if awaited:
        return plural(len(awaited), "task")
    if task.awaits == _OF_THREAD:
        return "a thread"
    innermost = task.frames[-1:]
    if innermost and is_library(innermost[0].file):
        call = next((frame for frame in _after_own(task.frames) if not _is_wrapper(frame)), innermost[0])
        return call.function
    return task.awaits or "an unknown object"


def _after_own(frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
    """The library calls below the innermost call of the job's own code."""
    own = [index for index, frame in enumerate(frames) if not is_library(frame.file)]
    return frames[own[-1] + 1 :] if own else frames
