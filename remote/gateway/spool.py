"""What nodes send while no console is connected, on the gateway's disk: per node, numbered files of frames.

A frame has a head (`_HEAD`: mark, CRC-32 of the rest of the frame, length packed and unpacked, first and last number)
and zlib'd lines. The first line names node and agent, so that each frame stands for itself. What was cut off at the end
of a file was never acknowledged. Everything in the folder is checked again when it is read.
"""

import errno
import fcntl
import json
import os
import re
import struct
import time
import zlib

from ..agent import cache, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Iterator

    from ..agent.cache import Cache
    from ..samplers.base import Fields

#: The cache's subfolder, made only where something is kept.
KEPT = "kept"
#: Bytes of one frame unpacked; one line may have wire.MAX_LINE.
MAX_RAW = wire.MAX_LINE + (1 << 20)
#: Bytes of the file system that stay free.
_FREE = 64 << 20
#: Smallest file, and how many make a node's quota.
_MIN_FILE, _FILES = 64 << 10, 8
#: Seconds after which files that no console has taken are removed, by any later gateway with the same cache.
KEPT_S = 7 * 86400.0
#: Seconds to wait for the process that has the folder.
_LOCK_S = 5.0
_MARK = b"GCk1"
_HEAD = struct.Struct("!4sIIIQQ")
_NAME = re.compile(r"([0-9a-f]{12})-([0-9]{8})\Z")
#: Present while a gateway writes: left by one that was killed.
_WRITING = "writing"


class Frame(object):
    """Lines of one agent, numbers `first` to `last`; `damage` is what is wrong with the bytes before it."""

    def __init__(self, agent: str, first: int, last: int, lines: bytes, damage: str) -> None:
        self.agent, self.first, self.last, self.lines, self.damage = agent, first, last, lines, damage


class Folder(object):
    """The folder of one console's gateway, which one process has at a time."""

    def __init__(self, place: "Cache", owner: str) -> None:
        """Raises OSError: another process has it, or it cannot be written."""
        if place.root is None:
            raise OSError(errno.ENOENT, "no cache folder")
        self.top = os.path.join(place.root, KEPT)
        self.path = os.path.join(self.top, cache.short_name(owner, os.uname().nodename))
        for folder in (self.top, self.path):
            try:
                os.mkdir(folder, 0o700)
            except FileExistsError:
                cache.check(folder, os.geteuid())
        self._lock = self._locked()

    def _locked(self) -> "IO[Any]":
        deadline = time.monotonic() + _LOCK_S
        lock = open(os.path.join(self.path, "lock"), "w")
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except OSError:
                if time.monotonic() > deadline:
                    lock.close()
                    raise
                time.sleep(0.05)

    def begin(self) -> None:
        """From now on this process writes."""
        os.close(os.open(os.path.join(self.path, _WRITING), os.O_WRONLY | os.O_CREAT, 0o600))

    def end(self) -> None:
        """This process has written everything."""
        _unlink(os.path.join(self.path, _WRITING))

    def files(self, node: str) -> "list[str]":
        """Paths of a node's files, the oldest first."""
        name = cache.short_name(node)
        return [os.path.join(self.path, each) for each in sorted(os.listdir(self.path)) if each[:13] == name + "-"]

    def remove(self, node: str) -> None:
        """Remove a node's files: a console has stored them."""
        for path in self.files(node):
            _unlink(path)

    def summary(self) -> "Fields | None":
        """What is there: {"nodes", "bytes", "until": s of the last write, "killed": was its writer}; None: nothing."""
        nodes, size, until = set(), 0, 0.0
        for name in os.listdir(self.path):
            match = _NAME.match(name)
            if match is not None:
                info = os.stat(os.path.join(self.path, name))
                nodes.add(match.group(1))
                size, until = size + info.st_size, max(until, info.st_mtime)
        if not size:
            return None
        killed = os.path.exists(os.path.join(self.path, _WRITING))
        return {"nodes": len(nodes), "bytes": size, "until": int(until), "killed": killed}

    def prune(self) -> None:
        """Remove the folders of other consoles whose files are older than `KEPT_S`."""
        for name in os.listdir(self.top):
            path = os.path.join(self.top, name)
            try:
                files = [os.path.join(path, each) for each in os.listdir(path)]
                newest = max([os.lstat(each).st_mtime for each in files] or [os.lstat(path).st_mtime])
                if path != self.path and newest < time.time() - KEPT_S:
                    for each in files:
                        os.unlink(each)
                    os.rmdir(path)
            except OSError:
                continue  # another gateway does the same

    def leave(self) -> None:
        """Give the folder up; an empty one is removed."""
        try:
            if set(os.listdir(self.path)) <= {"lock", _WRITING}:
                self.end()
                _unlink(os.path.join(self.path, "lock"))
                os.rmdir(self.path)
                os.rmdir(self.top)
        except OSError:
            pass  # other consoles' folders are there, or a file system is gone
        self._lock.close()


