"""Where each rank is and since when: its stack samples in order of time, and the state they show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ...records import AsyncTask, Local, Stack, StackFrame, StackStatus, WaitTarget
from ..stacks.frame_models import FrameClass
from ..stacks.frames import (
    Call,
    CallPath,
    Reader,
    class_by_call,
    class_of,
    class_within,
    gil_holder,
    in_process_barrier,
    is_library,
)
from ..stacks.training_threads import ThreadRole, analysed_thread, as_process
from .polling import LoopPlace, PollLoop, poll_loop
from .samples import StackSample
from .verdict import ProcessKey, Site, Still
from .wait_for import PeerWait, Processes, ProcessId, waits_in_library

#: Wakes per second from which a rank that sleeps in its own code may be polling.
POLLS_S: Final = 0.5
#: Classes in which a rank waits for other ranks.
WAITING: Final[frozenset[FrameClass]] = frozenset({"collective", "p2p", "store_wait", "group_setup", "teardown"})
#: Seconds. A sleep that lasts no longer is a pause: between two attempts, or between two looks at what is polled.
LONGEST_PAUSE_S: Final = 30.0
#: Classes of waits in the own process, which may have a time limit.
_TIMED: Final[frozenset[FrameClass]] = frozenset({"sleep", "python_lock", "network_io"})
#: Context switches that a waiting main thread may have: a signal, a page fault.
WAKES: Final = 2
#: Share of samples in state R from which a process counts as running.
RUNS_SHARE: Final = 0.5
#: Seconds. History and samples are stamped by different threads of the agent.
SLACK_S: Final = 2.5
#: A line of source that runs the garbage collector: a Python without symbols has no native frames of it.
_COLLECTS: Final = re.compile(r"\bgc\.collect\(")
#: A line of source that only takes a lock of the interpreter, which is native code like an operation of torch.
_LOCKS: Final = re.compile(
    r"\.acquire\(|^\s*with\s+(?:\w+\.)*(?:\w*_)?(?:r?lock|mutex|semaphore|condition)\s*:\s*(?:#.*)?$", re.IGNORECASE
)
_PEER_NAMES: Final = ("src", "dst", "peer")
_TARGET_CLASSES: Final[Mapping[str, FrameClass]] = {
    "tcp": "network_io", "unix": "network_io", "listener": "network_io", "pipe": "file_io", "file": "file_io",
    "terminal": "input", "child": "subprocess",
}  # fmt: skip


class Peer(msgspec.Struct, frozen=True):
    """The other side of a point-to-point call."""

    direction: Literal["send", "receive"]
    rank: int


class RankState(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One process: what it does, where, and for how long. Durations are 0.0 for one sample. Compared by identity."""

    key: ProcessKey
    rank: int | None
    role: str
    cls: FrameClass
    trace: CallPath | None = None  # of the thread that blocks it; None where no stack was read
    thread: str | None = None  # name of that thread, where it is not the main one
    samples: int = 0  # readable ones
    watched_s: float  # from the first of them to the last
    place_s: float  # on the same path of calls
    frozen_s: float  # in the identical stack, without waking up
    recovered_s: float = 0.0  # the longest sleep on the same path that it was seen in and has woken from
    runs: bool
    wakes_s: float | None  # wakes of its main thread per second
    wakes_in_s: float | None = None  # its sleep, or wait for a lock, ends by itself within this time; None: no limit
    written_bytes: int | None  # while it was sampled
    read_bytes: int | None = None  # by the analysed thread while it was sampled
    faults: int | None = None  # page faults of that thread while it was sampled
    throttled_s: float | None = None  # by its CPU quota while it was sampled
    memory_stalled_s: float | None = None  # its cgroup waited for memory while it was sampled
    memory_limit_hits: int | None = None  # how often its cgroup reached a memory limit meanwhile
    cpu_s: float | None = None  # CPU time of all of its threads while it was sampled
    children_cpu_s: float | None = None  # of the processes below it, also of those that ended, likewise
    children_bytes: int | None = None  # read and written by the processes below it, likewise
    moved_bytes: int | None = None  # over the TCP connections that it waits for, while it was sampled
    waits_for: tuple[WaitTarget, ...] = ()  # what the system call of the analysed thread waits for
    poll: PollLoop | None = None  # the loop in which it waits for a condition; None: in none, or unknown
    native: bool = False  # native frames of this place were read
    last: Stack  # the newest record of its main thread
    newest: Stack | None = None  # that of the analysed thread, where it is not the main one
    peers: tuple[Peer, ...] = ()
    peer_waits: tuple[PeerWait, ...] = ()  # other ranks that can end its wait, outside of collectives
    by_library: bool = False  # it waits through the I/O threads of a library
    outside: tuple[ProcessId, ...] = ()  # processes outside of the job that can end its wait
    has_unknown_end: bool = False  # it may also wait for a process outside of the job
    tasks: tuple[AsyncTask, ...] | None = None  # of the event loop that its analysed thread waits in; None: not read
    locals: tuple[Local, ...] | None = None  # of its innermost calls; None: not requested
    classes: tuple[FrameClass, ...] = ()  # one per readable sample
    traces: tuple[CallPath, ...] = ()  # likewise
    switches: tuple[int | None, ...] = ()  # likewise: context switches of its main thread so far; None: unknown

    @property
    def node(self) -> str:
        """Name of its node."""
        return self.key[0]

    @property
    def pid(self) -> int:
        """Process id on its node."""
        return self.key[1]

    @property
    def ends_soon(self) -> bool:
        """Whether it sleeps, or waits for a lock, for a limited time: it pauses between two attempts, or polls."""
        return self.wakes_in_s is not None and self.wakes_in_s <= LONGEST_PAUSE_S

    @property
    def pause_s(self) -> float | None:
        """Length of its present sleep, or limited wait; None: it has no limit."""
        slept_s = (self.newest or self.last).thread_slept_s or 0.0
        return None if self.wakes_in_s is None else self.wakes_in_s + slept_s

    @property
    def is_other_program(self) -> bool:
        """Whether it has called exec: it runs another program, and does not communicate any more."""
        return self.last.status == "not_python"

    @property
    def received_ago_s(self) -> float | None:
        """Seconds since data arrived on a TCP connection that it waits for; None if none has, or if it is unknown."""
        return min(
            (target.received_ago_s for target in self.waits_for if target.received_ago_s is not None), default=None
        )

    @property
    def polls_memory(self) -> bool:
        """Whether it sleeps again and again, and shares memory with other ranks, which may change it meanwhile."""
        return any(target.kind == "memory" for target in self.waits_for)

    @property
    def is_communicating(self) -> bool:
        """Whether it waits in communication of the framework: a collective, a message, the store, a group."""
        return self.cls in WAITING

    @property
    def status(self) -> StackStatus:
        """Whether its newest stack was read, or why not."""
        return self.last.status

    @property
    def kernel_state(self) -> tuple[tuple[str, str | None], ...]:
        """Names and values of what the kernel says of the analysed thread."""
        last, thread = self.last, self.newest
        if thread is None:
            return (("state", last.proc_state), ("wchan", last.wchan), ("syscall", last.syscall))
        return (("state", thread.thread_state), ("wchan", thread.thread_wchan), ("syscall", thread.thread_syscall))

    @property
    def calls(self) -> tuple[Call, ...]:
        """Its call path; empty where no stack was read."""
        return self.trace.calls if self.trace else ()

    @property
    def caller(self) -> Site | None:
        """The innermost call in the job's own code that no model matches: the caller of the operation."""
        return _caller_of(self.trace)

    @property
    def site(self) -> Site | None:
        """The innermost call in the job's own code; the innermost call where none is its own."""
        return site_of(self.trace)

    @property
    def call(self) -> str:
        """The function of the innermost call; empty where no stack was read."""
        return self.calls[-1].function if self.calls else ""


