"""Flight Recorder of a rank through its worker server (torch.distributed's WorkerServer), located by its thread.

A rank has one if the job calls torch.distributed.debug.start_debug_server (a TCP port) or worker_main with
TORCH_WORKER_SERVER_SOCKET set (a unix socket). Its first thread is named `pt_workerserver` and blocks in accept(fd),
which identifies the socket; no other socket of the rank is touched. The server responds from C++ without the GIL, so
also in a rank that never releases it.
"""

import json
import os
import time

from ..proc.procfs import GONE
from . import sockets
from .values import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from ..proc.procfs import ProcFs
    from .sockets import ListeningSocket

THREAD = b"pt_workerserver\n"
#: accept and accept4 (asm/unistd.h).
_ACCEPT = {"x86_64": ("43", "288"), "aarch64": ("202", "242")}
#: Handlers that return a Flight Recorder dump: of any backend, and of NCCL.
HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
MAX_BYTES = 64 << 20
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


def find_socket(procfs: "ProcFs", pid: int, tids: "Iterable[str]") -> "ListeningSocket":
    """The socket of the worker server with these threads. Raises SourceError."""
    for _ in range(POLLS):
        for tid in tids:
            try:
                listener = _accepting(procfs, pid, tid)
            except PermissionError:
                raise SourceError(
                    "no_permission", "no permission to find its worker server's socket", 'run_as = "sudo"'
                )
            except GONE:
                continue
            if listener is not None:
                return listener
        time.sleep(POLL_S)
    raise SourceError("refused", "its worker server does not accept connections")


def _accepting(procfs: "ProcFs", pid: int, tid: str) -> "ListeningSocket | None":
    words = procfs.read_at_once(pid, "task/%s/syscall" % tid).split()
    if len(words) < 2 or words[0].decode() not in _ACCEPT.get(os.uname().machine, ()):
        return None
    inode = sockets.inode_of(procfs, pid, int(words[1], 16))
    return None if inode is None else sockets.find_listener(procfs, pid, inode)


def read_dumps(procfs: "ProcFs", listener: "ListeningSocket", deadline: float) -> "list[bytes]":
    """JSON Flight Recorder dumps of the server, one per handler. Raises SourceError."""
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
