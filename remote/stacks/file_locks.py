"""Which processes hold the locks of files, from /proc/locks (proc(5)): flock(2), and fcntl(2), which SQLite uses."""

import os
import stat

from ..proc.procfs import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..proc.procfs import ProcFs

#: Descriptors of one process that are examined, holders of one lock, and length of a path.
MAX_FDS, MAX_HOLDERS, MAX_PATH = 1024, 16, 256


def holders(procfs: "ProcFs", pid: int, fd: int) -> "list[int]":
    """The other processes that hold a lock on the file of a descriptor."""
    try:
        file = _file_of(os.stat(procfs.path(pid, "fd/%d" % fd)))
    except OSError:
        return []
    return sorted(_locks(procfs).get(file, set()) - {pid})


def locked_files(procfs: "ProcFs", pid: int) -> "list[dict[str, Any]]":
    """Targets of a wait: the files that a process has open, and that not it but another process has locked."""
    locks = _locks(procfs)
    try:
        names = sorted(os.listdir(procfs.path(pid, "fd")), key=int)[:MAX_FDS] if locks else []
    except OSError:
        return []
    targets: "dict[str, dict[str, Any]]" = {}
    for name in names:
        try:
            state = os.stat(procfs.path(pid, "fd/" + name))
            pids = locks.get(_file_of(state), set()) if stat.S_ISREG(state.st_mode) else set()
            path = procfs.link(pid, "fd/" + name) if pids and pid not in pids else ""
        except OSError:
            continue  # closed since
        if path:
            fields = {"kind": "file", "fd": int(name), "direction": "lock", "path": printable(path, MAX_PATH)}
            targets.setdefault(path, dict(fields, pids=sorted(pids)[:MAX_HOLDERS]))
    return [targets[path] for path in sorted(targets)]


def _locks(procfs: "ProcFs") -> "dict[bytes, set[int]]":
    """By file, as `_file_of` names it, the processes that hold a lock on it."""
    locks: "dict[bytes, set[int]]" = {}
    try:
        lines = procfs.read("", "locks").split(b"\n")
    except OSError:
        return locks
    for line in lines:  # 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF; a waiting one has -> behind the number
        words = line.split()
        if len(words) > 5 and words[1] != b"->" and words[4].isdigit() and words[4] != b"0":
            locks.setdefault(words[5], set()).add(int(words[4]))
    return locks


def _file_of(state: "os.stat_result") -> bytes:
    return b"%02x:%02x:%d" % (os.major(state.st_dev), os.minor(state.st_dev), state.st_ino)
