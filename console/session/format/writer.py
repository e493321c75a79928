"""Write sessions: record counts, segment files, whole sessions."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from ... import __version__
from ...core.bus import Published
from ...records import KINDS, encode
from ...records.kinds import kind_of
from ...text.atomic_files import make_folder
from . import zstd_frames
from .layout import AgentProgress, Meta, RecorderRun, Session, SessionError, now, sync_folder
from .manifest import last_number

#: So many kinds that this version does not know are counted by name, the rest together: a node can invent any number,
#: and the label of a frame has little room.
_UNKNOWN_KINDS: Final = 64
#: What those beyond that are counted as.
MANY: Final = "…"


@dataclass(frozen=True)
class RecordCounts:
    """What a number of records are."""

    kinds: dict[str, int]
    agents: dict[str, AgentProgress]
    first_rx: int
    last_rx: int


def count_records(records: Sequence[Published]) -> RecordCounts:
    """Count some records; at least one."""
    kinds: dict[str, int] = {}
    agents: dict[str, Published] = {}
    first_rx = last_rx = records[0].rx
    for record in records:
        kind = _name(kind_of(record), kinds)
        kinds[kind] = kinds.get(kind, 0) + 1
        known = agents.get(record.agent)
        if known is None or known.seq < record.seq:
            agents[record.agent] = record
        if record.rx < first_rx:
            first_rx = record.rx
        elif record.rx > last_rx:
            last_rx = record.rx
    heard = {agent: AgentProgress(record.node, record.seq, record.rx) for agent, record in agents.items()}
    return RecordCounts(kinds, heard, first_rx, last_rx)


def _name(kind: str, counted: Mapping[str, int]) -> str:
    """What a kind is counted as, beside those that are counted already."""
    if kind in counted or kind in KINDS or len(counted) < len(KINDS) + _UNKNOWN_KINDS:
        return kind
    return MANY


def add_counts(meta: Meta, batch: RecordCounts) -> None:
    """These are in the session, too."""
    for kind, number in batch.kinds.items():
        kind = _name(kind, meta.counts)
        meta.counts[kind] = meta.counts.get(kind, 0) + number
    meta.records += sum(batch.kinds.values())
    has_new = any(agent not in meta.agents for agent in batch.agents)
    for agent, heard in batch.agents.items():
        known = meta.agents.get(agent)
        if known is None or known.seq < heard.seq:
            meta.agents[agent] = heard
    if has_new:
        _forget_ended(meta)
    meta.first_rx = batch.first_rx if meta.first_rx is None else min(meta.first_rx, batch.first_rx)
    meta.last_rx = batch.last_rx if meta.last_rx is None else max(meta.last_rx, batch.last_rx)


def _forget_ended(meta: Meta) -> None:
    """Of the agents of each node the last one stays: another speaks there only once that has ended."""
    consoles = {name for part in meta.parts for name in (part.console, part.was)}
    last: dict[str, str] = {}
    for agent, heard in meta.agents.items():
        if agent not in consoles and (heard.node not in last or meta.agents[last[heard.node]].rx <= heard.rx):
            last[heard.node] = agent
    if consoles:  # else a console's own words about a node are not to be told from those of the node
        meta.agents = {
            agent: heard for agent, heard in meta.agents.items() if agent in consoles or last[heard.node] == agent
        }


#: A segment is sealed once it is so long: small enough to read again after a crash in seconds.
SEGMENT_BYTES: Final = 64 << 20


class SegmentWriter:
    """The last segment of a session, open for appending. Whoever makes one holds the session's lock."""

    def __init__(self, session: Session, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Begin a new segment behind those that are, or were, there. Raises SessionError, OSError."""
        self.session = session
        self._segment_bytes = segment_bytes
        self.number = last_number(session) + 1
        self._open()

    def append(self, data: bytes) -> None:
        """Write a frame and see it on the disk. Raises OSError, and then nothing of it is in the file."""
        try:
            self._write(data)
            os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self.size)  # gives back what a full disk had taken of the frame
            raise
        self.size += len(data)

    @property
    def is_full(self) -> bool:
        return self.size >= self._segment_bytes

    @property
    def is_in_place(self) -> bool:
        """False once somebody has removed the file: what is written there would be seen by nobody."""
        return os.fstat(self._fd).st_nlink > 0

    def roll(self) -> None:
        """Seal this segment and begin the next. Raises OSError, and then this one stays open."""
        before = self._fd
        self.number += 1
        try:
            self._open()
        except OSError:
            self.number -= 1
            raise
        os.close(before)

    def close(self) -> None:
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

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]


#: Records in a frame: some megabytes, which is where larger frames no longer get smaller.
FRAME_RECORDS = 4096


def write_session(session: Session, records: Iterable[Published], meta: Meta | None = None) -> Meta:
    """Write a closed session. Raises SessionError where it is there already, OSError; then nothing is left of it."""
    meta = create_session(session, meta or Meta())
    try:
        with session.lock():
            return _fill(session, records, meta)
    except BaseException:
        shutil.rmtree(session.path, ignore_errors=True)
        raise


def create_session(session: Session, meta: Meta) -> Meta:
    """Make the folder of a new session, whole or not at all. Raises SessionError where the name is taken, OSError."""
    made = msgspec.structs.replace(
        meta, name=session.name, id=meta.id or secrets.token_hex(8), created=meta.created or now()
    )
    folder = session.path.parent
    make_folder(folder)
    draft = Session(Path(tempfile.mkdtemp(prefix=f".{session.name}.", dir=folder)))
    try:
        draft.segments_folder.mkdir(mode=0o700)
        draft.write(made)
        if session.path.exists():
            raise FileExistsError
        draft.path.rename(session.path)
        sync_folder(folder)
    except BaseException as error:
        shutil.rmtree(draft.path, ignore_errors=True)
        if isinstance(error, FileExistsError):
            text = f"try another name, or: gconsole sessions delete {session.name}"
            raise SessionError(f"{session.name}: there is such a session already; {text}") from error
        raise
    return made


def _fill(session: Session, records: Iterable[Published], meta: Meta) -> Meta:
    writer = SegmentWriter(session)
    try:
        for batch in _batches(records):
            lines = [encode(record) for record in batch]
            for part in zstd_frames.by_size(lines):
                holds = count_records(batch[part])
                writer.append(zstd_frames.pack(lines[part], holds.kinds, holds.first_rx, holds.last_rx))
                add_counts(meta, holds)
            if writer.is_full:
                writer.roll()
    finally:
        writer.close()
    ended = now()
    meta.parts = meta.parts or (RecorderRun(began=meta.created, ended=ended, how="stopped", version=__version__),)
    meta.sealed, meta.state, meta.closed = writer.number, "closed", ended
    session.write(meta)
    return meta


def _batches(records: Iterable[Published]) -> Iterator[tuple[Published, ...]]:
    rest = iter(records)
    while batch := tuple(islice(rest, FRAME_RECORDS)):
        yield batch
