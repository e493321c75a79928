"""Textual's driver for a terminal that may send anything, understand only ASCII, and be gone at any instant."""

from __future__ import annotations

import codecs
import math
import os
import select
import signal
import sys
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any, Final, TextIO, cast

from rich.cells import cell_len
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

#: Bytes of input that are read at once.
_READ_BYTES: Final = 65_536
#: Seconds between two checks whether the main thread has ended, which wake an idle process.
_POLL_S: Final = 2.0
#: Seconds after input in which the parser is asked each `_ESCAPE_S` whether an Escape was a key, or begins a sequence.
_AFTER_INPUT_S: Final = 1.0
_ESCAPE_S: Final = 0.1

#: Name of the error handler for `str.encode`.
ASCII_ART: Final = "ascii-art"
_ROWS: Final = (
    ("─━┄┅┈┉╌╍═╴╶╸╺", "-"),
    ("│┃┆┇┊┋╎╏║╵╷╹╻‖", "|"),
    ("▏▎▍▌▋▊▉▐▕", "|"),
    ("▁⎽_", "_"),
    ("▂▃", "."),
    ("▄▀", ":"),
    ("▅▆", "="),
    ("▇█▓", "#"),
    ("▒", "+"),
    ("░", "."),
    ("●◆◉■", "*"),
    ("○◇□◯", "o"),
    ("◐◑◒◓", "~"),
    ("◌", "?"),
    ("▲△⇧↑", "^"),
    ("▼▽▾↓", "v"),
    ("▶▷▸→›❱⏎", ">"),
    ("◀◁◂←‹", "<"),
    ("✖✗✘×", "x"),
    ("✔✓", "+"),
    ("…·•∙", "."),
    ("–—−", "-"),
    ("±", "~"),
    ("µμ", "u"),
    ("°", "'"),
    ("≤", "<"),
    ("≥", ">"),
    ("‘’", "'"),
    ("“”", '"'),
    ("\xa0", " "),
)
_ASCII: Final = {character: ascii_ for characters, ascii_ in _ROWS for character in characters}


class WakingEvent(threading.Event):
    """An event with a file descriptor, `wakes`, that is readable while it is set: it ends a `select`."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes, self._waker = os.pipe()

    def set(self) -> None:
        """Set the flag, then wake."""
        super().set()
        os.write(self._waker, b"\0")

    def clear(self) -> None:
        """Reset the flag, and wake no more."""
        super().clear()
        if select.select([self.wakes], [], [], 0)[0]:
            os.read(self.wakes, _READ_BYTES)


class TerminalDriver(LinuxDriver):
    """Ends the app as SIGHUP does once the terminal is gone: at end-of-file, or at an error of a read or write."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._is_hung_up = self._is_handed_over = False
        self.exit_event: WakingEvent = WakingEvent()
        if self._file is not None:
            self._file = cast("Any", TerminalOutput(self._file, self._hang_up))

    def suspend_application_mode(self) -> None:
        """Leave the terminal to another program; nothing is written to it meanwhile."""
        super().suspend_application_mode()
        self._is_handed_over = True

    def resume_application_mode(self) -> None:
        """Take the terminal back."""
        self._is_handed_over = False
        super().resume_application_mode()

    def write(self, data: str) -> None:
        """Write to the terminal, unless another program has it."""
        if not self._is_handed_over:
            super().write(data)

    def run_input_thread(self) -> None:
        """Read keys until the app stops reading; bytes that are not UTF-8 are dropped."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("ignore").decode
        read_at = -math.inf
        while not self.exit_event.is_set() and threading.main_thread().is_alive():
            wait_s = _ESCAPE_S if time.monotonic() < read_at + _AFTER_INPUT_S else _POLL_S
            if self.fileno in select.select([self.fileno, self.exit_event.wakes], [], [], wait_s)[0]:
                read_at = time.monotonic()
                try:
                    read = os.read(self.fileno, _READ_BYTES)
                except OSError:  # EIO
                    read = b""
                if not read:
                    self._hang_up()
                    return
                self._process(parser.feed(text) if (text := decode(read)) else ())
            self._process(parser.tick())
        try:
            list(parser.feed(""))
        except (EOFError, ParseError):
            pass

    def _process(self, messages: Any) -> None:
        message: Message
        for message in messages:
            self.process_message(message)

    def _run_input_thread(self) -> None:
        """Read keys; an error ends the app like an error in its own thread."""
        try:
            self.run_input_thread()
        except Exception as error:  # noqa: BLE001 - raised again by the app's run
            self._loop.call_soon_threadsafe(self._app._handle_exception, error)

    def _hang_up(self) -> None:
        if not self._is_hung_up:
            self._is_hung_up = True
            main = threading.main_thread().ident
            if main is not None:
                signal.pthread_kill(main, signal.SIGHUP)  # interrupts what the main thread waits for


class TerminalOutput:
    """What Textual's writer thread writes to. After an error, output is discarded and `on_error` was called."""

    def __init__(self, file: TextIO, on_error: Callable[[], None]) -> None:
        self._file, self._on_error = file, on_error
        self._encoding = file.encoding or "utf-8"
        self._pending: list[bytes] = []
        self._is_broken = False

    def write(self, text: str) -> None:
        """Queue text, in ASCII what the terminal's encoding lacks."""
        if not self._is_broken:
            self._pending.append(text.encode(self._encoding, ASCII_ART))

    def flush(self) -> None:
        """Write what is queued."""
        rest = memoryview(b"".join(self._pending))
        self._pending.clear()
        try:
            while rest and not self._is_broken:
                rest = rest[os.write(self.fileno(), rest) :]
        except OSError:
            self._is_broken = True
            self._on_error()

    def fileno(self) -> int:
        """File descriptor of the terminal."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()


def terminal_driver_class() -> type[TerminalDriver] | None:
    """The driver of a terminal; None for Textual's own."""
    return None if sys.platform == "win32" else TerminalDriver


def replacement(character: str) -> str:
    """The ASCII text of as many cells: corners and crossings as +, dots of a plot as *, all else as ?."""
    code = ord(character)
    if character in _ASCII:
        return _ASCII[character]
    if 0x2500 <= code < 0x2580:
        return "+"
    if 0x2800 <= code < 0x2900:
        return " " if code == 0x2800 else "*"
    return "?" * cell_len(character)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(replacement, error.object[error.start : error.end])), error.end


codecs.register_error(ASCII_ART, _replace)
