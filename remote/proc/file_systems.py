"""File systems of the node: space, inodes, read-only state, how long a stat takes, and requests to NFS servers.

A server that does not answer blocks its caller: each statvfs() runs on a thread that is given up after `DEADLINE_S`.
"""

import errno
import os
import re
import threading
import time

from .procfs import printable, read_text
from .threads import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Fields = dict[str, Any]

#: File systems without a block device that hold data of jobs. autofs is not asked: that would mount.
NETWORK = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "wekafs", "cifs", "smb3", "9p", "virtiofs", "glusterfs",
           "fuse.glusterfs", "fuse.sshfs", "fuse.juicefs", "fuse.ceph", "pvfs2", "panfs", "zfs", "daos")  # fmt: skip
IN_MEMORY = ("/dev/shm", "/tmp", "/run")
#: Read-only by their nature, and always full.
IMAGES = ("squashfs", "iso9660", "erofs", "cramfs", "udf")
DEADLINE_S = 3.0
#: Errors of a file system that does not work. A folder may also be closed to this user, or hidden by a later mount.
BROKEN = (errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EREMOTEIO,
          errno.ENODEV, errno.ENXIO, errno.EUCLEAN)  # fmt: skip
#: File systems that are reported, and threads that hang at most.
MOST, MOST_HUNG = 48, 8


class Mount(object):
    """One mounted file system: path, type, source, and whether it is mounted and is writable."""

    __slots__ = ("device", "fstype", "is_mounted_rw", "is_rw", "path", "source")

    def __init__(self, line: str) -> None:
        """Parse a line of mountinfo (proc(5)). Raises ValueError."""
        head, separator, tail = line.partition(" - ")
        fields, rest = head.split(), tail.split()
        if not separator or len(fields) < 6 or len(rest) < 3:
            raise ValueError(line)
        self.device, self.path = fields[2], _unescaped(fields[4])
        self.fstype, self.source = rest[0], _unescaped(rest[1])
        self.is_mounted_rw = "rw" in fields[5].split(",")
        self.is_rw = "ro" not in rest[2].split(",")

    @property
    def is_network(self) -> bool:
        """Whether the data are on another machine."""
        return self.fstype in NETWORK and self.fstype != "zfs"

    @property
    def is_relevant(self) -> bool:
        """Whether jobs may write to it."""
        if self.fstype in IMAGES or self.source.startswith("/dev/loop") or self.path.startswith("/boot"):
            return False
        if self.fstype == "tmpfs":
            return self.path in IN_MEMORY
        return self.path == "/" or self.fstype in NETWORK or self.source.startswith("/dev/")


def mounts(text: str) -> "list[Mount]":
    """The relevant file systems of a mountinfo, each once, at its shortest path."""
    by_device: "dict[str, Mount]" = {}
    for line in text.splitlines():
        try:
            mount = Mount(line)
        except ValueError:
            continue
        before = by_device.get(mount.device)
        if mount.is_relevant and (before is None or len(mount.path) < len(before.path)):
            by_device[mount.device] = mount
    by_path = {mount.path: mount for mount in by_device.values()}  # the last one hides those below it
    return [by_path[path] for path in sorted(by_path)][:MOST]


class StatThread(Thread):
    """Asks file systems one after another, until one does not answer."""

    def __init__(self, paths: "list[str]") -> None:
        super(StatThread, self).__init__(name="gconsole-statvfs")
        self.left = list(paths)  # the first one is being asked
        self.began = time.monotonic()
        self.results: "dict[str, tuple[float, Any]]" = {}  # path: (seconds, answer or OSError)
        self.is_abandoned = False
        self.done = threading.Event()

    def run(self) -> None:
        """Ask all, or the first one only if it was given up meanwhile."""
        while self.left and not self.is_abandoned:
            path, self.began = self.left[0], time.monotonic()
            result: "Any"
            try:
                result = os.statvfs(path)
            except OSError as error:
                result = error
            self.results[path] = (time.monotonic() - self.began, result)
            self.left.pop(0)
        self.done.set()

    @property
    def has_failed(self) -> bool:
        """Whether it ended without all answers, for lack of memory: no file system is to blame."""
        return not self.is_alive() and bool(self.left) and not self.is_abandoned


