"""Threads that train in place of the main one: Ray Train, Lightning's launchers, servers and executors have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from ...records import Stack
from .frame_models import FrameClass
from .frames import Reader, blocking_thread, class_of, is_library, is_main, main_of

#: Seconds. A main thread that polls its other threads sleeps for less than this at a time.
POLLS_EVERY_S: Final = 2.0
#: Classes of a thread that communicates for the job.
COMMUNICATES: Final[frozenset[FrameClass]] = frozenset({"collective", "p2p"})


class ThreadRole(NamedTuple):
    """What the training threads of a job have in common: the outermost call of the job's own code in them."""

    function: str
    file: str


def training_role(processes: Iterable[Iterable[Sequence[Stack]]], reader: Reader) -> ThreadRole | None:
    """The role of the threads that communicate, where no main thread does; None if less than half of the ranks have it.

    `processes` are the readable samples of each rank, each the stacks of all its threads.
    """
    roles = Counter[ThreadRole]()
    ranks = 0
    for samples in processes:
        own: set[ThreadRole] = set()
        for threads in samples:
            main = main_of(threads)
            for stack in threads:
                if reader.trace(stack.frames or ()).cls not in COMMUNICATES:
                    continue
                if stack is main:
                    return None
                role = _role_of(stack, reader)
                own |= {role} if role is not None else set()
        ranks += 1
        roles.update(own)
    role, count = max(roles.items(), key=lambda item: (item[1], item[0]), default=(None, 0))
    return role if count > 1 and 2 * count >= ranks else None


def analysed_thread(main: Stack, threads: Sequence[Stack], role: ThreadRole | None, reader: Reader) -> Stack:
    """The thread that stands for its process: the one that trains, else the one that blocks the main one.

    One that has nothing to do, because the main thread is busy in the job's own code, does not stand for it.
    """
    blocking = blocking_thread(main, threads, reader)
    if role is not None:
        others = [stack for stack in threads if not is_main(stack) and _role_of(stack, reader) == role]
        if others:
            training = min(others, key=lambda stack: reader.trace(stack.frames or ()).cls not in COMMUNICATES)
            return blocking if _is_idle(training, reader) and _keeps_waiting(main, reader) else training
    return blocking


def _is_idle(stack: Stack, reader: Reader) -> bool:
    """Whether a thread waits in its own process, as for a queue."""
    return reader.trace(stack.frames or ()).cls == "python_lock"


def _keeps_waiting(main: Stack, reader: Reader) -> bool:
    """Whether the threads of a process may wait for its main one: that neither waits for them nor polls them."""
    trace = reader.trace(main.frames or ())
    cls = class_of(main, trace, main.proc_state == "R")
    if trace.site < 0 or is_library(trace.frames[trace.site].file) or cls in ("python_lock", *COMMUNICATES):
        return False
    return cls != "sleep" or (main.thread_slept_s or 0.0) >= POLLS_EVERY_S


def as_process(stack: Stack) -> Stack:
    """The record with the kernel's state of its own thread in place of the main thread's."""
    return replace(
        stack, proc_state=stack.thread_state, syscall=stack.thread_syscall, wchan=stack.thread_wchan, tracer_pid=0
    )


def _role_of(stack: Stack, reader: Reader) -> ThreadRole | None:
    trace = reader.trace(stack.frames or ())
    for call, frame in zip(trace.calls, trace.frames, strict=True):
        if not is_library(frame.file):
            return ThreadRole(call.function, call.file)
    return ThreadRole(trace.calls[0].function, trace.calls[0].file) if trace.calls else None
