"""Operations on whole sessions: list, rename, mark, merge, import."""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...core.bus import Published
from ...records import Mark
from .. import ndjson
from ..export import document
from ..format import reader
from ..format.layout import Meta, Session, SessionError, all_sessions, named, now, sync_folder
from ..format.manifest import survey
from ..format.writer import RecordCounts, SegmentWriter, add_counts, pack_records, write_session
from ..record.recording import request_mark
from .black_boxes import list_black_boxes

#: `crashed`: in state `recording`, but without a recorder. `damaged`: a segment is missing, or not of this session.
#: A black box of a running console, or of one that ended.
Status = Literal["recording", "crashed", "closed", "torn", "damaged", "unreadable", "black box", "black box, ended"]


class SessionEntry(msgspec.Struct, frozen=True):
    """One session of a list."""

    session: Session
    status: Status
    meta: Meta | None  # None if it is unreadable
    bytes: int
    problem: str = ""


def entry_of(session: Session) -> SessionEntry:
    """Return the entry of a session; during a recording its counts come from the labels of its frames."""
    size = 0
    try:
        size = session.size()
        meta = session.read()
        if meta.state == "recording" and session.segments():
            _count_by_labels(session, meta)
        lost = next((damage for damage in survey(session)[1] if damage.is_loss), None)
    except SessionError as error:
        return SessionEntry(session, "unreadable", None, size, str(error))
    except OSError as error:
        problem = f"{error.filename or session.path}: {error.strerror or error}"
        return SessionEntry(session, "unreadable", None, size, problem)
    if meta.state != "recording" and lost is not None:
        return SessionEntry(session, "damaged", meta, size, f"{lost}; try: gconsole sessions verify {session.name}")
    if meta.state != "recording":
        return SessionEntry(session, meta.state, meta, size)
    return SessionEntry(session, "recording" if session.is_being_written() else "crashed", meta, size)


def list_sessions(folder: Path) -> list[SessionEntry]:
    """Return all sessions of a folder, newest last. Raises OSError."""
    entries = [entry_of(session) for session in all_sessions(folder)]
    return sorted(entries, key=lambda entry: entry.meta.created if entry.meta else 0)


def black_box_entries(folder: Path) -> list[SessionEntry]:
    """Return the black boxes in a folder, newest last. Raises OSError."""
    return [
        SessionEntry(box.session, "black box" if box.is_running else "black box, ended", box.meta, box.bytes)
        for box in list_black_boxes(folder)
    ]


def _count_by_labels(session: Session, meta: Meta) -> None:
    meta.records, meta.counts, meta.first_rx, meta.last_rx = 0, {}, None, None
    for frame in reader.scan_session(session.path, reader.ignore_damage):
        label = frame.label
        add_counts(meta, RecordCounts(label.kinds, {}, label.first_rx, label.last_rx))


def rename(session: Session, name: str) -> Session:
    """Rename a session. Raises SessionError if the name is taken, or it is being written; OSError."""
    other = named(name, session.path.parent)
    if other.path.exists():
        raise SessionError.name_taken(name)
    with session.lock():
        meta = session.read()
        session.path.rename(other.path)
        meta.name = name
        other.write(meta)
        sync_folder(other.path.parent)
    return other


def mark(session: Session, text: str) -> None:
    """Add a marker: by its recorder during a recording, else at its end. Raises SessionError, OSError."""
    if session.is_being_written():
        request_mark(session, text)
        return
    with session.lock():
        meta = session.read()
        is_sealed = bool(meta.seals) or not meta.records  # versions before sealed none: then others would lack theirs
        note = Mark(agent=secrets.token_hex(8), seq=1, t=now(), rx=now(), text=text)
        writer = SegmentWriter(session)
        try:
            for data, counts, _ in pack_records([note]):
                writer.append(data)
                if meta.state != "recording":  # recovery counts the records of a crashed session
                    add_counts(meta, counts)
        finally:
            writer.close()
        if meta.state != "recording":
            meta.sealed, meta.seals = writer.number, (*meta.seals, *([writer.seal] if is_sealed else ()))
            session.write(meta)


def merge(sessions: Sequence[Session], into: Session) -> Meta:
    """Write the records of several sessions into a new closed one, by arrival, each once; keep the originals.

    Raises SessionError if one is damaged or being written, or the name is taken; OSError.
    """
    metas = [session.read() for session in sessions]
    for session in sessions:
        if session.is_being_written():
            raise SessionError.locked(session.name)
    meta = Meta(
        cluster=", ".join(dict.fromkeys(meta.cluster for meta in metas if meta.cluster)),
        created=min(meta.created for meta in metas), parts=tuple(part for meta in metas for part in meta.parts),
        merged=tuple(session.name for session in sessions),
    )  # fmt: skip
    return write_session(into, _merged(sessions), meta)


def _merged(sessions: Sequence[Session]) -> Iterator[Published]:
    seen = _SeenRecords()
    for _, record in heapq.merge(*map(_by_arrival, sessions), key=lambda item: item[0]):
        if seen.is_new(record):
            yield record


def _by_arrival(session: Session) -> Iterator[tuple[int, Published]]:
    """Records with their arrival in the session; the initial state arrived before it began."""
    rx = 0
    for record in reader.records(session.path):
        rx = max(rx, record.rx)
        yield rx, record


class _SeenRecords:
    """A bit set of record numbers per agent; the numbers of an agent have few gaps."""

    _BITS = 1024

    def __init__(self) -> None:
        self._bits: dict[tuple[str, int], int] = {}

    def is_new(self, record: Published) -> bool:
        key, bit = (record.agent, record.seq // self._BITS), 1 << record.seq % self._BITS
        bits = self._bits.get(key, 0)
        self._bits[key] = bits | bit
        return not bits & bit


def import_file(file: Path, name: str | None, folder: Path) -> tuple[Session, Meta]:
    """Make a session of a JSON export or an NDJSON file; return it with its metadata.

    Raises SessionError, RecordFileError, OSError; then nothing of it is left.
    """
    if not document.is_document(file):
        session = named(name or file.name.partition(".")[0], folder)
        return session, write_session(session, ndjson.read(file))
    facts, records = document.read(file)
    if not (name or facts.name):
        raise SessionError(f"{file}: the file contains no session name; specify one: --name NAME")
    session = named(name or facts.name, folder)
    meta = write_session(session, records, document.meta_of(facts))
    if facts.closed is not None:  # keep the time when the original was closed
        meta.closed = facts.closed
        session.write(meta)
    return session, meta