class FileSystems(object):
    """Reads the file systems; those that hang are not asked again until they answer."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._hung: "dict[str, tuple[float, StatThread]]" = {}  # path: (when it was asked, its thread)

    def read(self, with_network: bool = True) -> "list[Fields]":
        """Fields of a `capacity` record each; without network file systems if they are not asked this time."""
        present = mounts(read_text(self._proc + "/self/mountinfo") or "")
        queried = [mount for mount in present if with_network or not mount.is_network or mount.path in self._hung]
        answers = self._ask([mount.path for mount in queried])
        counters = nfs_counters(read_text(self._proc + "/self/mountstats") or "") if with_network else {}
        return [self._fields(mount, answers.get(mount.path), counters.get(mount.path)) for mount in queried]

    def _ask(self, paths: "list[str]") -> "dict[str, tuple[float, Any]]":
        for path, (_, thread) in list(self._hung.items()):
            if path in thread.results or path not in paths or not thread.is_alive():
                del self._hung[path]
        left = [path for path in paths if path not in self._hung]
        answers: "dict[str, tuple[float, Any]]" = {}
        while left and len(self._hung) < MOST_HUNG:
            thread = StatThread(left)
            thread.start()
            while not thread.done.wait(DEADLINE_S / 8):
                if thread.has_failed:
                    raise MemoryError("a thread that asks file systems has ended")
                if time.monotonic() - thread.began > DEADLINE_S:
                    break
            thread.is_abandoned = True
            answers.update(thread.results)
            stuck = [path for path in left if path not in answers]
            if stuck:
                self._hung[stuck[0]] = (thread.began, thread)
            left = stuck[1:]
        return answers

    def _fields(self, mount: Mount, answer: "tuple[float, Any] | None", nfs: "Fields | None") -> "Fields":
        fields: "Fields" = {
            "type": "file_system", "path": printable(mount.path, 256), "fstype": printable(mount.fstype, 32),
            "source": printable(mount.source, 256), "is_network": mount.is_network,
            "is_writable": mount.is_rw, "was_writable": mount.is_mounted_rw,
        }  # fmt: skip
        if mount.path in self._hung:
            fields["hung_s"] = round(time.monotonic() - self._hung[mount.path][0], 1)
        if answer is not None:
            took_s, result = answer
            fields["stat_ms"] = round(took_s * 1000, 3)
            if isinstance(result, OSError):
                if result.errno in BROKEN:
                    fields["error"] = printable(result.strerror or str(result), 100)
            elif result.f_blocks:
                fields["total_bytes"] = result.f_blocks * result.f_frsize
                fields["available_bytes"] = result.f_bavail * result.f_frsize
                if result.f_files:
                    fields["inodes"], fields["inodes_available"] = result.f_files, result.f_favail
        fields.update(nfs or {})
        return fields


def nfs_counters(text: str) -> "dict[str, Fields]":
    """Path: totals since the mount, of /proc/self/mountstats (nfs_show_stats() and xprt_print_stats() of Linux)."""
    totals: "dict[str, Fields]" = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("device "):
            match = re.match(r"device .{1,4096} mounted on (\S{1,4096}) with fstype nfs4? statvers=1\.", line)
            path = _unescaped(match.group(1)) if match else ""
            if path and len(totals) < MOST:
                totals[path] = {"requests": 0, "retransmits": 0, "queued": 0}
            continue
        words = line.split()
        if path not in totals or not words:
            continue
        if words[0] == "xprt:" and words[1:2] in (["tcp"], ["rdma"]) and len(words) > 11:
            totals[path]["queued"] += _count(words[11])  # length of the queue for a slot, summed at each request
        elif words[0].isupper() and words[0].endswith(":") and len(words) > 7:
            requests, sent = _count(words[1]), _count(words[2])
            totals[path]["requests"] += requests
            totals[path]["retransmits"] += max(0, sent - requests)
    return totals


def _count(word: str) -> int:
    return int(word) if word.isdigit() and len(word) < 19 else 0


def _unescaped(text: str) -> str:
    """A path of mountinfo, in which blanks, tabs, line ends and backslashes are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
