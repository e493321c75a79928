"""Where in a session what is, by time, and what changed in it apart from what was measured: so that nobody who goes to
an instant of a long session has to read all that came before.

    index/index.json            `Index`: of each segment its blocks, some ten thousand records that follow each other
    index/000001.ndjson.zst     of each block of segment 1 what changed, a frame a block (`frames`)

It is made of the segments, and can be removed at any time: what it does not cover is read in the segments themselves.
A segment that has another length than it had when it was looked through is not covered, nor is a damaged one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from ...core.bus import Published
from ...records import UNREADABLE, RawRecord, encode
from ...records.kinds import CHANGES, SPECS, identity
from ...text.atomic_files import write_atomically
from . import reader, zstd_frames
from .layout import SEGMENT_SUFFIX, Meta, Session
from .manifest import Step, pieces
from .reader import Choice, OnDamage
from .writer import MANY, count_records
from .zstd_frames import Damage, Frame

#: A block ends after so many records, or after so long, ns.
BLOCK_RECORDS: Final = 50_000
BLOCK_NS: Final = 600_000_000_000
_NAME: Final = "index.json"


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Frames that follow each other in a segment."""

    at: int  # bytes in the segment: from, and up to but without
    end: int
    first_rx: int  # console CLOCK_REALTIME of the arrival of its earliest and its latest record, ns
    last_rx: int
    kinds: tuple[str, ...]
    changes_at: int  # of the frame of its changes, in the file beside this one
    changes_end: int  # the same where nothing changed


class Indexed(msgspec.Struct, frozen=True):
    """One segment that was looked through."""

    bytes: int  # of the segment, as it was
    blocks: tuple[Block, ...]


class Index(msgspec.Struct):
    """What was looked through: segments by the names of their files."""

    segments: dict[str, Indexed] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class Way:
    """A session and what its index covers: reads what it is asked for, the short way where there is one."""

    session: Session
    folder: Path  # where the index lies
    segments: Mapping[str, Indexed] = field(default_factory=dict)

    def changes(self, to_rx: int, on_damage: OnDamage) -> Iterator[Published]:
        """What changed before an instant, in order; of what was soon replaced only what replaced it. Raises OSError."""
        choice = Choice(kinds=CHANGES, to_rx=to_rx)
        return self._read(choice, on_damage, partial(self._changes_of, choice, to_rx, on_damage))

    def _read(
        self, choice: Choice, on_damage: OnDamage, indexed: Callable[[Path, Indexed], Iterator[Published]]
    ) -> Iterator[Published]:
        """The session, piece after piece: `indexed` reads the segments that the index knows."""
        for path in pieces(self.session):
            if isinstance(path, Step):
                yield from reader.compacted_part(self.session, path, choice)
            elif known := self.segments.get(path.name):
                yield from indexed(path, known)
            else:
                yield from reader.lenient(path, on_damage, choice)

    def _changes_of(
        self, choice: Choice, to_rx: int, on_damage: OnDamage, path: Path, known: Indexed
    ) -> Iterator[Published]:
        changes = self.folder / path.name
        for block in known.blocks:
            if block.first_rx >= to_rx:
                continue
            if block.last_rx >= to_rx:
                yield from reader.part(path, block.at, block.end, on_damage, choice)
            elif block.changes_end > block.changes_at:
                yield from reader.part(changes, block.changes_at, block.changes_end, on_damage, choice)

    def records(self, on_damage: OnDamage, choice: Choice) -> Iterator[Published]:
        """The chosen records, as `reading.lenient` gives them, without looking at what lies outside. Raises OSError."""

        def stretches_of(path: Path, known: Indexed) -> Iterator[Published]:
            for begin, end in _stretches(known, choice):
                yield from reader.part(path, begin, end, on_damage, choice)

        return self._read(choice, on_damage, stretches_of)

    def spans(self, meta: Meta) -> Iterator[tuple[int, int]]:
        """When the records of its parts arrived, from the beginning on: (earliest, latest). Raises OSError.

        What `meta` tells of sealed segments is believed; of them only the beginning is looked at.
        """
        for path in pieces(self.session):
            if isinstance(path, Step):
                yield from reader.span_of(self.session, path)
                continue
            number, known = int(path.name.removesuffix(SEGMENT_SUFFIX)), self.segments.get(path.name)
            if known is not None:
                yield from ((block.first_rx, block.last_rx) for block in known.blocks)
                continue
            labels = (frame.label for _, frame in reader.labels(path, _told_when_read))
            if number <= meta.sealed and meta.last_rx is not None:
                yield from ((label.first_rx, meta.last_rx) for label in islice(labels, 1))
            else:
                yield from ((label.first_rx, label.last_rx) for label in labels)

    def events(self, kinds: frozenset[str], on_damage: OnDamage) -> Iterator[Published]:
        """All changes of these kinds, of which none is replaced by another. Raises OSError."""
        choice = Choice(kinds=kinds)
        for path in pieces(self.session):
            if isinstance(path, Step):
                yield from reader.compacted_part(self.session, path, choice)
                continue
            known = self.segments.get(path.name)
            if known is None:
                yield from reader.lenient(path, on_damage, choice)
            elif known.blocks:
                yield from reader.part(self.folder / path.name, 0, known.blocks[-1].changes_end, on_damage, choice)


