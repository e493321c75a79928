"""The thread that must answer the ranks that wait for a process through its sockets, where the main thread does not."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import Stack
from ..stacks.frames import Reader, is_library, is_main
from .rank_state import RankState, StackSample
from .wait_for import is_waiting_for_clients


def handler_thread(state: RankState, samples: Sequence[StackSample], least_s: float, reader: Reader) -> Stack | None:
    """The only other thread of a process that is in the job's own code and runs, or has not run for `least_s` seconds.

    A socket belongs to the whole process, so which of several such threads must answer is unknown: None.
    """
    is_idle = state.cls == "python_lock" or state.by_library or is_waiting_for_clients(state.waits_for)
    if not (state.is_communicating or is_idle):
        return None
    threads = next(
        (sample.threads for sample in reversed(samples) if any(stack.thread_state for stack in sample.threads)), ()
    )
    candidates = [stack for stack in threads if stack.thread_name != state.thread and _works(stack, least_s, reader)]
    places = {reader.trace(stack.frames or ()).calls for stack in candidates}
    return candidates[0] if len(places) == 1 else None


def _works(stack: Stack, least_s: float, reader: Reader) -> bool:
    if is_main(stack) or not stack.frames or is_waiting_for_clients(stack.waits_for or ()):
        return False
    trace = reader.trace(stack.frames)
    if trace.cls == "python_lock" or all(is_library(frame.file) for frame in trace.frames):
        return False  # a worker without work
    return stack.thread_state == "R" or (stack.thread_slept_s or 0.0) >= least_s
