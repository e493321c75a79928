"""The files that processes write their output to, opened read-only while these live, and read when they have ended.

The processes belong to other users. A file counts only if it is a regular one which the process has open for writing
or which belongs to its user, and it is opened with the rights of that user: an agent that runs as root must not read
what the process itself could not.
"""

import errno
import os
import stat

from . import apart, limited
from .user_files import RightsOf, open_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .procfs import ProcFs

#: Bytes from the end of a file.
TAIL_BYTES, SHARED_TAIL_BYTES = 16 << 10, 256 << 10
#: Names in a folder that are looked at.
MOST_NAMES = 4096
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class NoOutput(Exception):
    """A descriptor that leads to no file which can be read; the text is what it leads to, `pipe` its inode."""

    def __init__(self, text: str, pipe: "str | None" = None, try_: str = "") -> None:
        super(NoOutput, self).__init__(text)
        self.text, self.pipe, self.try_ = text, pipe, try_


class OutputFile(object):
    """An open regular file. `users` are the processes that write it; `sent` is its size when its end was last sent."""

    __slots__ = ("fd", "path", "sent", "times", "users")

    def __init__(self, fd: int, path: str) -> None:
        self.fd, self.path = fd, path
        self.users: "set[tuple[int, int]]" = set()
        self.sent: "int | None" = None
        self.times = 0

    def state(self) -> "tuple[int, int]":
        """(size, time of the last change in ns). Raises OSError."""
        info = os.fstat(self.fd)
        return info.st_size, info.st_mtime_ns

    def tail(self, size: int, most: int) -> str:
        """The last whole lines, at most `most` bytes of them; read in a child if the agent is root. Raises OSError."""
        if os.geteuid() != 0:
            return self._tail(size, most)
        try:
            return apart.as_texts(limited.call(lambda: [self._tail(size, most)], (self.fd,)), 1, 4 * most)[0]
        except (IndexError, ValueError):
            raise OSError(errno.EIO, "cannot be read")

    def _tail(self, size: int, most: int) -> str:
        begin = max(0, size - most)
        data = b""
        while begin + len(data) < size:
            part = os.pread(self.fd, size - begin - len(data), begin + len(data))
            if not part:
                break  # truncated meanwhile
            data += part
        if begin:
            end = data.find(b"\n") + 1
            data = data[end:] if 0 < end < len(data) else data
        return data.replace(b"\0", b"").decode("utf-8", "backslashreplace")


class OutputFiles(object):
    """Open files by (device, inode), `most` at a time: processes often share one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: "dict[tuple[int, int], OutputFile]" = {}

    def of_descriptor(
        self, procfs: "ProcFs", pid: int, number: "int | str", modes: "tuple[int, ...]" = (os.O_WRONLY, os.O_RDWR)
    ) -> OutputFile:
        """The file behind a descriptor of a process. Raises NoOutput, and OSError if the process is gone."""
        name = "fd/%s" % number
        path = procfs.link(pid, name)
        if not path.startswith("/"):
            kind, _, inode = path.partition(":")
            raise NoOutput("a %s" % kind.replace("_", " "), inode.strip("[]") if kind == "pipe" else None)
        if path == "/dev/null":
            raise NoOutput("/dev/null: output is discarded")
        if path.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
            raise NoOutput("a terminal (%s)" % path[:64])
        if _mode(procfs, pid, number) not in modes:
            raise NoOutput("not open for writing")
        try:
            with RightsOf.of_process(procfs, pid):
                return self._opened(procfs.path(pid, name), path, None, None)
        except KeyError:
            raise NoOutput("its user is not known")
        except PermissionError:
            if os.geteuid() != 0:
                raise
            raise NoOutput("a file that its user may not read (%s)" % path[:256])

    def of_path(self, folder: int, name: str, path: str, uid: "int | None") -> OutputFile:
        """A file of that user, whose rights the caller has taken, by its name in a folder. Raises NoOutput, OSError."""
        return self._opened(name, path, folder, uid)

    def release(self, file: OutputFile, user: "tuple[int, int]") -> None:
        """Close a file unless others use it."""
        file.users.discard(user)
        if not file.users:
            for key in [key for key, each in self._files.items() if each is file]:
                del self._files[key]
            os.close(file.fd)

    def _opened(self, name: str, path: str, folder: "int | None", uid: "int | None") -> OutputFile:
        handle = os.open(name, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if folder is not None else 0), dir_fd=folder)
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                raise NoOutput("a FIFO or a device (%s)" % path[:64])
            if uid is not None and info.st_uid != uid:
                raise NoOutput("a file of another user (uid %d)" % info.st_uid)
            key = (info.st_dev, info.st_ino)
            if key not in self._files and len(self._files) >= self._most:
                raise NoOutput("not followed: %d files are open already" % self._most)
            # the file that was checked, whatever its name leads to by now; each of its users must be able to read it
            fd = os.open("/proc/self/fd/%d" % handle, _FLAGS)
            if key in self._files:
                os.close(fd)
            else:
                self._files[key] = OutputFile(fd, path)
            return self._files[key]
        finally:
            os.close(handle)


def _mode(procfs: "ProcFs", pid: int, number: "int | str") -> "int | None":
    """How a process has a file open: os.O_RDONLY, O_WRONLY or O_RDWR.

    None with O_PATH, which leads to files that the process may not read.
    """
    for line in procfs.read_at_once(pid, "fdinfo/%s" % number).splitlines():
        if line.startswith(b"flags:"):
            flags = int(line.split()[1], 8)
            return None if flags & os.O_PATH else flags & os.O_ACCMODE
    return None


def open_folder(procfs: "ProcFs", pid: int, path: str, user: "RightsOf") -> int:
    """A descriptor of a folder as a process sees it, also in a container, with the rights of a user. Raises OSError."""
    with user:
        return open_handle(procfs, pid, path, stat.S_ISDIR)


def readers_of_pipes(procfs: "ProcFs", pipes: "set[str]", most: int = 50000) -> "dict[str, tuple[int, list[str]]]":
    """{inode of a pipe: (pid of its reader, descriptors of that reader)}, of these pipes; looks at `most` links."""
    readers: "dict[str, tuple[int, list[str]]]" = {}
    left = most
    for name in sorted(procfs.names(), key=len):
        if not name.isdigit() or left <= 0 or len(readers) == len(pipes):
            continue
        try:
            numbers = os.listdir(procfs.path(name, "fd"))
        except OSError:
            continue  # gone, or of another user
        left -= len(numbers)
        for number in numbers:
            try:
                link = procfs.link(name, "fd/" + number)
                if link.startswith("pipe:[") and link[6:-1] in pipes and _mode(procfs, int(name), number) == 0:
                    readers.setdefault(link[6:-1], (int(name), numbers))
            except (OSError, ValueError, IndexError):
                continue
    return readers
