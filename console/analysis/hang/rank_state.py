"""Where one process stands, and since when: its looks, read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ...records import Frame, Local, Stack, StackStatus
from ..stacks.frame_models import FrameClass
from ..stacks.frames import Call, CallPath, Reader, class_of, class_within, is_library
from ..stacks.threads import blocking_thread, gil_holder
from .evidence import ProcessKey, Still
from .samples import StackSample
from .verdict import Site

#: A main thread that waits in one call may still be woken once or twice: a signal, a page that came back.
WAKES: Final = 2
#: Whether it has the processor: in so many of the looks (the kernel's R) it must.
RUNS_SHARE: Final = 0.5
#: History and looks are stamped by different threads of the agent, seconds.
SLACK_S: Final = 2.5
_PEER_NAMES: Final = ("src", "dst", "peer")


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a point-to-point call is about."""

    direction: Literal["send", "receive"]
    rank: int


@dataclass(frozen=True, slots=True, eq=False)
class RankState:
    """One process: what it does, where, and for how long it has. Durations are 0.0 where it was looked at once.

    There is one of each process: two are equal only where they are the same.
    """

    key: ProcessKey
    rank: int | None
    role: str
    cls: FrameClass
    trace: CallPath | None  # of the thread that holds it up; None where no stack was read
    thread: str | None  # name of that thread, where it is not the main one
    looks: int  # readable ones
    watched_s: float  # from the first of them to the last
    place_s: float  # on the same path of calls
    frozen_s: float  # in the very same stack, and it has not woken up
    runs: bool
    wakes_s: float | None  # how often its main thread was woken, a second
    written_bytes: int | None  # while it was looked at
    native: bool  # the native calls of this place were read
    last: Stack  # the newest record of its main thread
    peers: tuple[Peer, ...]
    locals: tuple[Local, ...] | None  # of where it stands; None: nobody asked
    classes: tuple[FrameClass, ...]  # one a readable look

    @property
    def node(self) -> str:
        return self.key[0]

    @property
    def pid(self) -> int:
        return self.key[1]

    @property
    def status(self) -> StackStatus:
        return self.last.status

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.trace.calls if self.trace else ()

    @property
    def caller(self) -> Site | None:
        """Where the job calls what it stands in: its own innermost call that no model knows."""
        return None if self.trace is None or self.trace.site < 0 else _site(self.trace.frames[self.trace.site])

    @property
    def site(self) -> Site | None:
        """The job's own innermost call: the line that holds it up. Where none is its own, the innermost of all."""
        if self.trace is None or not self.trace.frames:
            return None
        innermost = self.trace.frames[-1]
        return self.caller if is_library(innermost.file) else _site(innermost)

    @property
    def call(self) -> str:
        """The name of the call it stands in; empty where no stack was read."""
        return self.calls[-1].function if self.calls else ""


def rank_state_of(
    key: ProcessKey,
    looks: Sequence[StackSample],
    reader: Reader,
    natives: Mapping[tuple[Call, ...], FrameClass | None],
    still: Still | None,
) -> RankState:
    """Read the looks at one process, oldest first; at least one."""
    read = [look for look in looks if look.is_read and look.main.frames is not None]
    last = looks[-1].main
    if not read:
        return _without_stack(key, looks)
    blocking = blocking_thread(read[-1].main, read[-1].threads, reader)
    stacks = [_same_thread(look, blocking) for look in read]
    traces = [reader.trace(stack.frames or ()) for stack in stacks]
    on_path = _run(len(read), lambda at: traces[at] is traces[-1] or _path(traces[at]) == _path(traces[-1]))
    same = _run(len(read), lambda at: stacks[at].frames == stacks[-1].frames)
    asleep = _run(same, lambda at: _asleep(read[at], read[-1]))
    runs = _share_running(read[-on_path:]) >= RUNS_SHARE
    is_main = blocking is read[-1].main
    cls = _class(read[-on_path:], traces[-1], runs, is_main)
    if last.status == "gone" or last.proc_state in ("T", "t"):
        cls = class_of(last, traces[-1], False)
    elif cls in ("unknown", "compute") and is_main:
        cls = natives.get(traces[-1].calls) or cls
    place_s, frozen_s = _lasting(read, on_path), _lasting(read, asleep)
    if still is not None and asleep > 1:
        frozen_s = _with_history(read[-asleep].at_s, read[-1].at_s, still)
        place_s = max(place_s, frozen_s)
    return RankState(
        key=key, rank=last.rank, role=last.role, cls=cls, trace=traces[-1],
        thread=None if is_main else blocking.thread_name or "a thread",
        looks=len(read), watched_s=_lasting(read, len(read)), place_s=place_s, frozen_s=frozen_s, runs=runs,
        wakes_s=_wakes_s(read), written_bytes=_written_bytes(read), native=traces[-1].calls in natives, last=last,
        peers=_peers(stacks[-on_path:], traces[-1]),
        locals=next((stack.locals for stack in reversed(stacks[-on_path:]) if stack.locals is not None), None),
        classes=tuple(_class_at(look, trace, is_main) for look, trace in zip(read, traces, strict=True)),
    )  # fmt: skip