def rank_state_of(
    key: ProcessKey, samples: Sequence[StackSample], reader: Reader,
    natives: Mapping[tuple[Call, ...], FrameClass | None], still: Still | None,
    processes: Processes | None = None, role: ThreadRole | None = None, handler: Stack | None = None,
    steps: frozenset[LoopPlace] = frozenset(),
) -> RankState:  # fmt: skip
    """The state of one process from at least one sample, oldest first.

    `processes` finds the ranks at the other end of what it waits for; `role` is that of the threads that train, if
    these are not the main ones; `handler` is the thread to analyse in place of all others; `steps` are loops that pass
    the steps of the job.
    """
    read = [sample for sample in samples if sample.is_read and sample.main.frames is not None]
    last = samples[-1].main
    if not read:
        return _without_stack(key, samples, still)
    blocking = handler or analysed_thread(
        read[-1].main, read[-1].threads, role if last.role == "rank" else None, reader
    )
    stacks = [_same_thread(sample, blocking) for sample in read]
    traces = [reader.trace(stack.frames or ()) for stack in stacks]
    on_path = _run(len(read), lambda index: traces[index] is traces[-1] or _path(traces[index]) == _path(traces[-1]))
    same = _run(len(read), lambda index: stacks[index].frames == stacks[-1].frames)
    blocks_main = blocking is read[-1].main
    has_states = blocking.thread_state is not None
    if blocks_main or not has_states:
        asleep = _run(same, lambda index: _asleep(read[index], read[-1]))
        runs = _share_running(read[-on_path:]) >= RUNS_SHARE
    else:
        asleep = 1
        runs = _share_in_state(stacks[-on_path:], "R") >= RUNS_SHARE
    cls = _class(read[-on_path:], traces[-1], runs, blocks_main)
    if last.status == "gone" or last.proc_state in ("T", "t") or last.frozen:
        cls = class_of(last, traces[-1], False)
    elif not blocks_main and has_states:
        cls = class_of(as_process(blocking), traces[-1], runs)
        cls = "python_lock" if cls == "unknown" else cls
    if cls in ("unknown", "compute", "network_io", "python_lock") and traces[-1].cls is None:
        cls = natives.get(traces[-1].calls) or cls
    if cls == "compute" and _innermost_matches(_COLLECTS, traces[-1]):
        cls = "gc"
    if cls == "unknown" and stacks[-1].syscall == "futex" and _innermost_matches(_LOCKS, traces[-1]):
        cls = "python_lock"
    if cls == "python_lock" and in_process_barrier(stacks[-1].frames or ()):
        cls = "collective"
    waits = _wait_of(read[-on_path:], stacks[-on_path:], traces[-1], cls, blocks_main)
    is_native = traces[-1].calls in natives
    if cls == "unknown":
        cls = _class_by_target(waits.targets, is_native or waits.by_library)
    place_s, frozen_s = _lasting(read, on_path), _lasting(read, asleep)
    if still is not None and asleep > 1:
        frozen_s = _with_history(read[-asleep].at_s, read[-1].at_s, still)
    frozen_s = max(frozen_s, blocking.thread_slept_s or 0.0)
    poll = poll_loop(stacks, [sample.at_s for sample in read], reader, steps)
    place_s = max(place_s, frozen_s, poll.seconds if poll else 0.0)
    return RankState(
        key=key, rank=last.rank, role=last.role, cls=cls, trace=traces[-1],
        thread=None if blocks_main else blocking.thread_name or "a thread",
        samples=len(read), watched_s=_lasting(read, len(read)), place_s=place_s, frozen_s=frozen_s,
        recovered_s=_recovered_s(read, stacks, traces, frozen_s), runs=runs,
        wakes_s=_wakes_s(read), wakes_in_s=stacks[-1].thread_wakes_in_s if cls in _TIMED else None,
        poll=poll, newest=None if blocks_main else stacks[-1], written_bytes=_written_bytes(read), **_increases(stacks),
        moved_bytes=_moved_bytes([
            stack.native_waits if waits.by_library else stack.waits_for for stack in stacks[-on_path:]
        ]), native=is_native, last=last, by_library=waits.by_library,
        waits_for=waits.targets,
        peer_waits=processes.waits(waits.stack) if processes else (),
        outside=processes.peers(waits.stack) if processes else (),
        has_unknown_end=processes.has_unknown_end(waits.stack) if processes else False,
        peers=_peers(stacks[-on_path:], traces[-1]),
        locals=next((stack.locals for stack in reversed(stacks[-on_path:]) if stack.locals is not None), None),
        classes=tuple(_class_at(sample, trace, blocks_main) for sample, trace in zip(read, traces, strict=True)),
        traces=tuple(traces), switches=tuple(sample.switches for sample in read),
    )  # fmt: skip


