"""Tails of NCCL's logs, named by the environment of a rank or by the configuration."""

import glob
import os
import stat

from . import nccl_inspector, nccl_log
from .values import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

VARIABLES = ("NCCL_DEBUG_FILE", "NCCL_INSPECTOR_DUMP_DIR", "NCCL_INSPECTOR_ENABLE")
#: Bytes read from the end of a log; number of logs of one kind per node.
MAX_TAIL, MAX_FILES = 1 << 20, 64
#: Bytes read from the beginning of a log, which has the Init lines of the communicators.
MAX_HEAD = 1 << 18


class LogTail(object):
    """Operations of one log: `source` nccl_log or inspector, bytes read, time of the last write (ns)."""

    def __init__(
        self, source: str, entries: "list[dict[str, Any]]", size: int, written: int, problem: "str | None"
    ) -> None:
        self.source = source
        self.entries = entries
        self.size = size
        self.written = written
        self.problem = problem


def nccl_log_of(env: "Mapping[str, str]", pid: int, hostname: str) -> "str | None":
    """Path of a rank's log by NCCL_DEBUG_FILE, with %h (host) and %p (pid) expanded; None if unset."""
    path = env.get("NCCL_DEBUG_FILE")
    if not path or path in ("stdout", "stderr") or path.startswith("/dev/"):
        return None
    return path.replace("%%", "\0").replace("%h", hostname).replace("%p", str(pid)).replace("\0", "%")


def inspector_folder_of(env: "Mapping[str, str]") -> "str | None":
    """Folder of a rank's Inspector logs; None if Inspector is off or the folder unset."""
    return env.get("NCCL_INSPECTOR_DUMP_DIR") if env.get("NCCL_INSPECTOR_ENABLE") == "1" else None


def matches(pattern: str) -> "list[str]":
    """The newest files of a glob."""
    files = []
    for path in glob.iglob(pattern):
        try:
            files.append((os.stat(path).st_mtime_ns, path))
        except OSError:
            continue  # deleted meanwhile
        if len(files) >= 16 * MAX_FILES:
            break
    return [path for _, path in sorted(files, reverse=True)[:MAX_FILES]]


def read_tail(path: str, source: str, uid: "int | None" = None) -> "LogTail":
    """The newest operations of a log, which must belong to `uid` if given. Raises SourceError."""
    try:
        head, data, size, written = _ends(path, uid)
    except OSError as error:
        raise SourceError(
            "no_permission" if isinstance(error, PermissionError) else "unreadable", "%s: %s" % (path, error.strerror)
        )
    problem = None
    if source == "inspector":
        inspector = nccl_inspector.parse(data)
        if inspector.bad:
            problem = "%d malformed lines in %s" % (inspector.bad, path)
        return LogTail(source, inspector.entries, size, written, problem)
    log = nccl_log.parse(head + b"\n" + data)
    if log.unnamed:
        problem = "%d operations in %s without the Init lines of their communicators" % (log.unnamed, path)
    return LogTail(source, log.entries, size, written, problem)


def _ends(path: str, uid: "int | None") -> "tuple[bytes, bytes, int, int]":
    """(beginning, end, bytes read, time of the last write); the beginning is empty if the end is the whole file."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        if uid is not None and status.st_uid != uid:
            raise OSError(0, "owned by uid %d, the rank by uid %d" % (status.st_uid, uid))
        if status.st_size <= MAX_TAIL:
            data = file.read(MAX_TAIL)
            return b"", data, len(data), status.st_mtime_ns
        head = file.read(MAX_HEAD)
        file.seek(status.st_size - MAX_TAIL)
        file.readline()  # truncated line
        data = file.read(MAX_TAIL)
        return head, data, len(head) + len(data), status.st_mtime_ns
