"""The environment of another process, at exec and now.

/proc/PID/environ shows only the first. Ranks set at run time (mp.spawn, Ray Train, Lightning, mpi_discovery) live in
the array that libc's `environ` points to, which is read from /proc/PID/mem with the rights that py-spy needs.
"""

import os
import struct
import zlib

from .procfs import GONE
from .symbols import BadImage, find_symbol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

    from .procfs import ProcFs

#: Upper bounds; a larger array of pointers, or a longer value, is invalid.
MOST_VARIABLES, LONGEST_VALUE = 8192, 4096
PAGE = 4096


class LiveEnviron(object):
    """Address of a process's live environment and its last content; `address` is None if unknown.

    `digest` is of the array of pointers: while it is the same, so are the values.
    """

    __slots__ = ("address", "digest", "values")

    def __init__(self, address: "int | None", digest: "int | None" = None) -> None:
        self.address = address
        self.digest = digest
        self.values: dict[str, str] | None = None


class EnvironReader(object):
    """Reads the variables `names` of processes; caches the offset of `environ` per library."""

    def __init__(self, procfs: "ProcFs", names: "Iterable[str]") -> None:
        self.procfs = procfs
        self.names = frozenset(name.encode() for name in names)
        #: (device, inode) of an image: offset of `environ` in it, or None.
        self._offsets: dict[tuple[bytes, bytes], int | None] = {}

    def static(self, pid: int) -> "tuple[dict[str, str], bytes]":
        """The wanted variables as they were at exec, and the raw block. Raises PermissionError where denied."""
        block = self.procfs.read(pid, "environ")
        return self._wanted(block.split(b"\0")), block

    def locate(self, pid: int) -> "LiveEnviron":
        """Find the live environment of a process. Raises PermissionError if its memory is not readable."""
        try:
            fd = self.procfs.open(pid, "mem")
        except GONE:
            return LiveEnviron(None)
        try:
            return LiveEnviron(self._find(pid, fd))
        except (BadImage, OSError, ValueError, OverflowError, struct.error):
            return LiveEnviron(
                None
            )  # another architecture, static, musl before its start, or gone: the exec-time one stands
        finally:
            self.procfs.release(fd)

    def live(self, pid: int, live: "LiveEnviron", env_start: int) -> "dict[str, str] | None":
        """The wanted variables as they are now; None if unknown."""
        if live.address is None:
            return None
        try:
            fd = self.procfs.open(pid, "mem")
        except OSError:
            return None
        try:
            array = _array(fd, live.address)
            if array is None:
                return None
            digest = zlib.crc32(array) | zlib.adler32(array) << 32
            if digest != live.digest:
                live.values = self._wanted(self._strings(pid, fd, array, env_start))
                live.digest = digest
            return live.values
        except (OSError, OverflowError, struct.error):
            return None  # it moved while being read, or is gone
        finally:
            self.procfs.release(fd)

    def _find(self, pid: int, fd: int) -> "int | None":
        def read(address: int, size: int) -> bytes:
            return os.pread(fd, size, address)

        for base, image in self._images(pid):
            if image not in self._offsets:
                try:
                    offset = find_symbol(read, base, b"environ")
                    self._offsets[image] = find_symbol(read, base, b"__environ") if offset is None else offset
                except BadImage:
                    self._offsets[image] = None
            offset = self._offsets[image]
            if offset is not None:
                return base + offset
        return None

    def _images(self, pid: int) -> "list[tuple[int, tuple[bytes, bytes]]]":
        """The images that may define `environ`, in link order: the program (copy relocation), libc."""
        program = os.fsencode(self.procfs.link(pid, "exe"))
        images: dict[int, tuple[int, tuple[bytes, bytes]]] = {}
        for line in self.procfs.maps(pid).split(b"\n"):
            fields = line.split(None, 5)
            if len(fields) < 6 or fields[2].strip(b"0"):  # without a file, or not its beginning
                continue
            path = fields[5]
            name = path.rpartition(b"/")[2]
            if path == program:
                order = 0
            elif name.startswith((b"libc.so.", b"libc-", b"ld-musl-", b"libc.musl-")):
                order = 1
            else:
                continue
            base = int(fields[0].partition(b"-")[0], 16)
            images.setdefault(order, (base, (fields[3], fields[4])))
        return [images[order] for order in sorted(images)]

    def _strings(self, pid: int, fd: int, array: bytes, env_start: int) -> "Iterator[bytes]":
        """The bytes each pointer of `array` leads to. Those of exec time come from one block, the rest from memory."""
        block = self.procfs.read(pid, "environ")
        pages: dict[int, bytes] = {}
        for (pointer,) in struct.iter_unpack("<Q", array):
            offset = pointer - env_start
            if env_start and 0 <= offset < len(block):
                yield block[offset : offset + LONGEST_VALUE + 256].partition(b"\0")[0]
            else:
                yield _string(fd, pointer, pages)

    def _wanted(self, strings: "Iterable[bytes]") -> "dict[str, str]":
        values: dict[bytes, bytes] = {}
        for string in strings:
            name, _, value = string.partition(b"=")
            if name in self.names and name not in values:  # getenv gives the first
                values[name] = value
        return {
            name.decode("ascii"): value[:LONGEST_VALUE].decode("utf-8", "replace") for name, value in values.items()
        }


def _array(fd: int, address: int) -> "bytes | None":
    """The pointers of the environment as bytes, without the closing null; None before libc has set it up."""
    (start,) = struct.unpack("<Q", os.pread(fd, 8, address))
    if not start:
        return None
    data = b""
    while len(data) < 8 * MOST_VARIABLES:
        # up to the end of the page first: the next page may not be mapped
        part = os.pread(fd, PAGE - (start + len(data)) % PAGE or PAGE, start + len(data))
        for offset in range(0, len(part) - 7, 8):
            if part[offset : offset + 8] == b"\0\0\0\0\0\0\0\0":
                return data + part[:offset]
        if len(part) % 8 or not part:
            return None
        data += part
    return None


def _string(fd: int, pointer: int, pages: "dict[int, bytes]") -> bytes:
    """The string at `pointer`, at most LONGEST_VALUE and its page's rest; b"" where the pointer leads nowhere."""
    data = b""
    while len(data) < LONGEST_VALUE:
        page = (pointer + len(data)) // PAGE * PAGE
        if page not in pages:
            try:
                pages[page] = os.pread(fd, PAGE, page)
            except (OSError, OverflowError):
                pages[page] = b""
        part = pages[page][(pointer + len(data)) - page :]
        end = part.find(b"\0")
        if end >= 0:
            return data + part[:end]
        if not part:
            return b""
        data += part
    return data
