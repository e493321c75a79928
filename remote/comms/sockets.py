"""Listening sockets of other processes, from /proc, and connections to them.

Only sockets that a rank itself holds are connected to, and only for requests that their owner supports. The name of a
unix socket may contain line breaks, and then adds made-up lines to the kernel's table: who listens is checked after
connecting.
"""

import os
import socket
import stat
import struct
import time

from ..proc import apart
from ..proc.net_tables import LISTENS, table_lines, tcp_sockets
from ..proc.procfs import GONE
from ..proc.user_files import RightsOf, open_handle
from .values import SourceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..proc.procfs import ProcFs

_ACCEPTS = 0x10000  # __SO_ACCEPTCON (net/unix)
_CHUNK = 1 << 18
#: Processes above a rank that may have opened its socket.
_DEEPEST = 8
#: Bytes of the name of a unix socket.
LONGEST_NAME = 4096
#: Lines of the table of unix sockets with one inode that are tried.
MOST_CANDIDATES = 8


class ForeignSocket(SourceError):
    """Another process than the expected one listens."""


class ListeningSocket(object):
    """Address of a listening socket: AF_UNIX with its path as `host`, or AF_INET or AF_INET6 with host and port."""

    def __init__(self, pid: int, family: int, host: str, port: "int | None" = None) -> None:
        self.pid = pid
        self.family = family
        self.host = host
        self.port = port

    def __str__(self) -> str:
        return self.host if self.port is None else "%s port %d" % (self.host, self.port)


def inode_of(procfs: "ProcFs", pid: int, fd: int) -> "int | None":
    """The inode of a socket descriptor; None if it is closed or not a socket. Raises PermissionError."""
    try:
        target = procfs.link(pid, "fd/%d" % fd)
    except GONE:
        return None
    return int(target[8:-1]) if target.startswith("socket:[") and target[8:-1].isdigit() else None


def inodes_of(procfs: "ProcFs", pid: int) -> "set[int]":
    """The inodes of all sockets of a process. Raises PermissionError."""
    inodes = set()
    for name in os.listdir(procfs.path(pid, "fd")):
        inode = inode_of(procfs, pid, int(name)) if name.isdigit() else None
        if inode is not None:
            inodes.add(inode)
    return inodes


def find_listeners(procfs: "ProcFs", pid: int, inode: int) -> "list[ListeningSocket]":
    """The listening socket with this inode; several where the table of unix sockets has made-up lines."""
    return _unix(procfs, pid, inode) or _tcp(procfs, pid, inode)


def listeners_at(procfs: "ProcFs", pid: int, port: int) -> "dict[int, ListeningSocket]":
    """{inode: socket} of the listeners on a TCP port, in the network namespace of a process."""
    return {
        entry.inode: ListeningSocket(pid, _family(entry.local[0]), *entry.local)
        for entry in tcp_sockets(procfs, pid)
        if entry.state == LISTENS and entry.local[1] == port
    }


def _unix(procfs: "ProcFs", pid: int, inode: int) -> "list[ListeningSocket]":
    try:
        names = apart.read(procfs, pid, ("net/unix",), lambda procfs, pid: _unix_names(procfs, pid, inode))
        return [ListeningSocket(pid, socket.AF_UNIX, _name(name)) for name in names[:MOST_CANDIDATES]]
    except (OSError, ValueError, TypeError):
        return []


def _unix_names(procfs: "ProcFs", pid: int, inode: int) -> "list[str]":
    """The names of listening sockets with this inode, each byte as a character."""
    wanted = b"%d" % inode
    names = []
    for line in table_lines(procfs, pid, "unix"):
        fields = line.split(None, 7)
        is_wanted = len(fields) == 8 and fields[6] == wanted and len(fields[7]) <= LONGEST_NAME
        if is_wanted and _accepts(fields[3]):
            names.append(fields[7].decode("latin-1"))
    return names[:MOST_CANDIDATES]


def _name(text: "Any") -> str:
    """The name of a socket that a child found. Raises ValueError."""
    return os.fsdecode(apart.as_text(text, LONGEST_NAME).encode("latin-1"))


def _accepts(flags: bytes) -> bool:
    try:
        return bool(int(flags, 16) & _ACCEPTS)
    except ValueError:
        return False  # a made-up line


