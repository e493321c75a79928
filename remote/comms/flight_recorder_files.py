"""Dump files of PyTorch's Flight Recorder, written at a timeout or on request through the rank's pipe.

The rank's environment has their paths. Only regular files of the rank's own user are read that are newer than the rank:
older ones are of a previous job.
"""

import os
import stat
import time

from ..clocks import stamps
from ..proc.procfs import GONE
from .values import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

    from ..proc.procfs import ProcFs

#: Newest name first (torch/csrc/distributed/c10d/FlightRecorder.hpp).
PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
VARIABLES = (*PREFIXES, PIPE, "HOME", "XDG_CACHE_HOME")
MAX_BYTES = 64 << 20
#: Seconds from writing to the pipe until the file is complete (0.9 to 1.2 s measured).
PIPE_TIMEOUT_S = 2.5
_POLL_S = 0.05
#: ns. Tolerance for coarse file time stamps.
_COARSE_NS = 2 * 10**9


def paths(env: "Mapping[str, str]", rank: int) -> "list[str]":
    """Paths at which a rank with this environment may write its dump, the likeliest first."""
    for name in PREFIXES:
        if env.get(name):
            return [env[name] + str(rank)]
    cache = env.get("XDG_CACHE_HOME") or (env["HOME"] + "/.cache" if env.get("HOME") else "")
    cached = [cache + "/torch/comm_lib_trace_rank_%d" % rank] if cache else []
    return cached + ["/tmp/nccl_trace_rank_%d" % rank]  # noqa: S108 - torch's default, only read here


class DumpFile(object):
    """Contents of one file, and when it was written (CLOCK_REALTIME, ns)."""

    def __init__(self, data: bytes, written: int) -> None:
        self.data = data
        self.written = written


def read_file(procfs: "ProcFs", pid: int, uid: "int | None", path: str, started_ns: "int | None") -> "DumpFile | None":
    """The dump at a path in the rank's mount namespace; None if it does not exist. Raises SourceError."""
    try:
        fd = _open(procfs, pid, path, os.O_RDONLY)
    except GONE:
        return None
    except PermissionError as error:
        raise SourceError("no_permission", "%s: %s" % (path, error.strerror), 'run_as = "sudo"')
    except OSError as error:
        raise SourceError("unreadable", "%s: %s" % (path, error.strerror))
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError("unreadable", "%s is not a regular file" % path)
        if uid is not None and status.st_uid != uid:
            raise SourceError("no_permission", "%s is owned by uid %d, the rank by uid %d" % (path, status.st_uid, uid))
        if started_ns is not None and status.st_mtime_ns + _COARSE_NS < started_ns:
            raise SourceError("stale", "%s is older than the rank" % path)
        if status.st_size > MAX_BYTES:
            raise SourceError("unreadable", "%s exceeds %d MiB" % (path, MAX_BYTES >> 20))
        with os.fdopen(os.dup(fd), "rb") as file:
            return DumpFile(file.read(MAX_BYTES), status.st_mtime_ns)
    except OSError as error:
        raise SourceError("unreadable", "%s: %s" % (path, error.strerror))
    finally:
        os.close(fd)


def request_dump(
    procfs: "ProcFs", pid: int, uid: "int | None", rank: int, env: "Mapping[str, str]", deadline: float
) -> "DumpFile":
    """Make a rank write its dump by writing to its pipe, and read the file. Raises SourceError.

    This affects the job, which is busy for about a second and writes a file: only on explicit request.
    """
    pipe = env[PIPE] + "%d.pipe" % rank
    before = stamps.realtime_ns() - _COARSE_NS
    states = {path: _state(procfs, pid, path) for path in paths(env, rank)}
    _write_pipe(procfs, pid, uid, pipe)
    until = min(deadline, time.monotonic() + PIPE_TIMEOUT_S)
    while time.monotonic() < until:
        for path in states:
            state = _state(procfs, pid, path)
            if state is not None and state != states[path]:
                dump = read_file(procfs, pid, uid, path, before)
                if dump is not None and dump.data.rstrip()[-1:] in (b".", b"}"):  # the end of a pickle or of JSON
                    return dump
        time.sleep(_POLL_S)
    raise SourceError("timed_out", "no dump within %.1f s of writing to %s" % (PIPE_TIMEOUT_S, pipe))


def _write_pipe(procfs: "ProcFs", pid: int, uid: "int | None", pipe: str) -> None:
    try:
        fd = _open(procfs, pid, pipe, os.O_WRONLY)
    except OSError as error:  # ENXIO: a pipe without a reader
        raise SourceError("refused", "cannot write to %s: %s" % (pipe, error.strerror))
    try:
        status = os.fstat(fd)
        if not stat.S_ISFIFO(status.st_mode) or (uid is not None and status.st_uid != uid):
            raise SourceError("refused", "%s is not a pipe of the rank's user" % pipe)
        os.write(fd, b"1\n")
    except OSError as error:
        raise SourceError("refused", "cannot write to %s: %s" % (pipe, error.strerror))
    finally:
        os.close(fd)


def _state(procfs: "ProcFs", pid: int, path: str) -> "tuple[int, int] | None":
    """(time of the last write, size) of a file, or None."""
    try:
        status = os.stat(_path_of(procfs, pid, path))
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _open(procfs: "ProcFs", pid: int, path: str, flags: int) -> int:
    """Open without blocking on a pipe without a writer, or a terminal."""
    return os.open(_path_of(procfs, pid, path), flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def _path_of(procfs: "ProcFs", pid: int, path: str) -> str:
    """A path of the rank, resolved in its root and working directory."""
    return procfs.path(pid, ("root" if path.startswith("/") else "cwd/") + path)