def site_of(trace: CallPath | None) -> Site | None:
    """The innermost call in the job's own code; the innermost call where none is its own."""
    if trace is None or not trace.frames:
        return None
    innermost = trace.frames[-1]
    return _caller_of(trace) if is_library(innermost.file) else _site(innermost)


def _caller_of(trace: CallPath | None) -> Site | None:
    return None if trace is None or trace.site < 0 else _site(trace.frames[trace.site])


def _site(frame: StackFrame) -> Site:
    return Site(frame.function, frame.file, frame.line, frame.source)


def _with_history(first_s: float, last_s: float, still: Still) -> float:
    """Seconds asleep: samples and history together where they overlap, else the samples alone."""
    since_s = still.until_s - still.for_s
    if since_s > last_s or still.until_s < first_s - SLACK_S:
        return last_s - first_s
    return max(last_s, still.until_s) - min(first_s, since_s)


def _recovered_s(
    read: Sequence[StackSample], stacks: Sequence[Stack], traces: Sequence[CallPath], frozen_s: float
) -> float:
    """The longest sleep of a thread in samples before its present one, on the path that it is on now, s."""
    path, began_s = _path(traces[-1]), read[-1].at_s - frozen_s
    earlier = (
        stack.thread_slept_s or 0.0
        for sample, stack, trace in zip(read[:-1], stacks, traces, strict=False)
        if sample.at_s < began_s and _path(trace) == path
    )
    return max(earlier, default=0.0)


