"""The gateway: runs commands that reach nodes, and carries all their streams over the console's one channel.

One thread and one selector. Memory is bounded: nothing is read from a node whose window is used up, nor from any node
while `_MAX_OUT` bytes wait for the console. All commands end with the console's connection; keeper.py may go on.
"""

import collections
import importlib.util
import json
import os
import re
import resource
import selectors
import signal
import sys
import time
import zlib

from ..agent import cache, cache_users, wire
from . import frames
from .endings import SIGNALS, ConsoleLost, Ended, EndedByConsole, end_on_signals
from .stream import Blob, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque, NoReturn

    from ..agent.cache import Cache
    from ..samplers.base import Fields
    from . import keeper, past, spool

#: Seconds for which the streams' frames are gathered, at least, between two writes to the console.
GATHER_S = 0.1
#: Bytes that wait for the console until no node is read, and those that are compressed before their time.
_MAX_OUT, _FULL = 1 << 20, 256 << 10
#: Bytes read of one stream before the others have their turn.
_TURN = 32 << 10
#: Seconds between two looks at commands that are about to end, while there are some; and at the console's silence.
_REAP_S, _IDLE_S = 0.05, 1.0
#: Seconds for which commands are started before the other nodes have their turn: each start waits for a process.
_START_S = 0.02
#: Nodes whose past is sent at the same time: each has a frame of it in memory. Attempts to take over what is kept.
_MOST_SENDING, _TAKE_OVERS = 16, 3
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class Gateway(object):
    """The streams of one console. `id`, `console` and `linger_s` are those of its entry among the cache's users."""

    def __init__(self, start: "Fields", place: "Cache") -> None:
        self.id = "%016x" % int.from_bytes(os.urandom(8), "big")
        self.console = "gateway of %s" % start["console"]  # an agent of that console on this host must not end it
        self.linger_s = 0
        self._place, self._bundle = place, start["bundle"]
        self._orphan_s = start["config"].get("orphan_s", 15)
        self._label = start.get("label", "")
        self._selector = selectors.DefaultSelector()
        self._reader = frames.FrameReader()
        self._streams: dict[int, Stream] = {}
        self._keep: Fields | None = start.get("keep")  # key, for_s, bytes; None: nothing is kept without a console
        if self._keep is not None:
            self.console += ", " + str(self._keep["key"])
        self._folder: spool.Folder | None = None
        self._kept: Fields | None = None  # what is in the folder, for the hello
        self._openings: dict[str, keeper.Opening] = {}  # by node
        self._sending: list[Stream] = []  # their past is being sent
        self._highest = 0  # number of the last stream that was opened
        self._unstarted: Deque[Stream] = collections.deque()  # their commands are still to be started
        self._changed: set[Stream] = set()  # what they are watched for may have changed
        self._closing: set[Stream] = set()  # their output has ended
        self._ending: list[Stream] = []  # they have been ended and not exited yet
        self._had_room = True
        self._blobs: dict[int, Blob] = {}
        self._gathered = bytearray()  # frames to compress
        self._out = bytearray()  # compressed bytes to write
        self._compressor = zlib.compressobj(3)
        self._flushed_at = 0.0  # monotonic times
        self._received_at = time.monotonic()
        self._masks: dict[int, int] = {}  # descriptor: the events that it is watched for
        self._handlers: dict[int, Callable[[int], None]] = {}

    # -- life --------------------------------------------------------------------------------------------------------

    def run(self, received: bytes = b"") -> "Ended":
        """Serve until the console goes; nothing is left then. `received`: bytes of it that were read already."""
        presence = None
        try:
            self._open_folder()
            presence = self._register()
            os.write(1, wire.encode({"gconsole": self._hello()}))
            os.set_blocking(0, False)
            os.set_blocking(1, False)
            self._receive(received)
            while True:
                self._turn()
        except Ended as ended:
            return ended
        finally:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self._end_all()
            cache_users.withdraw(presence)

    def _register(self) -> "str | None":
        try:
            return cache_users.register(self._place, self, self._label)
        except OSError:
            return None  # a full disk must not prevent the connection

    def _open_folder(self) -> None:
        """Take over what an earlier gateway of this console has kept, or still keeps."""
        if self._keep is None:
            return
        from . import spool  # tasks of a step do without

        for left in range(_TAKE_OVERS - 1, -1, -1):
            cache_users.end_own(self._place.root, self.console)
            try:
                self._folder = spool.Folder(self._place, self.console)
                self._kept = self._folder.summary()
                self._folder.prune()
                return
            except (OSError, cache.UnusableCache) as error:
                if not left:
                    self._kept = {"error": str(error)[:300]}

    def go_on(self, ended: "Ended") -> None:
        """After `run`: keep what the nodes send, if the console was lost and wants that."""
        if self._folder is None or self._keep is None:
            return
        openings = [opening for opening in self._openings.values() if opening.lingers]
        if isinstance(ended, ConsoleLost) and openings:
            from . import keeper

            self._blobs.clear()
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)  # the channel can end
            self.linger_s = self._keep["for_s"]
            presence = self._register()
            try:
                end_on_signals()  # of the next gateway of this console, or `clean`
                keeper.Keeper(self._place, self._folder, openings, self.linger_s, self._keep["bytes"]).run()
            finally:
                cache_users.withdraw(presence)
                self._folder.leave()
        else:
            self._folder.leave()

    def _hello(self) -> "Fields":
        return {
            "kept": self._kept,
            "protocol": list(wire.PROTOCOL),
            "agent": self.id,
            "bundle": self._bundle,
            "pid": os.getpid(),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "arch": os.uname().machine,
            "lzma": importlib.util.find_spec("_lzma") is not None,
        }

    def _end_all(self) -> None:
        for stream in self._streams.values():
            stream.end()
            self._ending.append(stream)
        while self._ending:
            self._ending = [stream for stream in self._ending if not stream.reap()]
            if self._ending:
                time.sleep(0.02)

    def _turn(self) -> None:
        self._watch_all()
        for key, events in self._selector.select(self._timeout_s()):
            handler = self._handlers.get(key.fd)  # None: its stream ended in this turn
            if handler is not None:
                handler(events)
        self._start_commands()
        now = time.monotonic()
        self._send_past()
        if now - self._received_at > self._orphan_s:
            raise ConsoleLost("the console is silent")
        self._ending = [stream for stream in self._ending if not stream.reap()]
        for stream in [stream for stream in self._closing if stream.status() is not None]:
            self._finish(stream)
        if self._gathered and (now >= self._flushed_at + GATHER_S or len(self._gathered) >= _FULL):
            self._flush(now)

    def _timeout_s(self) -> float:
        can_send = self._has_room and any(stream.credit > 0 for stream in self._sending[:_MOST_SENDING])
        if self._unstarted or can_send:
            return 0.0
        wait_s = _REAP_S if self._ending or self._closing else _IDLE_S
        if self._gathered:
            wait_s = min(wait_s, max(0.0, self._flushed_at + GATHER_S - time.monotonic()))
        return wait_s

    # -- what is watched -------------------------------------------------------------------------------------------

    def _watch_all(self) -> None:
        """Watch the descriptors for what can be done with them now."""
        self._watch(0, selectors.EVENT_READ, self._read_console)
        self._watch(1, selectors.EVENT_WRITE if self._out else 0, self._write_console)
        has_room = self._has_room
        changed = set(self._streams.values()) if has_room != self._had_room else self._changed
        self._had_room, self._changed = has_room, set()
        for stream in changed:
            can_read = has_room and stream.credit > 0 and not (stream.past is not None and stream.past.is_sending)
            for fd, is_open, kind in (
                (stream.output, stream.is_output_open, frames.DATA), (stream.error, stream.is_error_open, frames.ERROR),
            ):  # fmt: skip
                if is_open:
                    self._watch(fd, selectors.EVENT_READ if can_read else 0, self._reader_of(stream, fd, kind))
            if stream.is_input_open:
                wanted = selectors.EVENT_WRITE if stream.wants_write else 0
                self._watch(stream.input, wanted, self._writer_of(stream))

    @property
    def _has_room(self) -> bool:
        """Whether more may wait for the console."""
        return len(self._out) + len(self._gathered) < _MAX_OUT

    def _watch(self, fd: int, events: int, handler: "Callable[[int], None]") -> None:
        before = self._masks.get(fd, 0)
        if events == before:
            return
        if before and events:
            self._selector.modify(fd, events)
        elif events:
            self._selector.register(fd, events)
        else:
            self._selector.unregister(fd)
        self._masks[fd] = events
        self._handlers[fd] = handler

    def _forget(self, *fds: int) -> None:
        """Watch descriptors no longer; call it before they are closed."""
        for fd in fds:
            if self._masks.pop(fd, 0):
                self._selector.unregister(fd)
            self._handlers.pop(fd, None)

    # -- streams -----------------------------------------------------------------------------------------------------

    def _reader_of(self, stream: "Stream", fd: int, kind: int) -> "Callable[[int], None]":
        def read(_: int) -> None:
            if stream.credit <= 0:
                return  # used up by the other pipe in this turn
            data = stream.read(fd, min(_TURN, stream.credit))
            self._changed.add(stream)
            if data is None:
                self._forget(fd)
                if kind == frames.DATA:
                    stream.is_output_open = False
                    self._closing.add(stream)
                else:
                    stream.is_error_open = False
            elif data:
                stream.credit -= len(data)
                if stream.past is not None and kind == frames.DATA:
                    data = self._after_past(stream, stream.past, data)
                if data:
                    self._send(kind, stream.number, data)

        return read

    def _after_past(self, stream: "Stream", before: "past.Past", data: bytes) -> bytes:
        """What is passed on now of a node's bytes: until its past is sent, those up to its hello."""
        passed = before.pass_on(data, stream.credit)
        if before.is_sending:
            self._sending.append(stream)
            stream.credit += before.held  # sent, and counted, later
        elif len(passed) > len(data) and before.is_sent:
            stream.credit -= len(passed) - len(data)
        return passed

    def _send_past(self) -> None:
        """Send a turn of each past, as windows and memory allow."""
        for stream in self._sending[:_MOST_SENDING]:
            if stream.credit <= 0 or not self._has_room or stream.past is None:
                continue
            data = stream.past.next_bytes(min(_TURN, stream.credit))
            if data:
                stream.credit -= len(data)
                self._send(frames.DATA, stream.number, data)
            else:
                self._sending.remove(stream)
                self._changed.add(stream)

    def _writer_of(self, stream: "Stream") -> "Callable[[int], None]":
        def write(_: int) -> None:
            credit = stream.write()
            self._changed.add(stream)
            if not stream.is_input_open:
                self._forget(stream.input)
            if credit:
                self._send(frames.CREDIT, stream.number, frames.NUMBER.pack(credit))

        return write

    def _finish(self, stream: "Stream") -> None:
        """Report the end of a command whose output has ended, with what is left of its standard error."""
        while stream.is_error_open and stream.credit > 0:
            data = stream.read(stream.error, min(_TURN, stream.credit))
            if not data:
                break  # not its end, where a process of its own still holds it (an ssh master)
            stream.credit -= len(data)
            self._send(frames.ERROR, stream.number, data)
        self._drop(stream)
        stream.close()
        self._send_end(stream.number, stream.status(), "")

    def _drop(self, stream: "Stream") -> None:
        self._forget(stream.input, stream.output, stream.error)
        del self._streams[stream.number]
        self._changed.discard(stream)
        self._closing.discard(stream)
        if stream in self._sending:
            self._sending.remove(stream)

    def _open(self, number: int, payload: bytes) -> None:
        if number <= self._highest:
            raise wire.BadFrame("stream %d was opened before" % number)
        self._highest = number
        argv = json.loads(payload.decode("utf-8"))["argv"]
        stream = self._streams[number] = Stream(number, [str(word) for word in argv])
        self._unstarted.append(stream)
        if self._folder is not None:
            try:
                self._follow(stream, self._folder, payload)
            except OSError as error:
                self._refuse(stream, "cannot read what is kept of its node", error)

    def _refuse(self, stream: "Stream", what: str, error: OSError) -> None:
        self._drop(stream)
        self._send_end(stream.number, None, "%s: %s" % (what, error.strerror or error))

    def _start_commands(self) -> None:
        """Start the commands that wait for it, for a moment."""
        until = time.monotonic() + _START_S
        while self._unstarted:
            stream = self._unstarted.popleft()
            if self._streams.get(stream.number) is not stream:
                continue  # ended before its start
            try:
                stream.start()
                self._changed.add(stream)
            except OSError as error:
                self._refuse(stream, "cannot start %s" % stream.argv[0], error)
            if time.monotonic() > until:
                return

    @staticmethod
    def _follow(stream: "Stream", folder: "spool.Folder", payload: bytes) -> None:
        """Put the node's past into its stream, and learn how it is reached."""
        from . import keeper, past

        stream.opening = keeper.opening_of(payload)
        if stream.opening is not None:
            stream.past = past.Past(folder, stream.opening)

    def _end(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            self._drop(stream)
            stream.end()
            self._ending.append(stream)
            if stream.opening is not None:
                self._openings.pop(stream.opening.node, None)  # the console does not want it any more

    # -- the console -------------------------------------------------------------------------------------------------

    def _read_console(self, _: int) -> None:
        try:
            data = os.read(0, 1 << 18)
        except BlockingIOError:
            return
        except OSError as error:
            raise ConsoleLost("the console's connection failed: %s" % error)
        if not data:
            raise ConsoleLost("the console has closed the connection")
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        self._received_at = time.monotonic()
        try:
            for kind, number, payload in self._reader.feed(data):
                self._act(kind, number, payload)
        except (wire.BadFrame, ValueError, KeyError, TypeError, IndexError) as error:
            raise Ended("not the protocol: %s" % error)

    def _act(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.OPEN:
            self._open(number, payload)
        elif kind == frames.PING:
            self._send(frames.PING, number, payload)
        elif kind == frames.NAME:
            self._name_blob(number, json.loads(payload.decode("utf-8")))
        elif kind == frames.BLOB:
            self._add_to_blob(self._blobs[number], payload)
        elif kind == frames.END and number == 0:
            raise EndedByConsole("the console ends")
        elif number > self._highest:
            raise wire.BadFrame("stream %d was not opened" % number)
        elif kind == frames.END:
            self._end(number)
        elif number in self._streams:  # else it ended while the frame was under way
            self._act_on(self._streams[number], kind, payload)

    def _act_on(self, stream: "Stream", kind: int, payload: bytes) -> None:
        self._changed.add(stream)
        if kind == frames.DATA:
            stream.add(payload)
            if stream.opening is not None:
                self._follow_input(stream, stream.opening, payload)
        elif kind == frames.WRITE:
            blob = self._blobs[frames.number_of(payload)]
            stream.add_blob(blob)
            if stream.opening is not None:
                stream.opening.add_blob(blob.data)
        elif kind == frames.CREDIT:
            stream.credit += frames.number_of(payload)
        else:
            raise wire.BadFrame("frame of kind %d" % kind)

    def _follow_input(self, stream: "Stream", opening: "keeper.Opening", data: bytes) -> None:
        """Learn how the node is reached, and what the console has of its past."""
        opening.add(data)
        if opening.start is not None:
            self._openings[opening.node] = opening
        if stream.past is not None:
            stream.past.on_input(data)

    def _name_blob(self, number: int, named: "Fields") -> None:
        digest, size = named["digest"], int(named["size"])
        held = sum(blob.size for blob in self._blobs.values())
        if number in self._blobs or not _DIGEST.match(digest) or not 0 < size <= frames.MAX_BLOBS - held:
            raise wire.BadFrame("blob %d of %d bytes" % (number, size))
        blob = self._blobs[number] = Blob(digest, size)
        content = self._cached(digest, size)
        blob.data += content or b""
        self._confirm(number, has_blob=content is not None)

    def _cached(self, digest: str, size: int) -> "bytes | None":
        return self._place.payload(digest, size)  # the agent's modules: this host has cached them for itself

    def _confirm(self, number: int, *, has_blob: bool) -> None:
        self._send(frames.HAS if has_blob else frames.LACKS, number)

    def _add_to_blob(self, blob: "Blob", payload: bytes) -> None:
        blob.data += payload
        if len(blob.data) > blob.size or (blob.is_complete and not cache.has_digest(bytes(blob.data), blob.digest)):
            raise wire.BadFrame("a blob arrived damaged")
        if blob.is_complete:
            self._changed.update(self._streams.values())

    def _send_end(self, number: int, status: "int | None", error: str) -> None:
        text = json.dumps({"status": status, "error": error[:500]})
        self._send(frames.END, number, text.encode("ascii"))

    def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        self._gathered += frames.encode(kind, number, payload)

    def _flush(self, now: float) -> None:
        self._flushed_at = now
        self._out += self._packed(bytes(self._gathered))
        del self._gathered[:]
        self._write_console(0)

    def _packed(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def _write_console(self, _: int) -> None:
        try:
            while self._out:
                del self._out[: os.write(1, self._out[: 1 << 16])]
        except BlockingIOError:
            pass
        except OSError as error:
            raise ConsoleLost("the console's connection failed: %s" % error)


def run(start: "Fields", place: "Cache") -> "NoReturn":
    """Serve the console on standard input and output, then end the process."""
    end_on_signals()
    os.nice(10)
    _raise_descriptor_limit()
    gateway = Gateway(start, place)
    try:
        gateway.go_on(gateway.run())
    finally:
        os._exit(0)


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as this user may have: each node takes three."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass  # the limit of this user stays; a node too many is reported by its failure
