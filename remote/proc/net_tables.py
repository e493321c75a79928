"""TCP and unix sockets of a network namespace: /proc/PID/net for TCP, the kernel's socket diagnosis for the rest.

/proc/net/tcp has addresses, states and inodes of every namespace. Bytes moved (`tcp_info`) and the peer of a unix
socket come from NETLINK_SOCK_DIAG, which answers for the agent's own namespace only; elsewhere they are unknown.
"""

import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .procfs import ProcFs

    Address = tuple[str, int]  # (host, port)

#: Bytes. Limit of a socket table; a busy node has thousands of sockets.
MAX_TABLE = 8 << 20
LISTENS = "0A"  # TCP_LISTEN (net/tcp_states.h)
#: linux/inet_diag.h, linux/unix_diag.h, linux/sock_diag.h, linux/netlink.h
_SOCK_DIAG, _BY_FAMILY, _ERROR, _DONE = 4, 20, 2, 3
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_INFO, _PEER = 2, 2  # INET_DIAG_INFO, UNIX_DIAG_PEER
_SHOW_PEER = 4  # UDIAG_SHOW_PEER
#: Offsets in `struct tcp_info` (linux/tcp.h) of tcpi_bytes_acked and tcpi_bytes_received, u64, from Linux 4.1 on.
_LAST_DATA_RECEIVED = 52
_BYTES_ACKED, _BYTES_RECEIVED = 120, 128
#: `struct inet_diag_msg` (linux/inet_diag.h): its length, whose last word is the inode, and where the socket's id is.
_MESSAGE, _ID, _ID_END = 72, 4, 52
_ALL = 0xFFFFFFFF  # states
_TIMEOUT_S = 1.0
#: Bytes of the answer to one lookup, at most.
_ANSWER = 8192


class TcpSocket(object):
    """One TCP socket. `inode` is 0 for a connection that no process has accepted yet; `state` as in /proc/net/tcp."""

    __slots__ = ("inode", "local", "remote", "state")

    def __init__(self, local: "Address", remote: "Address", state: str, inode: int) -> None:
        self.local, self.remote, self.state, self.inode = local, remote, state, inode


def tcp_sockets(procfs: "ProcFs", pid: "int | str") -> "list[TcpSocket]":
    """All TCP sockets in the network namespace of a process; empty if it has ended."""
    return [entry for table in ("tcp", "tcp6") for entry in _tcp_table(procfs, pid, table)]


def _tcp_table(procfs: "ProcFs", pid: "int | str", table: str) -> "Iterator[TcpSocket]":
    for line in table_lines(procfs, pid, table):
        fields = line.split(None, 10)
        if len(fields) > 9 and fields[9].isdigit():
            local, remote = _address(fields[1]), _address(fields[2])
            yield TcpSocket(local, remote, fields[3].decode("ascii", "replace"), int(fields[9]))


def table_lines(procfs: "ProcFs", pid: "int | str", name: str) -> "list[bytes]":
    """The lines of /proc/PID/net/NAME without its header; empty if it cannot be read."""
    try:
        return procfs.read(pid, "net/" + name, MAX_TABLE).split(b"\n")[1:]
    except OSError:
        return []  # no IPv6 in this kernel, or the process has ended


def _address(word: bytes) -> "Address":
    """The kernel's notation: 32-bit words in the byte order of the machine. IPv4 in IPv6 becomes IPv4."""
    digits, _, port = word.partition(b":")
    data = b"".join(struct.pack("=I", int(digits[start : start + 8], 16)) for start in range(0, len(digits), 8))
    if len(data) == 16 and data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data), int(port, 16)


def tcp_bytes() -> "dict[int, tuple[int, float | None]]":
    """{inode: (bytes moved, seconds since data arrived)} of the TCP connections of the agent's own network namespace.

    Bytes are those acknowledged and received since the connection began; None where no data has arrived.
    """
    moved: "dict[int, tuple[int, float | None]]" = {}
    for _, body in _tcp_connections():
        info = _attribute(body, _MESSAGE, _INFO)
        if len(info) >= _BYTES_RECEIVED + 8:
            (quiet_ms,) = struct.unpack_from("=I", info, _LAST_DATA_RECEIVED)
            received = struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0]
            moved[_inode(body)] = _moved(info), quiet_ms / 1e3 if received else None
    return moved