def _without_stack(key: ProcessKey, samples: Sequence[StackSample], still: Still | None) -> RankState:
    """The kernel's state of a process whose stack could not be read."""
    last = samples[-1].main
    states = {sample.main.proc_state for sample in samples}
    cls: FrameClass = class_of(last, None, False)
    if last.status == "not_python" and cls == "unknown":
        cls = class_by_call(last) or "unknown"
    if cls == "uninterruptible" and states != {"D"}:
        cls = "unknown"
    asleep = _run(
        len(samples),
        lambda index: samples[index].main.proc_state == last.proc_state and _asleep(samples[index], samples[-1]),
    )
    frozen_s = _lasting(samples, asleep)
    if still is not None and asleep > 1:
        frozen_s = _with_history(samples[-asleep].at_s, samples[-1].at_s, still)
    return RankState(
        key=key, rank=last.rank, role=last.role, cls=cls, watched_s=_lasting(samples, len(samples)), place_s=frozen_s,
        frozen_s=frozen_s, runs=last.proc_state == "R", wakes_s=_wakes_s(samples),
        written_bytes=_written_bytes(samples), last=last,
    )  # fmt: skip


def _innermost_matches(pattern: re.Pattern[str], trace: CallPath) -> bool:
    """Whether the line of the innermost call matches; False where its source is not known."""
    return any(pattern.search(frame.source or "") for frame in trace.frames[-1:])


def _class(samples: Sequence[StackSample], trace: CallPath, runs: bool, is_main: bool) -> FrameClass:
    """The class of a process over samples on one call path; kernel state is that of the main thread."""
    last = samples[-1].main
    if not is_main:
        return trace.cls or "python_lock"  # the main thread waits for this thread
    if all(sample.main.proc_state in ("T", "t", "D") for sample in samples):
        return class_of(last, trace, runs)
    seen = Counter(
        class_within(sample.main, trace, runs) for sample in samples if sample.main.proc_state not in ("T", "t", "D")
    )
    cls = max(seen, key=lambda cls: (seen[cls], cls != "unknown", cls))
    if not runs and trace.cls is None and all(gil_holder(sample.threads) for sample in samples):
        return "gil_held"
    return cls


def _class_at(sample: StackSample, trace: CallPath, is_main: bool) -> FrameClass:
    """The class at one sample."""
    return class_of(sample.main, trace, _has_processor(sample)) if is_main else trace.cls or "python_lock"


def _run(count: int, holds: Callable[[int], bool]) -> int:
    """Length of the run of last items for which `holds` is true; called with negative indices."""
    length = 0
    while length < count and holds(-1 - length):
        length += 1
    return length


def _asleep(sample: StackSample, last: StackSample) -> bool:
    """Whether the main thread slept from one sample to the other."""
    if _has_processor(sample) or _has_processor(last):
        return False
    if sample.switches is not None and last.switches is not None:
        return last.switches - sample.switches <= WAKES
    return True  # no counters: the stack decides


def _wakes_s(samples: Sequence[StackSample]) -> float | None:
    first, last = samples[0].switches, samples[-1].switches
    seconds = samples[-1].at_s - samples[0].at_s
    return None if first is None or last is None or seconds <= 0 else (last - first) / seconds


def _written_bytes(samples: Sequence[StackSample]) -> int | None:
    first, last = samples[0].main.written_bytes, samples[-1].main.written_bytes
    return None if first is None or last is None else last - first


def _increases(stacks: Sequence[Stack]) -> dict[str, Any]:
    """What the counters of a thread, and of its cgroup, grew by over the samples."""
    fields = {
        "read_bytes": "thread_read_bytes", "faults": "thread_faults", "throttled_s": "throttled_s",
        "memory_stalled_s": "memory_stalled_s", "memory_limit_hits": "memory_limit_hits", "cpu_s": "cpu_s",
        "children_cpu_s": "children_cpu_s", "children_bytes": "children_bytes",
    }  # fmt: skip
    return {name: _increase(stacks, field) for name, field in fields.items()}


def _increase(stacks: Sequence[Stack], field: str) -> Any:
    """The increase of a counter of one thread over the samples that have it."""
    counts = [count for stack in stacks if (count := getattr(stack, field)) is not None]
    return counts[-1] - counts[0] if len(counts) > 1 else None


