"""The terminal of the command line: checks and questions before the TUI starts, progress lines, sanitised output."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

import click

from ..text.sanitize import Printable, printable, printable_lines, printable_utf8

if TYPE_CHECKING:
    from ..text.documents import JsonText

#: Values of TERM for terminals that cannot move the cursor.
_WITHOUT_CURSOR: Final = ("dumb", "unknown")


def is_line_terminal() -> bool:
    """Whether a person types here, but nothing can draw: a terminal without cursor movement, or stderr elsewhere."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return os.environ.get("TERM") in _WITHOUT_CURSOR or not sys.stderr.isatty()


def require_terminal(instead: str) -> None:
    """Raises UsageError without a terminal with cursor control; the message suggests the command `instead`."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # Textual reads stdin and draws on stderr
        raise click.UsageError(f"the TUI requires a terminal; without one, run: {instead}")
    term = os.environ.get("TERM")
    if term in _WITHOUT_CURSOR:
        raise click.UsageError(f"TERM={term} does not support cursor movement; run: {instead}")


def print_text(text: Printable | JsonText, *, err: bool = False, nl: bool = True, is_document: bool = False) -> None:
    """Print a text that may contain data of nodes, jobs or the user, without secrets.

    A document, made by `text.documents`, has none, and a search in its JSON would break it: it is printed as it is.
    """
    from ..text.secrets import without_secrets  # here: `gconsole --help` prints no data

    click.echo(text if is_document else "\n".join(map(without_secrets, text.split("\n"))), err=err, nl=nl)


def print_start(document: dict[str, str | None], text: str, *, as_json: bool) -> None:
    """Print once how a service is reached: the address or the token in it is new, and not hidden as a secret."""
    from ..text.documents import encode

    click.echo(encode(document).decode() if as_json else text)
    sys.stdout.flush()


def print_result(document: object, text: str, *, as_json: bool, err: bool = False) -> None:
    """Print a document as JSON on stdout, or else a text, whose lines may contain data, on stdout or stderr."""
    if as_json:
        from ..text.documents import pretty

        print_text(pretty(document), is_document=True)
    else:
        print_text(printable_lines(text), err=err)


def require_consent(path: Path, name: str, *, is_trusted: bool) -> None:
    """Ask whether to use a file that was found; without a terminal `is_trusted` is the answer.

    Raises UsageError without an agreement, and ConfigError for an invalid file.
    """
    from ..config import strict_modes
    from ..config.document import check, read
    from ..config.schema import shown

    strict_modes.mark_found(path)
    document = read(path, name)
    named = strict_modes.powers(check(document))
    if not named or strict_modes.is_agreed(document):
        return
    if not is_trusted:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            text = f"{name} was found in this folder, and sets {strict_modes.keys_of(named)}"
            raise click.UsageError(f"{text}; if you wrote it, run: gconsole --trust")
        print_text(printable(f"{os.path.realpath(path)} was found in this folder, and sets:"), err=True)
        for setting in named:
            print_text(printable(f"  {setting.origin}  {setting.key} = {shown(setting.value)}"), err=True)
        if not click.confirm("Use it? This is not asked again until the file changes", default=False, err=True):
            raise click.UsageError(f"{name} is not used; to use other nodes, name them: gconsole TARGET")
    strict_modes.agree(document)


def clear_inherited_size() -> None:
    """Remove COLUMNS and LINES set by parents such as watch or Emacs; Python prefers them to the real size."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


_quiet = False  # `-q`: no progress


def set_quiet() -> None:
    """Show no progress from now on."""
    global _quiet
    _quiet = True


def shows_progress(*, off_terminal: bool = False) -> bool:
    """Whether to show progress: without `-q`, on a terminal, or `off_terminal` also elsewhere."""
    return not _quiet and (off_terminal or sys.stderr.isatty())


def counted(word: str) -> Callable[[int, int], None]:
    """A callback (done, total) that prints `12/64 nodes examined` on a terminal only."""

    def show(done: int, total: int) -> None:
        if shows_progress():
            overwrite_line(f"{done}/{total} nodes {word}", end=done == total)

    return show


def overwrite_line(text: str, *, end: bool = False) -> None:
    """Replace the last line of stderr, a terminal, with `text`; `end` begins a new line after it."""
    stream = sys.stderr.buffer
    if isinstance(stream, PrintableOut):
        sys.stderr.flush()
        stream.clear_line()
    click.echo(printable(text), err=True, nl=end)


#: Seconds after which work without a count shows for how long it runs, and between two updates.
_SHOWN_AFTER_S: Final = 2.0
_UPDATE_S: Final = 1.0


@contextlib.contextmanager
def elapsed_shown(what: str) -> Iterator[None]:
    """While the block runs, from 2 s on: `exporting night … 5 s` on a terminal, removed at its end."""
    is_over = threading.Event()

    def show() -> None:
        began, wait_s, is_shown = time.monotonic(), _SHOWN_AFTER_S, False
        while not is_over.wait(wait_s):
            overwrite_line(f"{what} … {time.monotonic() - began:.0f} s")
            wait_s, is_shown = _UPDATE_S, True
        if is_shown:
            overwrite_line("")

    if not shows_progress():
        yield
        return
    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


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

    def clear_line(self) -> None:
        """Move to the start of the terminal's line and clear it."""
        self._out.write(b"\r\x1b[K")

    def flush(self) -> None:
        """Flush the terminal."""
        self._out.flush()

    @property
    def name(self) -> str:
        """Name of the wrapped stream."""
        return self._out.name

    def writable(self) -> bool:
        """Always true."""
        return True

    def isatty(self) -> bool:
        """Whether the wrapped stream is a terminal."""
        return self._out.isatty()

    def fileno(self) -> int:
        """File descriptor of the wrapped stream."""
        return self._out.fileno()


class _TextWithoutSecrets(io.TextIOWrapper):
    """Text stream that redacts secrets in each text that is written to it."""

    def write(self, text: str) -> int:
        """Write a text without its secrets; they are found within one text only."""
        from ..text.secrets import without_secrets  # here: most commands print nothing to stderr

        super().write(without_secrets(text))
        return len(text)


def guard_output() -> None:
    """Sanitise and redact stderr always; sanitise stdout if it is a terminal: files and pipes get unmodified bytes."""
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout = _sanitised(sys.stdout, io.TextIOWrapper)
    if sys.stderr is not None:
        sys.stderr = _sanitised(sys.stderr, _TextWithoutSecrets)


def _sanitised(stream: TextIO, kind: type[io.TextIOWrapper]) -> io.TextIOWrapper:
    return kind(PrintableOut(stream.buffer), stream.encoding, stream.errors, line_buffering=True)
