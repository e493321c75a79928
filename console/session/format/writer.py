"""Write sessions: record counts, packed frames, segment files, whole sessions."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from ... import __version__
from ...core.bus import Published
from ...records import KINDS, RawRecord, Record, encode_lines
from ...records.kinds import SPECS
from ...text.atomic_files import make_folder
from . import zstd_frames
from .layout import AgentProgress, Meta, RecorderRun, SegmentSeal, Session, SessionError, now, sync_folder
from .manifest import last_number

#: Bytes. A segment is sealed at this size: small enough to be read again within seconds after a crash.
SEGMENT_BYTES: Final = 64 << 20
#: Records in a frame of a created session: some MB; larger frames do not compress better.
FRAME_RECORDS = 4096
#: Unknown kinds counted by name; further ones are counted as `OTHER_KINDS`. A node can invent any number of kinds, and
#: the label of a frame is limited in size.
_MAX_UNKNOWN_KINDS: Final = 64
OTHER_KINDS: Final = "…"


# -- counts ------------------------------------------------------------------------------------------------------------


class RecordCounts(msgspec.Struct, frozen=True):
    """Counts of a batch of records: per kind, per agent its last record, and the range of arrival in ns."""

    kinds: dict[str, int]
    agents: dict[str, AgentProgress]
    first_rx: int
    last_rx: int


def count_records(records: Sequence[Published]) -> RecordCounts:
    """Return the counts of at least one record."""
    last_records: dict[str, Published] = {}
    for record in records:
        last = last_records.get(record.agent)
        if last is None or last.seq < record.seq:
            last_records[record.agent] = record
    agents = {agent: AgentProgress(record.node, record.seq, record.rx) for agent, record in last_records.items()}
    arrivals = [record.rx for record in records]
    return RecordCounts(_count_kinds(records), agents, min(arrivals), max(arrivals))


def _count_kinds(records: Sequence[Published]) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for struct, number in Counter(map(type, records)).items():
        if issubclass(struct, Record):
            kinds[SPECS[struct].name] = number
    if sum(kinds.values()) < len(records):
        for record in records:
            if isinstance(record, RawRecord):
                kind = _counted_kind(record.kind, kinds)
                kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def add_counts(meta: Meta, counts: RecordCounts) -> None:
    """Add a batch to the totals of a session."""
    for kind, number in counts.kinds.items():
        kind = _counted_kind(kind, meta.counts)
        meta.counts[kind] = meta.counts.get(kind, 0) + number
    meta.records += sum(counts.kinds.values())
    has_new_agent = any(agent not in meta.agents for agent in counts.agents)
    for agent, progress in counts.agents.items():
        last = meta.agents.get(agent)
        if last is None or last.seq < progress.seq:
            meta.agents[agent] = progress
    if has_new_agent:
        _drop_ended_agents(meta)
    meta.first_rx = counts.first_rx if meta.first_rx is None else min(meta.first_rx, counts.first_rx)
    meta.last_rx = counts.last_rx if meta.last_rx is None else max(meta.last_rx, counts.last_rx)


def _counted_kind(kind: str, counted: Mapping[str, int]) -> str:
    if kind in counted or kind in KINDS or len(counted) < len(KINDS) + _MAX_UNKNOWN_KINDS:
        return kind
    return OTHER_KINDS


def _drop_ended_agents(meta: Meta) -> None:
    """Keep the last agent of each node: a node runs one agent at a time."""
    consoles = meta.console_ids()
    if not consoles:  # a console's own records about a node cannot be told apart from those of its agent
        return
    last: dict[str, str] = {}
    for agent, progress in meta.agents.items():
        if agent not in consoles and (progress.node not in last or meta.agents[last[progress.node]].rx <= progress.rx):
            last[progress.node] = agent
    meta.agents = {
        agent: progress for agent, progress in meta.agents.items() if agent in consoles or last[progress.node] == agent
    }


# -- frames and segments -----------------------------------------------------------------------------------------------


def pack_records(
    records: Sequence[Published], snapshot: int = 0, lost: int = 0
) -> Iterator[tuple[bytes, RecordCounts, int]]:
    """Yield the frames of these records: bytes, counts, and how many of the records are packed by then.

    Nearly always one frame; several where the lines exceed what a reader unpacks at once. `snapshot` and `lost` as in
    `Label`.
    """
    raw = encode_lines(records)
    if len(raw) <= zstd_frames.MAX_WRITTEN_BYTES:
        counts = count_records(records)
        packed = zstd_frames.pack_raw(
            raw, len(records), counts.kinds, counts.first_rx, counts.last_rx, snapshot, lost
        )  # fmt: skip
        yield packed, counts, len(records)
        return
    lines = raw.split(b"\n")[:-1]
    for part in zstd_frames.split_lines(lines):
        counts = count_records(records[part])
        frame = zstd_frames.pack(lines[part], counts.kinds, counts.first_rx, counts.last_rx, snapshot, lost)
        yield frame, counts, part.stop


class SegmentWriter:
    """Appends frames to the last segment of a session. The caller holds the session's lock."""

    def __init__(self, session: Session, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Create the segment after the last one the session ever had. Raises SessionError, OSError."""
        self.session = session
        self._segment_bytes = segment_bytes
        self.number = last_number(session) + 1
        self._open()

    def append(self, data: bytes) -> None:
        """Write a frame and sync it to disk. Raises OSError; then no part of it is in the file."""
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self.size)  # releases the blocks of a frame that a full disk cut off
            raise
        if not self.size:
            self._first_crc = zstd_frames.crc_of(data)
        self.size += len(data)
        self._digest.update(data)

    @property
    def seal(self) -> SegmentSeal:
        """What is written of this segment."""
        return SegmentSeal(self.number, self.size, self._first_crc, self._digest.hexdigest())

    @property
    def is_full(self) -> bool:
        """Whether the segment has reached its size limit."""
        return self.size >= self._segment_bytes

    @property
    def is_in_place(self) -> bool:
        """False once the file has been removed: what is appended would be lost."""
        return os.fstat(self._fd).st_nlink > 0

    def roll(self) -> SegmentSeal:
        """Seal this segment and create the next. Raises OSError; then this one stays open."""
        before, seal = self._fd, self.seal
        self.number += 1
        try:
            self._open()
        except OSError:
            self.number -= 1
            raise
        os.close(before)
        return seal

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.session.segment(self.number), flags, 0o600)
        try:
            sync_folder(self.session.segments_folder)
        except OSError:
            os.close(fd)
            raise
        self._fd, self.size = fd, 0
        self._digest, self._first_crc = hashlib.sha256(), 0  # of what is written


# -- whole sessions ----------------------------------------------------------------------------------------------------


def create_session(session: Session, meta: Meta) -> Meta:
    """Create the folder of a new session atomically. Raises SessionError if the name is taken, OSError."""
    created = replace(meta, name=session.name, id=meta.id or secrets.token_hex(8), created=meta.created or now())
    folder = session.path.parent
    make_folder(folder)
    draft = Session(Path(tempfile.mkdtemp(prefix=f".{session.name}.", dir=folder)))
    try:
        draft.segments_folder.mkdir(mode=0o700)
        draft.write(created)
        if session.path.exists():
            raise FileExistsError
        draft.path.rename(session.path)
        sync_folder(folder)
    except BaseException as error:
        shutil.rmtree(draft.path, ignore_errors=True)
        if isinstance(error, FileExistsError):
            raise SessionError.name_taken(session.name) from error
        raise
    return created


def write_session(session: Session, records: Iterable[Published], meta: Meta | None = None) -> Meta:
    """Write a closed session. Raises SessionError if it exists, OSError; then nothing of it is left."""
    return write_frames(session, _frames_of(records), meta)


def write_frames(
    session: Session, frames: Iterable[tuple[bytes, RecordCounts]], meta: Meta | None = None
) -> Meta:  # fmt: skip
    """Write a closed session of packed frames and their counts; raises as `write_session`."""
    meta = create_session(session, meta or Meta())
    try:
        with session.lock():
            return _write_frames(session, frames, meta)
    except BaseException:
        shutil.rmtree(session.path, ignore_errors=True)
        raise


def _frames_of(records: Iterable[Published]) -> Iterator[tuple[bytes, RecordCounts]]:
    rest = iter(records)
    while batch := tuple(islice(rest, FRAME_RECORDS)):
        yield from ((data, counts) for data, counts, _ in pack_records(batch))


def _write_frames(session: Session, frames: Iterable[tuple[bytes, RecordCounts]], meta: Meta) -> Meta:
    writer = SegmentWriter(session)
    try:
        for data, counts in frames:
            writer.append(data)
            add_counts(meta, counts)
            if writer.is_full:
                meta.seals += (writer.roll(),)
        meta.seals += (writer.seal,) if writer.size else ()
    finally:
        writer.close()
    ended = now()
    meta.parts = meta.parts or (RecorderRun(began=meta.created, ended=ended, how="stopped", version=__version__),)
    meta.sealed, meta.state, meta.closed = writer.number, "closed", ended
    session.write(meta)
    return meta
