"""Flight Recorder dumps of a rank: from its worker server, or from dump files, also on request through its pipe.

A rank has a worker server if the job calls torch.distributed.debug.start_debug_server (a TCP port) or worker_main with
TORCH_WORKER_SERVER_SOCKET set (a unix socket). Its first thread is named `pt_workerserver` and blocks in accept(fd),
which identifies the socket; no other socket of the rank is touched. The server responds from C++ without the GIL, so
also in a rank that never releases it. Dump files are named in the rank's environment; only regular files of the rank's
own user are read that are newer than the rank: older ones are of a previous job.
"""

import json
import os
import stat
import time

from ..clocks import stamps
from ..proc.procfs import GONE
from ..proc.user_files import RightsOf, open_checked, open_regular, state
from . import sockets
from .values import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping

    from ..proc.procfs import ProcFs
    from .sockets import ListeningSocket


THREAD = b"pt_workerserver\n"
#: accept and accept4 (asm/unistd.h).
_ACCEPT = {"x86_64": ("43", "288"), "aarch64": ("202", "242")}
#: Handlers that return a Flight Recorder dump: of any backend, and of NCCL.
HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
#: Of one dump; one of 20,000 operations takes 12 MiB as JSON.
MAX_BYTES = 16 << 20
#: Polls of the thread, and seconds between them: it may be between two accepts.
POLLS, POLL_S = 5, 0.02
_MAX_HEAD = 1 << 16


def server_threads(procfs: "ProcFs", pid: int) -> "list[str]":
    """Thread ids of a rank's worker server; empty if it has none."""
    try:
        tids = sorted(os.listdir(procfs.path(pid, "task")), key=int)
        return [tid for tid in tids if procfs.read_at_once(pid, "task/%s/comm" % tid) == THREAD]
    except GONE:
        return []


def find_sockets(procfs: "ProcFs", pid: int, tids: "Iterable[str]") -> "list[ListeningSocket]":
    """The socket of the worker server with these threads, or candidates for it. Raises SourceError."""
    for _ in range(POLLS):
        for tid in tids:
            try:
                listeners = _accepting(procfs, pid, tid)
            except PermissionError:
                raise SourceError(
                    "no_permission", "no permission to find its worker server's socket", 'run_as = "sudo"'
                )
            except GONE:
                continue
            if listeners:
                return listeners
        time.sleep(POLL_S)
    raise SourceError("refused", "its worker server does not accept connections")


def _accepting(procfs: "ProcFs", pid: int, tid: str) -> "list[ListeningSocket]":
    words = procfs.read_at_once(pid, "task/%s/syscall" % tid).split()
    if len(words) < 2 or words[0].decode() not in _ACCEPT.get(os.uname().machine, ()):
        return []
    inode = sockets.inode_of(procfs, pid, int(words[1], 16))
    return [] if inode is None else sockets.find_listeners(procfs, pid, inode)


def read_dumps(procfs: "ProcFs", listeners: "list[ListeningSocket]", deadline: float) -> "list[bytes]":
    """JSON Flight Recorder dumps of the first server that belongs to the rank, one per handler. Raises SourceError."""
    problem: "SourceError | None" = None
    for listener in listeners:
        try:
            return _read_dumps(procfs, listener, deadline)
        except sockets.ForeignSocket as error:
            problem = error
    raise problem or SourceError("refused", "its worker server does not accept connections")


def _read_dumps(procfs: "ProcFs", listener: "ListeningSocket", deadline: float) -> "list[bytes]":
    supported = _handler_names(_request(procfs, listener, "GET /handler/", deadline))
    handlers = [name for name in HANDLERS if name in supported]
    if not handlers:
        raise SourceError("refused", "its worker server has no Flight Recorder (torch older than 2.8)")
    return [_request(procfs, listener, "POST /handler/" + name, deadline) for name in handlers]


