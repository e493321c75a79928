"""Traces of other tools on the common clock of a session, in Chrome's JSON format (Kineto of torch.profiler, Perfetto).

Several traces become one: each with processes of its own, labelled with node and error bound, and a counter of the
bound over time. Times are read and written exactly: `ts` is decimal microseconds, and a double holds today's date to
0.25 µs.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeGuard, cast

import msgspec

from ...analysis.clock.model import CommonClock, NodeClock
from ...core.bus import Published
from ...records import Rank
from ...text.format import micro
from ..format import reader
from ..format.layout import SessionError
from ..format.reader import RecordFilter

#: Bytes of one trace, uncompressed; it is held in memory.
MOST_BYTES: Final = 1 << 30
#: ns. Between two instants this far apart the offset of a clock is interpolated.
GRID_NS: Final = 10_000_000
#: ns (2001). Later instants are CLOCK_REALTIME, earlier ones of a clock that begins at boot.
EARLIEST_REAL_NS: Final = 10**18
#: µs. Times beyond are not times: the year is 33,658.
MOST_US: Final = 10**18
#: Points of the counter of the error bound, per trace.
_BOUND_POINTS: Final = 200

Event = dict[str, Any]


class ForeignTrace(msgspec.Struct, frozen=True):
    """One trace: its events, and where and when they were stamped."""

    path: Path
    node: str
    events: list[Event]
    base_ns: int  # added to every `ts`
    rank: int | None = None
    clock: NodeClock = "real"


class AppliedTrace(msgspec.Struct, frozen=True):
    """One trace on the common clock: its span, and the largest error bound within it, ns."""

    path: Path
    node: str
    rank: int | None
    clock: NodeClock
    events: int
    begin_ns: int
    end_ns: int
    bound_ns: int


class _Document(msgspec.Struct):
    """The keys of a trace that are read."""

    traceEvents: list[Event] = []
    baseTimeNanoseconds: int | None = None
    distributedInfo: dict[str, Any] = {}


def clock_and_ranks(path: Path) -> tuple[CommonClock, Mapping[int, str]]:
    """The common clock of a session or record file, and the node of each rank that has only one. Raises as `slice`."""
    nodes: dict[int, set[str]] = {}
    clocks: list[Published] = []
    for record in reader.records(path, RecordFilter(frozenset({"clock_node", "clock_snapshot", "rank"}))):
        if isinstance(record, Rank):
            if record.rank is not None:
                nodes.setdefault(record.rank, set()).add(record.node)
        else:
            clocks.append(record)
    return CommonClock.of(clocks), {rank: min(names) for rank, names in nodes.items() if len(names) == 1}


def read_trace(path: Path, node: str | None, ranks: Mapping[int, str], clock: NodeClock | None = None) -> ForeignTrace:
    """Read a trace, also compressed with gzip. Raises SessionError, OSError.

    `node`: where it was taken; None: that of its rank by `ranks`. `clock`: of its stamps; None: CLOCK_REALTIME, if they
    are of this century.
    """
    document = _decoded(path, _bytes_of(path))
    rank = document.distributedInfo.get("rank")
    rank = rank if isinstance(rank, int) else None
    if node is None and rank is not None:
        node = ranks.get(rank)
    if node is None:
        reason = "names no rank" if rank is None else f"is of rank {rank}, of which the recording has no node"
        raise SessionError(f"{path}: the trace {reason}; use --node NODE")
    base_ns = document.baseTimeNanoseconds or 0
    first = min((_ns(event["ts"]) for event in document.traceEvents if _is_timed(event)), default=None)
    if first is None:
        raise SessionError(f"{path}: no event with a time")
    if clock is None and first + base_ns < EARLIEST_REAL_NS:
        raise SessionError(f"{path}: its times do not begin in 1970; name their clock: --clock monotonic, boot or raw")
    return ForeignTrace(path, node, document.traceEvents, base_ns, rank, clock or "real")


def write_merged(traces: Sequence[ForeignTrace], clock: CommonClock, out: BinaryIO) -> list[AppliedTrace]:
    """Write one trace with all events on the common clock. Raises SessionError for a node without clock data."""
    shifts = [_Shift(trace, clock) for trace in traces]
    base_ns = min(shift.at(_instants(trace)[0]) for trace, shift in zip(traces, shifts, strict=True))
    applied, events = [], list[Event]()
    pids: dict[tuple[int, object], int] = {}
    for number, (trace, shift) in enumerate(zip(traces, shifts, strict=True)):
        moved = [_moved(event, number, trace, shift, base_ns, pids) for event in trace.events]
        begin_ns, end_ns = (shift.at(instant) for instant in _instants(trace))
        bounds = shift.bounds(*_instants(trace))
        done = AppliedTrace(
            trace.path, trace.node, trace.rank, trace.clock, len(moved), begin_ns, end_ns, max(ns for _, ns in bounds)
        )
        applied.append(done)
        events += [*_labels(done, number, pids, moved), *moved]
        events += _bound_counter(done, bounds, number, base_ns, pids)
    document = {
        "traceEvents": events, "baseTimeNanoseconds": base_ns, "displayTimeUnit": "ns",
        "gconsole": {
            "clock": "common clock of the cluster",
            "traces": [
                {"file": done.path.name, "node": done.node, "rank": done.rank, "bound_ns": done.bound_ns}
                for done in applied
            ],
        },
    }  # fmt: skip
    out.write(msgspec.json.Encoder(decimal_format="number").encode(document) + b"\n")
    return applied


# -- reading -----------------------------------------------------------------------------------------------------------


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        head = file.read(2)
        file.seek(0)
        try:
            data = (gzip.GzipFile(fileobj=file) if head == b"\x1f\x8b" else file).read(MOST_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SessionError(f"{path}: {error}") from error
    if len(data) > MOST_BYTES:
        raise SessionError(f"{path}: larger than {MOST_BYTES >> 30} GiB")
    return data


def _decoded(path: Path, data: bytes) -> _Document:
    if data[:1] not in (b"{", b"["):
        raise SessionError(f"{path}: not a trace in JSON; convert Perfetto's binary format with: traceconv json")
    decoder = msgspec.json.Decoder(float_hook=Decimal)
    try:
        if data[:1] == b"[" and not data.rstrip().endswith(b"]"):  # the format allows it
            data = data.rstrip().rstrip(b",") + b"]"
        document = decoder.decode(data)
        if isinstance(document, list):
            document = {"traceEvents": document}
        return msgspec.convert(document, _Document, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidOperation, RecursionError) as error:
        raise SessionError(f"{path}: not a trace in Chrome's JSON format: {error}") from error


def _is_timed(event: Event) -> bool:
    return event.get("ph") != "M" and _is_time(event.get("ts"))


def _is_time(value: object) -> TypeGuard[int | Decimal]:
    """Whether a value is a time: a number may have an exponent of millions, and takes as many digits as an integer."""
    return isinstance(value, int | Decimal) and -MOST_US < value < MOST_US


def _ns(microseconds: int | Decimal) -> int:
    return int(microseconds * 1000)


def _instants(trace: ForeignTrace) -> tuple[int, int]:
    """First and last instant, ns of the trace's own clock."""
    begins = [trace.base_ns + _ns(event["ts"]) for event in trace.events if _is_timed(event)]
    return min(begins), max(begins)


