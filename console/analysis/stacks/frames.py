"""What a stack is doing: frames made comparable, cut at the call into a framework, and given a class."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...records import Stack, StackFrame
from .frame_models import MODELS, FrameClass, Model

_Compiled = tuple[Model, re.Pattern[str], re.Pattern[str]]

#: Calls that say nothing: wrappers, and what starts a program or a thread.
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
#: A worker that was forked carries the stack of whoever forked it: it begins behind this call.
_FORKED = re.compile(r"(^|/)multiprocessing/process\.py:_bootstrap$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/(.*)|/lib/python3?[.\d]*t?/(.*)|^(<frozen [^>]*>)$")

#: System calls, and functions of the kernel, that tell what a call out of Python is waiting for.
_CALLS: Final[dict[str, FrameClass]] = {
    "nanosleep": "sleep", "clock_nanosleep": "sleep", "wait4": "subprocess", "waitid": "subprocess",
    "pread64": "file_io", "pwrite64": "file_io", "fsync": "file_io", "openat": "file_io", "newfstatat": "file_io",
    "flock": "file_io", "connect": "network_io", "accept": "network_io", "accept4": "network_io",
    "recvfrom": "network_io", "sendto": "network_io", "recvmsg": "network_io", "sendmsg": "network_io",
}  # fmt: skip
_WCHANS: Final[dict[str, FrameClass]] = {
    "hrtimer_nanosleep": "sleep", "n_tty_read": "input", "do_wait": "subprocess", "pipe_read": "file_io",
    "anon_pipe_read": "file_io", "pipe_wait": "file_io", "anon_pipe_write": "file_io", "pipe_write": "file_io",
    "wait_for_partner": "file_io", "fifo_open": "file_io", "folio_wait_bit_common": "file_io",
    "locks_lock_inode_wait": "file_io", "request_wait_answer": "file_io", "inet_csk_accept": "network_io",
    "sk_wait_data": "network_io", "unix_stream_data_wait": "network_io", "unix_stream_read_generic": "network_io",
}  # fmt: skip


class Call(NamedTuple):
    """One frame as ranks are compared by it. `line` is 0 where it does not tell them apart."""

    function: str  # the bare name: whether it is qualified depends on the version of Python
    file: str  # a path below the library's root, or the last two parts of one of the job's own
    line: int


#: Of a deep recursion so many calls are kept at each end; between them stands one that says so.
_OUTERMOST, _INNERMOST = 64, 128
_GAP: Final = Call("… a recursion …", "", 0)


class CallPath(NamedTuple):
    """A stack, cut: outermost first, beside each call the frame it stands for. `cls` is None where no model fits."""

    calls: tuple[Call, ...]
    frames: tuple[StackFrame, ...]
    cls: FrameClass | None
    waits: bool  # the class holds only while nothing of the process runs
    in_user: bool  # the leaf is the job's own code: what it called is no Python
    site: int  # of the job's own innermost call, else of the innermost of all; -1 of an empty stack
    places: tuple[int, ...]  # of each call in the whole stack; -1 of one that stands for several


class _Known(NamedTuple):
    function: str
    file: str
    library: bool
    dropped: bool
    forked: bool  # what is outside of it belongs to the parent
    strong: Model | None
    weak: Model | None


def _shortened(trace: CallPath) -> CallPath:
    """Of a recursion the outermost and the innermost calls, and the site; ranks differ in how deep they are in it."""
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
    """Makes traces of stacks; each distinct frame, and each distinct stack, is looked at once."""

    def __init__(self, models: Sequence[Model] = ()) -> None:
        compiled = [(model, re.compile(model.file), re.compile(model.function)) for model in (*models, *MODELS)]
        self._strong = [one for one in compiled if not one[0].weak]
        self._weak = [one for one in compiled if one[0].weak]
        self._known: dict[tuple[str, str], _Known] = {}
        self._traces: dict[tuple[StackFrame, ...], CallPath] = {}

    def trace(self, frames: tuple[StackFrame, ...]) -> CallPath:
        """The trace of a stack, outermost frame first."""
        found = self._traces.get(frames)
        if found is None:
            found = self._traces[frames] = self._make(frames)
        return found

    def _make(self, frames: tuple[StackFrame, ...]) -> CallPath:
        looked = [(frame, self._look(frame)) for frame in frames]
        first = max((at + 1 for at, (_, known) in enumerate(looked) if known.forked), default=0)
        places = [at for at in range(first, len(looked)) if not looked[at][1].dropped]
        kept = [looked[at] for at in places]
        at, model = self._decide(kept)
        kept = kept[: at + 1] if model else kept
        in_user = model is None and bool(kept) and not kept[-1][1].library
        users = [i for i, (_, known) in enumerate(kept) if not known.library and known.strong is None]
        site = users[-1] if users else len(kept) - 1
        calls = tuple(
            Call(known.function, known.file, frame.line if i == site else 0) for i, (frame, known) in enumerate(kept)
        )
        return _shortened(CallPath(
            calls, tuple(frame for frame, _ in kept), model.cls if model else None, bool(model and model.waits),
            in_user, site, tuple(places[: len(kept)]),
        ))  # fmt: skip

    def _decide(self, kept: list[tuple[StackFrame, _Known]]) -> tuple[int, Model | None]:
        """Where the stack is cut, and what it means: from the leaf to the job's own innermost call."""
        weak: tuple[int, Model | None] = (len(kept), None)
        for at in range(len(kept) - 1, -1, -1):
            known = kept[at][1]
            if known.strong is not None:
                return self._outermost(kept, at)
            if known.weak is not None:
                weak = (at, known.weak)  # the outermost of them: what the job called
            if not known.library:
                break
        return weak

    def _outermost(self, kept: list[tuple[StackFrame, _Known]], at: int) -> tuple[int, Model]:
        """A barrier within new_group is group setup: of calls within one file the first counts."""
        file, model = kept[at][1].file, kept[at][1].strong
        assert model is not None
        for outer in range(at - 1, -1, -1):
            known = kept[outer][1]
            if known.file != file:
                break
            if known.strong is not None:
                at, model = outer, known.strong
        return at, model

    def _look(self, frame: StackFrame) -> _Known:
        key = (frame.function, frame.file)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._learn(*key)
        return known

    def _learn(self, function: str, file: str) -> _Known:
        bare = function.rsplit(".", 1)[-1]
        library = _LIBRARY.search(file)
        short = (
            next(part for part in library.groups() if part is not None) if library else "/".join(file.split("/")[-2:])
        )
        return _Known(
            bare, short, library is not None, _DROPPED.search(f"{short}:{bare}") is not None,
            _FORKED.search(f"{short}:{bare}") is not None,
            _first(self._strong, short, file, bare), _first(self._weak, short, file, bare),
        )  # fmt: skip


