"""Threads of one process: the main thread, the blocking thread and the GIL holder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...records import Stack
from .frame_models import FrameClass
from .frames import Reader

#: Calls that wait for the end or the result of another thread.
_FOR_ONE: Final = frozenset({"join", "_wait_for_tstate_lock", "_join_os_thread", "result", "exception", "shutdown"})
#: Classes of another thread for which a main thread in a queue or event is assumed to wait.
_BLOCKING: Final[frozenset[FrameClass]] = frozenset(
    {"collective", "p2p", "store_wait", "group_setup", "teardown", "checkpoint_io", "compile", "device_wait"}
)


def main_of(threads: Iterable[Stack]) -> Stack:
    """Record of the main thread; the first if none is marked."""
    stacks = list(threads)
    return next(filter(is_main, stacks), stacks[0])


def is_main(stack: Stack) -> bool:
    """Whether the record is of the main thread."""
    return stack.thread_name == "MainThread" or (stack.os_thread_id is not None and stack.os_thread_id == stack.pid)


def name_of(stack: Stack) -> str:
    """Thread name; a program that has not imported threading has none."""
    return stack.thread_name or ("MainThread" if is_main(stack) else "a thread")


def blocking_thread(main: Stack, threads: Sequence[Stack], reader: Reader) -> Stack:
    """The thread that blocks the process: `main`, or the only candidate that it can be waiting for."""
    trace = reader.trace(main.frames or ())
    if trace.cls != "python_lock":
        return main
    others = [(stack, reader.trace(stack.frames)) for stack in threads if stack is not main and stack.frames]
    candidates = [stack for stack, seen in others if seen.cls in _BLOCKING]
    if not candidates and any(frame.function.rsplit(".", 1)[-1] in _FOR_ONE for frame in main.frames or ()):
        candidates = [stack for stack, seen in others if seen.cls != "python_lock"]
    classes = {reader.trace(stack.frames or ()).cls for stack in candidates}
    if len(candidates) == 1 or (candidates and len(classes) == 1 and None not in classes):
        return candidates[0]
    return main


def gil_holder(threads: Iterable[Stack]) -> Stack | None:
    """The thread that holds the GIL without running, so that all others wait."""
    return next((stack for stack in threads if stack.gil and stack.active is False), None)
