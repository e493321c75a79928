"""A UDP socket with kernel receive time stamps."""

import socket
import struct

from ..samplers.base import Unavailable
from . import packet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    SocketAddress = tuple[Any, ...]  # as sendto takes it

#: <asm-generic/socket.h>, without names in Python; different on parisc and sparc only.
_SO_TIMESTAMPNS, _SO_RXQ_OVFL = 35, 40
_TIMESPEC = struct.Struct("@qq")
_COUNT = struct.Struct("@I")
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size) + socket.CMSG_SPACE(_COUNT.size)


class ProbeSocket(object):
    """A bound non-blocking socket. `stamps`: whether the kernel stamps arrivals."""

    def __init__(self, family: int, address: str) -> None:
        """Raises Unavailable if the address cannot be bound."""
        self.family = family
        self.dropped = 0  # packets dropped by the kernel (receive buffer full) since the socket was opened
        try:
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            try:
                self._socket.bind(self.resolve(address, 0))
            except Exception:
                self._socket.close()
                raise
        except OSError as error:
            text = "cannot open a UDP socket at %s: %s" % (address, error)
            raise Unavailable(text, "set [clock] interface to an address of that node", "no_udp")
        self._socket.setblocking(False)
        self.stamps = self._option(_SO_TIMESTAMPNS)
        self._option(_SO_RXQ_OVFL)

    @property
    def address(self) -> str:
        """The bound address."""
        return str(self._socket.getsockname()[0])

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._socket.getsockname()[1])

    @property
    def family_name(self) -> str:
        """ipv4 or ipv6."""
        return "ipv6" if self.family == socket.AF_INET6 else "ipv4"

    def fileno(self) -> int:
        """The descriptor, for select."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def resolve(self, address: str, port: int) -> "SocketAddress":
        """A numeric address as `send` takes it. Raises OSError."""
        return socket.getaddrinfo(address, port, self.family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[0][4]

    def send(self, data: bytes, destination: "SocketAddress") -> bool:
        """Send one packet; False if the kernel rejected it."""
        try:
            self._socket.sendto(data, destination)
        except OSError:  # no route or a full queue: lost, as it might be in the network
            return False
        return True

    def receive(self) -> "tuple[bytes, tuple[str, int], int | None] | None":
        """(data, (address, port), kernel CLOCK_REALTIME of its arrival or None); None if no packet is queued."""
        try:
            data, ancillary, _, source = self._socket.recvmsg(packet.SIZE + 1, _ANCILLARY)
        except OSError:  # empty (BlockingIOError), or an ICMP error for an earlier packet
            return None
        stamp = None
        for level, kind, value in ancillary:
            if level != socket.SOL_SOCKET:
                continue
            if kind == _SO_TIMESTAMPNS and len(value) == _TIMESPEC.size:
                seconds, ns = _TIMESPEC.unpack(value)
                stamp = seconds * 1000000000 + ns
            elif kind == _SO_RXQ_OVFL and len(value) == _COUNT.size:
                self.dropped = _COUNT.unpack(value)[0]
        return data, (source[0].partition("%")[0], source[1]), stamp

    def _option(self, option: int) -> bool:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, option, 1)
        except OSError:
            return False
        return True
