"""The wire: one JSON object a line, both ways. A frame over 64 KiB travels zlib'd inside a small one: {"z": base64}.

Records may be rows, which rows.py describes.
"""

import binascii
import json
import re
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Iterator

    from ..samplers.base import Fields

#: Highest and lowest version of this protocol that this agent speaks.
PROTOCOL = (1, 1)
#: Bytes. Longest line in either direction; the longest usual one is a file chunk of 1 MiB.
MAX_LINE = 4 << 20
_LARGE = 64 << 10
_LONE_SURROGATE = re.compile(r"\\ud[89a-f][0-9a-f]{2}")
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class BadFrame(ValueError):
    """A line that is not a frame; the text is the reason."""


def encode(frame: "Fields") -> bytes:
    """One frame as a line of bytes. Raises ValueError for NaN and infinity (unknown is None) and for one too long."""
    return pack(to_json(frame))


def to_json(frame: "Fields | tuple[Any, ...]") -> str:
    """One frame, or a row of values, as text. Raises ValueError for NaN and infinity."""
    text = _ENCODER.encode(frame)
    return _ENCODER.encode(_escaped(frame)) if _LONE_SURROGATE.search(text) else text


def pack(text: str) -> bytes:
    """A frame's text as a line of bytes. Raises ValueError for one too long."""
    line = text.encode("ascii")
    if _LARGE < len(line) <= MAX_LINE:
        line = b'{"z":"' + binascii.b2a_base64(zlib.compress(line, 6), newline=False) + b'"}'
    if len(line) > MAX_LINE:
        raise ValueError("frame of %d bytes exceeds %d" % (len(line), MAX_LINE))
    return line + b"\n"


def decode(line: bytes) -> "Fields":
    """The frame in one line. Raises BadFrame."""
    try:
        frame = json.loads(line.decode("utf-8"))
        if isinstance(frame, dict) and "z" in frame:
            inflater = zlib.decompressobj()
            frame = json.loads(inflater.decompress(binascii.a2b_base64(frame["z"]), MAX_LINE).decode("utf-8"))
    except (ValueError, zlib.error, TypeError, RecursionError) as error:
        raise BadFrame("not a frame: %s" % error)
    if not isinstance(frame, dict):
        raise BadFrame("not a frame: %s instead of an object" % type(frame).__name__)
    return frame


def _escaped(value: "Any") -> "Any":
    """`value` with bytes that are not UTF-8 (lone surrogates) written as \\xNN."""
    if isinstance(value, str):
        try:
            raw = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a lone surrogate of another origin
            raw = value.encode("utf-8", "surrogatepass")
        return raw.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(item) for item in value]
    return value


def read_lines(stream: "BinaryIO") -> "Iterator[bytes]":
    """The lines of a binary stream, without their newline, until it ends. Raises BadFrame for one over MAX_LINE."""
    while True:
        line = stream.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            raise BadFrame("a line of more than %d bytes" % MAX_LINE)
        yield line.rstrip(b"\r\n")
