"""Files that PyTorch's Flight Recorder wrote for a rank, at a timeout, or because somebody wrote to its pipe.

Where they are is said by the rank's environment. Only regular files of the rank's own user are read, and only such as
are younger than the rank: an older one is of a job before.
"""

import os
import stat
import time

from ..clocks import stamps
from ..proc.procfs import GONE
from .errors import NoFlight

#: Newer names first (torch/csrc/distributed/c10d/FlightRecorder.hpp); the NCCL ones are the older.
PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
VARIABLES = (*PREFIXES, PIPE, "HOME", "XDG_CACHE_HOME")
MOST_BYTES = 64 << 20
#: A rank writes its file within this time after its pipe was written to (0.9 to 1.2 s were seen), seconds.
PIPE_S = 2.5
_LOOK_S = 0.05
#: What a file system's clock may be behind the kernel's.
_COARSE_NS = 2 * 10**9


def paths(env, rank):
    """Where a rank with this environment writes its dump, likely places first."""
    for name in PREFIXES:
        if env.get(name):
            return [env[name] + str(rank)]
    cache = env.get("XDG_CACHE_HOME") or (env["HOME"] + "/.cache" if env.get("HOME") else "")
    found = [cache + "/torch/comm_lib_trace_rank_%d" % rank] if cache else []
    return found + ["/tmp/nccl_trace_rank_%d" % rank]  # noqa: S108 - torch's own default, which we only read


class Dump(object):
    """One file: its bytes, and when it was written (CLOCK_REALTIME, ns)."""

    def __init__(self, data, written):
        self.data = data
        self.written = written


def read(procfs, pid, uid, path, started_ns):
    """The Dump at a path as the rank sees it; None where there is none. Raises NoFlight."""
    try:
        fd = _open(procfs, pid, path, os.O_RDONLY)
    except GONE:
        return None
    except PermissionError as error:
        raise NoFlight("no_permission", "%s: %s" % (path, error.strerror), 'run_as = "sudo"')
    except OSError as error:
        raise NoFlight("unreadable", "%s: %s" % (path, error.strerror))
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise NoFlight("unreadable", "%s is no regular file" % path)
        if uid is not None and about.st_uid != uid:
            raise NoFlight("no_permission", "%s is of uid %d, the rank of uid %d" % (path, about.st_uid, uid))
        if started_ns is not None and about.st_mtime_ns + _COARSE_NS < started_ns:
            raise NoFlight("stale", "%s is older than the rank" % path)
        if about.st_size > MOST_BYTES:
            raise NoFlight("unreadable", "%s has more than %d MiB" % (path, MOST_BYTES >> 20))
        with os.fdopen(os.dup(fd), "rb") as file:
            return Dump(file.read(MOST_BYTES), about.st_mtime_ns)
    except OSError as error:
        raise NoFlight("unreadable", "%s: %s" % (path, error.strerror))
    finally:
        os.close(fd)


def dump_by_pipe(procfs, pid, uid, rank, env, deadline):
    """Make a rank write its dump: a byte to its pipe, then wait for the file. Raises NoFlight.

    This changes the job: it writes a file, and is busy for about a second. Only where a person asked for it.
    """
    pipe = env[PIPE] + "%d.pipe" % rank
    before = stamps.realtime_ns() - _COARSE_NS
    seen = {path: _size(procfs, pid, path) for path in paths(env, rank)}
    _poke(procfs, pid, uid, pipe)
    until = min(deadline, time.monotonic() + PIPE_S)
    while time.monotonic() < until:
        for path in seen:
            now = _size(procfs, pid, path)
            if now is not None and now != seen[path]:
                dump = read(procfs, pid, uid, path, before)
                if dump is not None and dump.data.rstrip()[-1:] in (b".", b"}"):  # a pickle's end, or JSON's
                    return dump
        time.sleep(_LOOK_S)
    raise NoFlight("timed_out", "%s was written to, and no dump came within %.1f s" % (pipe, PIPE_S))


def _poke(procfs, pid, uid, pipe):
    try:
        fd = _open(procfs, pid, pipe, os.O_WRONLY)
    except OSError as error:  # ENXIO: there is a pipe, and nobody reads it
        raise NoFlight("refused", "%s cannot be written to: %s" % (pipe, error.strerror))
    try:
        about = os.fstat(fd)
        if not stat.S_ISFIFO(about.st_mode) or (uid is not None and about.st_uid != uid):
            raise NoFlight("refused", "%s is no pipe of the rank's user" % pipe)
        os.write(fd, b"1\n")
    except OSError as error:
        raise NoFlight("refused", "%s cannot be written to: %s" % (pipe, error.strerror))
    finally:
        os.close(fd)


def _size(procfs, pid, path):
    try:
        about = os.stat(_seen(procfs, pid, path))
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _open(procfs, pid, path, flags):
    """Not blocking: a pipe with nobody behind it, or a terminal, must not hold the capture."""
    return os.open(_seen(procfs, pid, path), flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def _seen(procfs, pid, path):
    """A path as the rank means it: within its own root, and from its own folder."""
    return procfs.path(pid, ("root" if path.startswith("/") else "cwd/") + path)
