"""The ring of segments of a black box: a session whose oldest segments are deleted, so that it stays within limits.

Every segment begins with a snapshot of the state, so that the rest can be read without the deleted ones.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from ...core.bus import Published
from ...core.pacing import Pacer
from ...records import Finding, Gap, Log, Mark, NodeState, Rank
from ...records.kinds import SPECS, is_gone
from ...text.format import size
from ..format.layout import Meta, Session, now
from ..format.redact import Redactor
from ..format.writer import add_counts
from .recording import FRAME_RECORDS, GATHER_S, Publish, Recording, flushed, is_flush_requested, reason_of

_log = logging.getLogger(__name__)

#: Seconds. Records are gathered this long into a frame: fewer and smaller writes than those of a recording.
RING_GATHER_S: Final = 5.0
#: Seconds between two checks whether another process waits in `flush`. Each is a wake-up, and each cluster on a screen
#: has a ring.
FLUSH_CHECK_S: Final = 2.0
#: Parts of the ring: a segment is sealed at this share of its bytes or seconds, and then the oldest can be deleted.
SEGMENTS: Final = 16
#: A segment is at least this many times as large as its snapshot, but at most this share of the ring's bytes and time.
_SNAPSHOT_SHARE, _LARGEST_SHARE = 8, 4
#: Bytes of a snapshot, of some tens of nodes, that may be written more often.
_SMALL_SNAPSHOT: Final = 1 << 20
#: Kinds that are written within `GATHER_S`, with what was gathered before.
_EVIDENCE: Final = frozenset({*(spec.struct for spec in SPECS.values() if spec.category == "capture"), Mark, Gap})
#: Kinds of which `is_urgent` holds for some.
_SOMETIMES_URGENT: Final = _EVIDENCE | {Finding, NodeState, Rank, Log}


class RingLimits(msgspec.Struct, frozen=True):
    """The size and length of a ring."""

    bytes: int
    seconds: float


class SealedSegment(msgspec.Struct, frozen=True):
    """A segment that is complete."""

    number: int
    bytes: int
    ended_s: float  # monotonic; the next one began then


@dataclass
class _NextSegment:
    """A segment to begin: the records before it, when it begins, and the state then, once it is there."""

    before: list[Published]
    instant: int
    snapshot: list[Published] | None = None


def segments_to_delete(
    sealed: Sequence[SealedSegment], open_bytes: int, limits: RingLimits, now_s: float
) -> int:  # fmt: skip
    """Return how many of these segments, oldest first, are beyond the limits.

    `open_bytes`: of the segment that is being written, and of what is appended next. A segment is too old once the
    later ones cover the whole length by themselves.
    """
    total, count = open_bytes + sum(segment.bytes for segment in sealed), 0
    for segment in sealed:
        if total <= limits.bytes and now_s - segment.ended_s < limits.seconds:
            break
        total -= segment.bytes
        count += 1
    return count


def is_urgent(record: Published) -> bool:
    """Whether a record is evidence, which a power cut must not take: captures, errors, lost nodes, ranks that end."""
    if type(record) in _EVIDENCE:
        return True
    match record:
        case Finding():
            return record.severity == "error"
        case NodeState():
            return record.state in ("lost", "failed")
        case Rank():
            return is_gone(record)
        case Log():
            return record.severity == "error"
    return False


class RingWriter(Recording):
    """Writes a black box in its own thread; `wants_snapshot` asks for `begin_segment` and `complete_segment`.

    It never stops the console: on a disk that is full it deletes its own oldest segments, then drops records.
    """

    stop_s = 2.0

    def __init__(
        self, session: Session, meta: Meta, lock: int, publish: Publish, limits: RingLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Create a segment and start the thread; `clock` is monotonic, in seconds. Raises OSError."""
        self.limits = limits
        self.wants_snapshot = True
        self.covered_since = now()  # console CLOCK_REALTIME of its oldest snapshot, ns
        self._clock = clock
        self._begun: _NextSegment | None = None
        self._snapshots: deque[int] = deque()  # instants with which the sealed segments and the open one begin
        self._sealed: deque[SealedSegment] = deque()
        self._segment_began_s, self._snapshot_bytes = clock(), 0
        self._has_warned = False
        self._pacer = Pacer()
        self._urgent_s: float | None = None  # monotonic; when the first urgent one of the waiting records was offered
        super().__init__(session, meta, lock, Redactor(), publish)

    @property
    def is_beginning(self) -> bool:
        """Whether a segment was begun that is not written yet."""
        return self._begun is not None

    def has_begun(self, instant: int) -> bool:
        """Whether the segment that was begun at this instant is on disk, and with it all records before."""
        return instant in tuple(self._snapshots)

    def begin_segment(self) -> int:
        """Begin a segment with the record that is offered next; `complete_segment` gives the state before it.

        Returns when it begins, console CLOCK_REALTIME in ns.
        """
        with self._changed:
            if self._begun is None:
                self._begun, self._waiting = _NextSegment(self._waiting, now()), []
            self.wants_snapshot = False
            return self._begun.instant

    def complete_segment(self, snapshot: list[Published]) -> None:
        """Give the state at `begin_segment`. Records that were offered since may replace those that they replaced."""
        with self._changed:
            if self._begun is not None:
                self._begun.snapshot = snapshot
            self._changed.notify()

    def _turn(self) -> bool:
        """Gather, pack and write once; false at the end."""
        self._gather()
        is_flush = is_flush_requested(self.session)  # before the records are taken: it asks for all until then
        with self._changed:
            begun, self._begun = self._begun, None
            records, self._waiting, self._urgent_s = self._waiting, [], None
            number, ending, self._busy = self._offered, self._ending, True
        if begun is not None:
            self._pack_and_write(begun.before, number)
            if begun.snapshot is not None:
                since = {(record.agent, record.seq) for record in records}
                snapshot = [record for record in begun.snapshot if (record.agent, record.seq) not in since]
                self._begin(begun.instant, snapshot)
        self._pack_and_write(records, number)
        self._trim(0)
        self._want_snapshot_if_due()
        if is_flush:
            flushed(self.session)
        with self._changed:
            self._busy = False
            return not ending or bool(self._waiting or self._begun)

    def _must_wake(self, new: Sequence[Published], *, is_first: bool) -> bool:
        is_first_urgent = (
            self._urgent_s is None and not _SOMETIMES_URGENT.isdisjoint(map(type, new)) and any(map(is_urgent, new))
        )
        if is_first_urgent:
            self._urgent_s = self._clock()
        return is_first_urgent or super()._must_wake(new, is_first=is_first)

    def _gather(self) -> None:
        """Wait until something has to be written."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._begun or self._ending, FLUSH_CHECK_S)
        due_s = self._clock() + RING_GATHER_S
        while True:
            is_flush = is_flush_requested(self.session)
            with self._changed:
                rest_s = self._rest_s(due_s, is_flush=is_flush)
                if rest_s <= 0:
                    return
                self._changed.wait(min(rest_s, FLUSH_CHECK_S))

    def _rest_s(self, due_s: float, *, is_flush: bool) -> float:
        """Seconds until what waits is to be written, of which the last is due at `due_s`; 0 if there is nothing."""
        if self._is_due():
            return 0.0
        if self._begun is not None:
            return FLUSH_CHECK_S  # what is waiting belongs behind the snapshot
        if is_flush or not self._waiting:
            return 0.0
        if self._urgent_s is not None:
            due_s = min(due_s, self._urgent_s + GATHER_S)
        return due_s - self._clock()

    def _is_due(self) -> bool:
        if self._begun is not None:
            return self._ending or self._begun.snapshot is not None
        return self._ending or len(self._waiting) >= FRAME_RECORDS

    def _begin(self, instant: int, snapshot: Sequence[Published]) -> None:
        """Seal the segment, unless it is empty, and write the snapshot of the next one."""
        size_before = self._writer.size
        if size_before:
            try:
                self._writer.roll()
            except OSError as error:
                self._report_trouble(reason_of(error))
                return
            self._sealed.append(SealedSegment(self._writer.number - 1, size_before, self._clock()))
        self._snapshots.append(instant)
        self._segment_began_s = self._clock()
        lost, self._lost = self._lost, 0
        self._pack_and_write(snapshot, self._durable, instant, lost)
        if self.trouble:
            self._lost += lost
        elif lost:
            _log.warning("black box %s: %d records were not kept", self.session.name, lost)
        self._snapshot_bytes = self._writer.size
        self.covered_since = self._snapshots[0]

    def _want_snapshot_if_due(self) -> None:
        limits, written, age_s = self.limits, self._writer.size, self._clock() - self._segment_began_s
        least = _SNAPSHOT_SHARE * self._snapshot_bytes
        is_full = written >= min(max(limits.bytes // SEGMENTS, least), limits.bytes // _LARGEST_SHARE)
        is_cheap = self._snapshot_bytes <= _SMALL_SNAPSHOT or written >= least
        is_old = age_s >= limits.seconds / (SEGMENTS if is_cheap else _LARGEST_SHARE)
        # The state after a hole is not known from what is written.
        if (is_full or is_old or self._lost) and not self.trouble and not self.is_beginning:
            self.wants_snapshot = True

    def _pace(self) -> None:
        """Let the event loop run, unless evidence waits: the state of a large fleet takes seconds to pack."""
        if not self._ending and self._urgent_s is None:
            self._pacer()

    # -- the disk ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Append what is packed; drop what cannot be written."""
        while self._pending:
            frame = self._pending.popleft()
            try:
                if self._writer.size + len(frame.data) > self.limits.bytes:
                    raise OSError(errno.EFBIG, f"more than black_box_bytes ({size(self.limits.bytes)}) at once")
                self._check_file()
                self._trim(len(frame.data))
                self._append(frame.data)
            except OSError as error:
                self._lost += sum(frame.counts.kinds.values())
                self._report_trouble(reason_of(error))
            else:
                add_counts(self.meta, frame.counts)
                self._durable = frame.number
                self._bytes = self._total_bytes()
                if self.trouble:
                    _log.info("black box %s: writing again", self.session.name)
                self.trouble = ""

    def _append(self, data: bytes) -> None:
        """Append a frame; on a full disk, the oldest segments make room. Raises OSError."""
        while True:
            try:
                self._writer.append(data)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._sealed:
                    raise
                self._delete_oldest()
            else:
                return

    def _trim(self, extra: int) -> None:
        """Delete the segments beyond the limits, with so many bytes to be appended."""
        for _ in range(segments_to_delete(self._sealed, self._writer.size + extra, self.limits, self._clock())):
            self._delete_oldest()

    def _delete_oldest(self) -> None:
        oldest = self._sealed.popleft()
        self._snapshots.popleft()
        self.covered_since = self._snapshots[0] if self._snapshots else now()
        try:
            self.session.segment(oldest.number).unlink(missing_ok=True)
        except OSError as error:
            self._report_trouble(reason_of(error))

    def _total_bytes(self) -> int:
        return self._writer.size + sum(segment.bytes for segment in self._sealed)

    def _close(self) -> None:
        self._writer.close()
        ended = now()
        self.meta.parts = (*self.meta.parts[:-1], replace(self.meta.parts[-1], ended=ended, how="stopped"))
        self.meta.state, self.meta.closed, self.meta.sealed = "closed", ended, self._writer.number
        try:
            self.session.write(self.meta)
        except OSError as error:
            self._report_trouble(reason_of(error))

    def _report_trouble(self, why: str, try_: str = "") -> None:
        """Warn once; later troubles are only in the log file."""
        if why != self.trouble:
            _log.warning("black box %s: cannot write: %s", self.session.name, why)
        self.trouble = why
        if not self._has_warned:
            self._has_warned = True
            text = f"black box: cannot write in {self.session.path}: {why}; the last minutes are not kept meanwhile"
            try_ = try_ or "free space there, or switch it off: [console] black_box = false"
            self._publish(Log(source="console", severity="warning", text=text, try_=try_))
