"""Time index of a session: blocks of its segments, and the state changes within each, so that a jump to an instant
does not read everything before it.

    index/index.json            `IndexFile`: the blocks of each segment, some ten thousand records each
    index/000001.ndjson.zst     the changes in each block of segment 1, a frame per block (`zstd_frames`)

The index is derived and may be deleted at any time: segments that it does not cover are read themselves. A segment is
not covered if it is damaged, its length differs from that when it was indexed, or a checksum of the index is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from ...core.bus import Published
from ...records import UNREADABLE, RawRecord
from ...records.kinds import CHANGES, SPECS, identity
from ...text.atomic_files import write_atomically
from . import reader, zstd_frames
from .layout import Meta, Session, SessionError, decode_checked, digest_of, segment_number, write_checked
from .manifest import CompactedRange, Manifest, ParquetPart, check_part, read_manifest, segments_of, survey
from .reader import OnDamage, RecordFilter
from .table_schema import TABLES
from .writer import pack_records
from .zstd_frames import Damage, Frame

#: A block ends after this many records, or this many ns.
BLOCK_RECORDS: Final = 50_000
BLOCK_NS: Final = 600_000_000_000
_NAME: Final = "index.json"


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive frames of a segment."""

    begin: int  # bytes in the segment; `end` excluded
    end: int
    first_rx: int  # console CLOCK_REALTIME of the earliest and latest arrival, ns
    last_rx: int
    kinds: tuple[str, ...]
    changes_begin: int  # bytes of the frame of its changes, in the file beside the index; empty without changes
    changes_end: int


class IndexedSegment(msgspec.Struct, frozen=True):
    """The blocks of one segment, which had that length in bytes when it was indexed."""

    bytes: int
    blocks: tuple[Block, ...]
    digest: str = ""  # SHA-256 of the file of changes


class IndexFile(msgspec.Struct):
    """Content of index.json: segments by file name."""

    checksum: str = ""  # of the file (`layout.write_checked`)
    segments: dict[str, IndexedSegment] = msgspec.field(default_factory=dict)


class IndexedSession(msgspec.Struct, frozen=True):
    """A session and the part of it that its index covers; reads through the index where it can."""

    session: Session
    folder: Path  # of the index
    segments: Mapping[str, IndexedSegment] = msgspec.field(default_factory=dict)

    def changes(self, to_rx: int, on_damage: OnDamage) -> Iterator[Published]:
        """Yield the state changes before an instant; of those replaced within a block only the last. Raises OSError."""
        choice = RecordFilter(kinds=CHANGES, to_rx=to_rx)
        return self._read(choice, on_damage, partial(self._changes_of, choice, to_rx, on_damage))

    def records(self, on_damage: OnDamage, choice: RecordFilter) -> Iterator[Published]:
        """Yield the selected records, as `reader.lenient` does, reading only blocks that may match. Raises OSError."""

        def read_blocks(path: Path, indexed: IndexedSegment) -> Iterator[Published]:
            for begin, end in _matching_ranges(indexed, choice):
                yield from reader.read_range(path, begin, end, on_damage, choice)

        return self._read(choice, on_damage, read_blocks)

    def events(self, kinds: frozenset[str], on_damage: OnDamage) -> Iterator[Published]:
        """Yield all changes of these kinds, none of which replaces another. Raises OSError."""

        def read_changes(path: Path, indexed: IndexedSegment) -> Iterator[Published]:
            if indexed.blocks:
                end = indexed.blocks[-1].changes_end
                yield from reader.read_range(self.folder / path.name, 0, end, on_damage, choice)

        choice = RecordFilter(kinds=kinds)
        return self._read(choice, on_damage, read_changes)

    def span(self, meta: Meta) -> tuple[int, int] | None:
        """Return the instants that the session covers, as `Meta.span`, also before it is closed. Raises OSError."""
        spans = list(self._spans(meta))
        first, last = min((begin for begin, _ in spans), default=None), max((end for _, end in spans), default=None)
        return msgspec.structs.replace(meta, first_rx=first, last_rx=last).span

    def _spans(self, meta: Meta) -> Iterator[tuple[int, int]]:
        """Yield the earliest and latest arrival of each part, in order. Raises OSError.

        For sealed segments the end in `meta` is used; only their first label is read.
        """
        for piece in survey(self.session)[0]:
            if isinstance(piece, CompactedRange):
                span = reader.compacted_span(self.session, piece)
                yield from () if span is None else (span,)
            elif (indexed := self.segments.get(piece.name)) is not None:
                yield from ((block.first_rx, block.last_rx) for block in indexed.blocks)
            else:
                labels = (frame.label for frame in reader.scan_session(piece, reader.ignore_damage))
                if segment_number(piece) <= meta.sealed and meta.last_rx is not None:
                    yield from ((label.first_rx, meta.last_rx) for label in islice(labels, 1))
                else:
                    yield from ((label.first_rx, label.last_rx) for label in labels)

    def _read(
        self, choice: RecordFilter, on_damage: OnDamage,
        read_indexed: Callable[[Path, IndexedSegment], Iterator[Published]],
    ) -> Iterator[Published]:  # fmt: skip
        parts, damages = survey(self.session)
        for damage in damages:
            on_damage(damage)
        compacted = {} if choice.kinds is None else self._compacted(parts, choice.kinds)
        for piece in parts:
            if isinstance(piece, CompactedRange):
                yield from reader.compacted_records(self.session, piece, choice)
            elif indexed := self.segments.get(piece.name):
                yield from read_indexed(piece, indexed)
            elif piece.name in compacted:
                yield from reader.compacted_records(self.session, compacted[piece.name], choice)
            else:
                yield from reader.lenient(piece, on_damage, choice)

    def _compacted(self, pieces: Iterable[Path | CompactedRange], kinds: Collection[str]) -> dict[str, CompactedRange]:
        """The Parquet with these kinds of the segments that the index does not cover, by segment, if it is sound."""
        names = {piece.name for piece in pieces if isinstance(piece, Path)} - self.segments.keys()
        try:
            manifest = read_manifest(self.session) if names else Manifest()
        except SessionError:
            manifest = Manifest()
        if manifest.damaged_bytes:
            return {}
        read: dict[tuple[int, int], list[ParquetPart]] = {}
        for part in manifest.parts:
            read.setdefault(segments_of(part), []).extend([part] if part.table in (*kinds, TABLES[-1]) else [])
        return {
            path.name: CompactedRange(first, last, tuple(parts))
            for (first, last), parts in read.items()
            if first == last and (path := self.session.segment(first)).name in names & manifest.segments.keys()
            and all(part.digest and not check_part(self.session, part) for part in parts)
        }  # fmt: skip

    def _changes_of(
        self, choice: RecordFilter, to_rx: int, on_damage: OnDamage, path: Path, indexed: IndexedSegment
    ) -> Iterator[Published]:
        changes = self.folder / path.name
        for block in indexed.blocks:
            if block.first_rx >= to_rx:
                continue
            if block.last_rx >= to_rx:
                yield from reader.read_range(path, block.begin, block.end, on_damage, choice)
            elif block.changes_end > block.changes_begin:
                yield from reader.read_range(changes, block.changes_begin, block.changes_end, on_damage, choice)


