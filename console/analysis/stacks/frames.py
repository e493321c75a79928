"""Stacks as comparable call paths, cut at the call into a framework; classes of threads and processes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from ...records import Stack, StackFrame
from .frame_models import MODELS, FrameClass, Model

_Compiled = tuple[Model, re.Pattern[str], re.Pattern[str]]

#: Calls without information: wrappers, program and thread start.
_DROPPED = re.compile(
    r"(?:(^|/)torch/distributed/c10d_logger\.py:wrapper"
    r"|(^|/)torch/utils/_contextlib\.py:(decorate_context|generator_context)"
    r"|(^|/)torch/nn/modules/module\.py:(_wrapped_call_impl|_call_impl|_slow_forward)"
    r"|(^|/)torch/(_dynamo/(eval_frame|external_utils)|_compile|_ops|_functorch/\w+)\.py:(_fn|inner|wrapper|__call__)"
    r"|(^|/)contextlib\.py:inner"
    r"|(^|/|<frozen )runpy(\.py|>):.*"
    r"|(^|/)threading\.py:(_bootstrap|_bootstrap_inner)"
    r"|(^|/)multiprocessing/process\.py:run)$"
)
#: The stack of a forked worker contains that of its parent up to this call.
_FORKED = re.compile(r"(^|/)multiprocessing/process\.py:_bootstrap$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/(.*)|/lib/python3?[.\d]*t?/(.*)|^(<frozen [^>]*>)$")

#: Words in the name of a function that evaluates a model; one word of each set, in one that saves a checkpoint.
_EVALUATES: Final = frozenset({"eval", "evaluate", "evaluation", "validate", "validation", "val"})
_SAVES: Final = (frozenset({"save", "write", "store", "dump"}), frozenset({"checkpoint", "checkpoints", "ckpt"}))

#: Classes by system call and by kernel wait channel, for calls out of Python.
_CALLS: Final[dict[str, FrameClass]] = {
    "nanosleep": "sleep", "clock_nanosleep": "sleep", "pause": "sleep", "rt_sigsuspend": "sleep",
    "rt_sigtimedwait": "sleep",  # until a signal
    "wait4": "subprocess", "waitid": "subprocess",
    "pread64": "file_io", "pwrite64": "file_io", "fsync": "file_io", "openat": "file_io", "newfstatat": "file_io",
    "fdatasync": "file_io", "preadv": "file_io", "pwritev": "file_io", "copy_file_range": "file_io", "statx": "file_io",
    "flock": "file_io", "connect": "network_io", "accept": "network_io", "accept4": "network_io",
    "recvfrom": "network_io", "sendto": "network_io", "recvmsg": "network_io", "sendmsg": "network_io",
    "recvmmsg": "network_io",
}  # fmt: skip
_WCHANS: Final[dict[str, FrameClass]] = {
    "hrtimer_nanosleep": "sleep", "n_tty_read": "input", "do_wait": "subprocess", "pipe_read": "file_io",
    "anon_pipe_read": "file_io", "pipe_wait": "file_io", "anon_pipe_write": "file_io", "pipe_write": "file_io",
    "wait_for_partner": "file_io", "fifo_open": "file_io", "folio_wait_bit_common": "file_io",
    "locks_lock_inode_wait": "file_io", "request_wait_answer": "file_io", "inet_csk_accept": "network_io",
    "sk_wait_data": "network_io", "unix_stream_data_wait": "network_io", "unix_stream_read_generic": "network_io",
}  # fmt: skip


class Call(NamedTuple):
    """One frame in comparable form; `line` is 0 if it is not compared."""

    function: str  # bare name: qualification depends on the version of Python
    file: str  # path below the library root, or the last two parts for user code
    line: int


#: Calls kept at each end of a deep recursion; a placeholder stands for the rest.
_OUTERMOST, _INNERMOST = 64, 128
_GAP: Final = Call("… a recursion …", "", 0)


class CallPath(NamedTuple):
    """A normalised stack, outermost first, with the frame of each call; `cls` is None without a matching model."""

    calls: tuple[Call, ...]
    frames: tuple[StackFrame, ...]
    cls: FrameClass | None
    waits: bool  # the class holds only while no thread of the process runs
    in_user: bool  # the leaf is user code, which called something other than Python
    site: int  # index of the innermost user call, else of the innermost call; -1: empty stack
    places: tuple[int, ...]  # index of each call in the original stack; -1: placeholder


class _FrameFacts(NamedTuple):
    function: str
    file: str
    library: bool
    dropped: bool
    forked: bool  # outer frames belong to the parent
    strong: Model | None
    weak: Model | None


def _shortened(trace: CallPath) -> CallPath:
    """Shorten a deep recursion to its ends and the site, because ranks differ in depth."""
    count = len(trace.calls)
    if count <= _OUTERMOST + _INNERMOST:
        return trace
    kept = sorted({*range(_OUTERMOST), trace.site, *range(count - _INNERMOST, count)})
    short: list[tuple[Call, StackFrame, int]] = []
    site = 0
    for before, index in zip([-1, *kept], kept, strict=False):
        if index > before + 1:
            short.append((_GAP, StackFrame(_GAP.function, ""), -1))
        if index == trace.site:
            site = len(short)
        short.append((trace.calls[index], trace.frames[index], trace.places[index]))
    calls, frames, places = zip(*short, strict=True)
    return trace._replace(calls=calls, frames=frames, places=places, site=site)


class Reader:
    """Converts stacks to call paths, cached per distinct frame and stack."""

    def __init__(self, models: Sequence[Model] = ()) -> None:
        compiled = [(model, re.compile(model.file), re.compile(model.function)) for model in (*models, *MODELS)]
        self._strong = [entry for entry in compiled if not entry[0].weak]
        self._weak = [entry for entry in compiled if entry[0].weak]
        self._facts: dict[tuple[str, str], _FrameFacts] = {}
        self._traces: dict[tuple[StackFrame, ...], CallPath] = {}

    def trace(self, frames: tuple[StackFrame, ...]) -> CallPath:
        """Call path of a stack (outermost frame first)."""
        path = self._traces.get(frames)
        if path is None:
            path = self._traces[frames] = self._make(frames)
        return path

    def _make(self, frames: tuple[StackFrame, ...]) -> CallPath:
        described = [(frame, self._describe(frame)) for frame in frames]
        first = max((index + 1 for index, (_, facts) in enumerate(described) if facts.forked), default=0)
        places = [index for index in range(first, len(described)) if not described[index][1].dropped]
        kept = [described[index] for index in places]
        index, model = self._decide(kept)
        kept = kept[: index + 1] if model else kept
        in_user = model is None and bool(kept) and not kept[-1][1].library
        users = [i for i, (_, facts) in enumerate(kept) if not facts.library and facts.strong is None]
        site = users[-1] if users else len(kept) - 1
        calls = tuple(
            Call(facts.function, facts.file, frame.line if i == site else 0) for i, (frame, facts) in enumerate(kept)
        )
        return _shortened(CallPath(
            calls, tuple(frame for frame, _ in kept), model.cls if model else None, bool(model and model.waits),
            in_user, site, tuple(places[: len(kept)]),
        ))  # fmt: skip

    def _decide(self, kept: list[tuple[StackFrame, _FrameFacts]]) -> tuple[int, Model | None]:
        """(cut index, model), searched from the leaf to the innermost user call."""
        weak: tuple[int, Model | None] = (len(kept), None)
        for index in range(len(kept) - 1, -1, -1):
            facts = kept[index][1]
            if facts.strong is not None:
                return self._outermost(kept, index)
            if facts.weak is not None:
                weak = (index, facts.weak)  # the outermost weak match: the call of the user code
            if not facts.library:
                break
        return weak

    def _outermost(self, kept: list[tuple[StackFrame, _FrameFacts]], index: int) -> tuple[int, Model]:
        """The outermost match within one file: a barrier within new_group is group setup.

        A compiler is many files, whose innermost calls change all the time: its outermost call within the libraries.
        """
        file, model = kept[index][1].file, kept[index][1].strong
        assert model is not None
        for outer in range(index - 1, -1, -1):
            facts = kept[outer][1]
            if model.cls == "compile" and facts.library:
                if facts.strong is not None and facts.strong.cls == "compile":
                    index, model = outer, facts.strong
                continue
            if facts.file != file:
                break
            if facts.strong is not None:
                index, model = outer, facts.strong
        return index, model

    def _describe(self, frame: StackFrame) -> _FrameFacts:
        key = (frame.function, frame.file)
        facts = self._facts.get(key)
        if facts is None:
            facts = self._facts[key] = self._classify(*key)
        return facts

    def _classify(self, function: str, file: str) -> _FrameFacts:
        bare = function.rsplit(".", 1)[-1]
        library = _LIBRARY.search(file)
        short = (
            next(part for part in library.groups() if part is not None) if library else "/".join(file.split("/")[-2:])
        )
        return _FrameFacts(
            bare, short, library is not None, _DROPPED.search(f"{short}:{bare}") is not None,
            _FORKED.search(f"{short}:{bare}") is not None,
            _first(self._strong, short, file, bare), _first(self._weak, short, file, bare),
        )  # fmt: skip


def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    return _LIBRARY.search(file) is not None


def long_work(frame: StackFrame) -> Literal["evaluating", "checkpointing"] | None:
    """What a call of the job's own code does while the other ranks may wait, by the name of its function."""
    words = frame.function.rsplit(".", 1)[-1].lower().split("_")
    is_evaluation = not _EVALUATES.isdisjoint(words)
    if (not is_evaluation and any(map(frozenset(words).isdisjoint, _SAVES))) or is_library(frame.file):
        return None
    return "evaluating" if is_evaluation else "checkpointing"


