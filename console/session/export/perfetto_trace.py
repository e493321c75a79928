"""The packets of a Perfetto trace: tracks, slices on them, instants, counters, flows between slices.

Numbers of fields are those of perfetto's protos/perfetto/trace (trace_packet, track_event, track_descriptor).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO, Final

_SEQUENCE: Final = 1  # all packets are of one writer
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
#: Field numbers: of Trace; of TracePacket; of TrackDescriptor; of TrackEvent; of DebugAnnotation.
_PACKET: Final = 1
_TIMESTAMP, _SEQUENCE_ID, _TRACK_EVENT, _TRACK_DESCRIPTOR = 8, 10, 11, 60
_UUID, _NAME, _PROCESS, _PARENT, _COUNTER_OF, _RANK_OF_SIBLING = 1, 2, 3, 5, 8, 12
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
