"""When the outputs of a job were written: `writes.log`, by inotify, in the supervisor of the job.

Each line is "NANOSECONDS SIZE PATH": by that instant (CLOCK_REALTIME) the file had that size. Outputs of a rank that
are written in turn get an entry at each turn, which tells their order; else a file gets one in EVERY_S.
"""

import ctypes
import os
import select
import struct
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

NAME = "writes.log"
#: Seconds between two entries of a file that is written alone.
EVERY_S = 0.1
#: Events at once above which the thread pauses, and seconds of that: outputs may be written at any rate.
_MANY, PAUSE_S = 64, 0.01
#: Bytes of writes.log; what is written later has no instant.
MAX_BYTES = 32 << 20
MOST_FOLDERS = 4096
#: linux/inotify.h
_IN_MODIFY, _IN_CREATE, _IN_MOVED_TO, _IN_Q_OVERFLOW, _IN_ISDIR = 0x2, 0x100, 0x80, 0x4000, 0x40000000
_IN_CLOEXEC, _IN_NONBLOCK = 0o2000000, 0o4000


class WriteTimes(object):
    """Records the writes below the folder of a job on a thread, until `close`. Without inotify it records nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        self._watched: "dict[int, str]" = {}
        self._sizes: "dict[str, int]" = {}  # of the last entry of a file
        self._entered: "dict[str, float]" = {}  # when
        self._held: "dict[str, tuple[int, int]]" = {}  # (nanoseconds, size) not entered yet
        self._last: "dict[str, str]" = {}  # folder: the file of the last entry
        self._bytes = 0
        self._ended = threading.Event()
        if self._fd < 0:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._log = os.open(os.path.join(folder, NAME), flags, 0o600)
        self._thread = threading.Thread(target=self._run, name="gconsole-writes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Enter what is left, and end."""
        if self._fd >= 0:
            self._ended.set()
            self._thread.join()
            os.close(self._fd)
            os.close(self._log)

    def _run(self) -> None:
        try:
            self._watch("")
            while not self._ended.is_set():
                if select.select([self._fd], [], [], EVERY_S)[0] and self._read() > _MANY:
                    time.sleep(PAUSE_S)  # then the kernel merges events: the order within the pause is lost
                self._enter_held(time.monotonic())
            self._read()
            self._scan()
            self._enter_held(float("inf"))
        except (OSError, MemoryError):
            pass  # a full disk, or no memory: the job goes on, later writes have no instant

    def _read(self) -> int:
        """Handle the events that are there; their number."""
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return 0
        offset = count = 0
        before = None
        while offset + 16 <= len(data):
            watch, mask, _, length = struct.unpack_from("iIII", data, offset)
            name = os.fsdecode(data[offset + 16 : offset + 16 + length].rstrip(b"\0"))
            offset += 16 + length
            count += 1
            if (watch, name) == before:
                continue
            before = watch, name
            if mask & _IN_Q_OVERFLOW:
                self._scan()
            elif watch in self._watched:
                path = os.path.join(self._watched[watch], name)
                if mask & _IN_ISDIR:
                    self._watch(path)
                else:
                    self._note(path)
        return count

    def _watch(self, path: str) -> None:
        """Watch a folder and those below it, and note the files that are there already."""
        place = os.path.join(self._folder, path)
        if len(self._watched) >= MOST_FOLDERS:
            return
        mask = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO
        watch = self._libc.inotify_add_watch(self._fd, ctypes.c_char_p(os.fsencode(place)), ctypes.c_uint32(mask))
        if watch < 0:
            return
        self._watched[watch] = path
        for name in _names(place):
            below = os.path.join(path, name)
            if os.path.isdir(os.path.join(place, name)):
                if path or name == "ranks":
                    self._watch(below)
            else:
                self._note(below)

    def _scan(self) -> None:
        for path in list(self._watched.values()):
            for name in _names(os.path.join(self._folder, path)):
                self._note(os.path.join(path, name))

    def _note(self, path: str) -> None:
        """A file may have grown."""
        if not path.endswith(".log") or path in (NAME, "supervisor.log"):
            return
        try:
            size = os.stat(os.path.join(self._folder, path)).st_size
        except OSError:
            return
        if size <= self._held.get(path, (0, self._sizes.get(path, 0)))[1]:
            return
        self._held[path] = (time.time_ns() if hasattr(time, "time_ns") else int(time.time() * 1e9), size)
        folder = os.path.dirname(path)
        if self._last.get(folder) != path:
            other = self._last.get(folder)
            if other is not None:
                self._enter(other)
            self._enter(path)
            self._last[folder] = path

    def _enter_held(self, now: float) -> None:
        for path in [path for path in self._held if now - self._entered.get(path, 0.0) >= EVERY_S]:
            self._enter(path)

    def _enter(self, path: str) -> None:
        held = self._held.pop(path, None)
        if held is None or self._bytes > MAX_BYTES:
            return
        line = ("%d %d %s\n" % (held[0], held[1], path)).encode("utf-8", "surrogateescape")
        self._bytes += len(line)
        self._sizes[path], self._entered[path] = held[1], time.monotonic()
        os.write(self._log, line)


def _names(folder: str) -> "list[str]":
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class WriteTimesReader(object):
    """The entries of `writes.log`, read on while it grows."""

    def __init__(self, folder: str) -> None:
        self._folder, self._offset = folder, 0
        self._entries: "dict[str, list[tuple[int, int]]]" = {}  # path: (size, nanoseconds), rising

    def read(self) -> None:
        """Read the new entries."""
        try:
            with open(os.path.join(self._folder, NAME), "rb") as file:
                file.seek(self._offset)
                data = file.read(MAX_BYTES)
        except OSError:
            return
        end = data.rfind(b"\n") + 1
        self._offset += end
        for line in data[:end].splitlines():
            words = line.split(b" ", 2)
            if len(words) == 3 and words[0].isdigit() and words[1].isdigit():
                path = os.path.join(self._folder, os.fsdecode(words[2]))
                self._entries.setdefault(path, []).append((int(words[1]), int(words[0])))

    def runs(self, path: str, offset: int, data: bytes) -> "Iterator[tuple[int, int]]":
        """(lines, nanoseconds) of the lines in `data`, which begins at `offset` of a file, up to the first unknown one.

        Entries that are passed are dropped: offsets of a file only rise.
        """
        entries = self._entries.get(path, [])
        passed = 0
        ends, place = [], offset
        for line in data.split(b"\n"):
            place += len(line) + 1
            ends.append(place - 1)  # without its line feed, which may not have been written yet
        runs: "list[tuple[int, int]]" = []
        for end in ends:
            while passed < len(entries) and entries[passed][0] < end:
                passed += 1
            if passed == len(entries):
                break
            if runs and runs[-1][1] == entries[passed][1]:
                runs[-1] = (runs[-1][0] + 1, runs[-1][1])
            else:
                runs.append((1, entries[passed][1]))
        del entries[:passed]
        for run in runs:
            yield run
