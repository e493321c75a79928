"""Bytes in the memory of processes, which the agent reads and does not look at.

Memory may be mapped from a file system of its user that never answers: that of another user is read on a thread that
the agent leaves behind then.
"""

import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from .procfs import ProcFs

#: Seconds until a thread is left behind, and how many of these there are at most.
MOST_S, MOST_LEFT = 1.0, 8

_left: "dict[threading.Thread, Any]" = {}  # thread → the user whose memory it reads
_lock = threading.Lock()


def read(procfs: "ProcFs", pid: int, places: "Sequence[tuple[int, int]]") -> "list[bytes]":
    """Of each (address, size) as many bytes as can be read; none at 0. Raises OSError if it cannot be opened."""
    fd = procfs.open(pid, "mem")
    try:
        return [_bytes(fd, address, size) for address, size in places]
    finally:
        procfs.release(fd)


def read_apart(procfs: "ProcFs", user: "Any", pid: int, places: "Sequence[tuple[int, int]]") -> "list[bytes]":
    """The same of a process of another user. Raises OSError, also if its memory, or that of another process of the
    user, does not answer."""
    with _lock:
        for thread in [thread for thread in _left if not thread.is_alive()]:
            del _left[thread]
        if user in _left.values() or len(_left) >= MOST_LEFT:
            raise OSError("memory does not answer")
    results: "list[list[bytes]]" = []
    errors: "list[OSError]" = []

    def run() -> None:
        try:
            results.append(read(procfs, pid, places))
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="gconsole-memory", daemon=True)
    thread.start()
    thread.join(MOST_S)
    if errors:
        raise errors[0]
    if not results:
        with _lock:
            _left[thread] = user
        raise OSError("memory does not answer")
    return results[0]


def _bytes(fd: int, address: int, size: int) -> bytes:
    try:
        return os.pread(fd, size, address) if address and size > 0 else b""
    except (OSError, OverflowError):
        return b""
