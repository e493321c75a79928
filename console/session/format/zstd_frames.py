"""How records are safe on disk: zstd frames with a checksum each, every one behind a label that says what is in it.

A label is a skippable frame, which every zstd reader steps over: `magic, length, CRC of the rest, Label as JSON`. By
the labels a reader finds what it looks for without unpacking anything, finds the next frame behind a damaged one, and
sees where a tail was torn off.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import zstandard

from ...records import UNREADABLE
from ...text.format import size

#: One of the sixteen numbers that zstd gives to skippable frames.
MAGIC: Final = struct.pack("<I", 0x184D2A57)
_HEAD: Final = struct.Struct("<4sII")  # magic, length of what follows, CRC-32 of the label
#: No label is longer: a kind has at most 64 letters, and there are some dozens.
_LONGEST_LABEL: Final = 64 << 10
#: No frame unpacks to more; the writer stays far below.
MOST_RAW: Final = 256 << 20


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What the frame behind it holds."""

    bytes: int  # of the frame
    raw: int  # of its content
    crc: int  # CRC-32 of the frame
    records: int
    first_rx: int  # console CLOCK_REALTIME of the arrival of its earliest and its latest record, ns
    last_rx: int
    kinds: dict[str, int]  # kind → records


@dataclass(frozen=True)
class Frame:
    """A frame in a file: its label, and where it is."""

    label: Label
    at: int  # of the label
    start: int  # of the frame

    @property
    def end(self) -> int:
        return self.start + self.label.bytes


@dataclass(frozen=True)
class Damage:
    """Bytes of a file that are no frame. `torn`: the end of the file, cut off while it was written."""

    path: Path
    at: int
    bytes: int
    what: Literal["torn", "damaged"]

    def __str__(self) -> str:
        if self.what == "torn":
            return f"{self.path.name}: its last {size(self.bytes)} were cut off while they were written"
        return f"{self.path.name}: {size(self.bytes)} at {self.at} are damaged"


_labels: Final = msgspec.json.Decoder(Label)
#: Level 1 makes lines of figures smaller than level 3 does, in half the time (measured: tests/bench/session_cost.py).
_LEVEL: Final = 1


def pack(lines: Sequence[bytes], kinds: Mapping[str, int], first_rx: int, last_rx: int) -> bytes:
    """A label and its frame, of records that are a line each, without newlines."""
    raw = b"\n".join(lines) + b"\n"
    frame = zstandard.ZstdCompressor(_LEVEL, write_checksum=True, write_content_size=True).compress(raw)
    label = msgspec.json.encode(
        Label(
            bytes=len(frame), raw=len(raw), crc=zlib.crc32(frame), records=len(lines), first_rx=first_rx,
            last_rx=last_rx, kinds=dict(kinds),
        )
    )  # fmt: skip
    return _HEAD.pack(MAGIC, 4 + len(label), zlib.crc32(label)) + label + frame


def by_size(lines: Sequence[bytes]) -> Iterator[slice]:
    """Where to divide lines so that each part is a frame that may be read again; nearly always there is one part."""
    begin = size = 0
    for at, line in enumerate(lines):
        if size + len(line) >= MOST_RAW // 4 and at > begin:
            yield slice(begin, at)
            begin, size = at, 0
        size += len(line) + 1
    yield slice(begin, len(lines))


#: So much of a file stays mapped behind the frame that is looked at, bytes: it counts as memory of this process.
_BEHIND: Final = 4 << 20


def scan(path: Path, begin: int = 0, end: int | None = None) -> Iterator[Frame | Damage]:
    """The frames of a file by their labels, and what lies between them. Nothing is unpacked. Raises OSError.

    `begin` and `end` are bytes: of a part that begins and ends with a frame.
    """
    with path.open("rb") as file:
        length = file.seek(0, 2)
        size = length if end is None else min(end, length)
        if not size:
            return
        with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data:
            at, let_go = begin, 0
            while at < size:
                if at - let_go > _BEHIND:
                    here = at - at % mmap.PAGESIZE
                    data.madvise(mmap.MADV_DONTNEED, let_go, here - let_go)
                    let_go = here
                frame = _frame_at(data, at, size)
                if frame is None:
                    after = _next_label(data, at + 1, size)
                    yield Damage(path, at, (after or size) - at, "damaged" if after else "torn")
                    if after is None:
                        return
                    at = after
                else:
                    yield frame
                    at = frame.end


def _frame_at(data: mmap.mmap, at: int, size: int) -> Frame | None:
    """The frame whose label stands there, where label and length are sound."""
    if at + _HEAD.size > size:
        return None
    magic, length, crc = _HEAD.unpack_from(data, at)
    if magic != MAGIC or not 4 < length <= _LONGEST_LABEL:
        return None
    start = at + _HEAD.size - 4 + length
    written = data[at + _HEAD.size : start]
    if zlib.crc32(written) != crc or len(written) != length - 4:
        return None
    try:
        label = _labels.decode(written)
    except UNREADABLE:
        return None
    frame = Frame(label, at, start)
    return frame if label.bytes > 0 and frame.end <= size and 0 <= label.raw <= MOST_RAW else None


def _next_label(data: mmap.mmap, at: int, size: int) -> int | None:
    while (at := data.find(MAGIC, at)) >= 0:
        if _frame_at(data, at, size) is not None:
            return at
        at += 1
    return None


class BadFrame(Exception):
    """A frame whose bytes are not those that were written; the text says how that is known."""


def unpack(data: bytes, label: Label) -> bytes:
    """The lines of a frame. Raises BadFrame where a checksum says that it is not what was written."""
    if zlib.crc32(data) != label.crc:
        raise BadFrame("its checksum is wrong")
    try:
        if zstandard.frame_content_size(data) != label.raw:  # which is what would be allocated, whatever the limit says
            raise BadFrame("its length is wrong")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=label.raw)
    except zstandard.ZstdError as error:
        raise BadFrame(f"it cannot be unpacked: {error}") from error
    if len(raw) != label.raw:
        raise BadFrame("its length is wrong")
    return raw


def contents(
    path: Path, wanted: Callable[[Label], bool] = lambda label: True, begin: int = 0, end: int | None = None
) -> Iterator[tuple[Frame, bytes] | Damage]:
    """The wanted frames of a file with what is in them, in order; what is damaged, in its place. Raises OSError.

    `begin` and `end` as for `scan`.
    """
    with path.open("rb") as file:
        for found in scan(path, begin, end):
            if isinstance(found, Damage):
                yield found
            elif wanted(found.label):
                file.seek(found.start)
                try:
                    raw = unpack(file.read(found.label.bytes), found.label)
                except BadFrame:
                    yield Damage(path, found.at, found.end - found.at, "damaged")
                else:
                    yield found, raw