def _first(models: list[_Compiled], short: str, file: str, bare: str) -> Model | None:
    for model, in_file, of_function in models:
        if of_function.fullmatch(bare) and (in_file.search(short) or in_file.search(file)):
            return model
    return None


def class_of(stack: Stack, trace: CallPath | None, is_active: bool) -> FrameClass:
    """Class of a process, from its main thread's trace and kernel state; `is_active`: any of its threads ran.

    A native call from user code that waits on a futex or poll may be a lock or an asynchronous collective: `unknown`.
    """
    if stack.status == "gone":
        return "dead"
    if stack.proc_state == "t" or (stack.proc_state == "T" and stack.tracer_pid):
        return "debugger"
    if stack.proc_state == "T" or stack.frozen:
        return "stopped"
    if stack.proc_state == "D":
        return "uninterruptible"
    if trace is None:
        return "unknown"
    return class_within(stack, trace, is_active or stack.proc_state == "R")


def class_within(stack: Stack, trace: CallPath, runs: bool) -> FrameClass:
    """Class of a process that is neither stopped nor in D state; `runs`: it is on a CPU."""
    if trace.cls is not None:
        return "compute" if trace.waits and runs else trace.cls
    if runs:
        return "compute"
    if (stack.syscall, stack.wchan) == ("read", "wait_woken"):
        return "input"  # a terminal: sockets are read by calls of their own
    return class_by_call(stack) or "unknown"