def _tcp(procfs: "ProcFs", pid: int, inode: int) -> "list[ListeningSocket]":
    for entry in tcp_sockets(procfs, pid):
        if entry.state == LISTENS and entry.inode == inode:
            return [ListeningSocket(pid, _family(entry.local[0]), *entry.local)]
    return []


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


# -- connections ----------------------------------------------------------------------------------------------------


def connect(procfs: "ProcFs", listener: "ListeningSocket", deadline: float) -> "socket.socket":
    """A connected socket; `deadline` in time.monotonic(). Raises SourceError."""
    timeout_s = deadline - time.monotonic()
    if timeout_s <= 0:
        raise SourceError("timed_out", "not read before the capture's deadline")
    if listener.family != socket.AF_UNIX or listener.host.startswith("@"):
        _require_same_network(procfs, listener)
    connection: "socket.socket | None" = None
    try:
        connection = _connected(procfs, listener, timeout_s)
        if listener.family == socket.AF_UNIX:
            _require_owner(procfs, listener, connection)
        return connection
    except socket.timeout:
        error = SourceError("timed_out", "%s does not accept connections" % listener)
    except PermissionError as denied:
        error = SourceError("no_permission", "no permission to connect to %s: %s" % (listener, denied.strerror))
    except (OSError, KeyError, ValueError) as failed:
        error = SourceError("refused", "cannot connect to %s: %s" % (listener, failed))
    except SourceError as foreign:
        error = foreign
    if connection is not None:
        connection.close()
    raise error


def _connected(procfs: "ProcFs", listener: "ListeningSocket", timeout_s: float) -> "socket.socket":
    """A connection that the user of the process makes, who cannot reach more by it than otherwise. Raises OSError."""
    user = RightsOf.of_process(procfs, listener.pid)
    handle = -1
    address: "Any" = (_loopback(listener.host), listener.port)
    if listener.family == socket.AF_UNIX and listener.host.startswith("@"):
        address = "\0" + listener.host[1:]
    elif listener.family == socket.AF_UNIX:
        with user:  # by a descriptor: below the root of the process (containers), and for paths of > 107 bytes
            handle = open_handle(procfs, listener.pid, listener.host, stat.S_ISSOCK)
        address = "/proc/self/fd/%d" % handle
    connection = socket.socket(listener.family, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        user.call(lambda: connection.connect(address))
        return connection
    except BaseException:
        connection.close()
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _require_owner(procfs: "ProcFs", listener: "ListeningSocket", connection: "socket.socket") -> None:
    """Raise SourceError unless the process itself, or one above it of the same user, listens on the other end."""
    pid, uid, _ = struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    own, lineage = listener.pid, []
    for _ in range(_DEEPEST):  # a socket that a launcher opened and passed on belongs to the launcher
        lineage.append(own)
        own = procfs.stat(own).ppid
        if own <= 1:
            break
    if uid != procfs.status(listener.pid).uid or pid not in lineage:
        raise ForeignSocket("refused", "%s belongs to another process (pid %d, uid %d)" % (listener, pid, uid))


def _require_same_network(procfs: "ProcFs", listener: "ListeningSocket") -> None:
    try:
        own, other = procfs.link("self", "ns/net"), procfs.link(listener.pid, "ns/net")
    except OSError:
        return
    if own != other:
        raise SourceError(
            "elsewhere",
            "%s is in another network namespace than the agent" % listener,
            "give the worker server a unix socket: TORCH_WORKER_SERVER_SOCKET",
        )


def _loopback(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the address of the listener


def receive(connection: "socket.socket", deadline: float, limit: int) -> "Iterator[bytes]":
    """Chunks until the peer closes. Raises SourceError at the deadline, or beyond `limit` bytes."""
    total = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise SourceError("timed_out", "response incomplete at the deadline (%d bytes received)" % total)
        connection.settimeout(left)
        try:
            chunk = connection.recv(_CHUNK)
        except socket.timeout:
            raise SourceError("timed_out", "response incomplete at the deadline (%d bytes received)" % total)
        except OSError as error:
            raise SourceError("refused", "connection lost: %s" % error)
        if not chunk:
            return
        total += len(chunk)
        if total > limit:
            raise SourceError("unreadable", "response exceeds %d MiB" % (limit >> 20))
        yield chunk
