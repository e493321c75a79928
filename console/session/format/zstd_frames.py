"""Segment format: zstd frames of NDJSON with checksums, each behind a label that describes its content.

A label is a skippable frame, which every zstd reader skips: `magic, length, CRC of the rest, Label as JSON`. By labels,
a reader finds records without decompressing, resynchronises after a damaged frame, and detects a torn end.
"""

from __future__ import annotations

import mmap
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from ...records import UNREADABLE
from ...text.format import size

#: One of the sixteen magic numbers of skippable zstd frames.
MAGIC: Final = struct.pack("<I", 0x184D2A57)
_HEAD: Final = struct.Struct("<4sII")  # magic, length of what follows, CRC-32 of the label
#: Bytes. Upper bound of a label: some dozens of kinds of at most 64 letters.
_MAX_LABEL_BYTES: Final = 64 << 10
#: Upper bound of a decompressed frame, and of one that is written with several records.
MAX_RAW_BYTES: Final = 256 << 20
MAX_WRITTEN_BYTES: Final = MAX_RAW_BYTES // 4


class Label(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of the frame after it."""

    bytes: int  # of the frame
    raw: int  # of its content
    crc: int  # CRC-32 of the frame
    records: int
    first_rx: int  # console CLOCK_REALTIME of the earliest and latest arrival, ns
    last_rx: int
    kinds: dict[str, int]  # kind → records
    #: Of the state that a segment of a black box begins with: when it was taken, console CLOCK_REALTIME in ns. Else 0.
    snapshot: int = 0
    lost: int = 0  # of a snapshot: records before it that could not be written


class Frame(msgspec.Struct, frozen=True):
    """A frame in a file: its label, and its position in bytes."""

    label: Label
    offset: int  # of the label
    start: int  # of the frame

    @property
    def end(self) -> int:
        """Position after the frame."""
        return self.start + self.label.bytes


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a file that are not what was written.

    `torn`: the end of the file, cut off while it was written. `missing`: the whole file. `changed`: a segment of
    another length than when it was sealed. `exchanged`: of another session. `replaced`: other files have its
    content. `unchecked`: session.json, so that it is not known whether segments are missing.
    """

    path: Path
    offset: int
    bytes: int
    what: Literal["torn", "damaged", "missing", "changed", "exchanged", "replaced", "unchecked"]

    @property
    def is_loss(self) -> bool:
        """Whether records cannot be read."""
        return self.what not in ("replaced", "unchecked")

    def __str__(self) -> str:
        name = self.path.name
        match self.what:
            case "torn":
                return f"{name}: its last {size(self.bytes)} are torn: cut off while they were written"
            case "missing":
                return f"{name}: missing, with {size(self.bytes)} of records"
            case "changed":
                return f"{name}: its length differs by {size(self.bytes)} from when it was sealed"
            case "exchanged":
                return f"{name}: not the file that was written for this session"
            case "replaced":
                return f"{name}: damaged; its records are read from segments instead"
            case "unchecked":
                return f"{name}: damaged or missing; whether segments are complete is not known"
        return f"{name}: {size(self.bytes)} at {self.offset} are damaged"


_labels: Final = msgspec.json.Decoder(Label)
#: Level 1 packs metrics smaller than level 3, in half the time (measured: tests/bench/session_cost.py).
_OPTIONS: Final[Mapping[int, int]] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.checksum_flag: 1,
}


def pack(lines: Sequence[bytes], kinds: Mapping[str, int], first_rx: int, last_rx: int, snapshot: int = 0,
         lost: int = 0) -> bytes:  # fmt: skip
    """Return a label and its frame, of records encoded as lines without newlines."""
    return pack_raw(b"\n".join(lines) + b"\n", len(lines), kinds, first_rx, last_rx, snapshot, lost)


def pack_raw(raw: bytes, records: int, kinds: Mapping[str, int], first_rx: int, last_rx: int, snapshot: int = 0,
             lost: int = 0) -> bytes:  # fmt: skip
    """`pack` of so many lines with their newlines."""
    frame = zstd.compress(raw, options=_OPTIONS)
    label = msgspec.json.encode(
        Label(
            bytes=len(frame), raw=len(raw), crc=zlib.crc32(frame), records=records, first_rx=first_rx,
            last_rx=last_rx, kinds=dict(kinds), snapshot=snapshot, lost=lost,
        )
    )  # fmt: skip
    return _HEAD.pack(MAGIC, 4 + len(label), zlib.crc32(label)) + label + frame


def split_lines(lines: Sequence[bytes]) -> Iterator[slice]:
    """Yield the slices of lines that fit into a frame each; nearly always one."""
    begin = size = 0
    for position, line in enumerate(lines):
        if size + len(line) >= MAX_WRITTEN_BYTES and position > begin:
            yield slice(begin, position)
            begin, size = position, 0
        size += len(line) + 1
    yield slice(begin, len(lines))


