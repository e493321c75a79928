"""Malicious session files: valid parts are read, within bounds on memory."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path

import msgspec
from backports import zstd

from gconsole.records import RawRecord, decode
from gconsole.session.format import reader, zstd_frames
from gconsole.session.format.layout import Session
from gconsole.session.format.writer import OTHER_KINDS, count_records
from gconsole.session.record import recovery


def a_segment(tmp_path: Path, data: bytes) -> Session:
    session = Session(tmp_path / "night")
    session.segments_folder.mkdir(parents=True)
    session.segment(1).write_bytes(data)
    return session


def a_frame(content: bytes, claimed: int, frame: bytes | None = None) -> bytes:
    """A frame with valid checksums whose label claims `claimed` bytes of content."""
    frame = frame or zstd.compress(content, 1)
    about = zstd_frames.Label(
        bytes=len(frame), raw=claimed, crc=zlib.crc32(frame), records=1, first_rx=1, last_rx=1, kinds={"gpu": 1}
    )
    label = msgspec.json.encode(about)
    return zstd_frames._HEAD.pack(zstd_frames.MAGIC, 4 + len(label), zlib.crc32(label)) + label + frame


def test_frame_that_understates_its_size_is_rejected_within_a_memory_bound(tmp_path: Path) -> None:
    bomb = a_frame(b"\n" * (64 << 20), claimed=10)
    assert len(bomb) < 100_000
    session = a_segment(tmp_path, bomb)
    damages: list[zstd_frames.Damage] = []
    tracemalloc.start()
    try:
        assert list(reader.lenient(session.path, damages.append)) == []
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len([damage for damage in damages if damage.is_loss]) == 1
    assert most < 8 << 20


def test_frame_that_declares_more_than_the_maximum_size_is_rejected(tmp_path: Path) -> None:
    session = a_segment(tmp_path, a_frame(b"x\n", claimed=zstd_frames.MAX_RAW_BYTES + 1))
    damages: list[object] = []
    assert list(reader.lenient(session.path, damages.append)) == []
    assert damages


def test_undecodable_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    good = b'{"kind":"mark","text":"here"}'
    session = a_segment(tmp_path, zstd_frames.pack([b"\xff\xfe", good, b'{"kind":"\xff"}', b"[]"], {"mark": 1}, 1, 2))
    damages: list[zstd_frames.Damage] = []
    assert [record.text for record in reader.lenient(session.path, damages.append)] == ["here"]
    assert len([damage for damage in damages if damage.is_loss]) == 3
    assert len(recovery.verify(session).unknown) == 3
    recovery.recover(session)


def test_frame_with_a_thousand_kinds_can_be_read(tmp_path: Path) -> None:
    lines = [msgspec.json.encode({"kind": f"{number:<64}", "seq": number, "rx": 1}) for number in range(1000)]
    records = [decode(line) for line in lines]
    assert all(isinstance(record, RawRecord) for record in records)
    holds = count_records(records)
    assert OTHER_KINDS in holds.kinds and sum(holds.kinds.values()) == 1000
    session = a_segment(tmp_path, zstd_frames.pack(lines, holds.kinds, 1, 1))
    assert len(list(reader.records(session.path))) == 1000
    some = reader.RecordFilter(kinds={f"{999:<64}"})
    assert len(list(reader.records(session.path, some))) == 1


def test_lines_are_split_into_frames_within_the_readable_maximum_size() -> None:
    lines = [b"x" * (20 << 20)] * 5
    parts = list(zstd_frames.split_lines(lines))
    assert [line for part in parts for line in lines[part]] == lines
    assert all(sum(map(len, lines[part])) <= zstd_frames.MAX_RAW_BYTES for part in parts)
    assert len(parts) > 1
    assert list(zstd_frames.split_lines(lines[:1])) == [slice(0, 1)]
