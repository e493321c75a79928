"""Frames between the console and a gateway, as in remote/gateway/frames.py. What a gateway sends is untrusted."""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

#: Bytes of one payload.
MAX_PAYLOAD = 64 << 10
#: Bytes of one stream that may be under way in one direction.
WINDOW = 256 << 10
#: Bytes of the window that a WRITE takes.
WRITE_COST = 16
#: Bytes of all blobs of one connection.
MAX_BLOBS = 64 << 20
#: Bytes that are inflated at once: the bound of one call of `FrameDecoder.next_frames`.
MAX_INFLATED = 256 << 10

_HEADER = struct.Struct("!BII")
_NUMBER = struct.Struct("!I")
_PING = struct.Struct("!d")


class Kind(IntEnum):
    """What a frame is."""

    OPEN = 1
    DATA = 2
    ERROR = 3
    END = 4
    CREDIT = 5
    NAME = 6
    BLOB = 7
    WRITE = 8
    HAS = 9
    LACKS = 10
    PING = 11


#: Kinds that a gateway sends.
_RECEIVED = frozenset({Kind.DATA, Kind.ERROR, Kind.END, Kind.CREDIT, Kind.HAS, Kind.LACKS, Kind.PING})


class GatewayFrame(NamedTuple):
    """One frame of a gateway; `number` is that of a stream or, for HAS and LACKS, of a blob."""

    kind: Kind
    number: int
    payload: bytes


class MalformedGatewayFrame(ValueError):
    """Bytes of a gateway that violate the protocol; the text states the cause."""


class StreamEnd(msgspec.Struct, frozen=True):
    """How the command of a stream ended: its exit status, or why it could not be started."""

    status: int | None = None
    error: Annotated[str, msgspec.Meta(max_length=1000)] = ""


def encode(kind: Kind, number: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return _HEADER.pack(kind, number, len(payload)) + payload


def encode_number(kind: Kind, number: int, value: int) -> bytes:
    """A frame whose payload is a number."""
    return encode(kind, number, _NUMBER.pack(value))


def encode_ping(sent: float) -> bytes:
    """A ping that carries the instant at which it is sent."""
    return encode(Kind.PING, 0, _PING.pack(sent))


def read_number(frame: GatewayFrame) -> int:
    """The number that is the payload of a frame. Raises MalformedGatewayFrame."""
    try:
        return int(_NUMBER.unpack(frame.payload)[0])
    except struct.error as error:
        raise MalformedGatewayFrame(f"{frame.kind.name} of {len(frame.payload)} bytes") from error


def read_end(frame: GatewayFrame) -> StreamEnd:
    """The end of a stream. Raises MalformedGatewayFrame."""
    try:
        return msgspec.json.decode(frame.payload, type=StreamEnd)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedGatewayFrame(f"malformed end of a stream: {error}") from error


class FrameDecoder:
    """Inflates and splits what a gateway sends, a bounded amount at a time."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj()
        self._packed = b""  # not inflated yet
        self._buffer = bytearray()  # inflated, an incomplete frame

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._packed += data

    @property
    def queued(self) -> int:
        """Bytes that are not inflated yet."""
        return len(self._packed)

    @property
    def is_empty(self) -> bool:
        """Whether `next_frames` has nothing to do until more is received."""
        return not self._packed

    def next_frames(self) -> list[GatewayFrame]:
        """The complete frames of the next MAX_INFLATED bytes at most. Raises MalformedGatewayFrame."""
        try:
            self._buffer += self._inflater.decompress(self._packed, MAX_INFLATED)
        except zlib.error as error:
            raise MalformedGatewayFrame(f"corrupt stream: {error}") from error
        self._packed = self._inflater.unconsumed_tail
        if self._inflater.eof:
            raise MalformedGatewayFrame("the compressed stream ended")
        frames, start = [], 0
        while len(self._buffer) - start >= _HEADER.size:
            kind, number, length = _HEADER.unpack_from(self._buffer, start)
            if kind not in _RECEIVED:
                raise MalformedGatewayFrame(f"frame of kind {kind}")
            if length > MAX_PAYLOAD:
                raise MalformedGatewayFrame(f"frame of {length} bytes exceeds {MAX_PAYLOAD}")
            end = start + _HEADER.size + length
            if len(self._buffer) < end:
                break
            frames.append(GatewayFrame(Kind(kind), number, bytes(self._buffer[start + _HEADER.size : end])))
            start = end
        del self._buffer[:start]
        return frames
