"""How much of this console one node may take, whatever it sends: its time, its room, and the words of others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ..records import (
    ClockBins,
    ClockCost,
    ClockSnapshot,
    ClockSource,
    Collective,
    Gap,
    GpuClock,
    GpuEvent,
    Log,
    Node,
    PgStatus,
    Rank,
    RankStat,
    RawRecord,
    Record,
    Stack,
)
from ..records.kinds import PER_NODE, SPECS, KindSpec, is_event, is_gone, key_of
from ..text import format

#: Of the one thread that hears all nodes a single one gets so much, and so much at once. A node of eight GPUs takes
#: 0.0002 (tests/bench/RESULTS.md); what a lingering agent kept for an hour is heard within seconds all the same.
SHARE, SHARE_BURST_S = 0.1, 0.5
#: Bytes, as JSON, of all that a node has told of things: a busy node's processes take 26 MB.
MOST_HELD: Final = 64 << 20
#: Bytes of one record, as JSON. A process takes 3 KB at most, a GPU as much; what takes more names many things.
MOST_OF_RECORD: Final = 16 << 10
MOST_OF_LARGE: Final = 1 << 20
#: Records of one capture: 8 ranks with 16 workers, 4 threads each, 100 samples; and as many operations again.
MOST_OF_CAPTURE: Final = 131_072
#: Bytes of these, as JSON.
MOST_BYTES_OF_CAPTURE: Final = 128 << 20
#: Captures of a node that are remembered as asked for.
_CAPTURES: Final = 64
#: Things that happen once, a second and at once: a console away for ten minutes is told of some hundred.
EVENTS_S, EVENTS_BURST = 10.0, 2_000
#: So many bytes, as JSON, count as one of them.
EVENT_BYTES: Final = 1 << 10
#: Records of kinds that this version does not know, counted like events: only an agent of another version that lingered
#: says any, and nothing but the recording keeps them.
UNKNOWN_S, UNKNOWN_BURST = 100.0, 20_000
#: Words of our own about what a node sends that makes no sense.
COMPLAINTS_S, COMPLAINTS_BURST = 0.5, 20


#: No figure that a machine has is larger, and no instant later (2116) or before 1970: with what is beyond, sums that
#: are made of all nodes overflow, and one node would take every other its result.
MOST_FIGURE: Final = 1e18
MOST_INSTANT: Final = 1 << 62
#: What may be such a figure, in the bytes of a record; nearly no honest one has it.
_LARGE: Final = re.compile(rb"\d[eE]\+?\d|[5-9]\d{18}|\d{20}")
_CLOCKS: Final = (ClockBins, ClockSnapshot, ClockSource, ClockCost, GpuClock)


def is_out_of_range(record: Record, line: bytes) -> bool:
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


class TokenBucket:
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

    @property
    def is_half_full(self) -> bool:
        """Whether little was taken lately."""
        return self.level >= self._burst / 2

    def consume(self, amount: float = 1.0) -> bool:
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


def fair_share() -> TokenBucket:
    """CPU seconds of the console that one connection may take."""
    return TokenBucket(SHARE, SHARE_BURST_S)


class NodeQuota:
    """What of a node's records is taken. `refusal` is asked of each, in the order in which they come.

    What is counted here is what the store and its like keep of the node: no more and no longer.
    """

    def __init__(self, inherits: bool = False) -> None:
        """`inherits`: its agent is from a console before, and may still have one capture of that to tell."""
        self._events = TokenBucket(EVENTS_S, EVENTS_BURST)
        self._unknown = TokenBucket(UNKNOWN_S, UNKNOWN_BURST)
        self._things: dict[type[Record], dict[object, int]] = {}  # by kind and key: bytes of the newest record
        self._held = 0  # bytes of all of them
        self._gpus: set[str] = set()
        self._told_by = ""  # the agent whose `node` came last
        self._captures: dict[str, _Told] = {}  # asked for, the oldest first
        self._inherits = inherits

    def expect(self, capture: str) -> None:
        """This capture was asked for."""
        self._captures[capture] = _Told()
        while len(self._captures) > _CAPTURES:
            del self._captures[next(iter(self._captures))]

    def refusal(self, record: Record | RawRecord, size: int) -> str | None:
        """Why a record, of so many bytes as JSON, is not taken; None where it is."""
        if isinstance(record, RawRecord):
            return self._of_unknown(size)
        kind = type(record)
        spec = SPECS[kind]
        if isinstance(record, Stack | Collective | PgStatus):
            return self._of_capture(record.capture, size)
        if isinstance(record, Log) and record.source == "job":
            return None  # the store keeps so many bytes of these, whoever wrote them
        most = MOST_OF_LARGE if spec.is_large else MOST_OF_RECORD
        if size > most:
            return f"a record of more than {format.size(most)} ({spec.name})"
        if isinstance(record, Node):
            self._begin(record.agent)
        if spec.is_gpu and (refused := self._of_gpu(record.uuid or "")):  # type: ignore[attr-defined]
            return refused
        if spec.per_node is not None and (refused := self._of_things(record, spec, size)):
            return refused
        if is_event(record) and not isinstance(record, Gap) and not self._events.consume(max(1.0, size / EVENT_BYTES)):
            return f"it tells of more than {EVENTS_S:g} events a second"
        return None

    def _begin(self, agent: str) -> None:
        """Where another agent says who it is, what only the one before said is forgotten, here and in the store."""
        if self._told_by not in ("", agent):
            for kind in [kind for kind in self._things if SPECS[kind].ends_with_agent]:
                self._held -= sum(self._things.pop(kind).values())
            self._gpus = {key[0] for key in self._things.get(GpuEvent, ()) if isinstance(key, tuple)}
        self._told_by = agent

    def _of_capture(self, capture: str, size: int) -> str | None:
        told = self._captures.get(capture)
        if told is None:
            if not self._inherits:
                return "a capture that nobody asked for"
            self._inherits = False
            told = self._captures[capture] = _Told()
        if told.records >= MOST_OF_CAPTURE:
            return f"more than {MOST_OF_CAPTURE} records of one capture"
        if told.bytes + size > MOST_BYTES_OF_CAPTURE:
            return f"more than {format.size(MOST_BYTES_OF_CAPTURE)} of one capture"
        told.records += 1
        told.bytes += size
        return None

    def _of_unknown(self, size: int) -> str | None:
        if size > MOST_OF_RECORD:
            return f"a record of more than {format.size(MOST_OF_RECORD)} (of an unknown kind)"
        if not self._unknown.consume(max(1.0, size / EVENT_BYTES)):
            return f"it tells of more than {UNKNOWN_S:g} things of unknown kinds a second"
        return None

    def _of_gpu(self, uuid: str) -> str | None:
        """What is said of a GPU names one of those that there are."""
        if uuid not in self._gpus:
            if len(self._gpus) >= PER_NODE["devices"]:
                return f"more than {PER_NODE['devices']} GPUs"
            self._gpus.add(uuid)
        return None

    def _of_things(self, record: Record, spec: KindSpec, size: int) -> str | None:
        kind, key, most = spec.struct, key_of(record), spec.per_node or 0
        known = self._things.get(kind)
        if known is None:
            known = self._things[kind] = {}
        before = known.get(key)
        if is_gone(record):
            self._forget(kind, key)
            if kind is Rank:
                self._forget(RankStat, key)
            return None
        if before is None and len(known) >= most:
            return f"more than {most} of one kind ({spec.name})"
        held = self._held + size - (before or 0)
        if held > MOST_HELD and size > (before or 0):
            return f"more than {format.size(MOST_HELD)} of all that there is"
        known[key], self._held = size, held
        return None

    def _forget(self, kind: type[Record], key: object) -> None:
        self._held -= self._things.get(kind, {}).pop(key, 0)


@dataclass
class _Told:
    """What has come of a capture."""

    records: int = 0
    bytes: int = 0