def _handler_names(data: bytes) -> "list[str]":
    try:
        names = json.loads(data.decode("utf-8", "backslashreplace"))
    except ValueError:
        names = None
    return names if isinstance(names, list) else list(HANDLERS[:1])


def _request(procfs: "ProcFs", listener: "ListeningSocket", request: str, deadline: float) -> bytes:
    """Response body of a request such as `POST /handler/ping`. Raises SourceError."""
    connection = sockets.connect(procfs, listener, deadline)
    try:
        # HTTP/1.0: the body ends with the connection and is not chunked
        connection.sendall(b"%s HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % request.encode())
        return _body(b"".join(sockets.receive(connection, deadline, MAX_BYTES)), request)
    except OSError as error:
        raise SourceError("refused", "connection lost: %s" % error)
    finally:
        connection.close()


def _body(response: bytes, request: str) -> bytes:
    head, end, body = response.partition(b"\r\n\r\n")
    words = head[:_MAX_HEAD].split(None, 2)
    if not end or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise SourceError("unreadable", "invalid HTTP response from its worker server")
    if words[1] != b"200":
        raise SourceError("refused", "%s: HTTP status %s" % (request, words[1].decode()))
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit() and len(body) < int(value):
            raise SourceError("unreadable", "response truncated after %d of %d bytes" % (len(body), int(value)))
    return body


#: Newest name first (torch/csrc/distributed/c10d/FlightRecorder.hpp).
PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
VARIABLES = (*PREFIXES, PIPE, "HOME", "XDG_CACHE_HOME")
#: Seconds from writing to the pipe until the file is complete (0.9 to 1.2 s measured).
PIPE_TIMEOUT_S = 2.5
_POLL_S = 0.05
#: ns. Tolerance for coarse file timestamps.
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
        with RightsOf.of_process(procfs, pid):
            fd = open_regular(procfs, pid, path)
    except GONE:
        return None
    except PermissionError as error:
        raise SourceError("no_permission", "%s: %s" % (path, error.strerror), 'run_as = "sudo"')
    except OSError as error:
        raise SourceError("unreadable", "%s: %s" % (path, error.strerror))
    try:
        status = os.fstat(fd)
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
    firsts = {path: _state(procfs, pid, path) for path in paths(env, rank)}
    _write_pipe(procfs, pid, uid, pipe)
    until = min(deadline, time.monotonic() + PIPE_TIMEOUT_S)
    while time.monotonic() < until:
        for path, first in firsts.items():
            now = _state(procfs, pid, path)
            if now is not None and now != first:
                dump = read_file(procfs, pid, uid, path, before)
                if dump is not None and dump.data.rstrip()[-1:] in (b".", b"}"):  # the end of a pickle or of JSON
                    return dump
        time.sleep(_POLL_S)
    raise SourceError("timed_out", "no dump within %.1f s of writing to %s" % (PIPE_TIMEOUT_S, pipe))


def _write_pipe(procfs: "ProcFs", pid: int, uid: "int | None", pipe: str) -> None:
    try:
        with RightsOf.of_process(procfs, pid):
            fd = open_checked(procfs, pid, pipe, stat.S_ISFIFO, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:  # ENXIO: a pipe without a reader
        raise SourceError("refused", "cannot write to %s: %s" % (pipe, error.strerror))
    try:
        status = os.fstat(fd)
        if uid is not None and status.st_uid != uid:
            raise SourceError("refused", "%s is not a pipe of the rank's user" % pipe)
        os.write(fd, b"1\n")
    except OSError as error:
        raise SourceError("refused", "cannot write to %s: %s" % (pipe, error.strerror))
    finally:
        os.close(fd)


def _state(procfs: "ProcFs", pid: int, path: str) -> "tuple[int, int] | None":
    """(time of the last write, size) of a file, or None."""
    status = state(procfs, pid, path)
    return None if status is None else (status.st_mtime_ns, status.st_size)
