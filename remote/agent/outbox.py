"""Queue of numbered records to the console: in order, without gaps, kept until taken or acknowledged."""

import collections
import threading
import time
import zlib

from ..clocks import stamps
from . import rows, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, Iterable

    from ..samplers.base import Fact, Fields

_CHUNK = 64 << 10
#: Bytes handed to the writer at once, about: a full buffer is ten times its size when unpacked.
_MAX_TAKEN = 256 << 10
#: Kinds that may be held back: figures, events of GPUs, readings of clocks. Records of jobs, captures and the kernel
#: log are sent at once, and those of clocks that are being compared, with what was held back before them, because the
#: console ends a comparison by the time of arrival.
HELD_KINDS = frozenset(
    (
        "agent_cost", "capacity", "clock_snapshot", "clock_source", "gpu", "gpu_event", "gpu_info", "gpu_link", "host",
        "nic",
    )
)  # fmt: skip
#: Kinds that do not wait for other records of their tick: `gconsole run` waits for them, and a job has few.
AT_ONCE = frozenset(("job", "job_node"))
#: Seconds after a full period at which held records are sent: the samplers have posted those of its tick by then.
_HOLD_PHASE_S = 0.5


class Chunk(object):
    """Consecutive record lines, first to last seq; compressed once it is full."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.data = b""
        self.packed = False

    def add(self, lines: "list[bytes]", last: int) -> None:
        """Append lines with the next sequence numbers, up to `last`."""
        data = self.data + b"".join(lines)
        self.data, self.last = data, last  # both or, without memory, none

    def lines_after(self, seq: int) -> bytes:
        """The bytes of the lines with a number above `seq`, and the layouts of the chunk."""
        data = zlib.decompress(self.data) if self.packed else self.data
        if seq < self.first:
            return data
        lines, last = [], self.first - 1
        for line in data.splitlines(True):
            is_layout = line.startswith(b'{"layout":')  # later rows may need it: the receiver may be another one
            if not is_layout:
                last = rows.last_seq(line) if line.startswith(b"[") else last + 1
            if is_layout or last > seq:
                lines.append(line)  # all rows of a line: the receiver knows those that it has by their numbers
        return b"".join(lines)

    def pack(self) -> None:
        """Compress the lines."""
        if not self.packed:
            self.data = zlib.compress(self.data, 1)
            self.packed = True


def _may_wait(kind: str, fields: "Fields | str") -> bool:
    """Whether a record may be held back: one of `HELD_KINDS`, but not a step of the clock."""
    has_step = kind == "clock_snapshot" and isinstance(fields, dict) and bool(fields.get("step_ns"))
    return kind.partition(" ")[0] in HELD_KINDS and not has_step


class Outbox(object):
    """Queue between the samplers, which post, and the writer.

    With `keep` (a lingering agent) records stay until the console acknowledges them; without, until they are taken.
    Above `limit` bytes the oldest are dropped, and a frame {"gap": [first, last], "reason": text} precedes the first
    record after them: every number is delivered exactly once, as a record or within a gap.

    A console that shows nothing of this node may have records of `HELD_KINDS` held back for some seconds: reading the
    records of five ticks at once costs it about half of reading each tick (2026-11-29, nine clusters on one screen).

    To a connection that takes rows (see rows.py) records are rows. Each chunk declares the layouts of its rows, because
    those before it may be dropped, or be known to an earlier console only.
    """

    def __init__(self, limit: int, keep: bool) -> None:
        self.limit = limit
        self.keep = keep
        self.posted_bytes = 0  # of records, as written; for the agent's own cost
        self._chunk_bytes = min(_CHUNK, limit // 8)
        self._seq = 0
        self._written = 0  # the highest seq given to the writer, as a record or in a gap
        self._acknowledged = 0
        self._held = 0
        self._chunks: Deque[Chunk] = collections.deque()
        self._control: Deque[bytes] = collections.deque()
        self._turn = 0  # counts connections; the writer of an old one gets None
        self._order: "rows.ColumnOrder | None" = None  # of a connection that takes rows
        self._layouts = rows.Layouts()
        self._declared: "frozenset[int]" = frozenset()  # layouts whose rows may follow in the last chunk
        self._sent: "tuple[Chunk | None, int]" = (None, 0)  # the last chunk of this connection, and bytes of it
        self._is_gathering = False  # the writer waits for more records: they need not wake it
        self._hold_s = self._offset_s = 0.0  # see `hold`
        self._is_urgent = False  # a record of another kind than `HELD_KINDS` is queued
        self._is_due = False  # a record of `AT_ONCE` is queued
        self._wake = threading.Condition()

    def post(self, facts: "Iterable[Fact | tuple[str, str]]") -> int:
        """Number, stamp and queue the records of one instant, which are sent in one write; returns their bytes.

        Fields may be the text of a JSON object that is not empty, as `wire.to_json` makes it in another process, or
        of a row, with its columns as the kind.
        One that cannot be encoded (NaN, a type unknown to JSON) is replaced by a `log` record. Without memory, none of
        them is queued, and their numbers go to later records. Raises MemoryError.
        """
        t, mono = stamps.realtime_ns(), stamps.mono_ns()
        with self._wake:
            seq, declared = self._seq, self._declared
            try:
                lines = self._lines(facts, t, mono)
                if lines:
                    self._append(lines, seq + 1)
            except BaseException:
                self._seq, self._declared = seq, declared
                raise
            if lines:
                if not self._is_gathering or self._is_urgent or self._is_due:
                    self._wake.notify()
        return sum(len(line) for line in lines)

    def control(self, frame: "Fields") -> None:
        """Queue a control frame (hello, pong, a reply); it is sent before the records and not kept.

        Raises ValueError or TypeError if it cannot be encoded.
        """
        line = wire.encode(frame)
        with self._wake:
            self._control.append(line)
            self._wake.notify()

    def next_bytes(self, turn: int, wait_s: float, gather_s: float) -> "bytes | None":
        """Bytes for the connection of that turn: control frames, then records it has not had, the oldest first.

        b"" after `wait_s` without any, None once a newer connection has its turn. A control frame goes at once, with
        the records before it; records wait `gather_s` for those of the same tick, which makes one write of them, or
        longer if they are held back; those of `AT_ONCE` go at once, too.

        Raises MemoryError; the next call returns what this one should have returned.
        """
        with self._wake:
            if turn == self._turn and not self._ready():
                self._wake.wait(wait_s)
            due = time.monotonic() + gather_s
            try:
                self._is_gathering = True
                held_s = self._held_s()
                while turn == self._turn and self._ready() and not self._control and not self._is_due:
                    rest_s = due - time.monotonic() + (0.0 if self._is_urgent or not self._hold_s else held_s)
                    if rest_s <= 0:
                        break
                    self._wake.wait(rest_s)
            finally:
                self._is_gathering = False
            if turn != self._turn:
                return None
            records, written, sent = self._records()
            data = b"".join(self._control) + (records if self._order else self._layouts.readable(records))
            self._control.clear()
            self._written, self._sent, self._is_urgent, self._is_due = written, sent, False, False
            if not self.keep:
                self._drop_until(written)
            return data

    def hold(self, hold_s: float, offset_s: float = 0.0) -> None:
        """Hold records of `HELD_KINDS` back until the next multiple of `hold_s` seconds; 0: hold nothing back.

        The multiples are those of the real-time clock, shifted by `offset_s` seconds, so that nodes whose clocks agree
        send at the same instant.
        """
        with self._wake:
            self._hold_s, self._offset_s = hold_s, offset_s
            self._wake.notify()

    def _held_s(self) -> float:
        """Seconds until held records are due."""
        if not self._hold_s:
            return 0.0
        return self._hold_s - (stamps.realtime_ns() / 1e9 - self._offset_s - _HOLD_PHASE_S) % self._hold_s

    def acknowledge(self, seq: int) -> None:
        """Drop the records up to `seq`, which the console has stored."""
        with self._wake:
            self._acknowledged = max(self._acknowledged, min(seq, self._written))
            self._drop_until(self._acknowledged)

    def rewind(self, seq: int, order: "rows.ColumnOrder | None" = None) -> int:
        """Begin a connection that has the records up to `seq`; returns its turn. `order`: of one that takes rows.

        Later records are sent again; control frames of the old connection are dropped.
        """
        with self._wake:
            self._turn += 1
            self._order, self._sent = order, (None, 0)
            self._hold_s = 0.0  # until this connection orders it
            self._control.clear()
            self._written = max(min(seq, self._written), self._acknowledged)
            self._wake.notify_all()
            return self._turn

    @property
    def order(self) -> "rows.ColumnOrder | None":
        """The order of columns of a connection that takes rows."""
        return self._order

    def end_rows(self) -> None:
        """Send no more rows on this connection."""
        with self._wake:
            self._order = None

    @property
    def last_seq(self) -> int:
        """The sequence number of the last record."""
        return self._seq

    def _ready(self) -> bool:
        return bool(self._control or (self._chunks and self._chunks[-1].last > self._written))

    def _lines(self, facts: "Iterable[Fact | tuple[str, str]]", t: int, mono: int) -> "list[bytes]":
        """The lines of records of one instant; consecutive ones of one layout are one line."""
        if self._is_full() and (self.keep or self._chunks):
            self._declared = frozenset()  # else everything before was handed to the only connection
        lines: "list[bytes]" = []
        batch: "list[str]" = []
        layout: "rows.Layout | None" = None
        for kind, fields in facts:
            if self._hold_s and not _may_wait(kind, fields):
                self._is_urgent = True
            self._is_due = self._is_due or kind in AT_ONCE
            row_layout, row = self._row(kind, fields)
            if layout is not None and batch and (row_layout is not layout or len(batch) >= rows.MOST_ROWS):
                lines.append(layout.line(self._seq - len(batch) + 1, t, mono, batch))
                batch = []
            layout = row_layout
            if layout is None:
                lines.append(self._line(kind, fields, t, mono))
                continue
            if layout.number not in self._declared:
                lines.append(layout.declaration())
                self._declared = self._declared.union((layout.number,))  # type: ignore[arg-type]
            batch.append(row)
            self._seq += 1
        if layout is not None and batch:
            lines.append(layout.line(self._seq - len(batch) + 1, t, mono, batch))
        return lines

    def _row(self, kind: str, fields: "Fields | str") -> "tuple[rows.Layout | None, str]":
        """The layout of a record and its row, or (None, "")."""
        if self._order is None:
            return None, ""
        if isinstance(fields, str):
            layout = self._layouts.find(kind) if fields.startswith("[") else None
            return (layout, fields) if layout is not None and len(fields) <= rows.LONGEST_ROW else (None, "")
        columns = self._order.columns(kind, fields)
        layout = self._layouts.find(columns.text) if columns is not None else None
        if columns is None or layout is None:
            return None, ""
        try:
            row = columns.row(fields)
        except (ValueError, TypeError):
            return None, ""  # reported as an object
        return (layout, row) if len(row) <= rows.LONGEST_ROW else (None, "")

    def _line(self, kind: str, fields: "Fields | str", t: int, mono: int) -> bytes:
        head: "Fields" = {"kind": kind, "seq": self._seq + 1, "t": t, "mono": mono}
        try:
            if isinstance(fields, str) and fields.startswith("["):
                kind, fields = rows.object_of(kind, fields)
            if isinstance(fields, str):  # formatted as `wire.to_json` does; at 8 GPUs it is called 30 times a second
                text = '{"kind":"%s","seq":%d,' % (kind, self._seq + 1)
                if not fields.startswith('{"t":'):  # a digest that ended before this instant has its own
                    text += '"t":%d,"mono":%d,' % (t, mono)
                line = wire.pack(text + fields[1:])
            else:
                line = wire.encode(dict(head, **fields))  # `kind` leads: the console sorts lines by it
        except (ValueError, TypeError) as error:
            text = "a %s record could not be sent: %s" % (kind, error)
            line = wire.encode(dict(head, kind="log", source="agent", severity="error", text=text))
        self._seq += 1
        return line

    def _is_full(self) -> bool:
        """Whether the next records begin a chunk."""
        return not self._chunks or self._chunks[-1].packed or len(self._chunks[-1].data) > self._chunk_bytes

    def _append(self, lines: "list[bytes]", first: int) -> None:
        size = sum(len(line) for line in lines)
        posted, held = self.posted_bytes + size, self._held + size
        if self._is_full():
            if self._chunks:
                held -= self._pack(self._chunks[-1])
            self._chunks.append(Chunk(first))
        self._chunks[-1].add(lines, self._seq)
        self.posted_bytes, self._held = posted, held
        while self._held > self.limit and len(self._chunks) > 1:
            self._held -= len(self._chunks.popleft().data)

    @staticmethod
    def _pack(chunk: "Chunk") -> int:
        """Compress a chunk; the bytes that this saves."""
        before = len(chunk.data)
        chunk.pack()
        return before - len(chunk.data)

    def _records(self) -> "tuple[bytes, int, tuple[Chunk | None, int]]":
        """The next records, the number of the last one, and the new `_sent`."""
        parts: "list[bytes]" = []
        size, written, sent = 0, self._written, self._sent
        for chunk in self._chunks:
            if chunk.last <= written:
                continue
            if size > _MAX_TAKEN:
                break
            if chunk.first > written + 1:
                parts.append(self._gap(written + 1, chunk.first - 1))
            is_next = chunk is sent[0] and not chunk.packed
            parts.append(chunk.data[sent[1] :] if is_next else chunk.lines_after(written))
            size += len(parts[-1])
            written, sent = chunk.last, (chunk, len(chunk.data))
        return b"".join(parts), written, sent

    def _gap(self, first: int, last: int) -> bytes:
        reason = "the buffer of %d bytes was full before the console received them" % self.limit
        return wire.encode({"gap": [first, last], "reason": reason})

    def _drop_until(self, seq: int) -> None:
        while self._chunks and self._chunks[0].last <= seq:
            if self.keep and len(self._chunks) == 1 and not self._is_full():
                return  # it declares the layouts of the records that are still to come
            self._held -= len(self._chunks.popleft().data)
