"""One recording: queues the selected records of the bus, and writes them to a session within a second."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ...core.bus import Published
from ...core.control import ActiveRecording
from ...records import Gap, Log, Mark, Record
from ...text.atomic_files import write_atomically, write_new
from ...text.format import size
from ...text.logs import internal_error
from ..format.layout import Meta, RecorderRun, SegmentSeal, Session, SessionError, now
from ..format.pseudonyms import MAX_NAMES_PER_NODE
from ..format.redact import Redactor
from ..format.writer import SEGMENT_BYTES, RecordCounts, SegmentWriter, add_counts, pack_records
from .selection import RecordSelector

_log = logging.getLogger(__name__)

#: Seconds. Records are gathered this long into one frame; together with the write it stays below a second.
GATHER_S: Final = 0.8
#: Upper bound of the records of a frame: what reading a single record decompresses.
FRAME_RECORDS: Final = 16_384
#: Upper bounds of records not yet packed, and of packed bytes not yet written; more are dropped and counted.
MAX_WAITING_RECORDS: Final = 100_000
MAX_PENDING_BYTES: Final = 64 << 20
#: Seconds between writes after an error, and of retries when the recording ends.
RETRY_S: Final = 1.0
LAST_S: Final = 2.0
#: Bytes of sealed segments that are compacted at once: starting the process costs as much CPU as some MB of records.
COMPACT_BYTES: Final = 16 << 20
#: Bytes. With less free space nothing is compacted: the recording comes first.
COMPACT_FREE_BYTES: Final = 1 << 30
#: ns. A larger step of CLOCK_REALTIME against CLOCK_MONOTONIC is logged.
JUMP_NS: Final = 2_000_000_000

Publish = Callable[[Record], None]
#: Opens records of the past: the runs of recorders that they are from, and packed frames with their counts.
Past = tuple[Sequence[RecorderRun], Iterator[tuple[bytes, RecordCounts]]]
OpenPast = Callable[[], AbstractContextManager[Past]]


@dataclass(frozen=True)
class _PendingFrame:
    """A frame to be written."""

    data: bytes
    counts: RecordCounts
    number: int  # of the last batch of the bus in it


class Recording:
    """Writes a session in its own thread. `offer` never blocks; `publish` is called in that thread with log records.

    Owns the session's lock, the descriptor `lock`.
    """

    #: Seconds that `stop` waits for the disk; a hung one must not block the console.
    stop_s = LAST_S + 30.0

    def __init__(
        self, session: Session, meta: Meta, lock: int, redact: Redactor, publish: Publish,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:  # fmt: skip
        """Create a segment and start the thread. Raises OSError."""
        self.session, self.meta = session, meta
        self.trouble = ""
        self._lock_fd, self._redact, self._publish = lock, redact, publish
        self._selected = RecordSelector(meta.selection, redact.node)
        self._writer = SegmentWriter(session, segment_bytes)
        self._bytes = sum(path.stat().st_size for path in session.segments())
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._waiting: list[Published] = []
        self._offered = 0  # number of the last batch of the bus that was offered, and of the last one on disk
        self._durable = 0
        self._busy = False
        self._ending = False
        self._stop_requested = False
        self._failed = False
        self._past: tuple[OpenPast, list[Published]] | None = None
        self._pending: deque[_PendingFrame] = deque()
        self._lost = 0
        self._compaction: subprocess.Popen[bytes] | None = None
        self._compactable = 0  # bytes of segments sealed since it was started
        self._ahead_ns = time.time_ns() - time.monotonic_ns()
        self._thread = threading.Thread(target=self._run, name=f"recording {session.name}", daemon=True)
        self._thread.start()

    def offer(self, number: int, records: Iterable[Published]) -> None:
        """Queue the selected ones of these records; `number` counts the batches of the bus."""
        selected = self._selected(records) if not self._failed else []
        with self._changed:
            if len(self._waiting) + len(selected) > MAX_WAITING_RECORDS:
                self._lost += len(selected)
                return
            self._offered = number
            is_first = not self._waiting
            self._waiting += selected
            if selected and self._must_wake(selected, is_first=is_first):
                self._changed.notify()

    def _must_wake(self, new: Sequence[Published], *, is_first: bool) -> bool:
        """Whether the thread is to wake for these records; others are gathered by time."""
        return is_first or len(self._waiting) >= FRAME_RECORDS

    def begin_with(self, records: Iterable[Published], past: OpenPast | None = None) -> None:
        """Queue the initial state, whatever its size; `past`, if it can be copied, comes instead."""
        selected = self._selected(records)
        with self._changed:
            if past is None:
                self._waiting += selected
            else:
                self._past = past, selected
            self._changed.notify()

    @property
    def durable(self) -> int:
        """Number of the last batch of the bus that is completely on disk."""
        with self._changed:
            idle = not (self._waiting or self._busy or self._pending or self._past)
            return self._offered if idle or self._failed else self._durable

    def status(self) -> ActiveRecording:
        """Return the recording's progress."""
        part = self.meta.parts[-1]
        return ActiveRecording(
            self.session.name, part.began, self.meta.records, self._bytes, self.trouble, self.session.path
        )

    def name_of(self, node: str) -> str:
        """Return the recorded name of a node."""
        return self._redact.node(node)

    def stop(self) -> ActiveRecording:
        """Write the queue and close the session. If that fails, the session can be recovered."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(self.stop_s)
        return self.status()

    @property
    def is_stop_requested(self) -> bool:
        """Whether another process requested its end (`request_stop`)."""
        return self._stop_requested

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
            self._close()
        except Exception as error:  # noqa: BLE001 - report the bug; the thread must not end silently
            self._failed = True  # acknowledgements no longer wait for it
            text = internal_error(error, f"the recording {self.session.name}")
            self._report_trouble(text, "stop this recording and start another one")
        finally:
            self._end_compaction()
            os.close(self._lock_fd)

    def _turn(self) -> bool:
        """Gather, pack and write once; false at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._past or self._ending, RETRY_S)
            past = self._past
        if past is not None:
            self._write_past(*past)
        with self._changed:
            self._past = None
            self._changed.wait_for(lambda: len(self._waiting) >= FRAME_RECORDS or self._ending, GATHER_S)
            records, self._waiting = self._waiting, []
            number, ending, self._busy = self._offered, self._ending, True
        self._notice_jump()
        self._handle_requests()
        self._pack_and_write(records, number)
        self._compact_sealed()
        with self._changed:
            self._busy = False
            return not ending or bool(self._waiting)

    def _write_past(self, past: OpenPast, initial: list[Published]) -> None:
        """Copy what a black box has; if that fails, begin with the initial state."""
        try:
            with past() as (runs, chunks):
                for data, counts in chunks:
                    self._append_past(data, counts)
                self.meta.parts = (*runs, *self.meta.parts)
                self.session.write(self.meta)
        except (OSError, SessionError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            text = f"recording {self.session.name} begins now: the black box cannot be copied: {reason}"
            self._publish(Log(source="console", severity="warning", text=text))
            with self._changed:
                self._waiting[:0] = initial

    def _append_past(self, data: bytes, counts: RecordCounts) -> None:
        self._writer.append(data)
        self._bytes += len(data)
        add_counts(self.meta, counts)
        if self._writer.is_full:
            self._seal(self._writer.roll())

    def _pack_and_write(self, records: Sequence[Published], number: int, snapshot: int = 0, lost: int = 0) -> None:
        for begin in range(0, len(records), FRAME_RECORDS):
            end = begin + FRAME_RECORDS
            self._pack(records[begin:end], number if end >= len(records) else self._durable, snapshot, lost)
            self._write()
        if not records:
            self._write()

    def _pack(self, records: Sequence[Published], number: int, snapshot: int = 0, lost: int = 0) -> None:
        self._redact.learn(records)
        kept = self._redact.batch(records)
        for node in self._redact.newly_silenced():
            text = f"recording {self.session.name}: {node} reports more than {MAX_NAMES_PER_NODE} host and user names"
            text += ", too many to replace; from now on, texts from that node are hidden"
            try_ = "check that node; to keep its texts, record without --redact"
            self._publish(Log(source="console", severity="warning", text=text, try_=try_))
        for data, counts, packed in pack_records(kept, snapshot, lost):
            waiting = sum(len(frame.data) for frame in self._pending)
            if self._pending and waiting + len(data) > MAX_PENDING_BYTES:
                self._lost += sum(counts.kinds.values())
            else:
                self._pending.append(_PendingFrame(data, counts, number if packed == len(kept) else self._durable))
            self._pace()

    def _pace(self) -> None:
        """Called after each frame; a recording never waits."""

    def _write(self) -> None:
        try:
            while self._pending:
                self._check_file()
                self._writer.append(self._pending[0].data)
                written = self._pending.popleft()
                self._bytes += len(written.data)
                add_counts(self.meta, written.counts)
                self._durable = written.number
                if self._writer.is_full:
                    _log.debug("recording %s: segment %d is full", self.session.name, self._writer.number)
                    self._seal(self._writer.roll())
        except OSError as error:
            self._report_trouble(reason_of(error))
        else:
            self._report_recovery()

    def _check_file(self) -> None:
        if not self._writer.is_in_place:
            raise OSError(errno.ENOENT, "the segment file was removed")

    def _seal(self, seal: SegmentSeal) -> None:
        self.meta.sealed = seal.number
        self.meta.seals += (seal,) if seal.bytes else ()
        self.session.write(self.meta)
        self._compactable += seal.bytes

    def _compact_sealed(self) -> None:
        """Start a process that converts the sealed segments to Parquet, so that queries need not decode them.

        It finishes by itself if this console ends or crashes; an interrupted one is repeated with the next segment.
        """
        process = self._compaction
        if process is not None and process.poll() is not None:
            if process.returncode:
                _log.warning("recording %s: compaction ended with status %d; queries read the segments",
                             self.session.name, process.returncode)  # fmt: skip
            process = self._compaction = None
        if process is not None or self._compactable < COMPACT_BYTES:
            return
        self._compactable = 0
        try:
            if shutil.disk_usage(self.session.path).free < COMPACT_FREE_BYTES:
                return
            # -P: files in the working directory must not be imported as modules
            argv = [sys.executable, "-P", "-m", "gconsole.session.manage.compact", str(self.session.path)]
            self._compaction = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            _log.warning("recording %s: cannot start compaction: %s", self.session.name, error)

    def _end_compaction(self) -> None:
        """Wait for a running compaction for a moment, then end it: what it has finished is kept."""
        if self._compaction is not None:
            try:
                self._compaction.wait(LAST_S)
            except subprocess.TimeoutExpired:
                self._compaction.terminate()
                self._compaction.wait()

    def _close(self) -> None:
        deadline = time.monotonic() + LAST_S
        while self._pending and time.monotonic() < deadline:
            time.sleep(LAST_S / 20)
            self._write()
        seal = self._writer.seal
        self._writer.close()
        if self._pending or self._lost:
            return  # `recover` closes it and reports the missing records
        try:
            if not seal.bytes:
                self.session.segment(seal.number).unlink()
            _log.info("recording %s closed: %d records, %d bytes", self.session.name, self.meta.records, self._bytes)
            ended = now()
            self.meta.parts = (*self.meta.parts[:-1], replace(self.meta.parts[-1], ended=ended, how="stopped"))
            self.meta.state, self.meta.closed = "closed", ended
            self._seal(seal)
        except OSError as error:
            self._report_trouble(reason_of(error))

    def _handle_requests(self) -> None:
        for request in pending_requests(self.session):
            if request is None:
                self._stop_requested = True
            else:
                self._publish(Mark(text=request))

    # -- log records ---------------------------------------------------------------------------------------------------

    def _report_trouble(self, why: str, try_: str = "") -> None:
        if why != self.trouble:
            self.trouble = why
            text = f"recording {self.session.name}: cannot write: {why}; records already written are safe"
            try_ = try_ or f"free space in {self.session.path}; up to {size(MAX_PENDING_BYTES)} are buffered meanwhile"
            self._publish(Log(source="console", severity="error", text=text, try_=try_))

    def _report_recovery(self) -> None:
        if not self.trouble and not self._lost:
            return
        why, lost = self.trouble or "disk too slow", self._lost
        self.trouble, self._lost = "", 0
        if lost:
            self._publish(Gap(source=f"recording {self.session.name}", reason=why, count=lost))
        self._publish(Log(source="console", severity="info", text=f"recording {self.session.name}: writing again"))

    def _notice_jump(self) -> None:
        ahead_ns = time.time_ns() - time.monotonic_ns()
        jump_ns = ahead_ns - self._ahead_ns
        self._ahead_ns = ahead_ns
        if abs(jump_ns) > JUMP_NS:
            text = f"console clock jumped by {jump_ns / 1e9:+.1f} s; records stay in order of arrival"
            self._publish(Log(source="console", severity="warning", text=text))


def reason_of(error: OSError) -> str:
    """The cause of a write error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return error.strerror or str(error)


# -- requests of other processes: files in the session's folder -------------------------------------------------------

_MARK, _STOP, _FLUSH = ".ask-mark-", ".ask-stop", ".ask-flush"
#: Bytes. Longer marks are truncated.
_MAX_MARK_BYTES: Final = 4096


def request_stop(session: Session) -> None:
    """Request the end of a recording; its recorder acts within two seconds. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        write_new(session.path / _STOP, b"")


def request_mark(session: Session, text: str) -> None:
    """Request a marker in a recording; its recorder acts within two seconds. Raises OSError."""
    write_atomically(session.path / f"{_MARK}{secrets.token_hex(8)}", text.encode()[:_MAX_MARK_BYTES])


def flush(sessions: Iterable[Session], wait_s: float) -> None:
    """Request that black boxes write what they have gathered, and wait for it, at most `wait_s`."""
    paths = [session.path / _FLUSH for session in sessions]
    for path in paths:
        with contextlib.suppress(OSError):  # what is on disk can be kept in any case
            write_new(path, b"")
    deadline = time.monotonic() + wait_s
    while any(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(0.02)
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def is_flush_requested(session: Session) -> bool:
    """Whether another process or thread waits in `flush`."""
    return (session.path / _FLUSH).exists()


def flushed(session: Session) -> None:
    """Answer `flush`. Raises OSError."""
    (session.path / _FLUSH).unlink(missing_ok=True)


def pending_requests(session: Session) -> Iterator[str | None]:
    """Take and yield the requests for a session: the text of a marker, or None for its end."""
    try:
        paths = sorted(session.path.glob(".ask-*"), key=lambda path: path.stat().st_mtime_ns)
    except OSError:
        return  # a broken folder is reported when a frame is written to it
    for path in paths:
        try:
            text = path.read_bytes()[:_MAX_MARK_BYTES].decode("utf-8", "replace") if path.name != _STOP else None
            path.unlink()
        except OSError:
            continue  # another process took it
        yield text
