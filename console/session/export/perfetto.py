"""`perfetto`: a trace for ui.perfetto.dev.

A process per rank, with tracks for steps, collectives (with flows between the ranks of one operation) and captured
stacks; a process per node with counters of its GPUs, their timers and the host, prefixed SIM if simulated; findings,
marks and events as instants. Times are on the common clock; without one, on the node's CLOCK_REALTIME, as the name of
the process states.

Numbers of fields are those of perfetto's protos/perfetto/trace (trace_packet, track_event, track_descriptor).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from typing import BinaryIO, Final, Self

import msgspec

from ...analysis.clock.model import CommonClock
from ...core.bus import Published
from ...records import (
    Collective,
    Finding,
    Gap,
    Gpu,
    GpuClock,
    GpuEvent,
    Host,
    Log,
    Mark,
    Node,
    NodeState,
    Rank,
    RankStat,
    Record,
    Stack,
)
from ...records.metrics import fields_for
from ..format.table_schema import unit_of
from .slice import SessionSlice

#: Kinds from which the common clock is rebuilt.
_CLOCK_KINDS: Final = ("clock_node", "clock_snapshot")
#: Key of a rank: (job, attempt, rank, node, pid).
RankKey = tuple[str, int, int | None, str, int]
#: Key of a collective of a rank: (rank's key, source, group, sequence or number).
_OperationKey = tuple[object, ...]


def write(source: SessionSlice, out: BinaryIO) -> None:
    """Write the trace. Raises OSError, and what reading the session raises."""
    simulated = frozenset(
        record.node for record in source.only("node") if isinstance(record, Node) and record.simulated
    )
    _Writer(Trace(out), ClusterTime.of(source.only(*_CLOCK_KINDS)), simulated).write(source)


class _Writer:
    """Creates tracks on first use; holds open steps and collectives."""

    def __init__(self, trace: Trace, clock: ClusterTime, simulated: frozenset[str]) -> None:
        self._trace, self._clock, self._simulated = trace, clock, simulated
        self._pids = 0
        self._processes: dict[object, int] = {}
        self._tracks: dict[tuple[object, str], int] = {}
        self._steps: dict[int, tuple[int, int]] = {}  # track → (step, since)
        self._operations: dict[_OperationKey, tuple[RankKey, Collective]] = {}

    def write(self, source: SessionSlice) -> None:
        for record in source.records():
            match record:
                case Gpu():
                    where = self._node(record.node)
                    self._counters(where, f"GPU {record.index} ", record)
                case Host():
                    self._counters(self._node(record.node), "host ", record)
                case GpuClock():
                    self._counters(self._node(record.node), f"GPU {record.index} timer ", record)
                case RankStat():
                    self._rank_stat(record)
                case Rank():
                    self._of_rank(record)
                case Stack() if record.role == "rank":
                    self._stack(record)
                case Collective():
                    self._collective(record)
                case Finding() | Mark() | GpuEvent() | Gap() | NodeState() | Log():
                    if record.rx >= (source.choice.from_rx or 0):  # the initial state happened before
                        self._instant(record)
        self._finish_steps()
        for key, operation in self._operations.values():
            self._operation(key, operation)

    # -- tracks --------------------------------------------------------------------------------------------------------

    def _process(self, key: object, name: str) -> int:
        if key not in self._processes:
            self._pids += 1
            self._processes[key] = self._trace.process(name, self._pids)
        return self._processes[key]

    def _track(self, process: int, name: str) -> int:
        if (process, name) not in self._tracks:
            self._tracks[process, name] = self._trace.track(name, process)
        return self._tracks[process, name]

    def _node(self, node: str) -> int:
        if not node:
            return self._process("", "gconsole")
        tied = "" if self._clock.has(node) else " (its own clock)"
        sim = "SIM " if node in self._simulated else ""
        return self._process(node, f"{sim}{node}{tied}")

    def _of_rank(self, record: Rank | RankStat | Stack | Collective) -> tuple[RankKey, int]:
        key = (record.job, record.attempt, record.rank, record.node, record.pid or 0)
        number = "?" if record.rank is None else record.rank
        tied = "" if self._clock.has(record.node) else ", its own clock"
        return key, self._process(key, f"rank {number} of {record.job} ({record.node}{tied})")

    # -- what is drawn -------------------------------------------------------------------------------------------------

    def _counters(self, process: int, prefix: str, record: Record) -> None:
        time = self._clock.of_record(record)
        for name in fields_for(type(record), "trace"):
            value = getattr(record, name)
            if value is not None:
                key = (process, prefix + name)
                if key not in self._tracks:
                    self._tracks[key] = self._trace.counter(prefix + name, unit_of(name), process)
                self._trace.value(self._tracks[key], time, float(value))

    def _rank_stat(self, record: RankStat) -> None:
        _, process = self._of_rank(record)
        self._counters(process, "", record)
        if record.step is None:
            return
        track, time = self._track(process, "steps"), self._clock.of_record(record)
        step, since = self._steps.get(track, (record.step, time))
        if step != record.step:
            steps = record.step - step
            # a sample shows when a step was seen: several may lie between two samples
            name = f"step {step}" if steps <= 1 else f"steps {step} to {record.step - 1}"
            values = {"step": step} if steps <= 1 else {"step": step, "steps": steps}
            self._trace.slice(track, since, time, name, values)
            since = time
        self._steps[track] = (record.step, since)

    def _finish_steps(self) -> None:
        for track, (step, since) in self._steps.items():
            self._trace.slice(track, since, None, f"step {step}", {"step": step})

    def _stack(self, record: Stack) -> None:
        if record.began is None or record.ended is None or not _is_main(record):
            return
        _, process = self._of_rank(record)
        inner = record.frames[-1] if record.frames else None
        name = f"{inner.function} {inner.file.rsplit('/', 1)[-1]}:{inner.line}" if inner else record.status
        calls = " > ".join(frame.function for frame in record.frames or ())
        facts: Facts = {"capture": record.capture, "sample": record.sample, "calls": calls, "wchan": record.wchan,
                        "state": record.proc_state, "reason": record.reason}  # fmt: skip
        begin, end = (self._clock.of_instant(record.node, time) for time in (record.began, record.ended))
        self._trace.slice(self._track(process, "captures"), begin, end, name, facts)

    def _collective(self, record: Collective) -> None:
        key, _ = self._of_rank(record)
        number = record.collective_seq_id if record.collective_seq_id is not None else record.record_id
        name: _OperationKey = (*key, record.source, record.process_group, record.is_p2p, record.p2p_seq_id, number,
                               record.profiling_name)  # fmt: skip
        self._operations[name] = (key, record)  # the last reading is the most complete

    def _operation(self, key: RankKey, record: Collective) -> None:
        begin = record.time_discovered_started_ns or record.time_created_ns
        if begin is None:
            return
        end = record.time_discovered_completed_ns
        if end is None and record.duration_ms is not None and record.time_discovered_started_ns is not None:
            end = begin + int(record.duration_ms * 1e6)
        if end is None and record.retired:
            end = begin  # completed at an unknown time
        group = record.process_group[1] or record.process_group[0] if record.process_group else "?"
        facts: Facts = {"group": group, "collective_seq_id": record.collective_seq_id, "state": record.state,
                        "bytes": record.msg_size_bytes, "source": record.source}  # fmt: skip
        track = self._track(self._processes[key], f"collectives of {group}")
        flow = _flow(record)
        begin_at = self._clock.of_instant(record.node, begin)
        end_at = None if end is None else self._clock.of_instant(record.node, end)
        number = f" #{record.collective_seq_id}" if record.collective_seq_id is not None else ""
        self._trace.slice(track, begin_at, end_at, f"{record.profiling_name}{number}", facts, flow)

    def _instant(self, record: Finding | Mark | GpuEvent | Gap | NodeState | Log) -> None:
        name, track = _instant_name(record)
        fields = msgspec.to_builtins(record)
        facts = {key: value for key, value in fields.items() if isinstance(value, str | int | float)}
        time = self._clock.of_record(record)
        self._trace.instant(self._track(self._node(record.node), track), time, name, facts)


def _is_main(record: Stack) -> bool:
    return record.os_thread_id is None or record.os_thread_id == record.pid


def _flow(record: Collective) -> int | None:
    """A number that is the same for a collective on all its ranks; None for point-to-point operations."""
    if record.is_p2p or record.collective_seq_id is None or record.process_group is None:
        return None
    key = f"{record.job}\0{record.attempt}\0{record.process_group[0]}\0{record.collective_seq_id}"
    return int.from_bytes(hashlib.blake2b(key.encode(errors="replace"), digest_size=8).digest(), "little")


def _instant_name(record: Finding | Mark | GpuEvent | Gap | NodeState | Log) -> tuple[str, str]:
    """Name and track of an instant event."""
    match record:
        case Finding():
            return f"{record.id}: {record.text}" + ("" if record.cleared_at is None else " (cleared)"), "findings"
        case Mark():
            return record.text, "marks"
        case GpuEvent():
            return f"{record.event}: {record.text}", "GPU events"
        case Gap():
            return f"gap: {record.reason}", "gaps"
        case NodeState():
            return record.state, "connection"
    return record.text, "log"


class ClusterTime:
    """Times of nodes on the common clock of a session; without one, on the node's CLOCK_REALTIME."""

    def __init__(self, clock: CommonClock) -> None:
        self._clock, self._nodes = clock, clock.nodes

    @classmethod
    def of(cls, records: Iterable[Published]) -> Self:
        """Rebuild the common clock from clock records."""
        return cls(CommonClock.of(records))

    def has(self, node: str) -> bool:
        """Whether the node is on the common clock."""
        return node in self._nodes

    def of_record(self, record: Record) -> int:
        """Return the time of a record, ns."""
        common = self._clock.to_cluster(record.node, record.mono)
        return record.t if common is None else common.ns

    def of_instant(self, node: str, real: int) -> int:
        """Convert a time of that node's CLOCK_REALTIME, ns."""
        common = self._clock.to_cluster(node, real, "real")
        return real if common is None else common.ns


