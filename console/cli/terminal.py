"""The terminal of the command line: checks before the TUI starts, progress lines, sanitised output."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from typing import BinaryIO, Final

import click

from ..text.sanitize import printable_utf8


def is_terminal_output() -> bool:
    """Whether the TUI draws on this terminal, rather than in a browser (`gconsole serve`)."""
    return not os.environ.get("TEXTUAL_DRIVER")


def require_terminal(instead: str) -> None:
    """Raises UsageError without a terminal with cursor control; the message suggests the command `instead`."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # Textual reads stdin and draws on stderr
        raise click.UsageError(f"the TUI requires a terminal; without one, run: {instead}")
    term = os.environ.get("TERM")
    if term in ("dumb", "unknown"):
        raise click.UsageError(f"TERM={term} does not support cursor movement; run: {instead}")


def clear_inherited_size() -> None:
    """Remove COLUMNS and LINES set by parents such as watch or Emacs; Python prefers them to the real size."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


def counted(word: str) -> Callable[[int, int], None]:
    """A callback (done, total) that prints `12/64 nodes examined` on a terminal only."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{done}/{total} nodes {word}" + ("\n" if done == total else ""), err=True, nl=False)

    return show


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
