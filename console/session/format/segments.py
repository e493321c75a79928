"""Appending to the segments of a session: a frame at a time, on the disk when `append` returns, or not there at all."""

from __future__ import annotations

import os
from typing import Final

from .layout import Session, sync_folder
from .manifest import last_number

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
