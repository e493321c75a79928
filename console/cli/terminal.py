"""Strips terminal control sequences from stdout: JSON and CSV carry untrusted text from nodes."""

from __future__ import annotations

import io
import re
import sys
from typing import BinaryIO, Final

from ..text.sanitize import printable_utf8

#: Incomplete UTF-8 sequence at the end of a write.
_PART: Final = re.compile(rb"(?:\xc2|\xd8|\xe2[\x80\x81]?|\xef\xbb?)?\Z")


class PrintableOut(io.BufferedIOBase):
    """Binary stream that removes terminal control sequences."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._rest = out, b""

    def write(self, data: bytes) -> int:  # type: ignore[override]  # callers pass bytes only
        """Write sanitised bytes; holds back an incomplete UTF-8 sequence."""
        text = self._rest + bytes(data)
        part = _PART.search(text)
        end = part.start() if part else len(text)
        self._rest = text[end:]
        self._out.write(printable_utf8(text[:end]))
        return len(data)

    def flush(self) -> None:
        """Flush the terminal."""
        self._out.flush()

    def writable(self) -> bool:
        """Always true."""
        return True

    def isatty(self) -> bool:
        """Whether the wrapped stream is a terminal."""
        return self._out.isatty()

    def fileno(self) -> int:
        """File descriptor of the wrapped stream."""
        return self._out.fileno()


def guard_terminal() -> None:
    """Sanitise stdout if it is a terminal; files and pipes get unmodified bytes."""
    if sys.stdout is not None and sys.stdout.isatty():
        out = PrintableOut(sys.stdout.buffer)
        sys.stdout = io.TextIOWrapper(out, sys.stdout.encoding, sys.stdout.errors, line_buffering=True)
