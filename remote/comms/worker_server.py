"""The worker server of a rank (torch.distributed's WorkerServer): found by its thread, asked for its Flight Recorder.

A rank has one where the job calls torch.distributed.debug.start_debug_server (a TCP port) or worker_main with
TORCH_WORKER_SERVER_SOCKET set (a unix socket). Its first thread is called `pt_workerserver` and waits in accept(fd):
so the socket is known exactly, and no other of the rank's sockets is ever touched. The answer is made in C++ without
the interpreter's lock, so a rank that holds it for ever answers too.
"""

import json
import os
import time

from ..proc.procfs import GONE
from . import sockets
from .errors import NoFlight

THREAD = b"pt_workerserver\n"
#: accept and accept4 (asm/unistd.h).
_ACCEPT = {"x86_64": ("43", "288"), "aarch64": ("202", "242")}
#: What the server offers that is a Flight Recorder: of any backend, and NCCL's own.
HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
MOST_BYTES = 64 << 20
LOOKS, LOOK_S = 5, 0.02
_MOST_HEAD = 1 << 16


def threads(procfs, pid):
    """The threads of a rank's worker server; none where it has no such server."""
    try:
        tids = sorted(os.listdir(procfs.path(pid, "task")), key=int)
        return [tid for tid in tids if procfs.read_at_once(pid, "task/%s/comm" % tid) == THREAD]
    except GONE:
        return []


def find(procfs, pid, tids):
    """The Place where the worker server with these threads listens. Raises NoFlight.

    Its thread may be about to wait, or about to hand a connection over: it is looked at more than once.
    """
    for _ in range(LOOKS):
        for tid in tids:
            try:
                place = _place(procfs, pid, tid)
            except PermissionError:
                raise NoFlight("no_permission", "its worker server's socket may not be looked up", 'run_as = "sudo"')
            except GONE:
                continue
            if place is not None:
                return place
        time.sleep(LOOK_S)
    raise NoFlight("refused", "its worker server does not wait for connections")


def _place(procfs, pid, tid):
    words = procfs.read_at_once(pid, "task/%s/syscall" % tid).split()
    if len(words) < 2 or words[0].decode() not in _ACCEPT.get(os.uname().machine, ()):
        return None
    inode = sockets.inode_of(procfs, pid, int(words[1], 16))
    return None if inode is None else sockets.listening(procfs, pid, inode)


def traces(procfs, place, deadline):
    """The bytes of every Flight Recorder that the server at `place` has: JSON, one a handler. Raises NoFlight."""
    offered = _names(ask(procfs, place, "GET /handler/", deadline))
    handlers = [name for name in HANDLERS if name in offered]
    if not handlers:
        raise NoFlight("refused", "its worker server has no Flight Recorder (a torch older than 2.8)")
    return [ask(procfs, place, "POST /handler/" + name, deadline) for name in handlers]


def _names(data):
    try:
        said = json.loads(data.decode("utf-8", "backslashreplace"))
    except ValueError:
        said = None
    return said if isinstance(said, list) else list(HANDLERS[:1])


def ask(procfs, place, what, deadline):
    """The body of the answer to one request, `POST /handler/ping`. Raises NoFlight."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise NoFlight("timed_out", "its turn did not come before the capture's deadline")
    link = sockets.connect(procfs, place, left)
    try:
        # 1.0: the body ends with the connection, and is never in chunks
        link.sendall(b"%s HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % what.encode())
        return _body(b"".join(sockets.receive(link, deadline, MOST_BYTES, time.monotonic)), what)
    except OSError as error:
        raise NoFlight("refused", "the connection broke: %s" % error)
    finally:
        link.close()


def _body(answer, what):
    head, end, body = answer.partition(b"\r\n\r\n")
    words = head[:_MOST_HEAD].split(None, 2)
    if not end or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise NoFlight("unreadable", "what answers is no HTTP server")
    if words[1] != b"200":
        raise NoFlight("refused", "%s: HTTP status %s" % (what, words[1].decode()))
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit() and len(body) < int(value):
            raise NoFlight("unreadable", "the answer was cut off after %d of %d bytes" % (len(body), int(value)))
    return body
