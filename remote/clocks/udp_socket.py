"""The UDP socket of the probes, and the address of this node that it binds."""

import fcntl
import os
import socket
import struct

from ..samplers.base import Unavailable
from . import packet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

    SocketAddress = tuple[Any, ...]  # as sendto takes it
    Address = tuple[int, str]  # (family, address)

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


_SIOCGIFADDR = 0x8915
#: A UDP socket "connected" to a documentation address (RFC 5737, 3849) is bound to the address of the default route;
#: nothing is sent.
_DOCUMENTATION = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_ADVICE = "set [clock] interface to a name or an address that `ip address` shows on that node"


def bind_address(interface: str, environ: "Mapping[str, str]" = os.environ) -> "Address":
    """(family, address) to bind: of `interface`, else of the console's SSH connection. Raises Unavailable.

    `interface` is an address, or names in the syntax of NCCL_SOCKET_IFNAME: comma-separated prefixes, exact names
    after "=", exclusions after "^". An IPv6 link-local address includes its "%interface".
    """
    if not interface:
        return _of_console(environ)
    bare = interface.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, bare)
        except (OSError, ValueError):
            continue
        return family, interface
    names = _matching(interface, [name for _, name in socket.if_nameindex()])
    if not names:
        raise Unavailable("interface %s not found" % interface, _ADVICE, "no_interface")
    for name in names:
        address = _ipv4(name) or _ipv6(name)
        if address:
            return address
    raise Unavailable("%s has no address" % ", ".join(names), _ADVICE, "no_interface")


def canonical(address: str) -> str:
    """An address as `recvfrom` formats it, without its %interface. Raises ValueError if malformed."""
    bare = address.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_ntop(family, socket.inet_pton(family, bare))
        except (OSError, ValueError):
            continue
    raise ValueError("%r is not an IP address" % address)


def _of_console(environ: "Mapping[str, str]") -> "Address":
    """sshd's address of this connection; without SSH that of the default route, else loopback."""
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) == 4:
        address = words[2][7:] if words[2].startswith("::ffff:") else words[2]
        return (socket.AF_INET6 if ":" in address else socket.AF_INET), address
    for family, target in _DOCUMENTATION:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return family, str(probe.getsockname()[0])
        except OSError:
            continue
    return socket.AF_INET, "127.0.0.1"


def _matching(pattern: str, names: "list[str]") -> "list[str]":
    exclude, exact = pattern.startswith("^"), pattern.startswith("=")
    words = [word for word in pattern.lstrip("^=").split(",") if word]
    matches = []
    for name in names:
        is_named = any(name == word if exact else name.startswith(word) for word in words)
        if is_named != exclude and (is_named or name != "lo"):
            matches.append(name)
    return matches


def _ipv4(name: str) -> "Address | None":
    request = struct.pack("256s", os.fsencode(name)[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            reply = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None  # no IPv4 address
    return socket.AF_INET, socket.inet_ntop(socket.AF_INET, reply[20:24])


def _ipv6(name: str) -> "Address | None":
    """The first global address, else the link-local one with its interface."""
    addresses = []
    try:
        with open("/proc/net/if_inet6") as f:
            for line in f:
                raw, _, _, scope, _, device = line.split()
                if device == name:
                    address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))
                    is_local = int(scope, 16) & 0x20
                    addresses.append((is_local, "%s%%%s" % (address, name) if is_local else address))
    except (OSError, ValueError):
        return None
    return (socket.AF_INET6, min(addresses)[1]) if addresses else None
