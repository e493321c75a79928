"""What can be done with whole sessions: listed, renamed, merged, annotated."""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...core.bus import Published
from ...records import Mark, encode
from .. import ndjson
from ..export import document
from ..format import reader, writer
from ..format import writer as create
from ..format.layout import Meta, Session, SessionError, all_sessions, named, now, sync_folder
from ..format.writer import RecordCounts, SegmentWriter, add_counts, count_records
from ..format.zstd_frames import Damage, pack
from ..record import recording

#: `crashed`: it says that it is being recorded, and nobody does.
Standing = Literal["recording", "crashed", "closed", "torn", "unreadable"]


@dataclass(frozen=True)
class Listed:
    """A session as a list shows it."""

    session: Session
    standing: Standing
    meta: Meta | None  # None where it is unreadable
    bytes: int
    problem: str = ""


def listed(session: Session) -> Listed:
    """How a session stands. While it is recorded, its counts are those of its frames."""
    size = 0
    try:
        size = session.size()
        meta = session.read()
        if meta.state == "recording" and session.segments():
            _count_by_labels(session, meta)
    except SessionError as error:
        return Listed(session, "unreadable", None, size, str(error))
    except OSError as error:
        return Listed(session, "unreadable", None, size, f"{error.filename or session.path}: {error.strerror or error}")
    if meta.state != "recording":
        return Listed(session, meta.state, meta, size)
    return Listed(session, "recording" if session.is_being_written() else "crashed", meta, size)


def everything(folder: Path) -> list[Listed]:
    """All sessions of a folder, the newest last. Raises OSError."""
    found = [listed(session) for session in all_sessions(folder)]
    return sorted(found, key=lambda one: one.meta.created if one.meta else 0)


def _count_by_labels(session: Session, meta: Meta) -> None:
    meta.records, meta.counts, meta.first_rx, meta.last_rx = 0, {}, None, None
    for _, frame in reader.labels(session.path, _skip):
        label = frame.label
        add_counts(meta, RecordCounts(label.kinds, {}, label.first_rx, label.last_rx))


def _skip(damage: Damage) -> None:
    """A list tells how much there is; what is damaged tells `verify`."""


def rename(session: Session, name: str) -> Session:
    """Give a session another name. Raises SessionError where that is taken, or it is being written; OSError."""
    other = named(name, session.path.parent)
    if other.path.exists():
        raise SessionError(f"{name}: there is such a session already")
    with session.lock():
        meta = session.read()
        session.path.rename(other.path)
        meta.name = name
        other.write(meta)
        sync_folder(other.path.parent)
    return other


def mark(session: Session, text: str) -> None:
    """Add a person's note: by its recorder while it is recorded, else at its end. Raises SessionError, OSError."""
    if session.is_being_written():
        recording.request_mark(session, text)
        return
    with session.lock():
        meta = session.read()
        note = Mark(agent=secrets.token_hex(8), seq=1, t=now(), rx=now(), text=text)
        holds = count_records([note])
        writer = SegmentWriter(session)
        try:
            writer.append(pack([encode(note)], holds.kinds, holds.first_rx, holds.last_rx))
        finally:
            writer.close()
        if meta.state != "recording":  # of a crashed one the counts are made when it is recovered
            add_counts(meta, holds)
            meta.sealed = writer.number
            session.write(meta)


def merge(sessions: Sequence[Session], into: Session) -> Meta:
    """One closed session of the records of several, in the order of arrival, each once. They stay as they are.

    Raises SessionError where one is damaged or being written, or the name is taken; OSError.
    """
    metas = [session.read() for session in sessions]
    for session in sessions:
        if session.is_being_written():
            raise SessionError(f"{session.name}: it is being written to; stop its recording first")
    meta = Meta(
        cluster=", ".join(dict.fromkeys(meta.cluster for meta in metas if meta.cluster)),
        created=min(meta.created for meta in metas), parts=tuple(part for meta in metas for part in meta.parts),
        merged=tuple(session.name for session in sessions),
    )  # fmt: skip
    return create.write_session(into, _merged(sessions), meta)


def _merged(sessions: Sequence[Session]) -> Iterator[Published]:
    seen = _Seen()
    for _, record in heapq.merge(*map(_by_arrival, sessions), key=lambda one: one[0]):
        if seen.is_new(record):
            yield record


def _by_arrival(session: Session) -> Iterator[tuple[int, Published]]:
    """Records with when they came into the session: what it began with had arrived long before."""
    at = 0
    for record in reader.records(session.path):
        at = max(at, record.rx)
        yield at, record


class _Seen:
    """Which records have been seen already, as bits by number: those of an agent have few holes."""

    _BITS = 1024

    def __init__(self) -> None:
        self._bits: dict[tuple[str, int], int] = {}

    def is_new(self, record: Published) -> bool:
        key, bit = (record.agent, record.seq // self._BITS), 1 << record.seq % self._BITS
        bits = self._bits.get(key, 0)
        self._bits[key] = bits | bit
        return not bits & bit


def import_file(file: Path, name: str | None, folder: Path) -> tuple[Session, Meta]:
    """Make the session; what is known of it. Raises SessionError, RecordFileError, OSError; then nothing is left."""
    if not document.is_document(file):
        session = named(name or file.name.partition(".")[0], folder)
        return session, writer.write_session(session, ndjson.read(file))
    facts, records = document.read(file)
    wanted = name or facts.name
    if not wanted:
        raise SessionError(f"{file}: it says no name; give the session one: --name NAME")
    session = named(wanted, folder)
    meta = writer.write_session(session, records, document.meta_of(facts))
    if facts.closed is not None:  # when it was closed first, not when this copy was made
        meta.closed = facts.closed
        session.write(meta)
    return session, meta
