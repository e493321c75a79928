"""Sockets of other processes: which of them listens where, from /proc, and a connection to it.

Only a socket that a rank itself holds is ever connected to, and only to ask what its owner offers to be asked.
"""

import os
import socket
import struct

from ..proc.procfs import GONE
from .errors import NoFlight

#: Of a table of sockets (a busy node has thousands) so much is read.
_MOST_TABLE = 8 << 20
_LISTENS = b"0A"  # TCP_LISTEN (net/tcp_states.h)
_ACCEPTS = 0x10000  # __SO_ACCEPTCON (net/unix)
_PIECE = 1 << 18


class Place(object):
    """Where a socket listens: `family` AF_UNIX, with its path, or AF_INET or AF_INET6, with its host and port."""

    def __init__(self, pid, family, host, port=None):
        self.pid = pid
        self.family = family
        self.host = host
        self.port = port

    def __str__(self):
        return self.host if self.port is None else "%s port %d" % (self.host, self.port)


def inode_of(procfs, pid, fd):
    """The inode of the socket behind a descriptor; None where it is none, or gone. Raises PermissionError."""
    try:
        target = procfs.link(pid, "fd/%d" % fd)
    except GONE:
        return None
    return int(target[8:-1]) if target.startswith("socket:[") and target[8:-1].isdigit() else None


def inodes_of(procfs, pid):
    """The inodes of all sockets that a process holds. Raises PermissionError."""
    found = set()
    for name in os.listdir(procfs.path(pid, "fd")):
        inode = inode_of(procfs, pid, int(name)) if name.isdigit() else None
        if inode is not None:
            found.add(inode)
    return found


def listening(procfs, pid, inode):
    """The Place at which that socket of a process listens; None where it does not."""
    return _unix(procfs, pid, inode) or _tcp(procfs, pid, inode, "tcp6") or _tcp(procfs, pid, inode, "tcp")


def listens_at(procfs, pid, port):
    """{inode: Place} of whatever listens at a TCP port, in the network of a process."""
    found = {}
    for table in ("tcp", "tcp6"):
        for family, host, at, inode in _listeners(procfs, pid, table):
            if at == port:
                found[inode] = Place(pid, family, host, at)
    return found


def _unix(procfs, pid, inode):
    wanted = b"%d" % inode
    for line in _table(procfs, pid, "unix"):
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[6] == wanted and int(fields[3], 16) & _ACCEPTS:
            return Place(pid, socket.AF_UNIX, os.fsdecode(fields[7]))
    return None


def _tcp(procfs, pid, inode, table):
    for family, host, port, found in _listeners(procfs, pid, table):
        if found == inode:
            return Place(pid, family, host, port)
    return None


def _listeners(procfs, pid, table):
    for line in _table(procfs, pid, table):
        fields = line.split(None, 10)
        if len(fields) > 9 and fields[3] == _LISTENS and fields[9].isdigit():
            address, _, port = fields[1].partition(b":")
            yield (*_address(address), int(port, 16), int(fields[9]))


def _table(procfs, pid, name):
    try:
        lines = procfs.read(pid, "net/" + name, _MOST_TABLE).split(b"\n")
    except OSError:
        return []  # a kernel without it (no IPv6), or a process that has just gone
    return lines[1:]


def _address(word):
    """An address as the kernel writes it: words of 32 bits in the byte order of the machine."""
    data = b"".join(struct.pack("=I", int(word[at : at + 8], 16)) for at in range(0, len(word), 8))
    family = socket.AF_INET if len(data) == 4 else socket.AF_INET6
    return family, socket.inet_ntop(family, data)


# -- a connection ----------------------------------------------------------------------------------------------------


def connect(procfs, place, timeout_s):
    """A connected socket. Raises NoFlight."""
    if place.family != socket.AF_UNIX or place.host.startswith("@"):
        _same_network(procfs, place)
    link = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        link.settimeout(timeout_s)
        if place.family == socket.AF_UNIX:
            _connect_unix(procfs, place, link)
        else:
            link.connect((_reachable(place.host), place.port))
        return link
    except socket.timeout:
        link.close()
        raise NoFlight("timed_out", "%s takes no connection" % place)
    except PermissionError as error:
        link.close()
        raise NoFlight("no_permission", "%s may not be connected to: %s" % (place, error.strerror))
    except (OSError, ValueError) as error:
        link.close()
        raise NoFlight("refused", "%s cannot be connected to: %s" % (place, error))


def _connect_unix(procfs, place, link):
    if place.host.startswith("@"):
        link.connect("\0" + place.host[1:])
        return
    # by its folder: through the root of the process (containers), and paths may be longer than an address holds
    root = procfs.path(place.pid, "root" if place.host.startswith("/") else "cwd")
    folder, _, name = place.host.rpartition("/")
    fd = os.open(root + "/" + folder.lstrip("/"), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        link.connect("/proc/self/fd/%d/%s" % (fd, name))
    finally:
        os.close(fd)


def _same_network(procfs, place):
    try:
        own, its = procfs.link("self", "ns/net"), procfs.link(place.pid, "ns/net")
    except OSError:
        return
    if own != its:
        raise NoFlight(
            "elsewhere",
            "%s is in another network namespace than the agent" % place,
            "give the worker server a unix socket: TORCH_WORKER_SERVER_SOCKET",
        )


def _reachable(host):
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it listens at, not we


def receive(link, deadline, most, now):
    """Pieces of bytes until the other side closes. Raises NoFlight when the time, or `most` bytes, are over."""
    total = 0
    while True:
        left = deadline - now()
        if left <= 0:
            raise NoFlight("timed_out", "it had not said all within its time (%d bytes)" % total)
        link.settimeout(left)
        try:
            piece = link.recv(_PIECE)
        except socket.timeout:
            raise NoFlight("timed_out", "it had not said all within its time (%d bytes)" % total)
        except OSError as error:
            raise NoFlight("refused", "the connection broke: %s" % error)
        if not piece:
            return
        total += len(piece)
        if total > most:
            raise NoFlight("unreadable", "it says more than %d MiB" % (most >> 20))
        yield piece