_SEQUENCE: Final = 1  # all packets are of one writer
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
#: Field numbers: of Trace; of TracePacket; of TrackDescriptor; of TrackEvent; of DebugAnnotation.
_PACKET: Final = 1
_TIMESTAMP, _SEQUENCE_ID, _TRACK_EVENT, _TRACK_DESCRIPTOR = 8, 10, 11, 60
_UUID, _NAME, _PROCESS, _PARENT, _COUNTER_OF = 1, 2, 3, 5, 8
_ANNOTATIONS, _TYPE, _TRACK, _CATEGORY, _EVENT_NAME, _COUNTER_VALUE, _FLOWS = 4, 9, 11, 22, 23, 44, 47
_ANNOTATION_INT, _ANNOTATION_DOUBLE, _ANNOTATION_TEXT, _ANNOTATION_NAME = 4, 5, 6, 10

Facts = Mapping[str, str | int | float | None]


class Trace:
    """Writes packets immediately; tracks are numbers that the caller keeps."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._tracks = 0

    def process(self, name: str, pid: int) -> int:
        """Add a process; return its track. `pid` must be unique in this trace."""
        process = varint(1, pid) + text(6, name)
        return self._describe(text(_NAME, name) + message(_PROCESS, process))

    def track(self, name: str, parent: int) -> int:
        """Add a track for slices and instants; return it."""
        return self._describe(text(_NAME, name) + varint(_PARENT, parent))

    def counter(self, name: str, unit: str, parent: int) -> int:
        """Add a counter track; return it."""
        return self._describe(text(_NAME, name) + varint(_PARENT, parent) + message(_COUNTER_OF, text(6, unit)))

    def slice(
        self, track: int, begin: int, end: int | None, name: str, facts: Facts, flow: int | None = None
    ) -> None:  # fmt: skip
        """Write a slice from `begin` to `end`, ns; None: open-ended."""
        flows = fixed64(_FLOWS, flow) if flow is not None else b""
        self._event(track, begin, _BEGIN, text(_EVENT_NAME, name) + flows + _annotations(facts))
        if end is not None:
            self._event(track, max(end, begin), _END, b"")

    def instant(self, track: int, time: int, name: str, facts: Facts) -> None:
        """Write an instant event; `time` in ns."""
        self._event(track, time, _INSTANT, text(_EVENT_NAME, name) + _annotations(facts))

    def value(self, track: int, time: int, value: float) -> None:
        """Write a counter value; `time` in ns."""
        self._event(track, time, _COUNTER, double(_COUNTER_VALUE, value))

    def _describe(self, fields: bytes) -> int:
        self._tracks += 1
        self._packet(message(_TRACK_DESCRIPTOR, varint(_UUID, self._tracks) + fields))
        return self._tracks

    def _event(self, track: int, time: int, kind: int, fields: bytes) -> None:
        event = varint(_TYPE, kind) + varint(_TRACK, track) + text(_CATEGORY, "gconsole") + fields
        self._packet(varint(_TIMESTAMP, max(0, time)) + message(_TRACK_EVENT, event))

    def _packet(self, fields: bytes) -> None:
        self._out.write(message(_PACKET, fields + varint(_SEQUENCE_ID, _SEQUENCE)))


def _annotations(facts: Facts) -> bytes:
    values = ((name, value) for name, value in facts.items() if value is not None)
    return b"".join(message(_ANNOTATIONS, _annotation(name, value)) for name, value in values)


def _annotation(name: str, value: str | float) -> bytes:
    named = text(_ANNOTATION_NAME, name)
    if isinstance(value, str):
        return named + text(_ANNOTATION_TEXT, value)
    return named + (double(_ANNOTATION_DOUBLE, value) if isinstance(value, float) else varint(_ANNOTATION_INT, value))


def varint(number: int, value: int) -> bytes:
    """Encode an integer, a boolean or an enum."""
    return _varint(number << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed64(number: int, value: int) -> bytes:
    """Encode an unsigned integer of eight bytes."""
    return _varint(number << 3 | 1) + struct.pack("<Q", value & 0xFFFF_FFFF_FFFF_FFFF)


def double(number: int, value: float) -> bytes:
    """Encode a float of eight bytes."""
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def message(number: int, value: bytes) -> bytes:
    """Encode a nested message, or bytes."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def text(number: int, value: str) -> bytes:
    """Encode a string."""
    return message(number, value.encode(errors="replace"))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
