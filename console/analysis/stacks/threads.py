"""Threads of a process: the main one, the one that blocks it, and classes of native calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ...records import Stack, StackFrame
from .frame_models import FrameClass
from .frames import Call, Reader

#: Calls that wait for the end or the result of another thread.
_FOR_ONE: Final = frozenset({"join", "_wait_for_tstate_lock", "_join_os_thread", "result", "exception", "shutdown"})
#: Classes of another thread for which a main thread in a queue or event is assumed to wait.
_BLOCKING: Final[frozenset[FrameClass]] = frozenset(
    {"collective", "p2p", "store_wait", "group_setup", "teardown", "checkpoint_io", "compile", "device_wait"}
)
#: In order of precedence, matched against the native calls below the innermost Python call.
_PATTERNS: Final[tuple[tuple[FrameClass, str], ...]] = (
    ("store_wait", r"c10d::\w*Store::|c10d::detail::TCPClient"),
    ("teardown", r"ncclComm(Destroy|Abort|Finalize)|ProcessGroup\w*::(shutdown|abort)"),
    ("p2p", r"(Recv|Send)Work::|::wait(Recv|Send)\b|MPI_(Recv|Send|Sendrecv)\b"),
    ("collective", r"c10d::|gloo::|ncclGroupEnd|Reducer::finalize|^MPI_|^PMPI_|hvd::|horovod::"),
    ("device_wait",
     r"cu(da)?(Stream|Event|Device|Ctx)Synchronize|cu(da)?Memcpy(DtoH|Async)?|hip(Stream|Event|Device)Synchronize"
     r"|_local_scalar_dense_cuda"),
    ("gc", r"gc_collect|_PyGC_Collect"),
    ("gil_held", r"^take_gil$|PyEval_(RestoreThread|AcquireThread)"),
    ("python_lock", r"PyThread_acquire_lock|_PyMutex_Lock|PyMutex_Lock|rlock_acquire"),
    ("sleep", r"^(time_sleep|pysleep)$|^(clock_)?nanosleep$|^usleep$"),
    ("compile", r"nvrtc|llvm::|mlir::"),
    ("checkpoint_io", r"PyTorchStream(Writer|Reader)"),
    ("network_io", r"^(sock_(recv|send|connect|accept)\w*|_ssl__SSLSocket_\w+|SSL_(read|write|connect))"),
    ("file_io", r"^(os_(read|write|open|fsync|stat)\w*|_io_\w+|fileio_\w+|_Py_(read|write|open|fopen\w*))"),
)  # fmt: skip
_MEANINGS: Final = [(cls, re.compile(pattern)) for cls, pattern in _PATTERNS]


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


def native_class(frames: Sequence[StackFrame]) -> FrameClass | None:
    """The class of the native calls below the innermost Python call; None if no pattern matches."""
    calls: list[str] = []
    for frame in reversed(frames):
        if not frame.native:
            break
        calls.append(frame.function)
    for cls, pattern in _MEANINGS:
        if any(pattern.search(call) for call in calls):
            return cls
    return None


def native_classes(stacks: Iterable[Stack], reader: Reader) -> dict[tuple[Call, ...], FrameClass | None]:
    """Native class by Python call path: one process is read for all at the same place.

    None where native calls were read and match no pattern.
    """
    classes: dict[tuple[Call, ...], FrameClass | None] = {}
    for stack in stacks:
        if stack.native and stack.frames:
            calls = reader.trace(tuple(frame for frame in stack.frames if not frame.native)).calls
            if calls and is_main(stack):
                classes[calls] = native_class(stack.frames) or classes.get(calls)
    return classes
