"""Wire protocol, receiving side: lines, hello, packed frames. All input is untrusted."""

from __future__ import annotations

import base64
import zlib
from typing import Annotated, Any, Final

import msgspec

from ..text.format import size

#: Lowest and highest protocol version supported.
PROTOCOL = (1, 1)
#: Maximum bytes of a line, packed or not, as in the agent; valid lines reach 1 MB of file content.
MAX_LINE = 4 << 20

#: Errors of decoding a frame; a UnicodeDecodeError is a ValueError.
DECODE_ERRORS: Final = (msgspec.DecodeError, ValueError, RecursionError, zlib.error)
_GREETING, _LACKS = b'{"gconsole":', b'{"gconsole_lacks":'


class MalformedFrame(ValueError):
    """Bytes that violate the protocol; the text states the cause."""


class LineSplitter:
    """Splits a byte stream into lines."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of the incomplete line
        self._partial_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The complete lines, without newlines. Raises MalformedFrame for one over MAX_LINE."""
        *complete, partial = data.split(b"\n")
        if complete:
            complete[0] = b"".join([*self._partial, complete[0]])
            self._partial, self._partial_bytes = [], 0
        if partial:
            self._partial.append(partial)
            self._partial_bytes += len(partial)
        if self._partial_bytes > MAX_LINE or any(len(line) > MAX_LINE for line in complete):
            raise MalformedFrame(f"line longer than {size(MAX_LINE)}")
        return complete


_Name = Annotated[str, msgspec.Meta(max_length=64)]


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class Kept(msgspec.Struct, frozen=True):
    """What a gateway has kept while no console was connected, or why it keeps nothing."""

    nodes: _Count = 0
    bytes: _Count = 0
    until: Annotated[int, msgspec.Meta(ge=0, lt=1 << 33)] = 0  # s of its clock
    killed: bool = False  # the gateway that kept it ended without its last seconds
    error: Annotated[str, msgspec.Meta(max_length=300)] = ""


class Hello(msgspec.Struct, frozen=True):
    """An agent's introduction."""

    protocol: tuple[int, int]  # lowest and highest version supported
    agent: Annotated[_Name, msgspec.Meta(min_length=1)]
    arch: _Name
    wanted: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=8)] = ()  # binaries it lacks
    lzma: bool = False  # whether its Python can unpack xz
    resumed: bool = False  # it ran before this connection
    kept: Kept | None = None  # of a gateway


class _Greeting(msgspec.Struct):
    gconsole: Hello


class _TaskNode(msgspec.Struct):
    node: _Name


class _TaskGreeting(msgspec.Struct):
    gconsole: _TaskNode


class _LackingArchive(msgspec.Struct):
    gconsole_lacks: Annotated[str, msgspec.Meta(max_length=64)]


class _CompressedLine(msgspec.Struct):
    z: str


def split_greeting(line: bytes) -> tuple[bytes, bytes]:
    """(bytes before the hello or the request for the agent's modules, that frame or b"").

    Shells and terminals may write before it on the same line.
    """
    start = max(line.find(_GREETING), line.find(_LACKS))
    return (line, b"") if start < 0 else (line[:start], line[start:])


def read_lacking(greeting: bytes) -> str | None:
    """The digest of the archive that a node requests before its hello; None for a hello. Raises MalformedFrame."""
    if not greeting.startswith(_LACKS):
        return None
    try:
        return msgspec.json.decode(greeting, type=_LackingArchive).gconsole_lacks
    except DECODE_ERRORS as error:
        raise MalformedFrame(f"malformed request for the agent's modules: {error}") from error


def read_hello(line: bytes) -> Hello:
    """Parse a hello. Raises MalformedFrame, also if no protocol version is shared."""
    try:
        hello = msgspec.json.decode(line, type=_Greeting).gconsole
    except DECODE_ERRORS as error:
        raise MalformedFrame(f"malformed hello: {error}") from error
    low, high = hello.protocol
    if low > PROTOCOL[1] or high < PROTOCOL[0]:
        raise MalformedFrame(f"agent supports protocol {low} to {high}, this console {PROTOCOL[0]} to {PROTOCOL[1]}")
    return hello


def read_node(line: bytes) -> str:
    """The node that the hello of a step's task names. Raises MalformedFrame."""
    try:
        return msgspec.json.decode(line, type=_TaskGreeting).gconsole.node
    except DECODE_ERRORS as error:
        raise MalformedFrame(f"malformed hello: {error}") from error


def unpack(line: bytes) -> bytes:
    """The line, decompressed if packed. Raises MalformedFrame."""
    if not line.startswith(b'{"z":'):
        return line
    try:
        packed = base64.b64decode(msgspec.json.decode(line, type=_CompressedLine).z)
        inflater = zlib.decompressobj()
        content = inflater.decompress(packed, MAX_LINE)
    except DECODE_ERRORS as error:
        raise MalformedFrame(f"corrupt packed frame: {error}") from error
    if not inflater.eof or b"\n" in content:
        raise MalformedFrame("corrupt packed frame: truncated, too long or more than one line")
    return content


def read_frame(line: bytes) -> dict[str, Any]:
    """Parse a frame other than a record. Raises MalformedFrame."""
    try:
        frame = msgspec.json.decode(line)
    except DECODE_ERRORS as error:
        raise MalformedFrame(f"frame is not JSON: {error}") from error
    if not isinstance(frame, dict):
        raise MalformedFrame("frame is not a JSON object")
    return frame
