"""Program of a short-lived process that has one file executed in a rank by `sys.remote_exec`, and prints the result.

It runs as the user of the rank, without capabilities, under the agent's Python. The file and its result are in a folder
that only this user may enter, and that is removed in the end. Python 3.14 and newer.
"""

import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

#: Folders that users share: the file has to have the same path for the rank.
SHARED = ("/tmp", "/dev/shm", "/var/tmp")
#: Names in the folder: what is executed; the result, once it is complete.
PAYLOAD, RESULT = "payload.py", "result"
POLL_S = 0.02
#: Statements of a file that has nothing to execute; takes the place of one that was not started.
NOTHING = "/dev/null"
#: First words of what is printed; the rest is the result, or the reason.
DONE, TIMEOUT, DISABLED, REFUSED, FAILED = "done", "timeout", "disabled", "refused", "failed"


def main(pid: int, name: str, source: bytes, wait_s: float, limit: int) -> None:
    """Have `source` executed in a process, and print a line with one of the words above, then the result or reason."""
    word, rest = DONE, b""
    folder = ""
    try:
        folder = make_folder(name)
        word, rest = result_of(pid, folder, source, wait_s, limit)
    except PermissionError as error:
        word, rest = REFUSED, reason(error)
    except Exception as error:  # noqa: BLE001 - the only output of this process is its answer
        is_off = isinstance(error, RuntimeError) and "not enabled" in str(error)
        word, rest = DISABLED if is_off else FAILED, reason(error)
    finally:
        if folder:
            remove_folder(folder)
    sys.stdout.buffer.write(word.encode() + b"\n" + rest)
    sys.stdout.buffer.flush()


def result_of(pid: int, folder: str, source: bytes, wait_s: float, limit: int) -> "tuple[str, bytes]":
    """(DONE, result) or (TIMEOUT, nothing); then the file is not executed any more."""
    path = os.path.join(folder, PAYLOAD)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(("RESULT = %a\n" % os.path.join(folder, RESULT)).encode("ascii") + source)
    execute(pid, path)
    deadline = time.monotonic() + wait_s
    while True:
        is_over = time.monotonic() >= deadline
        if is_over:
            try:
                execute(pid, NOTHING)
            except ProcessLookupError:
                pass  # the rank has ended
        data = read_result(os.path.join(folder, RESULT), limit)
        if data is not None:
            return DONE, data
        if is_over:
            return TIMEOUT, b""
        time.sleep(POLL_S)


def execute(pid: int, path: str) -> None:
    """Have the main thread of a process execute a file; in place of one that it has not started yet."""
    remote_exec = getattr(sys, "remote_exec")  # noqa: B009 - from 3.14 on
    remote_exec(pid, path)


def make_folder(name: str, shared: "Iterable[str]" = SHARED) -> str:
    """A new folder for this user alone, in one whose other users cannot rename it. Raises OSError if there is none."""
    problem = "none of %s can be used: a file in it could be replaced by others" % ", ".join(shared)
    for parent in shared:
        if not is_safe(parent):
            continue
        try:
            os.mkdir(os.path.join(parent, name), 0o700)
        except OSError as error:
            problem = "%s: %s" % (parent, error.strerror)  # read-only, full
            continue
        return os.path.join(parent, name)
    raise OSError(problem)


def is_safe(folder: str) -> bool:
    """Whether entries of a folder can be renamed or removed by their owner, that of the folder and root alone."""
    try:
        state = os.lstat(folder)
    except OSError:
        return False
    others_write = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_protected = not others_write or bool(state.st_mode & stat.S_ISVTX)
    return stat.S_ISDIR(state.st_mode) and state.st_uid in (0, os.geteuid()) and is_protected


def read_result(path: str, limit: int) -> "bytes | None":
    """At most `limit` bytes of a regular file; None as long as there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("the result is not a file")
        return file.read(limit)


def remove_folder(folder: str) -> None:
    """Remove the folder and the files that may be in it."""
    for name in (PAYLOAD, RESULT, RESULT + ".new"):
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            pass  # not written
    try:
        os.rmdir(folder)
    except OSError:
        pass  # gone, or the rank has put more into it, which is its user's


def reason(error: "Any") -> bytes:
    """The text of an error."""
    text = "%s: %s" % (type(error).__name__, error)
    return text.encode("utf-8", "backslashreplace")[:1000]
