"""One command that reaches a node, usually the user's own ssh: its start, its pipes, its window, its end."""

import collections
import os
import signal
import subprocess
import time

from ..agent import wire
from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque

    from .keeper import Opening
    from .past import Past

#: Seconds between SIGTERM and SIGKILL: ssh tells its server.
END_S = 2.0
#: Bytes written to the command until the console gets more credit, unless nothing is queued any more.
_CREDIT_STEP = frames.WINDOW // 4


class Blob(object):
    """Bytes that are written to many nodes and come once; `is_complete` once all have arrived."""

    def __init__(self, digest: str, size: int) -> None:
        self.digest, self.size = digest, size
        self.data = bytearray()

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are there."""
        return len(self.data) >= self.size


class Stream(object):
    """A command. `credit`: bytes of its output that the console accepts.

    `opening` and `past`: how its node is reached, and what the disk has of it; None where nothing is kept.
    """

    def __init__(self, number: int, argv: "list[str]") -> None:
        """A command that `start` starts; what is added before is written then."""
        self.number, self.argv = number, argv
        self.credit = frames.WINDOW
        self.is_output_open = self.is_error_open = self.is_input_open = False
        self.input = self.output = self.error = -1
        self.opening: Opening | None = None
        self.past: Past | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._queue: Deque[tuple[bytes | bytearray, int, Blob | None]] = collections.deque()
        self._offset = 0  # bytes of the first item that are written
        self._queued, self._written = 0, 0  # by the window's count: waiting, and written since the last credit
        self._kill_at: float | None = None  # monotonic time

    def start(self) -> None:
        """Start the command. Raises OSError."""
        process = self._process = subprocess.Popen(
            self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        assert process.stdin and process.stdout and process.stderr
        self.input, self.output, self.error = (
            pipe.fileno() for pipe in (process.stdin, process.stdout, process.stderr)
        )
        for fd in (self.input, self.output, self.error):
            os.set_blocking(fd, False)
        self.is_output_open = self.is_error_open = self.is_input_open = True

    def add(self, data: bytes) -> None:
        """Queue bytes for the command. Raises BadFrame beyond the window."""
        self._put(data, len(data), None)

    def add_blob(self, blob: "Blob") -> None:
        """Queue a blob for the command; it is written once it is complete. Raises BadFrame beyond the window."""
        self._put(blob.data, frames.WRITE_COST, blob)

    def _put(self, data: "bytes | bytearray", cost: int, blob: "Blob | None") -> None:
        if self._queued + cost > frames.WINDOW:
            raise wire.BadFrame("stream %d: more bytes than its window" % self.number)
        if self.is_input_open or self._process is None:
            self._queued += cost
            self._queue.append((data, cost, blob))

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait that can be written."""
        blob = self._queue[0][2] if self._queue else None
        return bool(self._queue) and self.is_input_open and (blob is None or blob.is_complete)

    def write(self) -> int:
        """Write what the pipe takes; returns the credit to give to the console, 0 for none."""
        try:
            while self.wants_write:
                data, cost, _ = self._queue[0]
                with memoryview(data) as view:
                    self._offset += os.write(self.input, view[self._offset : self._offset + (1 << 16)])
                if self._offset >= len(data):
                    self._queue.popleft()
                    self._offset = 0
                    self._queued -= cost
                    self._written += cost
        except BlockingIOError:
            pass
        except OSError:
            self.close_input()  # its end is reported when its output ends
        credit = self._written if not self._queue or self._written >= _CREDIT_STEP else 0
        self._written -= credit
        return credit

    def read(self, fd: int, most: int) -> "bytes | None":
        """Output or standard error, at most `most` bytes; b"" if there is none now, None at its end."""
        try:
            return os.read(fd, most) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def close_input(self) -> None:
        """Close the command's standard input."""
        self._queue.clear()
        self._queued = 0
        if self.is_input_open:
            self.is_input_open = False
            assert self._process is not None and self._process.stdin
            self._process.stdin.close()

    def status(self) -> "int | None":
        """Its exit status; None while it runs, and before."""
        return self._process.poll() if self._process is not None else None

    def end(self) -> None:
        """Begin to end the command and what it started; `reap` ends that."""
        self.close()
        self._kill_at = time.monotonic() + END_S
        self._signal(signal.SIGTERM)

    def reap(self) -> bool:
        """Whether the ended command is gone; one that ignores SIGTERM is killed."""
        if self._process is None or self._process.poll() is not None:
            return True
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._signal(signal.SIGKILL)
        return False

    def close(self) -> None:
        """Close the pipes."""
        self.close_input()
        if self._process is None:
            return
        assert self._process.stdout and self._process.stderr
        self._process.stdout.close()
        self._process.stderr.close()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            try:
                os.killpg(self._process.pid, number)
            except OSError:
                pass  # it ended just now
