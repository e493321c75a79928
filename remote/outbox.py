"""Numbered records on their way to the console: in order, without holes, kept until they are no longer needed."""

import collections
import threading
import time
import zlib

from . import clock, wire

_CHUNK = 64 << 10


class Chunk(object):
    """Consecutive record lines, first to last seq; compressed once it is full and sent."""

    def __init__(self, first):
        self.first = first
        self.last = first - 1
        self.data = b""
        self.packed = False

    def add(self, lines):
        self.data += b"".join(lines)
        self.last += len(lines)

    def lines_after(self, seq):
        """The bytes of the lines with a number above `seq`."""
        data = zlib.decompress(self.data) if self.packed else self.data
        if seq < self.first:
            return data
        return b"".join(data.splitlines(True)[seq - self.first + 1 :])

    def pack(self):
        if not self.packed:
            self.data = zlib.compress(self.data, 1)
            self.packed = True


class Outbox(object):
    """Where samplers post and the writer takes.

    With `keep` (a lingering agent) records stay until the console has acknowledged them; without, until they are
    written. More than `limit` bytes are never held: the oldest go, and a `gap` record says how many and which.
    """

    def __init__(self, limit, keep):
        self.limit = limit
        self.keep = keep
        self.posted_bytes = 0  # of records, as written; for the agent's own cost
        self._seq = 0
        self._written = 0  # the highest seq handed to the writer
        self._held = 0
        self._chunks = collections.deque()
        self._control = collections.deque()
        self._wake = threading.Condition()

    def post(self, facts):
        """Number, stamp and queue records: (kind, fields) of one instant. One call is one write.

        A fact that cannot be put on the wire (NaN, a type JSON has not) becomes a `log` record that says so.
        """
        t, mono = clock.realtime_ns(), clock.mono_ns()
        with self._wake:
            self._append([self._line(kind, fields, t, mono) for kind, fields in facts])
            self._wake.notify()

    def control(self, frame):
        """Queue a frame that is no record (hello, pong, a reply): it goes before the records and is not kept."""
        line = wire.encode(frame)
        with self._wake:
            self._control.append(line)
            self._wake.notify()

    def take(self, wait_s, gather_s):
        """Bytes to write now: control frames, then records not yet handed out. b"" after `wait_s` without any.

        A control frame goes at once; records wait `gather_s` for those of the same tick, which makes one write of them.
        """
        with self._wake:
            if not self._ready():
                self._wake.wait(wait_s)
            deadline = time.monotonic() + gather_s
            while self._ready() and not self._control and time.monotonic() < deadline:
                self._wake.wait(deadline - time.monotonic())
            self._account_for_the_dropped()
            data = b"".join(self._control)
            self._control.clear()
            for chunk in self._chunks:
                if chunk.last > self._written:
                    data += chunk.lines_after(self._written)
                    self._written = chunk.last
            if not self.keep:
                self._chunks.clear()
                self._held = 0
            return data

    def acknowledge(self, seq):
        """The console is done with everything up to `seq`."""
        with self._wake:
            while self._chunks and self._chunks[0].last <= min(seq, self._written):
                self._held -= len(self._chunks.popleft().data)

    def rewind(self, seq):
        """A new connection: hand out again everything held above `seq`; queued control frames were for the old one."""
        with self._wake:
            self._control.clear()
            self._written = min(self._written, seq)
            self._wake.notify()

    @property
    def last_seq(self):
        return self._seq

    def _ready(self):
        return self._control or (self._chunks and self._chunks[-1].last > self._written)

    def _line(self, kind, fields, t, mono):
        head = {"kind": kind, "seq": self._seq + 1, "t": t, "mono": mono}
        try:
            line = wire.encode(dict(head, **fields))  # `kind` leads: the console sorts lines by it
        except (ValueError, TypeError) as error:
            text = "a %s record could not be sent: %s" % (kind, error)
            line = wire.encode(dict(head, kind="log", source="agent", severity="error", text=text))
        self._seq += 1
        return line

    def _account_for_the_dropped(self):
        """Say which numbers this reader will never get. Said here and not when they are dropped: while the buffer runs
        over, the word itself would be dropped next."""
        while self._chunks and self._chunks[0].first > self._written + 1:  # again where the word itself pushed one out
            first, last = self._written + 1, self._chunks[0].first - 1
            self._written = last
            fields = {
                "source": "buffer",
                "reason": "the buffer of %d bytes was full" % self.limit,
                "count": last - first + 1,
                "first_seq": first,
                "last_seq": last,
            }
            self._append([self._line("gap", fields, clock.realtime_ns(), clock.mono_ns())])

    def _append(self, lines):
        size = sum(len(line) for line in lines)
        self.posted_bytes += size
        if not self._chunks or self._chunks[-1].packed or len(self._chunks[-1].data) > _CHUNK:
            if self._chunks:
                self._pack(self._chunks[-1])
            self._chunks.append(Chunk(self._seq - len(lines) + 1))
        self._chunks[-1].add(lines)
        self._held += size
        while self._held > self.limit and len(self._chunks) > 1:
            self._held -= len(self._chunks.popleft().data)

    def _pack(self, chunk):
        before = len(chunk.data)
        chunk.pack()
        self._held -= before - len(chunk.data)