def class_by_call(stack: Stack) -> FrameClass | None:
    """Class of a process by its system call, or the kernel function that it sleeps in; None if they do not tell."""
    return _CALLS.get(stack.syscall or "") or _WCHANS.get(stack.wchan or "")


#: A barrier of multiprocessing: that of threading, over a condition that processes share.
_BARRIER: Final = re.compile(r"(^|/)threading\.py$")
_SHARED_CONDITION: Final = re.compile(r"(^|/)multiprocessing/synchronize\.py$")


def in_process_barrier(frames: Sequence[StackFrame]) -> bool:
    """Whether a thread waits in a barrier in which processes meet."""
    calls = [index for index, frame in enumerate(frames) if _SHARED_CONDITION.search(frame.file)]
    outer = frames[: calls[0]] if calls else ()
    return any(_BARRIER.search(frame.file) and frame.function.endswith("_wait") for frame in outer)


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
    ("collective",  # also those that are made of messages
     r"gloo::(all|broadcast|reduce|barrier|gather|scatter)|MPI_I?(All|Barrier|Bcast|Reduce|Gather|Scatter|Scan|Exscan)"
     r"|xla::.*(AllReduce|AllGather|ReduceScatter|AllToAll|CollectivePermute|CollectiveThunk)|ompi_coll_"),
    ("p2p", r"(Recv|Send)Work::|::wait(Recv|Send)\b|MPI_(M?Recv|[BRS]?Send|Sendrecv|Probe|Wait(all|any|some)?)\b"),
    ("collective", r"c10d::|gloo::|ncclGroupEnd|Reducer::finalize|^MPI_|^PMPI_|hvd::|horovod::"),
    ("device_wait",
     r"cu(da)?(Stream|Event|Device|Ctx)Synchronize|cu(da)?Memcpy(DtoH|Async)?|hip(Stream|Event|Device)Synchronize"
     r"|_local_scalar_dense_cuda|BlockHostUntilReady|BlockUntilReady|tsl::Future<.*::Await"),
    ("gc", r"gc_collect|_PyGC_Collect"),
    ("gil_held", r"^take_gil$|PyEval_(RestoreThread|AcquireThread)"),
    ("python_lock", r"PyThread_acquire_lock|_PyMutex_Lock|PyMutex_Lock|rlock_acquire"),
    ("sleep", r"^(time_sleep|pysleep)$|^(clock_)?nanosleep$|^usleep$"),
    ("compile", r"nvrtc|llvm::|mlir::"),
    ("checkpoint_io", r"PyTorchStream(Writer|Reader)"),
    ("network_io", r"^(sock_(recv|send|connect|accept)\w*|_ssl__SSLSocket_\w+|SSL_(read|write|connect))"),
    ("file_io", r"^(os_(read|write|open|fsync|stat)\w*|_io_\w+|fileio_\w+|_Py_(read|write|open|fopen\w*))"),
)  # fmt: skip


@functools.cache
def _meanings() -> list[tuple[FrameClass, re.Pattern[str]]]:
    return [(cls, re.compile(pattern)) for cls, pattern in _PATTERNS]  # 40 ms, which most commands do not need


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
    for cls, pattern in _meanings():
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
            if calls:
                classes[calls] = native_class(stack.frames) or classes.get(calls)
    return classes
