"""The thread to analyse where the main one waits in its own process: for a thread that communicates, or for clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...records import Stack, StackFrame
from ..stacks.frames import Reader, is_library, is_main
from .rank_state import POLLS_S, RankState
from .samples import StackSample
from .wait_for import Processes, is_waiting_for_clients

#: Modules of Python that run functions in other processes.
_POOL: Final = re.compile(r"/(multiprocessing|concurrent/futures)/")
#: The installed package of a file.
_PACKAGE: Final = re.compile(r"/(?:site|dist)-packages/([^/.]+)")


def background_thread(
    state: RankState, samples: Sequence[StackSample], processes: Processes, least_s: float, reader: Reader
) -> Stack | None:
    """The thread for which a process waits in a lock, an event or a loop that sleeps, as it waits for other ranks.

    Where several places of threads are possible, or another thread works, which it waits for is unknown: None.
    """
    polls = state.cls == "sleep" and (state.wakes_s or 0.0) >= POLLS_S
    if not (state.cls == "python_lock" or polls) or state.by_library or state.peer_waits:
        return None
    packages = _packages(state.last.frames or ())
    newest: dict[int | None, Stack] = {}
    for stack in (stack for sample in samples for stack in _others(state, sample.threads)):
        if stack.waits_for is not None or stack.os_thread_id not in newest:
            newest[stack.os_thread_id] = stack
    waiting = [
        stack
        for stack in newest.values()
        if processes.waits(stack)
        and not _serves_a_client(stack, newest.values())
        and (not _in_library(stack, reader) or packages & _packages(stack.frames or ()))
    ]
    if len({reader.trace(stack.frames or ()).calls for stack in waiting}) != 1:
        return None
    if len({wait.rank for stack in waiting for wait in processes.waits(stack)}) != len(processes.waits(waiting[0])):
        return None  # each waits for another rank: which of them the main thread needs is unknown
    if any(_works(stack, least_s, reader) for stack in newest.values() if stack not in waiting):
        return None
    return waiting[0]


def handler_thread(state: RankState, samples: Sequence[StackSample], least_s: float, reader: Reader) -> Stack | None:
    """The only other thread of a process that is in the job's own code and runs, or has not run for `least_s` seconds.

    Other ranks wait for the process through its sockets, and the main thread does not answer them. A socket belongs to
    the whole process, so which of several such threads must answer is unknown: None.
    """
    is_idle = state.cls == "python_lock" or state.by_library or is_waiting_for_clients(state.waits_for)
    if not (state.is_communicating or is_idle):
        return None
    threads = next(
        (sample.threads for sample in reversed(samples) if any(stack.thread_state for stack in sample.threads)), ()
    )
    candidates = [stack for stack in _others(state, threads) if _works(stack, least_s, reader)]
    places = {reader.trace(stack.frames or ()).calls for stack in candidates}
    return candidates[0] if len(places) == 1 else None


def waits_for_pool(state: RankState, children: Iterable[RankState]) -> bool:
    """Whether a rank that waits for a lock waits for the result of a child process, which is in the job's own code.

    Both are in calls of the same pool: of multiprocessing, concurrent.futures, or an installed package.
    """
    if state.cls != "python_lock" or state.trace is None or state.thread is not None:
        return False
    waits_in = _pools(state.trace.frames[state.trace.site + 1 :])
    return any(
        child.trace is not None
        and child.trace.frames  # a process that ends while it is read has none
        and child.role != "dataloader_worker"  # whatever it does, it does for the data loader
        and child.cls != "python_lock"
        and not is_library(child.trace.frames[child.trace.site].file)
        and waits_in & _pools(child.trace.frames[: child.trace.site])
        for child in children
    )


def _pools(frames: Sequence[StackFrame]) -> frozenset[str]:
    """The packages that these calls are in, of those that run functions in other processes."""
    pools = (_POOL.search(frame.file) for frame in frames)
    return _packages(frames) | frozenset(match[1] for match in pools if match)


def _serves_a_client(stack: Stack, threads: Iterable[Stack]) -> bool:
    """Whether a thread waits for the next request on a connection to a port on which another thread accepts clients."""
    ports = {
        target.local.rpartition(" ")[2]
        for thread in threads
        for target in thread.waits_for or ()
        if target.kind == "listener" and target.local
    }
    targets = [target for target in stack.waits_for or () if target.kind == "tcp"]
    return bool(targets) and all(target.local.rpartition(" ")[2] in ports for target in targets)


def _others(state: RankState, threads: Iterable[Stack]) -> Iterator[Stack]:
    """The threads of a process that are neither the main one nor the analysed one."""
    return (stack for stack in threads if not is_main(stack) and stack.thread_name != state.thread)


def _works(stack: Stack, least_s: float, reader: Reader) -> bool:
    if not stack.frames or is_waiting_for_clients(stack.waits_for or ()):
        return False
    if reader.trace(stack.frames).cls == "python_lock" or _in_library(stack, reader):
        return False  # a worker without work
    return stack.thread_state == "R" or (stack.thread_slept_s or 0.0) >= least_s


def _in_library(stack: Stack, reader: Reader) -> bool:
    return all(is_library(frame.file) for frame in reader.trace(stack.frames or ()).frames)


def _packages(frames: Iterable[StackFrame]) -> frozenset[str]:
    """The installed packages that a stack is in."""
    matches = (_PACKAGE.search(frame.file) for frame in frames)
    return frozenset(match[1] for match in matches if match)