def _matching_ranges(indexed: IndexedSegment, choice: RecordFilter) -> Iterator[tuple[int, int]]:
    """Ranges of bytes of a segment that may hold selected records; adjacent blocks as one range."""
    begin = end = 0
    for block in indexed.blocks:
        if not choice.may_match(block.kinds, block.first_rx, block.last_rx):
            continue
        if block.begin != end:
            if end > begin:
                yield begin, end
            begin = block.begin
        end = block.end
    if end > begin:
        yield begin, end


def open_index(session: Session, folder: Path | None = None) -> IndexedSession:
    """Return the session with what its index covers now; an unreadable index covers nothing.

    Raises OSError if a segment cannot be read.
    """
    folder = folder or session.path / "index"
    index = IndexFile()
    with contextlib.suppress(OSError, *UNREADABLE):
        index = decode_checked((folder / _NAME).read_bytes(), IndexFile)
    sizes = {path.name: path.stat().st_size for path in session.segments()}
    covered = {
        name: segment for name, segment in index.segments.items()
        if sizes.get(name) == segment.bytes and (folder / name).is_file() and digest_of(folder / name) == segment.digest
    }  # fmt: skip
    return IndexedSession(session, folder, covered)


def build_index(
    session: Session, folder: Path | None = None, is_over: Callable[[], bool] = lambda: False
) -> IndexedSession:
    """Index the sealed segments that are not covered yet, about a second each. Raises OSError.

    `is_over` is called before each segment; true ends the build there.
    """
    covered = open_index(session, folder)
    sealed = session.read().sealed
    segments = dict(covered.segments)
    for path in session.segments():
        if path.name in segments or segment_number(path) > sealed:
            continue
        if is_over():
            break
        covered.folder.mkdir(mode=0o700, exist_ok=True)
        indexed = _index_segment(path, covered.folder / path.name)
        if indexed is not None:
            segments[path.name] = indexed
            write_checked(covered.folder / _NAME, IndexFile(segments=segments))
    return IndexedSession(session, covered.folder, segments)


def _index_segment(path: Path, changes: Path) -> IndexedSegment | None:
    """Write the changes in a segment and return its blocks; None, and no file, if it is damaged."""
    size, damages = path.stat().st_size, list[Damage]()
    packed, blocks, length = [], [], 0
    choice = RecordFilter(kinds=CHANGES)
    for frames in _blocks(path, damages):
        records = _last_of_each(list(reader.read_range(path, frames[0].offset, frames[-1].end, damages.append, choice)))
        data = b"".join(frame for frame, _, _ in pack_records(records)) if records else b""
        blocks.append(_block(frames, length, length + len(data)))
        packed.append(data)
        length += len(data)
    if damages:
        return None
    write_atomically(changes, b"".join(packed))
    return IndexedSegment(size, tuple(blocks), digest_of(changes))


def _block(frames: list[Frame], changes_begin: int, changes_end: int) -> Block:
    labels = [frame.label for frame in frames]
    first, last = min(label.first_rx for label in labels), max(label.last_rx for label in labels)
    kinds = tuple(sorted({kind for label in labels for kind in label.kinds}))
    return Block(frames[0].offset, frames[-1].end, first, last, kinds, changes_begin, changes_end)


def _blocks(path: Path, damages: list[Damage]) -> Iterator[list[Frame]]:
    """The frames of a segment in blocks, up to the first damaged place."""
    frames: list[Frame] = []
    records = 0
    for item in zstd_frames.scan(path):
        if isinstance(item, Damage):
            damages.append(item)
            return
        if frames and (records >= BLOCK_RECORDS or item.label.last_rx - frames[0].label.first_rx >= BLOCK_NS):
            yield frames
            frames, records = [], 0
        frames.append(item)
        records += item.label.records
    if frames:
        yield frames


def _last_of_each(records: list[Published]) -> list[Published]:
    """The records without those that a later one replaces."""
    seen: set[tuple[type, Hashable]] = set()
    kept = []
    for record in reversed(records):
        if not isinstance(record, RawRecord) and SPECS[type(record)].is_replaced:
            key = (type(record), identity(record))
            if key in seen:
                continue
            seen.add(key)
        kept.append(record)
    return kept[::-1]
