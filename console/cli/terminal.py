"""What is printed where a person sees it: JSON and CSV carry what nodes said as it is, and a terminal would obey it."""

from __future__ import annotations

import io
import re
import sys
from typing import BinaryIO, Final

from ..text.sanitize import printable_utf8

#: The beginning of a letter whose end comes with the next bytes.
_PART: Final = re.compile(rb"(?:\xc2|\xd8|\xe2[\x80\x81]?|\xef\xbb?)?\Z")


class PrintableOut(io.BufferedIOBase):
    """Bytes on their way to a terminal, without those that would steer it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._rest = out, b""

    def write(self, data: bytes) -> int:  # type: ignore[override]  # the buffers that are given here are bytes
        text = self._rest + bytes(data)
        part = _PART.search(text)
        at = part.start() if part else len(text)
        self._rest = text[at:]
        self._out.write(printable_utf8(text[:at]))
        return len(data)

    def flush(self) -> None:
        self._out.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._out.isatty()

    def fileno(self) -> int:
        return self._out.fileno()


def guard_terminal() -> None:
    """From now on nothing that goes to stdout steers a terminal; to a file or a pipe it goes as it is."""
    if sys.stdout is not None and sys.stdout.isatty():
        out = PrintableOut(sys.stdout.buffer)
        sys.stdout = io.TextIOWrapper(out, sys.stdout.encoding, sys.stdout.errors, line_buffering=True)
