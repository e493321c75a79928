"""One UDP socket whose arrivals the kernel stamps."""

import socket
import struct

from ..samplers.base import Unavailable
from . import packet

#: Of <asm-generic/socket.h>; Python has no names for them. Other numbers on parisc and sparc only.
_SO_TIMESTAMPNS, _SO_RXQ_OVFL = 35, 40
_TIMESPEC = struct.Struct("@qq")
_COUNT = struct.Struct("@I")
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size) + socket.CMSG_SPACE(_COUNT.size)


class Port(object):
    """A bound socket that does not block. `stamps`: whether the kernel is asked to stamp arrivals."""

    def __init__(self, family, address):
        """Raises Unavailable where nothing can be bound there."""
        self.family = family
        self.dropped = 0  # packets that the kernel dropped because nobody read them, since the socket is open
        try:
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
            try:
                where = socket.getaddrinfo(address, 0, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[0][4]
                self._socket.bind(where)
            except Exception:
                self._socket.close()
                raise
        except OSError as error:
            text = "no UDP socket at %s: %s" % (address, error)
            raise Unavailable(text, "set [clock] interface to an address of that node", "no_udp")
        self._socket.setblocking(False)
        self.stamps = self._option(_SO_TIMESTAMPNS)
        self._option(_SO_RXQ_OVFL)

    @property
    def address(self):
        return self._socket.getsockname()[0]

    @property
    def number(self):
        return self._socket.getsockname()[1]

    @property
    def family_name(self):
        return "ipv6" if self.family == socket.AF_INET6 else "ipv4"

    def fileno(self):
        return self._socket.fileno()

    def close(self):
        self._socket.close()

    def resolve(self, address, port):
        """What `send` takes for an address in digits. Raises OSError."""
        return socket.getaddrinfo(address, port, self.family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[0][4]

    def send(self, data, where):
        """Whether the kernel took it."""
        try:
            self._socket.sendto(data, where)
        except OSError:  # no route, a full queue: the packet is lost, as it might be on its way
            return False
        return True

    def receive(self):
        """(data, (address, port), CLOCK_REALTIME of its arrival by the kernel or None); None where nothing waits."""
        try:
            data, ancillary, _, where = self._socket.recvmsg(packet.SIZE + 1, _ANCILLARY)
        except OSError:  # nothing there (BlockingIOError), or the refusal of an earlier packet
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
        return data, (where[0].partition("%")[0], where[1]), stamp

    def _option(self, option):
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, option, 1)
        except OSError:
            return False
        return True
