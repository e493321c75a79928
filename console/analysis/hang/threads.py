"""Which thread of a process holds it up: the main one, unless that waits for another."""

from __future__ import annotations

from typing import Final

from ...records import Stack
from ..frames import Reader
from ..models import FrameClass
from .looks import Look

#: Calls by which a thread waits for the end, or the answer, of one other thread.
_FOR_ONE: Final = frozenset({"join", "_wait_for_tstate_lock", "_join_os_thread", "result", "exception", "shutdown"})
#: What another thread must be in for the main one, in a queue or an event, to be waiting for it.
_TELLING: Final[frozenset[FrameClass]] = frozenset(
    {"collective", "p2p", "store_wait", "group_setup", "teardown", "checkpoint_io", "compile", "device_wait"}
)


def blocking_thread(look: Look, reader: Reader) -> Stack:
    """The thread that the process stands in: the main one, or the only one that it can be waiting for.

    Where several could be meant it is the main one: a guess would give the rank another's class.
    """
    main = look.main
    trace = reader.trace(main.frames or ())
    if trace.cls != "python_lock":
        return main
    others = [(stack, reader.trace(stack.frames)) for stack in look.threads if stack is not main and stack.frames]
    candidates = [stack for stack, seen in others if seen.cls in _TELLING]
    if not candidates and any(frame.function.rsplit(".", 1)[-1] in _FOR_ONE for frame in main.frames or ()):
        candidates = [stack for stack, seen in others if seen.cls != "python_lock"]
    classes = {reader.trace(stack.frames or ()).cls for stack in candidates}
    if len(candidates) == 1 or (candidates and len(classes) == 1 and None not in classes):
        return candidates[0]
    return main


def gil_holder(look: Look) -> Stack | None:
    """The thread that has the interpreter's lock and does not run: all others wait for it."""
    return next((stack for stack in look.threads if stack.gil and stack.active is False), None)
