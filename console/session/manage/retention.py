"""Retention: delete closed sessions, oldest first, beyond the limits of `[sessions]`; every deletion is logged.

Deletions are also appended to `deleted.ndjson` beside the sessions, a `Deleted` per line.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ...config.sections import SessionsConfig
from ...text.format import duration, size
from ...text.timespec import duration_s
from ..format.layout import Session, SessionError, all_sessions

#: Log of deletions, in the folder of the sessions.
DELETED_LOG: Final = "deleted.ndjson"


class Deleted(msgspec.Struct, frozen=True):
    """One line of the log of deletions."""

    name: str
    id: str
    deleted_at: int = msgspec.field(name="at")  # console CLOCK_REALTIME, ns
    bytes: int
    records: int
    reason: str


class Limits(msgspec.Struct, frozen=True):
    """Limits on all closed sessions together; None: no limit."""

    max_bytes: int | None = None
    max_age_s: float | None = None  # since a session was closed

    @classmethod
    def of(cls, config: SessionsConfig) -> Limits:
        """Return the limits of `[sessions]` in hosts.toml."""
        return cls(config.max_bytes, duration_s(config.max_age) if config.max_age else None)


class RetainedSession(msgspec.Struct, frozen=True):
    """The size and end of one session."""

    session: Session
    bytes: int
    ended: int | None  # console CLOCK_REALTIME, ns; None while it is recorded, or after a crash: never deleted


class Deletion(msgspec.Struct, frozen=True):
    """A session to be deleted, and the reason."""

    retained: RetainedSession
    reason: str

    @property
    def session(self) -> Session:
        """The session."""
        return self.retained.session


def sessions_to_delete(sessions: Sequence[RetainedSession], limits: Limits, now: int) -> list[Deletion]:
    """Return the sessions beyond the limits, oldest first. `now` is console CLOCK_REALTIME in ns."""
    deletions: list[Deletion] = []
    total = sum(retained.bytes for retained in sessions)
    closed = [(retained.ended, retained) for retained in sessions if retained.ended is not None]
    for ended, retained in sorted(closed, key=lambda item: item[0]):
        age_ns = now - ended
        if limits.max_age_s is not None and age_ns / 1e9 > limits.max_age_s:
            reason = f"it ended {duration(age_ns)} ago, more than [sessions] max_age"
        elif limits.max_bytes is not None and total > limits.max_bytes:
            limit = size(limits.max_bytes)
            reason = f"all sessions together take {size(total)}, more than [sessions] max_bytes ({limit})"
        else:
            continue
        deletions.append(Deletion(retained, reason))
        total -= retained.bytes
    return deletions


def _retained_sessions(folder: Path) -> list[RetainedSession]:
    """The readable sessions of a folder; unreadable ones are never deleted. Raises OSError."""
    sessions = []
    for session in all_sessions(folder):
        try:
            meta = session.read()
        except SessionError:
            continue
        sessions.append(RetainedSession(session, session.size(), meta.closed if meta.state != "recording" else None))
    return sessions


def enforce_limits(folder: Path, limits: Limits, now: int) -> list[str]:
    """Delete sessions beyond the limits; return a log line per deletion, and one if that does not suffice.

    Raises OSError.
    """
    if limits == Limits():
        return []
    sessions, lines = _retained_sessions(folder), []
    total = sum(retained.bytes for retained in sessions)
    for deletion in sessions_to_delete(sessions, limits, now):
        try:
            _delete_and_log(deletion, now)
        except SessionError as error:
            lines.append(f"session {deletion.session.name} cannot be deleted ({deletion.reason}): {error}")
        else:
            total -= deletion.retained.bytes
            lines.append(f"session {deletion.session.name} was deleted: {deletion.reason}")
    if limits.max_bytes is not None and total > limits.max_bytes:
        text = "running and crashed recordings take more than [sessions] max_bytes"
        lines.append(f"{text}; no closed session is left to delete")
    return lines


def _delete_and_log(deletion: Deletion, now: int) -> None:
    session = deletion.session
    meta = session.read()
    delete(session)
    entry = Deleted(session.name, meta.id, now, deletion.retained.bytes, meta.records, deletion.reason)
    with (session.path.parent / DELETED_LOG).open("ab") as log:
        log.write(msgspec.json.encode(entry) + b"\n")


def delete(session: Session) -> None:
    """Delete a session permanently. Raises SessionError while it is being written, OSError."""
    with session.lock():
        shutil.rmtree(session.path)
