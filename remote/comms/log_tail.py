"""Logs that NCCL writes for a rank: the ends of the files that its environment, or the configuration, names."""

import glob
import os
import stat

from . import nccl_inspector, nccl_log
from .errors import NoFlight

VARIABLES = ("NCCL_DEBUG_FILE", "NCCL_INSPECTOR_DUMP_DIR", "NCCL_INSPECTOR_ENABLE")
#: So much of the end of a log is read, and so many logs of one kind on a node.
MOST_TAIL, MOST_FILES = 1 << 20, 64
#: The Init lines that name communicators are at the beginning of NCCL's log.
MOST_HEAD = 1 << 18


class Tail(object):
    """What one log says: `source` nccl_log or inspector, `entries`, how many bytes were read, when it was written."""

    def __init__(self, source, path, entries, size, written, problem):
        self.source, self.path = source, path
        self.entries = entries
        self.size = size
        self.written = written
        self.problem = problem


def nccl_log_of(env, pid, hostname):
    """The log of a rank by NCCL_DEBUG_FILE, in which %h is the host and %p the process; None where it is unset."""
    path = env.get("NCCL_DEBUG_FILE")
    if not path or path in ("stdout", "stderr") or path.startswith("/dev/"):
        return None
    return path.replace("%%", "\0").replace("%h", hostname).replace("%p", str(pid)).replace("\0", "%")


def inspector_folder_of(env):
    """The folder of Inspector's logs of a rank; None where it does not run, or does not say."""
    return env.get("NCCL_INSPECTOR_DUMP_DIR") if env.get("NCCL_INSPECTOR_ENABLE") == "1" else None


def matches(pattern):
    """The newest files of a glob."""
    found = []
    for path in glob.iglob(pattern):
        try:
            found.append((os.stat(path).st_mtime_ns, path))
        except OSError:
            continue  # it has just gone
        if len(found) >= 16 * MOST_FILES:
            break
    return [path for _, path in sorted(found, reverse=True)[:MOST_FILES]]


def read(path, source, uid=None):
    """The Tail of a log; with a `uid` only of one that is that user's. Raises NoFlight."""
    try:
        head, data, size, written = _ends(path, uid)
    except OSError as error:
        raise NoFlight(
            "no_permission" if isinstance(error, PermissionError) else "unreadable", "%s: %s" % (path, error.strerror)
        )
    if source == "inspector":
        said = nccl_inspector.parse(data)
        problem = "%d lines of %s made no sense" % (said.bad, path) if said.bad else None
    else:
        said = nccl_log.parse(head + b"\n" + data)
        problem = "%d operations in %s are of communicators whose Init lines are not in it" % (said.unnamed, path)
        problem = problem if said.unnamed else None
    return Tail(source, path, said.entries, size, written, problem)


def _ends(path, uid):
    """(its beginning, its end, bytes read, when it was written): one piece where it is small."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "no regular file")
        if uid is not None and about.st_uid != uid:
            raise OSError(0, "it is of uid %d, the rank of uid %d" % (about.st_uid, uid))
        if about.st_size <= MOST_TAIL:
            data = file.read(MOST_TAIL)
            return b"", data, len(data), about.st_mtime_ns
        head = file.read(MOST_HEAD)
        file.seek(about.st_size - MOST_TAIL)
        file.readline()  # cut off
        data = file.read(MOST_TAIL)
        return head, data, len(head) + len(data), about.st_mtime_ns
