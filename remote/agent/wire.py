"""The wire: one JSON object a line, both ways. A frame over 64 KiB travels zlib'd inside a small one: {"z": base64}."""

import base64
import json
import re
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Iterator

    from ..samplers.base import Fields

#: Highest and lowest version of this protocol that this agent speaks.
PROTOCOL = (1, 1)
#: No line may be longer, whoever sends it: memory is finite. A piece of a file, 1 MiB, is the longest that is usual.
MAX_LINE = 4 << 20
_LARGE = 64 << 10
_LONE_SURROGATE = re.compile(r"\\ud[89a-f][0-9a-f]{2}")


class BadFrame(ValueError):
    """A line that is no frame; the text says why."""


def encode(frame: "Fields") -> bytes:
    """One frame as a line of bytes. Raises ValueError for NaN and infinity (unknown is None) and for one too long."""
    text = json.dumps(frame, separators=(",", ":"), allow_nan=False)
    if _LONE_SURROGATE.search(text):
        text = json.dumps(_speakable(frame), separators=(",", ":"), allow_nan=False)
    line = text.encode("ascii")
    if _LARGE < len(line) <= MAX_LINE:
        line = b'{"z":"' + base64.b64encode(zlib.compress(line, 6)) + b'"}'
    if len(line) > MAX_LINE:
        raise ValueError("it takes %d bytes, more than %d" % (len(line), MAX_LINE))
    return line + b"\n"


def decode(line: bytes) -> "Fields":
    """The frame in one line. Raises BadFrame."""
    try:
        frame = json.loads(line.decode("utf-8"))
        if isinstance(frame, dict) and "z" in frame:
            inflater = zlib.decompressobj()
            frame = json.loads(inflater.decompress(base64.b64decode(frame["z"]), MAX_LINE).decode("utf-8"))
    except (ValueError, zlib.error, TypeError, RecursionError) as error:
        raise BadFrame("not a frame: %s" % error)
    if not isinstance(frame, dict):
        raise BadFrame("not a frame: %s where an object belongs" % type(frame).__name__)
    return frame


def _speakable(value: "Any") -> "Any":
    """`value` with bytes that were no UTF-8 (lone surrogates here) written as \\xNN."""
    if isinstance(value, str):
        try:
            raw = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a lone surrogate that no undecodable byte made
            raw = value.encode("utf-8", "surrogatepass")
        return raw.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_speakable(key): _speakable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_speakable(item) for item in value]
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
