"""How much is kept, and for how long: closed sessions go, the oldest first, and never without a word.

What went is also written down beside the sessions, a line each in `deleted.ndjson` (`Deleted`).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ...config.sections import SessionsConfig
from ...text.format import duration, size
from ...text.timespec import duration_s
from ..format.layout import Session, SessionError, all_sessions

#: What was deleted because of the limits, beside the sessions.
BOOK: Final = "deleted.ndjson"


class Deleted(msgspec.Struct, frozen=True):
    """A session that the limits took away."""

    name: str
    id: str
    at: int  # console CLOCK_REALTIME, ns
    bytes: int
    records: int
    reason: str


@dataclass(frozen=True)
class Limits:
    """Limits on all closed sessions together; None: no limit."""

    max_bytes: int | None = None
    max_age_s: float | None = None  # since a session was closed

    @classmethod
    def of(cls, config: SessionsConfig) -> Limits:
        """The limits of `[sessions]` in hosts.toml."""
        return cls(config.max_bytes, duration_s(config.max_age) if config.max_age else None)


@dataclass(frozen=True)
class Leaving:
    """A session that goes, and why."""

    session: Session
    reason: str


@dataclass(frozen=True)
class Kept:
    """What retention looks at of one session."""

    session: Session
    bytes: int
    ended: int | None  # console CLOCK_REALTIME, ns; None while it is recorded, or was left by a crash: it stays


def leaving(kept: Sequence[Kept], limits: Limits, at: int) -> list[Leaving]:
    """Which sessions have to go at an instant (console CLOCK_REALTIME, ns), the oldest first."""
    gone: list[Leaving] = []
    left = sum(one.bytes for one in kept)
    for one in sorted((one for one in kept if one.ended is not None), key=lambda one: one.ended or 0):
        age_s = (at - (one.ended or 0)) / 1e9
        if limits.max_age_s is not None and age_s > limits.max_age_s:
            gone.append(
                Leaving(one.session, f"it ended {duration(round(age_s * 1e9))} ago, more than [sessions] max_age")
            )
        elif limits.max_bytes is not None and left > limits.max_bytes:
            text = f"all sessions together take {size(left)}, more than [sessions] max_bytes ({size(limits.max_bytes)})"
            gone.append(Leaving(one.session, text))
        else:
            continue
        left -= one.bytes
    return gone


def stored_sessions(folder: Path) -> list[Kept]:
    """What is in a folder; what cannot be read is not touched. Raises OSError."""
    found = []
    for session in all_sessions(folder):
        try:
            meta = session.read()
        except SessionError:
            continue
        found.append(Kept(session, session.size(), meta.closed if meta.state != "recording" else None))
    return found


def keep_within(folder: Path, limits: Limits, at: int) -> list[str]:
    """Delete what has to go; a line each that says what and why, and one where that is not enough. Raises OSError."""
    if limits == Limits():
        return []
    words, kept = [], stored_sessions(folder)
    left = sum(one.bytes for one in kept)
    sizes = {one.session: one.bytes for one in kept}
    for one in leaving(kept, limits, at):
        try:
            _take_away(one, sizes[one.session], at)
        except SessionError as error:
            words.append(f"session {one.session.name} should go ({one.reason}), but: {error}")
        else:
            left -= sizes[one.session]
            words.append(f"session {one.session.name} was deleted: {one.reason}")
    if limits.max_bytes is not None and left > limits.max_bytes:
        text = "what is being recorded, or was left by a crash, takes more than [sessions] max_bytes"
        words.append(f"{text}; nothing else is left to delete")
    return words


def _take_away(one: Leaving, size: int, at: int) -> None:
    meta = one.session.read()
    delete(one.session)
    gone = Deleted(one.session.name, meta.id, at, size, meta.records, one.reason)
    with (one.session.path.parent / BOOK).open("ab") as book:
        book.write(msgspec.json.encode(gone) + b"\n")


def delete(session: Session) -> None:
    """Remove a session for ever. Raises SessionError while it is being written, OSError."""
    with session.lock():
        shutil.rmtree(session.path)
