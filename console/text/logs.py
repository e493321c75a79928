"""The log of the console: a rotating file in the state folder, secrets redacted and control characters replaced.

Modules log through `logging.getLogger(__name__)`; `core.bus.log_records` logs what the console reports as records.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

import platformdirs

from .atomic_files import make_folder
from .sanitize import printable
from .secrets import excerpt_without_secrets

#: Bytes of one log file, and how many full ones are kept beside it: a night of a flapping fleet, 20 MB at most.
FILE_BYTES: Final = 5_000_000
FILES: Final = 3
#: Characters of one message; an agent's traceback fits, a flood in one line does not.
_LINE_LIMIT: Final = 8_000
#: Bytes that `tail` reads: about 1,000 lines.
TAIL_BYTES: Final = 131_072
#: Characters of an error's text in `internal_error`; the log has all of it.
_ERROR_LIMIT: Final = 2_000
#: Libraries whose messages are logged from `-vv` on.
_LIBRARIES: Final = ("asyncssh", "asyncio", "uvicorn")

_log = logging.getLogger(__name__)
_path: Path | None = None


def default_path() -> Path:
    """The log file when `--log-file` is not given."""
    return platformdirs.user_state_path("gconsole") / "gconsole.log"


def path() -> Path | None:
    """The file that messages go to; None before `configure`, or if it cannot be written."""
    return _path


def configure(verbosity: int = 0, file: Path | None = None) -> None:
    """Log to `file`, by default `default_path()`; with `verbosity` 1 or more to stderr as well.

    `verbosity` 0 logs INFO and above of gconsole: connections, logins, agents, jobs, captures, recordings, findings.
    1 logs also DEBUG: commands, requests, transfers, retries, quotas. 2 also what the libraries log; until then only
    errors of asyncio, which are exceptions that no code handles, and stderr gets a line on them. A second call
    replaces the first. Raises OSError if a given `file` cannot be written; the default one is then left out.
    """
    global _path
    handlers = _open_handlers(verbosity, file)
    level = logging.DEBUG if verbosity else logging.INFO
    for name in ("gconsole", *(_LIBRARIES if verbosity > 1 else ())):
        _attach(name, handlers, level)
    if verbosity <= 1:
        _attach("asyncio", [*handlers, _ErrorLine()], logging.ERROR)
    _path = next((Path(handler.baseFilename) for handler in handlers if isinstance(handler, _LogFile)), None)


def internal_error(error: BaseException, doing: str) -> str:
    """One sentence on an unexpected error that names the log file; the log gets the traceback. `doing`: in what part.

    Every place that catches Exception reports it with this text.
    """
    _log.error("internal error in %s", doing, exc_info=error)
    return _sentence(error_text(error))


def error_text(error: BaseException) -> str:
    """Type and text of an error on one line, without secrets."""
    return printable(excerpt_without_secrets(f"{type(error).__name__}: {error}", _ERROR_LIMIT))


def _sentence(error: str) -> str:
    return f"internal error: {error}; {details()} (please report)"


def details() -> str:
    """Where the traceback of an internal error is."""
    return f"details in {_path}" if _path is not None else "no log file is written"


def tail(file: Path) -> list[str]:
    """The last whole lines of a log, at most `TAIL_BYTES` bytes, with control characters as they are in the file.

    Raises OSError if `file` is not a regular file or cannot be read.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not block
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{file} is not a regular file")
        stream.seek(max(0, status.st_size - TAIL_BYTES))
        data = stream.read(TAIL_BYTES)
    if status.st_size > TAIL_BYTES:
        data = data.partition(b"\n")[2] or data
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    return lines if lines[-1] else lines[:-1]


def detach_stderr() -> None:
    """Stop logging to stderr: a screen is about to be drawn there."""
    for name in ("gconsole", *_LIBRARIES):
        logger = logging.getLogger(name)
        for handler in logger.handlers[:]:
            if not isinstance(handler, _LogFile):
                logger.removeHandler(handler)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())  # else logging prints warnings to stderr


def _attach(name: str, handlers: Sequence[logging.Handler], level: int) -> None:
    """Replace the handlers of a logger."""
    logger = logging.getLogger(name)
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    for handler in handlers:
        logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False


def _open_handlers(verbosity: int, file: Path | None) -> list[logging.Handler]:
    formatter = _RedactingFormatter("%(asctime)s %(levelname)s %(name)s %(process)d: %(message)s")
    handlers: list[logging.Handler] = []
    try:
        handlers.append(_LogFile(file or default_path()))
    except OSError:
        if file is not None:
            raise
    if verbosity:
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(formatter)
    return handlers or [logging.NullHandler()]


class _RedactingFormatter(logging.Formatter):
    """One line per message line: no secret, no character that steers a terminal, bounded in length."""

    def format(self, record: logging.LogRecord) -> str:
        text = excerpt_without_secrets(super().format(record), _LINE_LIMIT)
        return "\n    ".join(printable(line) for line in text.split("\n"))


class _ErrorLine(logging.Handler):
    """Prints one line per error to stderr, which names the log file."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line."""
        error = record.exc_info[1] if record.exc_info else None
        first_line = record.getMessage().partition("\n")[0]
        text = error_text(error) if error is not None else printable(excerpt_without_secrets(first_line, _ERROR_LIMIT))
        print(f"gconsole: {_sentence(text)}", file=sys.stderr)


class _LogFile(RotatingFileHandler):
    """A rotating file with mode 0600 that several consoles may share: one reopens it after another rotated it."""

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=FILES, encoding="utf-8", errors="backslashreplace")

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """Append the record to the file that has the name now."""
        try:
            named = Path(self.baseFilename).stat().st_ino
            if self.stream is not None and named != os.fstat(self.stream.fileno()).st_ino:
                self.stream.close()
                self.stream = self._open()
        except OSError:
            pass  # removed meanwhile: emit below reports what prevents writing
        super().emit(record)
