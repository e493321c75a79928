"""Which address of this node its probes leave from, and where its peers find it."""

import fcntl
import os
import socket
import struct

from ..samplers.base import Unavailable

_SIOCGIFADDR = 0x8915
#: A socket "connected" to this documentation address (RFC 5737, 3849) has the address of the default route; nothing
#: is sent.
_ANYWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_ADVICE = "set [clock] interface to a name or an address that `ip address` shows on that node"


def choose(interface, environ=os.environ):
    """(family, address) to bind: of `interface`, or of the way by which the console came. Raises Unavailable.

    `interface` is an address, or names as NCCL_SOCKET_IFNAME takes them: prefixes between commas, all of them exact
    after a "=", excluded after a "^". An IPv6 link-local address carries its "%interface".
    """
    if not interface:
        return _of_the_console(environ)
    bare = interface.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, bare)
        except (OSError, ValueError):
            continue
        return family, interface
    names = _matching(interface, [name for _, name in socket.if_nameindex()])
    if not names:
        raise Unavailable("no interface here is called %s" % interface, _ADVICE, "no_interface")
    for name in names:
        found = _ipv4(name) or _ipv6(name)
        if found:
            return found
    raise Unavailable("%s has no address" % ", ".join(names), _ADVICE, "no_interface")


def canonical(address):
    """An address as `recvfrom` writes it, without its %interface. Raises ValueError for what is none."""
    bare = address.partition("%")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_ntop(family, socket.inet_pton(family, bare))
        except (OSError, ValueError):
            continue
    raise ValueError("%r is no address" % address)


def _of_the_console(environ):
    """The address that sshd was reached at; without SSH that of the default route, else loopback."""
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) == 4:
        address = words[2][7:] if words[2].startswith("::ffff:") else words[2]
        return (socket.AF_INET6 if ":" in address else socket.AF_INET), address
    for family, anywhere in _ANYWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((anywhere, 9))
                return family, probe.getsockname()[0]
        except OSError:
            continue
    return socket.AF_INET, "127.0.0.1"


def _matching(pattern, names):
    exclude, exact = pattern.startswith("^"), pattern.startswith("=")
    words = [word for word in pattern.lstrip("^=").split(",") if word]
    found = []
    for name in names:
        named = any(name == word if exact else name.startswith(word) for word in words)
        if named != exclude and (named or name != "lo"):
            found.append(name)
    return found


def _ipv4(name):
    request = struct.pack("256s", os.fsencode(name)[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            reply = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None  # it has none
    return socket.AF_INET, socket.inet_ntop(socket.AF_INET, reply[20:24])


def _ipv6(name):
    """The first global address, else the link-local one with its interface."""
    found = []
    try:
        with open("/proc/net/if_inet6") as f:
            for line in f:
                raw, _, _, scope, _, device = line.split()
                if device == name:
                    address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))
                    is_local = int(scope, 16) & 0x20
                    found.append((is_local, "%s%%%s" % (address, name) if is_local else address))
    except (OSError, ValueError):
        return None
    return (socket.AF_INET6, min(found)[1]) if found else None
