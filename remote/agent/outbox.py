"""Queue of numbered records to the console: in order, without gaps, kept until taken or acknowledged."""

import collections
import threading
import time
import zlib

from ..clocks import stamps
from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, Iterable

    from ..samplers.base import Fact, Fields

_CHUNK = 64 << 10
#: Bytes handed to the writer at once, about: a full buffer is ten times its size when unpacked.
_MAX_TAKEN = 256 << 10


class Chunk(object):
    """Consecutive record lines, first to last seq; compressed once it is full."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.data = b""
        self.packed = False

    def add(self, lines: "list[bytes]") -> None:
        """Append lines with the next sequence numbers."""
        data, last = self.data + b"".join(lines), self.last + len(lines)
        self.data, self.last = data, last  # both or, without memory, none

    def lines_after(self, seq: int) -> bytes:
        """The bytes of the lines with a number above `seq`."""
        data = zlib.decompress(self.data) if self.packed else self.data
        if seq < self.first:
            return data
        return b"".join(data.splitlines(True)[seq - self.first + 1 :])

    def pack(self) -> None:
        """Compress the lines."""
        if not self.packed:
            self.data = zlib.compress(self.data, 1)
            self.packed = True


class Outbox(object):
    """Queue between the samplers, which post, and the writer.

    With `keep` (a lingering agent) records stay until the console acknowledges them; without, until they are taken.
    Above `limit` bytes the oldest are dropped, and a frame {"gap": [first, last], "reason": text} precedes the first
    record after them: every number is delivered exactly once, as a record or within a gap.
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
        self._is_gathering = False  # the writer waits for more records: they need not wake it
        self._wake = threading.Condition()

    def post(self, facts: "Iterable[Fact | tuple[str, str]]") -> int:
        """Number, stamp and queue the records of one instant, which are sent in one write; returns their bytes.

        Fields may be the text of a JSON object that is not empty, as `wire.to_json` makes it in another process.
        One that cannot be encoded (NaN, a type unknown to JSON) is replaced by a `log` record. Without memory, none of
        them is queued, and their numbers go to later records. Raises MemoryError.
        """
        t, mono = stamps.realtime_ns(), stamps.mono_ns()
        with self._wake:
            seq = self._seq
            try:
                lines = [self._line(kind, fields, t, mono) for kind, fields in facts]
                if lines:
                    self._append(lines)
            except BaseException:
                self._seq = seq
                raise
            if lines:
                if not self._is_gathering:
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

        b"" after `wait_s` without any, None once a newer connection has its turn. A control frame goes at once; records
        wait `gather_s` for those of the same tick, which makes one write of them.

        Raises MemoryError; the next call returns what this one should have returned.
        """
        with self._wake:
            if turn == self._turn and not self._ready():
                self._wake.wait(wait_s)
            deadline = time.monotonic() + gather_s
            try:
                self._is_gathering = True
                while turn == self._turn and self._ready() and not self._control and time.monotonic() < deadline:
                    self._wake.wait(deadline - time.monotonic())
            finally:
                self._is_gathering = False
            if turn != self._turn:
                return None
            records, written = self._records()
            data = b"".join(self._control) + records
            self._control.clear()
            self._written = written
            if not self.keep:
                self._drop_until(written)
            return data

    def acknowledge(self, seq: int) -> None:
        """Drop the records up to `seq`, which the console has stored."""
        with self._wake:
            self._acknowledged = max(self._acknowledged, min(seq, self._written))
            self._drop_until(self._acknowledged)

    def rewind(self, seq: int) -> int:
        """Begin a connection that has the records up to `seq`; returns its turn.

        Later records are sent again; control frames of the old connection are dropped.
        """
        with self._wake:
            self._turn += 1
            self._control.clear()
            self._written = max(min(seq, self._written), self._acknowledged)
            self._wake.notify_all()
            return self._turn

    @property
    def last_seq(self) -> int:
        """The sequence number of the last record."""
        return self._seq

    def _ready(self) -> bool:
        return bool(self._control or (self._chunks and self._chunks[-1].last > self._written))

    def _line(self, kind: str, fields: "Fields | str", t: int, mono: int) -> bytes:
        head = {"kind": kind, "seq": self._seq + 1, "t": t, "mono": mono}
        try:
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

    def _append(self, lines: "list[bytes]") -> None:
        size = sum(len(line) for line in lines)
        posted, held = self.posted_bytes + size, self._held + size
        if not self._chunks or self._chunks[-1].packed or len(self._chunks[-1].data) > self._chunk_bytes:
            if self._chunks:
                held -= self._pack(self._chunks[-1])
            self._chunks.append(Chunk(self._seq - len(lines) + 1))
        self._chunks[-1].add(lines)
        self.posted_bytes, self._held = posted, held
        while self._held > self.limit and len(self._chunks) > 1:
            self._held -= len(self._chunks.popleft().data)

    @staticmethod
    def _pack(chunk: "Chunk") -> int:
        """Compress a chunk; the bytes that this saves."""
        before = len(chunk.data)
        chunk.pack()
        return before - len(chunk.data)

    def _records(self) -> "tuple[bytes, int]":
        """The next records, and the number of the last one."""
        parts, size, written = [], 0, self._written
        for chunk in self._chunks:
            if chunk.last <= written:
                continue
            if size > _MAX_TAKEN:
                break
            if chunk.first > written + 1:
                parts.append(self._gap(written + 1, chunk.first - 1))
            parts.append(chunk.lines_after(written))
            size += len(parts[-1])
            written = chunk.last
        return b"".join(parts), written

    def _gap(self, first: int, last: int) -> bytes:
        reason = "the buffer of %d bytes was full before the console received them" % self.limit
        return wire.encode({"gap": [first, last], "reason": reason})

    def _drop_until(self, seq: int) -> None:
        while self._chunks and self._chunks[0].last <= seq:
            self._held -= len(self._chunks.popleft().data)