def _moved_bytes(samples: Sequence[Sequence[WaitTarget] | None]) -> int | None:
    """What the TCP connections moved that are waited for in the first and in the last sample."""
    totals = [
        {target.fd: target.moved_bytes for target in targets if target.moved_bytes is not None}
        for targets in samples
        if targets is not None
    ]
    if len(totals) < 2:
        return None
    both = totals[0].keys() & totals[-1].keys()
    return sum(max(0, totals[-1][fd] - totals[0][fd]) for fd in both) if both else None


class _Wait(NamedTuple):
    """What an analysed thread waits for; `stack` is its newest record with these targets."""

    stack: Stack
    targets: tuple[WaitTarget, ...]
    by_library: bool  # through the I/O threads of a library


def _wait_of(
    samples: Sequence[StackSample], stacks: Sequence[Stack], trace: CallPath, cls: FrameClass, is_main: bool
) -> _Wait:
    """The wait of a thread over samples on one call path: its own, that of I/O threads, or of memory that it polls."""
    newest = stacks[-1]
    targets = next((stack.waits_for for stack in reversed(stacks) if stack.waits_for is not None), ())
    if is_main and cls == "sleep" and (_wakes_s(samples) or 0.0) >= POLLS_S:
        asleep = "sleep" in ((trace.frames[-1].source if trace.frames else None) or "")  # else in a call out of Python
        polled = _native_waits(samples, is_memory=True)
        targets = tuple(target for target in polled if target.kind == "memory" or not asleep) or targets
    elif is_main and waits_in_library(newest, trace, cls, targets):
        by_library = _native_waits(samples, is_memory=False)
        if by_library:
            return _Wait(replace(newest, thread_syscall="I/O thread ", waits_for=by_library), by_library, True)
    return _Wait(replace(newest, waits_for=targets), targets, False)


def _native_waits(samples: Sequence[StackSample], is_memory: bool) -> tuple[WaitTarget, ...]:
    """What the I/O threads of the newest sample wait for, or the memory and locks that it may poll."""
    newest = next((sample.main.native_waits for sample in reversed(samples) if sample.main.native_waits), ())
    return tuple(target for target in newest if (target.kind in ("memory", "file")) == is_memory)


def _class_by_target(targets: Sequence[WaitTarget], is_native: bool) -> FrameClass:
    """The class of a call out of Python by what it waits for.

    A socket may be the store's or a collective's: it decides only where native frames show neither.
    """
    kinds = {target.kind for target in targets if target.kind != "event"}
    if len(kinds) != 1 or (kinds <= {"tcp", "unix", "listener"} and not is_native):
        return "unknown"
    return _TARGET_CLASSES[kinds.pop()]


def _share_in_state(stacks: Sequence[Stack], letter: str) -> float:
    return sum(stack.thread_state == letter for stack in stacks) / len(stacks)


def _lasting(samples: Sequence[StackSample], count: int) -> float:
    return samples[-1].at_s - samples[-count].at_s if count > 1 else 0.0


def _share_running(samples: Sequence[StackSample]) -> float:
    return sum(map(_has_processor, samples)) / len(samples)


def _has_processor(sample: StackSample) -> bool:
    """The kernel's state; the stack reader's where that is missing."""
    return sample.main.proc_state == "R" if sample.main.proc_state is not None else bool(sample.main.active)


def _path(trace: CallPath) -> tuple[tuple[str, str], ...]:
    return tuple((call.function, call.file) for call in trace.calls)


def _same_thread(sample: StackSample, thread: Stack) -> Stack:
    for stack in sample.threads:
        if (stack.os_thread_id, stack.thread_id) == (thread.os_thread_id, thread.thread_id):
            return stack
    return sample.main


def _peers(stacks: Sequence[Stack], trace: CallPath) -> tuple[Peer, ...]:
    """The other side of the innermost point-to-point call, from its captured variables."""
    if trace.cls != "p2p":
        return ()
    for stack in reversed(stacks):
        peers = []
        for local in stack.locals or ():
            frame = (stack.frames or ())[local.frame] if local.frame < len(stack.frames or ()) else None
            if frame in trace.frames[-1:] and local.name in _PEER_NAMES and re.fullmatch(r"\d{1,7}", local.value):
                sends = local.name == "dst" or (local.name == "peer" and "send" in trace.calls[-1].function.lower())
                peers.append(Peer("send" if sends else "receive", int(local.value)))
        if peers:
            return tuple(dict.fromkeys(peers))
    return ()
