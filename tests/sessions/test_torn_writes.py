"""Torn writes and flipped bits: intact records are read, damage is reported, and no wrong record is returned."""

import pytest
from session_files import crashed_session, gpus

from gconsole.records import encode
from gconsole.session.format import reader, zstd_frames
from gconsole.session.format.layout import Session
from gconsole.session.record import recovery


@pytest.fixture
def session(tmp_path) -> Session:
    return crashed_session(tmp_path, "night", [gpus(3), gpus(3, first=4), gpus(3, first=7)])


def read_all(session):
    damages = []
    return list(reader.lenient(session.path, damages.append)), damages


def test_last_frame_torn_at_any_byte_loses_only_that_frame(session):
    (path,) = session.segments()
    whole = path.read_bytes()
    last = list(zstd_frames.scan(path))[-1]
    assert isinstance(last, zstd_frames.Frame)
    before, everything = gpus(6), gpus(9)
    for end in range(last.offset, len(whole) + 1):
        path.write_bytes(whole[:end])
        records, damages = read_all(session)
        assert records == (everything if end == len(whole) else before)
        assert [(damage.what, damage.bytes) for damage in damages] == (
            [("torn", end - last.offset)] if last.offset < end < len(whole) else []
        )
        assert list(reader.records(session.path)) == records, "a torn tail is not damage: a writer may be active"


def test_torn_end_of_a_session_that_was_closed_is_damage(session):
    recovery.recover(session)
    (path,) = session.segments()
    whole = path.read_bytes()
    last = list(zstd_frames.scan(path))[-1]
    for place in (last.offset, last.offset + 5, len(whole) - 1):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(reader.Damaged):
            list(reader.records(session.path))
        path.write_bytes(whole[:place])
        with pytest.raises(reader.Damaged):
            list(reader.records(session.path))


def test_recover_truncates_a_tail_torn_at_any_byte(session):
    (path,) = session.segments()
    whole = path.read_bytes()
    last = list(zstd_frames.scan(path))[-1]
    left = session.meta_path.read_bytes()
    for end in range(last.offset + 1, len(whole), 7):
        path.write_bytes(whole[:end])
        session.meta_path.write_bytes(left)
        recovered = recovery.recover(session)
        assert (recovered.records, recovered.cut_bytes, recovered.is_sound) == (6, end - last.offset, True)
        assert path.read_bytes() == whole[: last.offset]
        meta = session.read()
        assert (meta.state, meta.records, meta.counts) == ("closed", 6, {"gpu": 6})
        assert meta.agents["agent1"].seq == 6


def test_segment_with_only_a_torn_frame_is_removed_by_recover(tmp_path):
    session = crashed_session(tmp_path, "night", [gpus(3)])
    (path,) = session.segments()
    path.write_bytes(path.read_bytes()[:40])
    assert recovery.recover(session).cut_bytes == 40
    assert session.segments() == []
    assert session.read().records == 0


def test_any_flipped_bit_is_detected_and_loses_only_its_frame(session):
    (path,) = session.segments()
    whole = path.read_bytes()
    hit = list(zstd_frames.scan(path))[1]
    assert isinstance(hit, zstd_frames.Frame)
    remaining = {encode(record) for record in gpus(3) + gpus(3, first=7)}
    for offset in range(hit.offset, hit.end):
        flipped = bytearray(whole)
        flipped[offset] ^= 1 << (offset % 8)
        path.write_bytes(flipped)
        records, damages = read_all(session)
        assert {encode(record) for record in records} == remaining
        assert [damage.what for damage in damages] == ["damaged"]
        assert (damages[0].offset, damages[0].bytes) == (hit.offset, hit.end - hit.offset)
    with pytest.raises(reader.Damaged, match="sessions verify"):
        list(reader.records(session.path))


def test_verify_reports_damage_and_changes_nothing(session):
    (path,) = session.segments()
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 16
    path.write_bytes(flipped)
    left = session.meta_path.read_bytes()
    verified = recovery.verify(session)
    assert not verified.is_sound
    assert len(verified.damages) == 1
    assert path.read_bytes() == bytes(flipped)
    assert session.meta_path.read_bytes() == left


def test_recover_marks_a_damaged_session_torn_and_keeps_the_other_records(session):
    (path,) = session.segments()
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 16
    path.write_bytes(flipped)
    recovered = recovery.recover(session)
    assert (recovered.records, len(recovered.damages)) == (6, 1)
    assert session.read().state == "torn"


def test_trailing_zeros_after_a_power_loss_are_truncated(session):
    (path,) = session.segments()
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096))
    assert recovery.recover(session).cut_bytes == 4096
    assert path.read_bytes() == whole


def test_session_json_is_rebuilt_from_segments_when_missing(session):
    session.meta_path.unlink()
    assert recovery.recover(session).records == 9
    meta = session.read()
    assert (meta.name, meta.records, meta.agents["agent1"].seq) == ("night", 9, 9)


def test_segment_is_readable_by_a_standard_zstd_reader(session, tmp_path):

    from backports import zstd

    (path,) = session.segments()
    with path.open("rb") as file:
        lines = zstd.ZstdFile(file).readlines()
    assert lines == [encode(record) + b"\n" for record in gpus(9)]