class TcpConnection(object):
    """One TCP connection of the agent's own network namespace: bytes moved so far, and how the kernel names it."""

    __slots__ = ("family", "id", "moved")

    def __init__(self, family: int, id_: bytes, moved: int) -> None:
        self.family, self.id, self.moved = family, id_, moved


def tcp_connections(inodes: "set[int]") -> "dict[int, TcpConnection]":
    """The connections with these inodes that the kernel counts the bytes of."""
    connections = {}
    for family, body in _tcp_connections():
        inode = _inode(body)
        if inode in inodes:
            info = _attribute(body, _MESSAGE, _INFO)
            if len(info) >= _BYTES_RECEIVED + 8:
                connections[inode] = TcpConnection(family, body[_ID:_ID_END], _moved(info))
    return connections


class TcpCounters(object):
    """Bytes that some connections have moved, by one lookup each: a dump would list all sockets of the node."""

    def __init__(self, connections: "list[TcpConnection]") -> None:
        """Raises OSError where the kernel has no socket diagnosis."""
        self._open = {
            _message(1, struct.pack("=BBBBI", each.family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ALL) + each.id): (
                each.moved
            )
            for each in connections
        }
        self._ended = 0  # bytes of connections that have ended
        self._diagnosis = _open_diagnosis()

    def total(self) -> "int | None":
        """Bytes moved by all of them; None once all have ended. Raises OSError."""
        for request in list(self._open):
            self._diagnosis.send(request)
            info = b""
            for kind, body in _messages(self._diagnosis.recv(_ANSWER)):
                if kind != _ERROR:
                    info = _attribute(body, _MESSAGE, _INFO)
            if len(info) >= _BYTES_RECEIVED + 8:
                self._open[request] = _moved(info)
            else:
                self._ended += self._open.pop(request)
        return self._ended + sum(self._open.values()) if self._open else None

    def close(self) -> None:
        """Close the socket."""
        self._diagnosis.close()


def _tcp_connections() -> "Iterator[tuple[int, bytes]]":
    """(family, `struct inet_diag_msg` with its attributes) of each TCP socket that a process holds."""
    for family in (socket.AF_INET, socket.AF_INET6):
        request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ALL)
        for body in _dump(request):
            if len(body) >= _MESSAGE and _inode(body):
                yield family, body


def _inode(body: bytes) -> int:
    inode: int = struct.unpack_from("=I", body, _MESSAGE - 4)[0]
    return inode


def _moved(info: bytes) -> int:
    acked, received = struct.unpack_from("=QQ", info, _BYTES_ACKED)
    total: int = acked + received
    return total


def unix_peers() -> "dict[int, int]":
    """{inode: inode of the other end} of connected unix sockets in the agent's own network namespace."""
    peers: "dict[int, int]" = {}
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_PEER, 0xFFFFFFFF, 0xFFFFFFFF)
    for body in _dump(request):
        if len(body) >= 16:
            peer = _attribute(body, 16, _PEER)
            if len(peer) >= 4:
                peers[struct.unpack_from("=I", body, 4)[0]] = struct.unpack("=I", peer[:4])[0]
    return peers


def _dump(request: bytes) -> "Iterator[bytes]":
    """The bodies of the kernel's response to one dump request; none where the kernel has no socket diagnosis."""
    try:
        connection = _open_diagnosis()
    except OSError:
        return
    with connection:
        try:
            connection.send(_message(_REQUEST_DUMP, request))
            while True:
                data = connection.recv(1 << 18)
                for kind, body in _messages(data):
                    if kind in (_DONE, _ERROR):
                        return
                    yield body
        except OSError:
            return  # forbidden (seccomp), or no answer


def _open_diagnosis() -> "socket.socket":
    connection = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG)
    connection.settimeout(_TIMEOUT_S)
    return connection


def _message(flags: int, request: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, flags, 1, 0) + request


def _messages(data: bytes) -> "Iterator[tuple[int, bytes]]":
    offset = 0
    while offset + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        if length < 16:
            return
        yield kind, data[offset + 16 : offset + length]
        offset += (length + 3) & ~3


def _attribute(body: bytes, offset: int, wanted: int) -> bytes:
    while offset + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, offset)
        if length < 4:
            break
        if kind == wanted:
            return body[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return b""


def same_network(procfs: "ProcFs", pid: int) -> bool:
    """Whether a process is in the agent's own network namespace; False if that cannot be read."""
    try:
        return os.readlink(procfs.path("self", "ns/net")) == procfs.link(pid, "ns/net")
    except OSError:
        return False
