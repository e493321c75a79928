"""The gateway without a console: keeps the agents' streams, and what they send, until its time is over.

To each node it is what the console was: it connects to the lingering agent in the same way, and acknowledges what is on
its disk. So an agent keeps what this process loses.
"""

import json
import os
import re
import selectors
import time

from ..agent import wire
from . import spool
from .stream import Blob, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..agent.cache import Cache
    from ..samplers.base import Fields

#: Seconds between two writes of one node's lines, and bytes that are written at once.
FLUSH_S, _FULL = 5.0, 256 << 10
#: Seconds until a node is tried again, doubled up to the second; from start to hello; between two looks at all of that.
_RETRY_S, _MOST_RETRY_S, _HELLO_S, _CHECK_S = 2.0, 60.0, 60.0, 0.5
#: Nodes that are connected at the same time.
_MOST_CONNECTING = 8
#: A record as the agent writes it, and the agent's report of dropped ones.
RECORD = re.compile(rb'\{"kind":"[a-z_]{1,32}","seq":([0-9]{1,18}),')
_GAP = re.compile(rb'\{"gap":\[([0-9]{1,18}),([0-9]{1,18})\]')


class Opening(object):
    """How a node was reached: the command, and what was written to it first, up to the start frame."""

    def __init__(self, node: str, argv: "list[str]") -> None:
        self.node, self.argv = node, argv
        self.preamble: bytes | bytearray = b""
        self.start: Fields | None = None
        self._line = b""
        self._has_program = False

    def add_blob(self, data: bytearray) -> None:
        """A blob was written, whose bytes may still be arriving: the first one is the program."""
        if not self._has_program:
            self._has_program, self.preamble = True, data

    def add(self, data: bytes) -> None:
        """Bytes were written: the first line is the start frame."""
        if self.start is None and self._has_program:
            self._line = (self._line + data)[: 1 << 20]
            line, end, _ = self._line.partition(b"\n")
            if end:
                self.start = wire.decode(line).get("start", {})

    @property
    def lingers(self) -> bool:
        """Whether it is complete, and its agent outlives a connection."""
        return bool(self.start and self.start["config"].get("linger_s", 0) > 0)


class Keeper(object):
    """Keeps what the nodes of `openings` send for `for_s` seconds, in at most `quota` bytes for all of them."""

    def __init__(
        self, place: "Cache", folder: "spool.Folder", openings: "list[Opening]", for_s: float, quota: int
    ) -> None:
        self._folder = folder
        self._selector = selectors.DefaultSelector()
        share = quota // max(1, len(openings))
        self._nodes = [_Node(self, place, spool.Writer(folder, each.node, share), each) for each in openings]
        self._until = time.monotonic() + for_s

    def run(self) -> None:
        """Keep until the time is over, or an exception (a signal) comes; everything received is on the disk then."""
        self._folder.begin()
        try:
            looked_at = 0.0
            while time.monotonic() < self._until:
                for key, _ in self._selector.select(_CHECK_S):
                    key.data()
                now = time.monotonic()
                if now - looked_at >= _CHECK_S:
                    looked_at = now
                    self._look(now)
        finally:
            self._end()

    def _look(self, now: float) -> None:
        room = _MOST_CONNECTING - sum(node.is_connecting for node in self._nodes)
        for node in self._nodes:
            if node.look(now, can_open=room > 0):
                room -= 1

    def _end(self) -> None:
        streams = []
        for node in self._nodes:
            node.flush()
            stream = node.detach()
            if stream is not None:
                stream.end()
                streams.append(stream)
        while streams:
            streams = [stream for stream in streams if not stream.reap()]
            time.sleep(0.02)
        self._folder.end()

    def watch(self, fd: int, events: int, handler: "Callable[[], None]") -> None:
        """Call `handler` for these events."""
        self._selector.register(fd, events, handler)

    def forget(self, fd: int) -> None:
        """Watch a descriptor no longer."""
        try:
            self._selector.unregister(fd)
        except (KeyError, ValueError):
            pass  # it was not watched


