"""One session that is being written: what it keeps of the hub's records, on the disk within a second."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ...core.bus import Published
from ...core.control import ActiveRecording
from ...records import Gap, Log, Mark, Record, encode
from ...text.atomic_files import write_atomically, write_new
from ...text.format import size
from ..format import zstd_frames
from ..format.layout import Meta, Session, now
from ..format.pseudonyms import MOST_NAMES
from ..format.redact import Redactor
from ..format.writer import SEGMENT_BYTES, RecordCounts, SegmentWriter, add_counts, count_records
from .selection import Selected

#: How long records wait for others to share a frame with them; with the write itself it stays below a second.
GATHER_S: Final = 0.8
#: A frame is not larger: whoever reads one record unpacks no more than these.
FRAME_RECORDS: Final = 16_384
#: Records not yet packed, and bytes that are but cannot be written: beyond that they are dropped and counted.
MOST_WAITING: Final = 100_000
MOST_PENDING_BYTES: Final = 64 << 20
#: How often a disk that refused is tried again, and for how long at the end.
RETRY_S: Final = 1.0
LAST_S: Final = 2.0
#: A step of the console's clock against its own monotonic one that is worth a word, ns.
JUMP_NS: Final = 2_000_000_000

Tell = Callable[[Record], None]


@dataclass(frozen=True)
class _Packed:
    data: bytes
    holds: RecordCounts
    number: int  # of the hub's last batch in it


class Recording:
    """Written by a thread of its own. `offer` never waits; `tell` is called from that thread with what went wrong.

    The caller holds the session's lock and gives it away with `lock`, the descriptor.
    """

    def __init__(
        self, session: Session, meta: Meta, lock: int, redact: Redactor, tell: Tell, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """Begin a segment. Raises OSError."""
        self.session, self.meta = session, meta
        self.trouble = ""
        self._lock_fd, self._redact, self._tell = lock, redact, tell
        self._selected = Selected(meta.selection, redact.node)
        self._writer = SegmentWriter(session, segment_bytes)
        self._bytes = sum(path.stat().st_size for path in session.segments())
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._waiting: list[Published] = []
        self._offered = 0  # number of the last batch of the hub that was offered, and of the last one on the disk
        self._durable = 0
        self._busy = False
        self._ending = False
        self._asked_to_end = False
        self._failed = False
        self._pending: deque[_Packed] = deque()
        self._lost = 0
        self._ahead_ns = time.time_ns() - time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name=f"recording {session.name}", daemon=True)
        self._thread.start()

    def offer(self, number: int, records: Iterable[Published]) -> None:
        """Keep what is selected of these; `number` counts the batches of the hub."""
        chosen = self._selected(records) if not self._failed else []
        with self._changed:
            if len(self._waiting) + len(chosen) > MOST_WAITING:
                self._lost += len(chosen)
                return
            self._offered = number
            self._waiting += chosen
            if chosen:
                self._changed.notify()

    def begin_with(self, records: Iterable[Published]) -> None:
        """What was known before, however much that is."""
        chosen = self._selected(records)
        with self._changed:
            self._waiting += chosen
            self._changed.notify()

    @property
    def durable(self) -> int:
        """Everything it keeps of the batches up to this one is on the disk."""
        with self._changed:
            idle = not (self._waiting or self._busy or self._pending)
            return self._offered if idle or self._failed else self._durable

    def now(self) -> ActiveRecording:
        part = self.meta.parts[-1]
        return ActiveRecording(
            self.session.name, part.began, self.meta.records, self._bytes, self.trouble, self.session.path
        )

    def name_of(self, node: str) -> str:
        """What a node is called in this session."""
        return self._redact.node(node)

    def stop(self) -> ActiveRecording:
        """Write what is left and close the session. Where that cannot be written, it can be recovered later."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(LAST_S + 30.0)  # a disk that hangs must not keep the console
        return self.now()

    @property
    def is_asked_to_end(self) -> bool:
        """Somebody in another terminal wants it to end."""
        return self._asked_to_end

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
            self._close()
        except Exception as error:  # noqa: BLE001 - a fault of ours must be told, not end the recording unseen
            self._failed = True  # nobody has to wait for it any more
            self._say_trouble(f"an internal error ended it: {type(error).__name__}: {error}")
        finally:
            os.close(self._lock_fd)

    def _turn(self) -> bool:
        """Gather, pack, write; false once everything is written at the end, or cannot be."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending, RETRY_S)
            self._changed.wait_for(lambda: len(self._waiting) >= FRAME_RECORDS or self._ending, GATHER_S)
            taken, self._waiting = self._waiting, []
            number, ending, self._busy = self._offered, self._ending, True
        self._notice_jump()
        self._hear_requests()
        for at in range(0, len(taken), FRAME_RECORDS):
            self._pack(taken[at : at + FRAME_RECORDS], number if at + FRAME_RECORDS >= len(taken) else self._durable)
            self._write()
        if not taken:
            self._write()
        with self._changed:
            self._busy = False
            return not ending or bool(self._waiting)

    def _pack(self, records: Sequence[Published], number: int) -> None:
        self._redact.learn(records)
        kept = [self._redact(record) for record in records]
        for node in self._redact.newly_silenced():
            text = f"recording {self.session.name}: {node} tells of more than {MOST_NAMES} hosts and users"
            try_ = "no text of it is kept from here on, because not every name in it could be replaced"
            self._tell(Log(source="console", severity="warning", text=text, try_=try_))
        lines = [encode(record) for record in kept]
        for part in zstd_frames.by_size(lines):
            self._keep(kept[part], lines[part], number if part.stop == len(lines) else self._durable)

    def _keep(self, records: Sequence[Published], lines: Sequence[bytes], number: int) -> None:
        holds = count_records(records)
        data = zstd_frames.pack(lines, holds.kinds, holds.first_rx, holds.last_rx)
        if self._pending and sum(len(packed.data) for packed in self._pending) + len(data) > MOST_PENDING_BYTES:
            self._lost += len(records)
        else:
            self._pending.append(_Packed(data, holds, number))

    def _write(self) -> None:
        try:
            while self._pending:
                self._check_place()
                self._writer.append(self._pending[0].data)
                written = self._pending.popleft()
                self._bytes += len(written.data)
                add_counts(self.meta, written.holds)
                self._durable = written.number
                if self._writer.is_full:
                    self._writer.roll()
                    self._seal(self._writer.number - 1)
        except OSError as error:
            self._say_trouble(_words(error))
        else:
            self._say_recovered()

    def _check_place(self) -> None:
        if not self._writer.is_in_place:
            raise OSError(errno.ENOENT, "its file was removed")

    def _seal(self, number: int) -> None:
        self.meta.sealed = number
        self.session.write(self.meta)

    def _close(self) -> None:
        deadline = time.monotonic() + LAST_S
        while self._pending and time.monotonic() < deadline:
            time.sleep(LAST_S / 20)
            self._write()
        number = self._writer.number
        self._writer.close()
        if self._pending or self._lost:
            return  # it stays as it is: `recover` closes it, and says what is missing
        try:
            if not self._writer.size:
                self.session.segment(number).unlink()
            ended = now()
            self.meta.parts = (*self.meta.parts[:-1], replace(self.meta.parts[-1], ended=ended, how="stopped"))
            self.meta.state, self.meta.closed = "closed", ended
            self._seal(number)
        except OSError as error:
            self._say_trouble(_words(error))

    def _hear_requests(self) -> None:
        for request in pending_requests(self.session):
            if request is None:
                self._asked_to_end = True
            else:
                self._tell(Mark(text=request))

    # -- words -------------------------------------------------------------------------------------------------------

    def _say_trouble(self, why: str) -> None:
        if why != self.trouble:
            self.trouble = why
            text = f"recording {self.session.name}: nothing can be written: {why}; what is written already is safe"
            try_ = f"make room in {self.session.path}; up to {size(MOST_PENDING_BYTES)} wait in memory meanwhile"
            self._tell(Log(source="console", severity="error", text=text, try_=try_))

    def _say_recovered(self) -> None:
        if not self.trouble and not self._lost:
            return
        why, lost = self.trouble or "the disk was too slow", self._lost
        self.trouble, self._lost = "", 0
        if lost:
            self._tell(Gap(source=f"recording {self.session.name}", reason=why, count=lost))
        self._tell(Log(source="console", severity="info", text=f"recording {self.session.name}: goes on"))

    def _notice_jump(self) -> None:
        ahead_ns = time.time_ns() - time.monotonic_ns()
        jump_ns = ahead_ns - self._ahead_ns
        self._ahead_ns = ahead_ns
        if abs(jump_ns) > JUMP_NS:
            text = f"the console's clock jumped by {jump_ns / 1e9:+.1f} s; records are kept in the order of arrival"
            self._tell(Log(source="console", severity="warning", text=text))


def _words(error: OSError) -> str:
    """What a refusal of the disk means."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return error.strerror or str(error)


_MARK, _STOP = ".ask-mark-", ".ask-stop"
#: Bytes of a mark that are read.
_LONGEST: Final = 4096


def request_stop(session: Session) -> None:
    """Its recorder ends it within two seconds. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        write_new(session.path / _STOP, b"")


def request_mark(session: Session, text: str) -> None:
    """Its recorder keeps the note within two seconds. Raises OSError."""
    write_atomically(session.path / f"{_MARK}{secrets.token_hex(8)}", text.encode()[:_LONGEST])


def pending_requests(session: Session) -> Iterator[str | None]:
    """What is wanted: the text of a mark, or None for the end; each once."""
    try:
        asked = sorted(session.path.glob(".ask-*"), key=lambda path: path.stat().st_mtime_ns)
    except OSError:
        return  # what is wrong with the folder is told where it is written to
    for path in asked:
        try:
            text = path.read_bytes()[:_LONGEST].decode("utf-8", "replace") if path.name != _STOP else None
            path.unlink()
        except OSError:
            continue  # somebody else took it
        yield text
