"""A whole session out of records that are there already: of other sessions, of a file."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from ... import __version__
from ...core.bus import Published
from ...records import encode
from ...text.atomic_files import make_folder
from ..format import zstd_frames
from ..format.counts import add, count
from ..format.layout import Meta, RecorderRun, Session, SessionError, now, sync_folder
from ..format.segments import SegmentWriter

#: Records in a frame: some megabytes, which is where larger frames no longer get smaller.
FRAME_RECORDS = 4096


def make(session: Session, records: Iterable[Published], meta: Meta | None = None) -> Meta:
    """Write a closed session. Raises SessionError where it is there already, OSError; then nothing is left of it."""
    meta = begin(session, meta or Meta())
    try:
        with session.lock():
            return _fill(session, records, meta)
    except BaseException:
        shutil.rmtree(session.path, ignore_errors=True)
        raise


def begin(session: Session, meta: Meta) -> Meta:
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
                holds = count(batch[part])
                writer.append(zstd_frames.pack(lines[part], holds.kinds, holds.first_rx, holds.last_rx))
                add(meta, holds)
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
