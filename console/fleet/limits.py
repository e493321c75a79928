"""How much of this console one node may take, whatever it sends: its time, its room, and the words of others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ..records import (
    ClockBins,
    ClockCost,
    ClockSnapshot,
    ClockSource,
    Collective,
    Gpu,
    GpuClock,
    GpuDigest,
    GpuEvent,
    GpuInfo,
    GpuLink,
    GpuProcess,
    Job,
    JobNode,
    Link,
    Log,
    Nic,
    PgStatus,
    Process,
    Rank,
    Record,
    Stack,
)

#: Of the one thread that hears all nodes a single one gets so much, and so much at once. A node of eight GPUs takes
#: 0.0002 (tests/bench/RESULTS.md); what a lingering agent kept for an hour is heard within seconds all the same.
SHARE, SHARE_BURST_S = 0.1, 0.5
#: Things of one kind that a node may have told of and not taken back. A busy node has some thousand processes.
MOST_THINGS: Final = 65_536
#: Records of one capture: 8 ranks with 16 workers, 4 threads each, 100 samples; and as many operations again.
MOST_OF_CAPTURE: Final = 131_072
#: Captures of a node that are remembered as asked for.
_CAPTURES: Final = 64
#: Things that happen once, a second and at once: a console away for ten minutes is told of some hundred.
EVENTS_S, EVENTS_BURST = 10.0, 2_000
#: Words of our own about what a node sends that makes no sense.
COMPLAINTS_S, COMPLAINTS_BURST = 0.5, 20


#: No figure that a machine has is larger, and no instant later (2116) or before 1970: with what is beyond, sums that
#: are made of all nodes overflow, and one node would take every other its result.
MOST_FIGURE: Final = 1e18
MOST_INSTANT: Final = 1 << 62
#: What may be such a figure, in the bytes of a record; nearly no honest one has it.
_LARGE: Final = re.compile(rb"\d[eE]\+?\d|[5-9]\d{18}|\d{20}")
_CLOCKS: Final = (ClockBins, ClockSnapshot, ClockSource, ClockCost, GpuClock)


def is_beyond_reason(record: Record, line: bytes) -> bool:
    """Whether a record, which came as `line`, has a figure or an instant that no machine has.

    What a person watches in a training loop may be anything: a loss that diverges is no lie.
    """
    if not (0 <= record.t <= MOST_INSTANT and 0 <= record.mono <= MOST_INSTANT):
        return True
    if _LARGE.search(line) is None:
        return False
    fields = msgspec.structs.asdict(record)
    fields.pop("watched", None)
    return _is_large(fields, isinstance(record, _CLOCKS))


def _is_large(value: Any, whole_too: bool) -> bool:
    match value:
        case bool():
            return False
        case float():
            return abs(value) > MOST_FIGURE
        case int():
            return whole_too and abs(value) > MOST_INSTANT
        case dict():
            return any(_is_large(one, whole_too) for one in value.values())
        case tuple() | list():
            return any(_is_large(one, whole_too) for one in value)
        case msgspec.Struct():
            return _is_large(msgspec.structs.asdict(value), whole_too)
    return False


class Bucket:
    """Fills at `rate` a second up to `burst`, and gives what is in it."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._level, self._looked = burst, clock()

    @property
    def level(self) -> float:
        """What is in it now; below zero where more was taken than there was."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._looked) * self._rate)
        self._looked = now
        return self._level

    def take(self, amount: float = 1.0) -> bool:
        """Take that much; False, and nothing taken, where it is not there."""
        if self.level < amount:
            return False
        self._level -= amount
        return True

    def spend(self, amount: float) -> float:
        """Take that much whether it is there or not; the seconds until the bucket is as full as empty again."""
        level = self.level
        self._level = level - amount
        return max(0.0, -self._level / self._rate)


def share() -> Bucket:
    """CPU seconds of the console that one connection may take."""
    return Bucket(SHARE, SHARE_BURST_S)


_THINGS: Final[dict[type[Record], Callable[..., object]]] = {
    GpuInfo: lambda one: one.uuid, Gpu: lambda one: one.uuid, GpuDigest: lambda one: one.uuid,
    GpuLink: lambda one: (one.uuid, one.link), GpuProcess: lambda one: (one.uuid, one.pid),
    Nic: lambda one: (one.device, one.port), Link: lambda one: (one.type, one.a.kind, one.a.id, one.b.kind, one.b.id),
    Process: lambda one: (one.pid, one.start_ticks), Rank: lambda one: (one.pid, one.start_ticks),
    Job: lambda one: one.job, JobNode: lambda one: one.job, ClockBins: lambda one: one.dst,
}  # fmt: skip


class Rations:
    """What of a node's records is taken. `refusal` is asked of each, in the order in which they come."""

    def __init__(self, inherits: bool = False) -> None:
        """`inherits`: its agent is from a console before, and may still have one capture of that to tell."""
        self._events = Bucket(EVENTS_S, EVENTS_BURST)
        self._things: dict[type[Record], set[object]] = {}
        self._captures: dict[str, int] = {}  # asked for, the oldest first: records of it that have come
        self._inherits = inherits

    def expect(self, capture: str) -> None:
        """This capture was asked for."""
        self._captures[capture] = 0
        while len(self._captures) > _CAPTURES:
            del self._captures[next(iter(self._captures))]

    def begin(self) -> None:
        """Another agent speaks: it tells of everything anew."""
        self._things.clear()

    def refusal(self, record: Record) -> str | None:
        """Why a record is not taken; None where it is."""
        kind = type(record)
        if isinstance(record, Stack | Collective | PgStatus):
            return self._of_capture(record.capture)
        key = _THINGS.get(kind)
        if key is not None:
            refused = self._of_things(kind, key(record), _is_over(record))
            if refused:
                return refused
        if _is_event(record) and not self._events.take():
            return f"it tells of more than {EVENTS_S:g} events a second"
        return None

    def _of_capture(self, capture: str) -> str | None:
        count = self._captures.get(capture)
        if count is None:
            if not self._inherits:
                return "a capture that nobody asked for"
            self._inherits, count = False, 0
        if count >= MOST_OF_CAPTURE:
            return f"more than {MOST_OF_CAPTURE} records of one capture"
        self._captures[capture] = count + 1
        return None

    def _of_things(self, kind: type[Record], key: object, is_over: bool) -> str | None:
        known = self._things.get(kind)
        if known is None:
            known = self._things[kind] = set()
        if is_over:
            known.discard(key)
        elif key not in known:
            if len(known) >= MOST_THINGS:
                return f"more than {MOST_THINGS} of one kind ({kind.__struct_config__.tag})"
            known.add(key)
        return None


def _is_over(record: Record) -> bool:
    match record:
        case GpuProcess(gone=gone) | Link(gone=gone) | Process(gone=gone):
            return gone
        case Rank(status=status):
            return status in ("exited", "withdrawn")
        case Nic(state=state):
            return state == "gone"
    return False


def _is_event(record: Record) -> bool:
    """Whether the store keeps it in the one list of events, which all nodes share."""
    match record:
        case Log(source=source):
            return source != "job"
        case Rank(status=status):
            return status != "present"
        case Nic(state=state):
            return state == "gone"
    return isinstance(record, GpuEvent | JobNode)