class Writer(object):
    """Appends frames of one node, at most `quota` bytes; the oldest file is dropped beyond."""

    def __init__(self, folder: "Folder", node: str, quota: int) -> None:
        self._folder, self._node, self._quota = folder, node, quota
        self._file_bytes = max(_MIN_FILE, quota // _FILES)
        files = folder.files(node)
        self._number = int(files[-1][-8:]) if files else 0
        self._written = self._file_bytes  # of the last file: a new one begins, the end of an old one may be torn

    def append(self, agent: str, first: int, last: int, lines: bytes) -> None:
        """Write the lines, durably. Raises OSError; nothing of them is there then."""
        raw = json.dumps({"node": self._node, "agent": agent}).encode("ascii") + b"\n" + lines
        packed = zlib.compress(raw, 6)
        rest = _HEAD.pack(_MARK, 0, len(packed), len(raw), first, last)[8:] + packed
        frame = _MARK + struct.pack("!I", zlib.crc32(rest)) + rest
        space = os.statvfs(self._folder.path)
        if space.f_bavail * space.f_frsize < _FREE + len(frame):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._written + len(frame) > self._file_bytes:
            self._number, self._written = self._number + 1, 0
            self._drop_oldest(len(frame))
        path = os.path.join(self._folder.path, "%s-%08d" % (cache.short_name(self._node), self._number))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, self._written, frame)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        self._written += len(frame)

    def _drop_oldest(self, size: int) -> None:
        """Make room for one more file."""
        files = self._folder.files(self._node)
        room = self._quota - max(self._file_bytes, size)
        held = sum(os.stat(path).st_size for path in files)
        while files and held > room:
            path = files.pop(0)
            held -= os.stat(path).st_size
            os.unlink(path)


def _write_all(fd: int, offset: int, data: bytes) -> None:
    os.ftruncate(fd, offset)  # what a failed write left
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def frames_of(folder: "Folder", node: str) -> "Iterator[Frame]":
    """The frames of a node, the oldest first. Damaged bytes are skipped, and named at the frame behind them.

    The last one may be empty, for damage behind all others.
    """
    damage = ""
    files = folder.files(node)
    if files and int(files[0][-8:]) > 1:
        damage = "the oldest were dropped: the gateway's disk quota of this node was used up"
    for path in files:
        try:
            f = _opened(path)
        except OSError as error:
            damage = "%s cannot be read: %s" % (os.path.basename(path), error.strerror)
            continue
        with f:
            offset = 0
            while True:
                frame, size = _read(f, offset, node)
                if frame is not None:
                    frame.damage, damage = damage, ""
                    yield frame
                elif size == 0:
                    break  # the end, maybe torn
                else:
                    damage = "%s is damaged at byte %d" % (os.path.basename(path), offset)
                    size = _distance_to_mark(f, offset + 1) + 1
                offset += size
    if damage:
        yield Frame("", 0, 0, b"", damage)


def _opened(path: str) -> "IO[bytes]":
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return open(fd, "rb")


def _read(f: "IO[bytes]", offset: int, node: str) -> "tuple[Frame | None, int]":
    """(the frame at that place, its bytes); (None, 0) at the end, (None, 1) for what is damaged."""
    f.seek(offset)
    head = f.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None, 0
    mark, crc, packed_size, raw_size, first, last = _HEAD.unpack(head)
    if (
        mark != _MARK
        or not 0 < raw_size <= MAX_RAW
        or not 0 < packed_size <= MAX_RAW
        or not 0 < first <= last < 1 << 63
    ):
        return None, 1
    packed = f.read(packed_size)
    if len(packed) < packed_size:
        f.seek(offset + 1)
        return None, 1 if _MARK in f.read(packed_size) else 0  # a wrong length, or the torn end
    if zlib.crc32(head[8:] + packed) != crc:
        return None, 1
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(packed, raw_size + 1)
        names, _, lines = raw.partition(b"\n")
        named = json.loads(names.decode("ascii"))
        if len(raw) != raw_size or named["node"] != node or not lines.endswith(b"\n"):
            return None, 1
        return Frame(str(named["agent"])[:64], first, last, lines, ""), _HEAD.size + packed_size
    except (ValueError, KeyError, TypeError, zlib.error):
        return None, 1


def _distance_to_mark(f: "IO[bytes]", offset: int) -> int:
    """Bytes from a place to the next mark, or to the end of the file."""
    f.seek(offset)
    searched = 0
    before = b""
    while True:
        piece = f.read(1 << 16)
        position = (before + piece).find(_MARK)
        if position >= 0:
            return searched - len(before) + position
        if not piece:
            return searched
        searched += len(piece)
        before = (before + piece)[-len(_MARK) + 1 :]


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # already removed
