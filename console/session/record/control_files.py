"""What a person in another terminal wants of a recording: a mark, its end. They are files in the session's folder."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Final

from ...text.atomic_files import write_atomically, write_new
from ..format.layout import Session

_MARK, _STOP = ".ask-mark-", ".ask-stop"
#: Bytes of a mark that are read.
_LONGEST: Final = 4096


def request_stop(session: Session) -> None:
    """Its recorder ends it within two seconds. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        write_new(session.path / _STOP, b"")


def request_mark(session: Session, text: str) -> None:
    """Its recorder keeps the note within two seconds. Raises OSError."""
    write_atomically(session.path / f"{_MARK}{secrets.token_hex(8)}", text.encode()[:_LONGEST])


def take(session: Session) -> Iterator[str | None]:
    """What is wanted: the text of a mark, or None for the end; each once."""
    try:
        asked = sorted(session.path.glob(".ask-*"), key=lambda path: path.stat().st_mtime_ns)
    except OSError:
        return  # what is wrong with the folder is told where it is written to
    for path in asked:
        try:
            text = path.read_bytes()[:_LONGEST].decode("utf-8", "replace") if path.name != _STOP else None
            path.unlink()
        except OSError:
            continue  # somebody else took it
        yield text
