"""Classes of native calls, for stacks whose last Python call is ambiguous: `handle.wait()`, `with lock`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ...records import Stack, StackFrame
from ..stacks.frame_models import FrameClass
from ..stacks.frames import Call, Reader
from ..stacks.threads import is_main

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