#: Bytes of a file that stay mapped behind the scanned frame; mapped pages count as memory of this process.
_MAPPED_BEHIND: Final = 4 << 20


def scan(path: Path, begin: int = 0, end: int | None = None) -> Iterator[Frame | Damage]:
    """Yield the frames of a file by their labels, and the damage between them, without decompressing. Raises OSError.

    `begin` and `end` bound a range in bytes that begins and ends at a frame.
    """
    with path.open("rb") as file:
        yield from scan_file(file, path, begin, end)


def scan_file(file: BinaryIO, path: Path, begin: int = 0, end: int | None = None) -> Iterator[Frame | Damage]:
    """`scan` of an open file, which `path` names in damages; it may have been deleted."""
    length = file.seek(0, 2)
    size = length if end is None else min(end, length)
    if not size:
        return
    with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data:
        offset, released = begin, 0
        while offset < size:
            if offset - released > _MAPPED_BEHIND:
                page = offset - offset % mmap.PAGESIZE
                data.madvise(mmap.MADV_DONTNEED, released, page - released)
                released = page
            frame = _frame_at(data, offset, size)
            if frame is None:
                after = _next_label(data, offset + 1, size)
                yield Damage(path, offset, (after or size) - offset, "damaged" if after else "torn")
                if after is None:
                    return
                offset = after
            else:
                yield frame
                offset = frame.end


def _frame_at(data: mmap.mmap, offset: int, size: int) -> Frame | None:
    """The frame whose label begins there; None unless label and length are valid."""
    if offset + _HEAD.size > size:
        return None
    magic, length, crc = _HEAD.unpack_from(data, offset)
    if magic != MAGIC or not 4 < length <= _MAX_LABEL_BYTES:
        return None
    start = offset + _HEAD.size - 4 + length
    written = data[offset + _HEAD.size : start]
    if zlib.crc32(written) != crc or len(written) != length - 4:
        return None
    try:
        label = _labels.decode(written)
    except UNREADABLE:
        return None
    frame = Frame(label, offset, start)
    return frame if label.bytes > 0 and frame.end <= size and 0 <= label.raw <= MAX_RAW_BYTES else None


def _next_label(data: mmap.mmap, offset: int, size: int) -> int | None:
    while (offset := data.find(MAGIC, offset)) >= 0:
        if _frame_at(data, offset, size) is not None:
            return offset
        offset += 1
    return None


def first_crc(path: Path) -> int | None:
    """Return the CRC of the first frame of a file; None if there is none, or its label is damaged. Raises OSError."""
    first = next(scan(path), None)
    return first.label.crc if isinstance(first, Frame) else None


def crc_of(packed: bytes) -> int:
    """Return the CRC of the frame that `pack` made; 0 for other bytes."""
    if not packed.startswith(MAGIC):
        return 0
    _, length, _ = _HEAD.unpack_from(packed)
    return _labels.decode(packed[_HEAD.size : _HEAD.size - 4 + length]).crc


class BadFrame(Exception):
    """A frame fails a check; the text names it."""


def is_intact(data: bytes, label: Label) -> bool:
    """Whether a frame is complete and matches the checksum of its label."""
    return len(data) == label.bytes and zlib.crc32(data) == label.crc


def unpack(data: bytes, label: Label) -> bytes:
    """Return the lines of a frame. Raises BadFrame if a checksum or length does not match its label."""
    if zlib.crc32(data) != label.crc:
        raise BadFrame("checksum mismatch")
    try:
        if zstd.get_frame_info(data).decompressed_size != label.raw:
            raise BadFrame("length mismatch")
        unpacker = zstd.ZstdDecompressor()
        raw = unpacker.decompress(data, label.raw)
        if not unpacker.eof or unpacker.unused_data:
            raise BadFrame("length mismatch")
    except zstd.ZstdError as error:
        raise BadFrame(f"decompression failed: {error}") from error
    if len(raw) != label.raw:
        raise BadFrame("length mismatch")
    return raw


def contents(
    path: Path, wanted: Callable[[Label], bool] = lambda label: True, begin: int = 0, end: int | None = None
) -> Iterator[tuple[Frame, bytes] | Damage]:
    """Yield the wanted frames of a file with their lines, and damage in its place. Raises OSError.

    `begin` and `end` as for `scan`.
    """
    with path.open("rb") as file:
        for item in scan(path, begin, end):
            if isinstance(item, Damage):
                yield item
            elif wanted(item.label):
                file.seek(item.start)
                try:
                    raw = unpack(file.read(item.label.bytes), item.label)
                except BadFrame:
                    yield Damage(path, item.offset, item.end - item.offset, "damaged")
                else:
                    yield item, raw