def _site(frame: Frame) -> Site:
    return Site(frame.function, frame.file, frame.line, frame.source)


def _with_history(first_s: float, last_s: float, still: Still) -> float:
    """For how long it has slept, where looks and what was watched around them overlap: from the first to the last."""
    since_s = still.until_s - still.for_s
    if since_s > last_s or still.until_s < first_s - SLACK_S:
        return last_s - first_s
    return max(last_s, still.until_s) - min(first_s, since_s)


def _without_stack(key: ProcessKey, looks: Sequence[StackSample]) -> RankState:
    """What the kernel says of a process whose stack nobody could read."""
    last = looks[-1].main
    states = {look.main.proc_state for look in looks}
    cls: FrameClass = class_of(last, None, False)
    if cls == "uninterruptible" and states != {"D"}:
        cls = "unknown"
    asleep = _run(len(looks), lambda at: looks[at].main.proc_state == last.proc_state and _asleep(looks[at], looks[-1]))
    frozen_s = _lasting(looks, asleep)
    return RankState(
        key=key, rank=last.rank, role=last.role, cls=cls, trace=None, thread=None, looks=0,
        watched_s=_lasting(looks, len(looks)), place_s=frozen_s, frozen_s=frozen_s, runs=last.proc_state == "R",
        wakes_s=_wakes_s(looks), written_bytes=_written_bytes(looks), native=False, last=last, peers=(), locals=None,
        classes=(),
    )  # fmt: skip


def _class(looks: Sequence[StackSample], trace: CallPath, runs: bool, is_main: bool) -> FrameClass:
    """What a process does over looks at which it stood on one path; the kernel's word is of the main thread."""
    last = looks[-1].main
    if not is_main:
        return trace.cls or "python_lock"  # the main thread waits for that one, whatever it does
    if all(look.main.proc_state in ("T", "t", "D") for look in looks):
        return class_of(last, trace, runs)
    said = Counter(
        class_within(look.main, trace, runs) for look in looks if look.main.proc_state not in ("T", "t", "D")
    )
    cls = max(said, key=lambda one: (said[one], one != "unknown", one))
    if not runs and trace.cls is None and all(gil_holder(look.threads) for look in looks):
        return "gil_held"
    return cls


def _class_at(look: StackSample, trace: CallPath, is_main: bool) -> FrameClass:
    """What it did at one look."""
    return class_of(look.main, trace, _has_processor(look)) if is_main else trace.cls or "python_lock"


def _run(count: int, holds: Callable[[int], bool]) -> int:
    """How many of the last ones it holds for, without a break; indices count from the first."""
    length = 0
    while length < count and holds(-1 - length):
        length += 1
    return length


def _asleep(look: StackSample, last: StackSample) -> bool:
    """Whether the main thread slept from one look to the other."""
    if _has_processor(look) or _has_processor(last):
        return False
    if look.switches is not None and last.switches is not None:
        return last.switches - look.switches <= WAKES
    return True  # nobody counted: the stack alone must tell


def _wakes_s(looks: Sequence[StackSample]) -> float | None:
    first, last = looks[0].switches, looks[-1].switches
    seconds = looks[-1].at_s - looks[0].at_s
    return None if first is None or last is None or seconds <= 0 else (last - first) / seconds


def _written_bytes(looks: Sequence[StackSample]) -> int | None:
    first, last = looks[0].main.written_bytes, looks[-1].main.written_bytes
    return None if first is None or last is None else last - first


def _lasting(looks: Sequence[StackSample], count: int) -> float:
    return looks[-1].at_s - looks[-count].at_s if count > 1 else 0.0


def _share_running(looks: Sequence[StackSample]) -> float:
    return sum(map(_has_processor, looks)) / len(looks)


def _has_processor(look: StackSample) -> bool:
    """The kernel's word; where nobody wrote that down, the engine's."""
    return look.main.proc_state == "R" if look.main.proc_state is not None else bool(look.main.active)


def _path(trace: CallPath) -> tuple[tuple[str, str], ...]:
    return tuple((call.function, call.file) for call in trace.calls)


def _same_thread(look: StackSample, thread: Stack) -> Stack:
    for stack in look.threads:
        if (stack.os_thread_id, stack.thread_id) == (thread.os_thread_id, thread.thread_id):
            return stack
    return look.main


def _peers(stacks: Sequence[Stack], trace: CallPath) -> tuple[Peer, ...]:
    """The other side of the point-to-point call a rank stands in, from the variables that were read of it."""
    if trace.cls != "p2p":
        return ()
    for stack in reversed(stacks):
        found = []
        for local in stack.locals or ():
            frame = (stack.frames or ())[local.frame] if local.frame < len(stack.frames or ()) else None
            if frame in trace.frames[-1:] and local.name in _PEER_NAMES and re.fullmatch(r"\d{1,7}", local.value):
                sends = local.name == "dst" or (local.name == "peer" and "send" in trace.calls[-1].function.lower())
                found.append(Peer("send" if sends else "receive", int(local.value)))
        if found:
            return tuple(dict.fromkeys(found))
    return ()
