"""Frames between the console and a gateway: kind, number, length (9 bytes, network order), then the payload.

The number is that of a node's stream, or of a blob, and is bound by the frame that opens it. The console's frames
travel as they are; the gateway's are one zlib stream.
"""

import struct

from ..agent.wire import BadFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

#: Opens a stream; JSON {"argv": [text]}.
OPEN = 1
#: Bytes of standard input or output of a stream.
DATA = 2
#: Bytes of standard error of a stream.
ERROR = 3
#: From the console: end the command, or with number 0 the gateway. From the gateway: the command has ended; JSON
#: {"status": int or null, "error": text}.
END = 4
#: The receiver accepts that many more bytes of a stream, 4 bytes.
CREDIT = 5
#: Names a blob, JSON {"digest": SHA-256, "size": bytes}; the gateway answers HAS or LACKS.
NAME = 6
#: Bytes of a blob that the gateway lacks.
BLOB = 7
#: Write the blob with this number, 4 bytes, to a stream.
WRITE = 8
HAS = 9
LACKS = 10
#: The gateway sends the payload back.
PING = 11

#: Bytes of one payload.
MAX_PAYLOAD = 64 << 10
#: Bytes of one stream that may be under way in one direction.
WINDOW = 256 << 10
#: Bytes of the window that a WRITE takes: its blob is in memory anyway.
WRITE_COST = 16
#: Bytes of all blobs of one connection.
MAX_BLOBS = 64 << 20

HEADER = struct.Struct("!BII")
NUMBER = struct.Struct("!I")


def encode(kind: int, number: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(kind, number, len(payload)) + payload


class FrameReader(object):
    """Splits a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> "Iterator[tuple[int, int, bytes]]":
        """The complete frames: kind, number, payload. Raises BadFrame for one that is too long."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= HEADER.size:
                kind, number, length = HEADER.unpack_from(self._buffer, start)
                if length > MAX_PAYLOAD:
                    raise BadFrame("frame of %d bytes exceeds %d" % (length, MAX_PAYLOAD))
                end = start + HEADER.size + length
                if len(self._buffer) < end:
                    break
                payload = bytes(self._buffer[start + HEADER.size : end])
                start = end
                yield kind, number, payload
        finally:
            del self._buffer[:start]


def number_of(payload: bytes) -> int:
    """The number that is a whole payload. Raises BadFrame."""
    if len(payload) != NUMBER.size:
        raise BadFrame("payload of %d bytes instead of %d" % (len(payload), NUMBER.size))
    return int(NUMBER.unpack(payload)[0])
