"""The threads of one process: the main one, the one that holds it up, and the one that holds the interpreter's lock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...records import Stack
from .frame_models import FrameClass
from .frames import Reader

#: Calls by which a thread waits for the end, or the answer, of one other thread.
_FOR_ONE: Final = frozenset({"join", "_wait_for_tstate_lock", "_join_os_thread", "result", "exception", "shutdown"})
#: What another thread must be in for the main one, in a queue or an event, to be waiting for it.
_TELLING: Final[frozenset[FrameClass]] = frozenset(
    {"collective", "p2p", "store_wait", "group_setup", "teardown", "checkpoint_io", "compile", "device_wait"}
)


def main_of(threads: Iterable[Stack]) -> Stack:
    """The main thread's record; the first where none says that it is."""
    known = list(threads)
    return next(filter(is_main, known), known[0])


def is_main(stack: Stack) -> bool:
    """Whether it is the main thread's."""
    return stack.thread_name == "MainThread" or (stack.os_thread_id is not None and stack.os_thread_id == stack.pid)


def name_of(stack: Stack) -> str:
    """What the thread is called; a program that has not imported threading names none."""
    return stack.thread_name or ("MainThread" if is_main(stack) else "a thread")


def blocking_thread(main: Stack, threads: Sequence[Stack], reader: Reader) -> Stack:
    """The thread that the process stands in: the `main` one, or the only one that it can be waiting for.

    Where several could be meant it is the main one: a guess would give the rank another's class.
    """
    trace = reader.trace(main.frames or ())
    if trace.cls != "python_lock":
        return main
    others = [(stack, reader.trace(stack.frames)) for stack in threads if stack is not main and stack.frames]
    candidates = [stack for stack, seen in others if seen.cls in _TELLING]
    if not candidates and any(frame.function.rsplit(".", 1)[-1] in _FOR_ONE for frame in main.frames or ()):
        candidates = [stack for stack, seen in others if seen.cls != "python_lock"]
    classes = {reader.trace(stack.frames or ()).cls for stack in candidates}
    if len(candidates) == 1 or (candidates and len(classes) == 1 and None not in classes):
        return candidates[0]
    return main


def gil_holder(threads: Iterable[Stack]) -> Stack | None:
    """The thread that has the interpreter's lock and does not run: all others wait for it."""
    return next((stack for stack in threads if stack.gil and stack.active is False), None)
