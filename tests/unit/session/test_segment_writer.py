"""Segment writes are atomic: a frame is complete on disk, or absent."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gconsole.session.format import writer
from gconsole.session.format.layout import Session
from gconsole.session.format.writer import SegmentWriter


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
