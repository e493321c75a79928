"""The wire as the console reads it: lines, an agent's hello, packed frames. A node wrote it: nothing is believed."""

from __future__ import annotations

import base64
import zlib
from typing import Annotated, Any

import msgspec

from ..text.format import size

#: Lowest and highest version of the protocol that this console speaks.
PROTOCOL = (1, 1)
#: No line may be longer, packed or not; the agent keeps the same bound. A megabyte of a file is the longest honest one.
MAX_LINE = 4 << 20

_GREETING = b'{"gconsole":'
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError, zlib.error)  # a UnicodeDecodeError is a ValueError


class MalformedFrame(ValueError):
    """Bytes that are not what the protocol wants there; the text says why."""


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended yet
        self._rest_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` ends, without their newlines. Raises BadFrame for one over MAX_LINE."""
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = b"".join([*self._rest, ended[0]])
            self._rest, self._rest_bytes = [], 0
        if rest:
            self._rest.append(rest)
            self._rest_bytes += len(rest)
        if self._rest_bytes > MAX_LINE or any(len(line) > MAX_LINE for line in ended):
            raise MalformedFrame(f"a line of more than {size(MAX_LINE)}")
        return ended


_Name = Annotated[str, msgspec.Meta(max_length=64)]


class Hello(msgspec.Struct, frozen=True):
    """How an agent introduces itself."""

    protocol: tuple[int, int]  # lowest and highest version it speaks
    agent: Annotated[_Name, msgspec.Meta(min_length=1)]
    arch: _Name
    wanted: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=8)] = ()  # binaries that it lacks
    lzma: bool = False  # whether its Python can unpack xz


class _Greeting(msgspec.Struct):
    gconsole: Hello


class _Packed(msgspec.Struct):
    z: str


def split_greeting(line: bytes) -> tuple[bytes, bytes]:
    """(what stands before the hello, the hello or b""): a shell may write without a newline, a terminal's title say."""
    at = line.find(_GREETING)
    return (line, b"") if at < 0 else (line[:at], line[at:])


def read_hello(line: bytes) -> Hello:
    """The hello in a line. Raises BadFrame, also where the two sides speak no common version."""
    try:
        hello = msgspec.json.decode(line, type=_Greeting).gconsole
    except _UNREADABLE as error:
        raise MalformedFrame(f"its hello makes no sense: {error}") from error
    low, high = hello.protocol
    if low > PROTOCOL[1] or high < PROTOCOL[0]:
        raise MalformedFrame(f"it speaks protocol {low} to {high}, this console {PROTOCOL[0]} to {PROTOCOL[1]}")
    return hello


def unpacked(line: bytes) -> bytes:
    """The line itself, or what is packed in it. Raises BadFrame."""
    if not line.startswith(b'{"z":'):
        return line
    try:
        packed = base64.b64decode(msgspec.json.decode(line, type=_Packed).z)
        inflater = zlib.decompressobj()
        content = inflater.decompress(packed, MAX_LINE)
    except _UNREADABLE as error:
        raise MalformedFrame(f"a packed frame is damaged: {error}") from error
    if not inflater.eof or b"\n" in content:
        raise MalformedFrame("a packed frame is damaged: cut short, too long or more than a line")
    return content


def read_frame(line: bytes) -> dict[str, Any]:
    """A frame that is no record. Raises BadFrame."""
    try:
        frame = msgspec.json.decode(line)
    except _UNREADABLE as error:
        raise MalformedFrame(f"frame is not JSON: {error}") from error
    if not isinstance(frame, dict):
        raise MalformedFrame("frame is not a JSON object")
    return frame