# -- converting --------------------------------------------------------------------------------------------------------


class _Shift:
    """Common clock minus the clock of a trace, on a grid with straight lines between."""

    def __init__(self, trace: ForeignTrace, clock: CommonClock) -> None:
        self._trace, self._clock = trace, clock
        self._grid: dict[int, int] = {}

    def at(self, instant: int) -> int:
        """The common clock at an instant of the trace's clock, ns. Raises SessionError without clock data."""
        index, beyond = divmod(instant, GRID_NS)
        low, high = self._offset(index), self._offset(index + 1)
        return instant + low + (high - low) * beyond // GRID_NS

    def bounds(self, begin: int, end: int) -> list[tuple[int, int]]:
        """(instant of the common clock, error bound) from `begin` to `end` of the trace's clock, ns."""
        step = max(1, (end - begin) // _BOUND_POINTS)
        points = []
        for instant in [*range(begin, end, step), end]:
            common = self._clock.to_cluster(self._trace.node, instant, self._trace.clock)
            if common is not None:
                points.append((common.ns, common.bound_ns))
        return points

    def _offset(self, index: int) -> int:
        if index not in self._grid:
            instant = index * GRID_NS
            common = self._clock.to_cluster(self._trace.node, instant, self._trace.clock)
            if common is None:
                node = self._trace.node
                raise SessionError(f"{node}: no clock data in the recording; record it with: gconsole record --clocks")
            self._grid[index] = common.ns - instant
        return self._grid[index]


def _moved(
    event: Event, number: int, trace: ForeignTrace, shift: _Shift, base_ns: int, pids: dict[tuple[int, object], int]
) -> Event:
    """The event on the common clock, with a process and ids that no other trace has."""
    moved = dict(event)
    if "pid" in event:
        moved["pid"] = _pid(pids, number, event["pid"])
    if _is_timed(event):
        instant = trace.base_ns + _ns(event["ts"])
        begin = shift.at(instant)
        moved["ts"] = Decimal(begin - base_ns) / 1000
        if _is_time(event.get("dur")):
            moved["dur"] = Decimal(shift.at(instant + _ns(event["dur"])) - begin) / 1000
    if "id" in event:
        moved["id"] = f"{number}.{event['id']}"
    if event.get("ph") == "M" and event.get("name") == "process_name" and isinstance(event.get("args"), dict):
        moved["args"] = {**event["args"], "name": f"{_title(trace)}: {event['args'].get('name', '')}"}
    return moved


def _pid(pids: dict[tuple[int, object], int], number: int, pid: object) -> int:
    return pids.setdefault((number, str(pid)), len(pids) + 1)


def _title(trace: ForeignTrace | AppliedTrace) -> str:
    return trace.node if trace.rank is None else f"rank {trace.rank} on {trace.node}"


def _labels(
    done: AppliedTrace, number: int, pids: Mapping[tuple[int, object], int], moved: Iterable[Event]
) -> list[Event]:
    named = {event.get("pid") for event in moved if event.get("ph") == "M" and event.get("name") == "process_name"}
    label = f"{done.node} ± {micro(done.bound_ns)} µs"
    events: list[Event] = []
    for (trace, original), pid in pids.items():
        if trace != number:
            continue
        common = {"ph": "M", "pid": pid, "tid": 0, "ts": 0}
        events.append({**common, "name": "process_labels", "args": {"labels": label}})
        if pid not in named:
            events.append({**common, "name": "process_name", "args": {"name": f"{_title(done)}: {original}"}})
    return events


def _bound_counter(
    done: AppliedTrace, bounds: Iterable[tuple[int, int]], number: int, base_ns: int,
    pids: dict[tuple[int, object], int],
) -> list[Event]:  # fmt: skip
    pid = _pid(pids, number, "clock")
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": f"{_title(done)}: clock"}}
    ]
    for instant, bound_ns in bounds:
        ts = cast(object, Decimal(instant - base_ns) / 1000)
        events.append({"ph": "C", "name": "error bound (µs)", "pid": pid, "ts": ts, "args": {"±": bound_ns / 1000}})
    return events
