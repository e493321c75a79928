"""Segment writes are atomic: a frame is complete on disk, or absent. Lines of some kinds are found in a frame."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from session_builders import gpu

from gconsole.records import Mark, decode, encode
from gconsole.records.kinds import kind_of
from gconsole.session.format import writer
from gconsole.session.format.layout import Session
from gconsole.session.format.reader import RecordFilter
from gconsole.session.format.writer import OTHER_KINDS, SegmentWriter


def test_a_frame_that_a_full_disk_cuts_off_leaves_no_byte_in_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path / "night")
    session.segments_folder.mkdir(parents=True)
    segment = SegmentWriter(session)
    segment.append(b"first frame")
    write = os.write
    calls = 0

    def disk_full(fd: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:4])

    monkeypatch.setattr(writer.os, "write", disk_full)
    with pytest.raises(OSError, match="No space left"):
        segment.append(b"second frame")
    monkeypatch.undo()
    assert session.segment(1).read_bytes() == b"first frame"

    segment.append(b"third frame")
    assert session.segment(1).read_bytes() == b"first framethird frame"
    segment.close()


UNKNOWN = b'{"node":"n1","kind":"mark2","agent":"c","seq":9,"t":1,"mono":1,"rx":1}'


@pytest.mark.parametrize("kinds", [("mark",), ("gpu", "mark"), ("mark2",), ("gpu", "mark2"), ("finding",)])
@pytest.mark.parametrize("is_counted", [True, False])
def test_lines_of_some_kinds_are_found_in_order_whatever_their_label_says(
    kinds: tuple[str, ...], is_counted: bool
) -> None:
    marks = [encode(Mark(text='\n{"kind":"gpu"', agent="c", seq=n, t=n, rx=n)) for n in range(3)]
    figures = [encode(gpu(n)) for n in range(3)]
    lines = [figures[0], marks[0], UNKNOWN, figures[1], figures[2], marks[1], marks[2]]
    counts = {"gpu": 3, "mark": 3, "mark2": 1} if is_counted else {"gpu": 2, "mark": 5, OTHER_KINDS: 1}

    choice = RecordFilter(kinds=kinds)
    kept = [
        record for line in choice.lines(b"\n".join(lines) + b"\n", counts) if choice.matches(record := decode(line))
    ]

    assert kept == [record for record in map(decode, lines) if kind_of(record) in kinds]