def _stretches(known: Indexed, choice: Choice) -> Iterator[tuple[int, int]]:
    """The parts of a segment that may hold what is chosen; neighbours as one."""
    begin = end = 0
    for block in known.blocks:
        if not _may_hold(block, choice):
            continue
        if block.at != end:
            if end > begin:
                yield begin, end
            begin = block.at
        end = block.end
    if end > begin:
        yield begin, end


def _may_hold(block: Block, choice: Choice) -> bool:
    if choice.kinds is not None and MANY not in block.kinds and not any(kind in choice.kinds for kind in block.kinds):
        return False
    too_early = choice.from_rx is not None and block.last_rx < choice.from_rx
    return not too_early and (choice.to_rx is None or block.first_rx < choice.to_rx)


def folder_of(session: Session) -> Path:
    """Where the index of a session lies beside its segments."""
    return session.path / "index"


def known(session: Session, folder: Path | None = None) -> Way:
    """What is covered now; one that cannot be read covers nothing. Raises OSError if a segment cannot be read."""
    folder = folder or folder_of(session)
    index = Index()
    with contextlib.suppress(OSError, *UNREADABLE):
        index = msgspec.json.decode((folder / _NAME).read_bytes(), type=Index)
    sizes = {path.name: path.stat().st_size for path in session.segments()}
    covered = {
        name: one for name, one in index.segments.items()
        if sizes.get(name) == one.bytes and (folder / name).exists()
    }  # fmt: skip
    return Way(session, folder, covered)


def build(session: Session, folder: Path | None = None, is_over: Callable[[], bool] = lambda: False) -> Way:
    """Look through the sealed segments that are not covered yet; takes a second or so each. Raises OSError.

    `is_over` is asked before each segment: true ends it there.
    """
    way = known(session, folder)
    sealed = session.read().sealed
    todo = [
        path for path in session.segments()
        if path.name not in way.segments and int(path.name.removesuffix(SEGMENT_SUFFIX)) <= sealed
    ]  # fmt: skip
    if not todo:
        return way
    way.folder.mkdir(mode=0o700, exist_ok=True)
    segments = dict(way.segments)
    for path in todo:
        if is_over():
            break
        found = _look_through(path, way.folder / path.name)
        if found is not None:
            segments[path.name] = found
            write_atomically(way.folder / _NAME, msgspec.json.encode(Index(segments)))
    return Way(session, way.folder, segments)


def _look_through(path: Path, changes: Path) -> Indexed | None:
    """Write what changed in a segment, and tell its blocks; None, and nothing is written, where it is damaged."""
    size, damages = path.stat().st_size, list[Damage]()
    packed, blocks, made = [], [], 0
    for held in _blocks(path, damages):
        choice = Choice(kinds=CHANGES)
        records = _last_of_each(list(reader.part(path, held[0].at, held[-1].end, damages.append, choice)))
        data = _packed(records) if records else b""
        blocks.append(_block(held, made, made + len(data)))
        packed.append(data)
        made += len(data)
    if damages:
        return None
    write_atomically(changes, b"".join(packed))
    return Indexed(size, tuple(blocks))


def _packed(records: list[Published]) -> bytes:
    lines = [encode(record) for record in records]
    packed = []
    for some in zstd_frames.by_size(lines):
        holds = count_records(records[some])
        packed.append(zstd_frames.pack(lines[some], holds.kinds, holds.first_rx, holds.last_rx))
    return b"".join(packed)


def _block(held: list[Frame], changes_at: int, changes_end: int) -> Block:
    kinds = {kind for frame in held for kind in frame.label.kinds}
    first = min(frame.label.first_rx for frame in held)
    last = max(frame.label.last_rx for frame in held)
    return Block(held[0].at, held[-1].end, first, last, tuple(sorted(kinds)), changes_at, changes_end)


def _blocks(path: Path, damages: list[Damage]) -> Iterator[list[Frame]]:
    """The frames of a segment in blocks, up to the first damaged place."""
    held: list[Frame] = []
    records = 0
    for found in zstd_frames.scan(path):
        if isinstance(found, Damage):
            damages.append(found)
            return
        if held and (records >= BLOCK_RECORDS or found.label.last_rx - held[0].label.first_rx >= BLOCK_NS):
            yield held
            held, records = [], 0
        held.append(found)
        records += found.label.records
    if held:
        yield held


def _last_of_each(records: list[Published]) -> list[Published]:
    """Without those that another one, further on, replaces."""
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


def _told_when_read(damage: Damage) -> None:
    """Whoever reads that part is told of it."""