def is_library(file: str) -> bool:
    """Whether a file is of an installed package or of Python itself, and not of the job."""
    return _LIBRARY.search(file) is not None


def _first(models: list[_Compiled], short: str, file: str, bare: str) -> Model | None:
    for model, in_file, of_function in models:
        if of_function.fullmatch(bare) and (in_file.search(short) or in_file.search(file)):
            return model
    return None


def class_of(stack: Stack, trace: CallPath | None, is_active: bool) -> FrameClass:
    """What a process is doing, from its main thread's trace and what the kernel said of it.

    `is_active`: whether any of its threads ran. A call out of the job's own code into something that is no Python and
    waits on a futex or a poll may be a lock or an asynchronous collective: that is `unknown` here.
    """
    if stack.status == "gone":
        return "dead"
    if stack.proc_state == "t" or (stack.proc_state == "T" and stack.tracer_pid):
        return "debugger"
    if stack.proc_state == "T":
        return "stopped"
    if stack.proc_state == "D":
        return "uninterruptible"
    if trace is None:
        return "unknown"
    return class_within(stack, trace, is_active or stack.proc_state == "R")


def class_within(stack: Stack, trace: CallPath, runs: bool) -> FrameClass:
    """What a process is doing that is neither stopped nor uninterruptible; `runs`: whether it has the processor."""
    if trace.cls is not None:
        return "compute" if trace.waits and runs else trace.cls
    if runs:
        return "compute"
    if (stack.syscall, stack.wchan) == ("read", "wait_woken"):
        return "input"  # a terminal: sockets are read by calls of their own
    return _CALLS.get(stack.syscall or "") or _WCHANS.get(stack.wchan or "") or "unknown"