class _Node(object):
    """The stream of one node, and the lines that are not written yet."""

    def __init__(self, keeper: "Keeper", place: "Cache", writer: "spool.Writer", opening: "Opening") -> None:
        self._keeper, self._place, self._writer, self._opening = keeper, place, writer, opening
        self._stream: Stream | None = None
        self._ending: list[Stream] = []
        self._buffer = bytearray()  # an incomplete line
        self._agent = ""  # "" before the hello
        self._last = 0  # number of the last record
        self._lines: list[bytes] = []
        self._size, self._first = 0, 0  # of these lines
        self._flush_at = self._ping_at = self._open_at = self._opened_at = 0.0  # monotonic times
        self._wait_s = _RETRY_S
        self._ping_s = max(0.3, (opening.start or {})["config"].get("orphan_s", 15) / 3.0)
        self._is_writing = False

    @property
    def is_connecting(self) -> bool:
        """Whether its hello has not come yet."""
        return self._stream is not None and not self._agent

    def look(self, now: float, can_open: bool) -> bool:
        """What is due; True if the node is being connected from now on."""
        self._ending = [stream for stream in self._ending if not stream.reap()]
        if self._stream is None:
            if can_open and now >= self._open_at:
                self._open(now)
                return True
            return False
        if not self._agent and now - self._opened_at > _HELLO_S:
            self._lose()
            return False
        if self._agent and now >= self._ping_at:
            self._ping_at = now + self._ping_s
            self._write(wire.encode({"ping": 0}))
        if self._lines and (now >= self._flush_at or self._size >= _FULL):
            self.flush()
        return False

    def _open(self, now: float) -> None:
        self._opened_at, self._agent, self._last = now, "", 0
        del self._buffer[:]
        try:
            stream = Stream(0, self._opening.argv)
            stream.start()
            self._stream = stream
        except OSError:
            self._retry()
            return
        self._keeper.watch(stream.output, selectors.EVENT_READ, self._read)
        self._keeper.watch(stream.error, selectors.EVENT_READ, self._read_error)
        self._write_blob(self._opening.preamble)
        start = dict(self._opening.start or {}, agent="", after=0)  # all that the agent has: none of it is on a disk
        start["config"] = dict(start.get("config") or {}, rows=None)  # each line has its numbers
        self._write(wire.encode({"start": start}))

    def _write(self, data: bytes) -> None:
        assert self._stream is not None
        try:
            self._stream.add(data)
        except wire.BadFrame:  # it reads nothing
            self._lose()
            return
        self._write_queued()

    def _write_blob(self, data: "bytes | bytearray") -> None:
        assert self._stream is not None
        blob = Blob("", len(data))
        blob.data += data
        self._stream.add_blob(blob)

    def _write_queued(self) -> None:
        stream = self._stream
        if stream is None:
            return
        was_open = stream.is_input_open
        number = stream.input
        if was_open:
            stream.write()
        wants = stream.wants_write
        if wants and not self._is_writing:
            self._keeper.watch(number, selectors.EVENT_WRITE, self._write_queued)
        elif self._is_writing and not wants:
            self._keeper.forget(number)
        self._is_writing = wants

    def _read(self) -> None:
        stream = self._stream
        if stream is None:
            return
        data = stream.read(stream.output, 1 << 16)
        if data is None:
            self._lose()
            return
        self._buffer += data
        if len(self._buffer) > wire.MAX_LINE + (1 << 16) and b"\n" not in self._buffer:
            self._lose()
            return
        if b"\n" in data:
            lines = bytes(self._buffer).split(b"\n")
            self._buffer = bytearray(lines.pop())
            for line in lines:
                self._take(line)

    def _read_error(self) -> None:
        stream = self._stream
        if stream is not None and not stream.read(stream.error, 1 << 16):
            self._keeper.forget(stream.error)

    def _take(self, line: bytes) -> None:
        if self._stream is None:
            return  # lost with an earlier line
        if not self._agent:
            self._greet(line)
            return
        numbers = numbers_of(line)
        if numbers is None or numbers[1] <= self._last:
            return  # a pong, a reply, or what is there already
        if self._lines and numbers[0] != self._last + 1:
            self.flush()  # within a frame, numbers have no holes
        if self._stream is None:
            return
        if not self._lines:
            self._first, self._flush_at = numbers[0], time.monotonic() + FLUSH_S
        self._lines.append(line + b"\n")
        self._size += len(line) + 1
        self._last = numbers[1]
        if self._size >= _FULL:
            self.flush()

    def _greet(self, line: bytes) -> None:
        """Handle a line before the hello; the program may lack its modules, which this host has."""
        start = max(line.find(b'{"gconsole'), 0)
        try:
            frame = wire.decode(line[start:])
        except wire.BadFrame:
            return  # output of a login script
        hello, digest = frame.get("gconsole"), frame.get("gconsole_lacks")
        if isinstance(hello, dict) and hello.get("agent"):
            self._agent, self._wait_s = str(hello["agent"])[:64], _RETRY_S
        elif isinstance(digest, str):
            archive = self._archive(digest)
            if archive is None:
                self._lose()
                return
            self._write_blob(archive)
            self._write_queued()

    def _archive(self, digest: str) -> "bytes | None":
        if not re.match(r"[0-9a-f]{64}\Z", digest):
            return None
        try:
            size = os.stat(os.path.join(self._place.root or "", "blob", "payload-" + digest)).st_size
        except OSError:
            return None
        return self._place.payload(digest, size)

    def flush(self) -> None:
        """Write the lines, then acknowledge them; if that fails, the agent still has them: connect again later."""
        lines, self._lines, self._size = self._lines, [], 0
        if not lines:
            return
        try:
            self._writer.append(self._agent, self._first, self._last, b"".join(lines))
        except OSError:
            self._lose()
            return
        if self._stream is not None:
            self._write(wire.encode({"ack": self._last}))

    def detach(self) -> "Stream | None":
        """The stream, which this node has no longer."""
        stream, self._stream = self._stream, None
        if stream is not None:
            for fd in (stream.input, stream.output, stream.error):
                self._keeper.forget(fd)
        self._is_writing = False
        return stream

    def _lose(self) -> None:
        """Its connection has ended: try again later."""
        stream = self.detach()
        if stream is not None:
            stream.end()
            self._ending.append(stream)
        self.flush()
        self._retry()

    def _retry(self) -> None:
        self._open_at = time.monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, _MOST_RETRY_S)


def numbers_of(line: bytes) -> "tuple[int, int] | None":
    """First and last number of the records of a line; None if it has none, or is damaged."""
    match = RECORD.match(line)
    if match is not None:
        first = last = int(match.group(1))
    else:
        match = _GAP.match(line)
        if match is not None:
            first, last = int(match.group(1)), int(match.group(2))
        elif line.startswith(b'{"z":'):
            try:
                first = last = int(wire.decode(line)["seq"])
            except (wire.BadFrame, KeyError, TypeError, ValueError):
                return None
        else:
            return None
    return (first, last) if 0 < first <= last else None


def opening_of(payload: bytes) -> "Opening | None":
    """The opening of a stream whose order names its node."""
    order: Any = json.loads(payload.decode("utf-8"))
    return Opening(order["node"], [str(word) for word in order["argv"]]) if order.get("node") else None
