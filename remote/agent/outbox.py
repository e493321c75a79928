"""Numbered records on their way to the console: in order, without holes, kept until they are no longer needed."""

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
#: About so many bytes are handed to the writer at once: a full buffer, unpacked, is ten times its size.
_MOST_TAKEN = 256 << 10


class Chunk(object):
    """Consecutive record lines, first to last seq; compressed once it is full."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.data = b""
        self.packed = False

    def add(self, lines: "list[bytes]") -> None:
        self.data += b"".join(lines)
        self.last += len(lines)

    def lines_after(self, seq: int) -> bytes:
        """The bytes of the lines with a number above `seq`."""
        data = zlib.decompress(self.data) if self.packed else self.data
        if seq < self.first:
            return data
        return b"".join(data.splitlines(True)[seq - self.first + 1 :])

    def pack(self) -> None:
        if not self.packed:
            self.data = zlib.compress(self.data, 1)
            self.packed = True


class Outbox(object):
    """Where samplers post and the writer takes.

    With `keep` (a lingering agent) records stay until the console has acknowledged them; without, until they are taken.
    Where that would be more than `limit` bytes, the oldest go. A connection is told what it will not get in a frame of
    its own, {"gap": [first, last], "reason": text}, right before the first record behind the hole: so every number
    above the one it asked for reaches it exactly once, as a record or within a gap.
    """

    def __init__(self, limit: int, keep: bool) -> None:
        self.limit = limit
        self.keep = keep
        self.posted_bytes = 0  # of records, as written; for the agent's own cost
        self._chunk_bytes = min(_CHUNK, limit // 8)
        self._seq = 0
        self._written = 0  # the highest seq handed to the writer, or told to it as lost
        self._acknowledged = 0
        self._held = 0
        self._chunks: Deque[Chunk] = collections.deque()
        self._control: Deque[bytes] = collections.deque()
        self._turn = 0  # counts connections: the writer of an old one gets nothing any more
        self._wake = threading.Condition()

    def post(self, facts: "Iterable[Fact]") -> int:
        """Number, stamp and queue records: (kind, fields) of one instant. One call is one write; the bytes they take.

        A fact that cannot be put on the wire (NaN, a type JSON has not) becomes a `log` record that says so.
        """
        t, mono = stamps.realtime_ns(), stamps.mono_ns()
        with self._wake:
            lines = [self._line(kind, fields, t, mono) for kind, fields in facts]
            if lines:
                self._append(lines)
                self._wake.notify()
        return sum(len(line) for line in lines)

    def control(self, frame: "Fields") -> None:
        """Queue a frame that is no record (hello, pong, a reply): it goes before the records and is not kept.

        Raises ValueError or TypeError for what cannot be put on the wire.
        """
        line = wire.encode(frame)
        with self._wake:
            self._control.append(line)
            self._wake.notify()

    def take(self, turn: int, wait_s: float, gather_s: float) -> "bytes | None":
        """Bytes for the connection of that turn: control frames, then records it has not had, the oldest first.

        b"" after `wait_s` without any, None once a newer connection has its turn. A control frame goes at once; records
        wait `gather_s` for those of the same tick, which makes one write of them.
        """
        with self._wake:
            if turn == self._turn and not self._ready():
                self._wake.wait(wait_s)
            deadline = time.monotonic() + gather_s
            while turn == self._turn and self._ready() and not self._control and time.monotonic() < deadline:
                self._wake.wait(deadline - time.monotonic())
            if turn != self._turn:
                return None
            control = b"".join(self._control)
            self._control.clear()
            return control + self._records()

    def acknowledge(self, seq: int) -> None:
        """The console is done with everything up to `seq`."""
        with self._wake:
            self._acknowledged = max(self._acknowledged, min(seq, self._written))
            self._let_go(self._acknowledged)

    def rewind(self, seq: int) -> int:
        """A new connection, which has everything up to `seq`; its turn.

        Records held above that are handed out again; queued control frames were for the old one.
        """
        with self._wake:
            self._turn += 1
            self._control.clear()
            self._written = max(min(seq, self._written), self._acknowledged)
            self._wake.notify_all()
            return self._turn

    @property
    def last_seq(self) -> int:
        return self._seq

    def _ready(self) -> bool:
        return bool(self._control or (self._chunks and self._chunks[-1].last > self._written))

    def _line(self, kind: str, fields: "Fields", t: int, mono: int) -> bytes:
        head = {"kind": kind, "seq": self._seq + 1, "t": t, "mono": mono}
        try:
            line = wire.encode(dict(head, **fields))  # `kind` leads: the console sorts lines by it
        except (ValueError, TypeError) as error:
            text = "a %s record could not be sent: %s" % (kind, error)
            line = wire.encode(dict(head, kind="log", source="agent", severity="error", text=text))
        self._seq += 1
        return line

    def _append(self, lines: "list[bytes]") -> None:
        size = sum(len(line) for line in lines)
        self.posted_bytes += size
        if not self._chunks or self._chunks[-1].packed or len(self._chunks[-1].data) > self._chunk_bytes:
            if self._chunks:
                self._pack(self._chunks[-1])
            self._chunks.append(Chunk(self._seq - len(lines) + 1))
        self._chunks[-1].add(lines)
        self._held += size
        while self._held > self.limit and len(self._chunks) > 1:
            self._held -= len(self._chunks.popleft().data)

    def _pack(self, chunk: "Chunk") -> None:
        before = len(chunk.data)
        chunk.pack()
        self._held -= before - len(chunk.data)

    def _records(self) -> bytes:
        parts, size = [], 0
        for chunk in self._chunks:
            if chunk.last <= self._written:
                continue
            if size > _MOST_TAKEN:
                break
            if chunk.first > self._written + 1:
                parts.append(self._gap(self._written + 1, chunk.first - 1))
            parts.append(chunk.lines_after(self._written))
            size += len(parts[-1])
            self._written = chunk.last
        if not self.keep:
            self._let_go(self._written)
        return b"".join(parts)

    def _gap(self, first: int, last: int) -> bytes:
        reason = "the buffer of %d bytes was full before the console could take them" % self.limit
        return wire.encode({"gap": [first, last], "reason": reason})

    def _let_go(self, seq: int) -> None:
        while self._chunks and self._chunks[0].last <= seq:
            self._held -= len(self._chunks.popleft().data)
