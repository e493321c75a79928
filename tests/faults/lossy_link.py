"""A lossy link between a node and its switch: packet loss, delay, or dropped connections, from a seed.

The node's interface is removed from the bridge and replaced by a TAP device, and every frame between the two passes
through this process: a netem replacement for kernels without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

from rig import Node
from rig.network import ip

# <linux/if_tun.h>, <linux/if_ether.h>
TUNSETIFF, IFF_TAP, IFF_NO_PI, ETH_P_ALL = 0x400454CA, 0x0002, 0x1000, 0x0003
FRAME_BYTES = 4096
#: Makes the node's kernel compute its checksums: a raw socket bypasses the offload of a NIC.
_WHOLE_CHECKSUMS = """
import ctypes, fcntl, socket, struct
value = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))  # ETHTOOL_STXCSUM, off
request = struct.pack("16sP16x", b"eth0", ctypes.addressof(value))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)  # SIOCETHTOOL
"""


class LossyLink(threading.Thread):
    """Drops each frame with probability `loss`, delays the others by `delay_s`, in both directions."""

    def __init__(self, node: Node, loss: float = 0.0, delay_s: float = 0.0, seed: int = 0) -> None:
        super().__init__(name="gcf-wire", daemon=True)
        self._loss, self._delay_s = loss, delay_s
        self._draw = random.Random(seed)
        self._forgotten: set[int] | None = None
        self._ports: set[int] = set()
        self._ended = threading.Event()
        port = node._sandbox._ports[0]
        self._cable, self._bridge = port.host_end, port.bridge.name
        self._tap_name = f"{self._cable}t"
        node.output(["python3", "-c", _WHOLE_CHECKSUMS])
        self._plug()

    def _plug(self) -> None:
        self._tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self._tap, TUNSETIFF, struct.pack("16sH", self._tap_name.encode(), IFF_TAP | IFF_NO_PI))
        self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        ip("link", "set", self._cable, "nomaster")
        ip("link", "set", self._cable, "promisc", "on")
        self._raw.bind((self._cable, 0))
        ip("link", "set", self._tap_name, "master", self._bridge, "up")

    def forget_connections(self) -> None:
        """Drop all further packets of existing TCP connections, without FIN or RST."""
        self._forgotten = set(self._ports)

    def run(self) -> None:
        queued: list[tuple[float, int, bool, bytes]] = []
        count = itertools.count()
        while not self._ended.is_set():
            wait_s = min(0.05, max(0.0, queued[0][0] - time.monotonic())) if queued else 0.05
            for ready in select.select([self._tap, self._raw], [], [], wait_s)[0]:
                to_node = ready is not self._raw
                frame = os.read(self._tap, FRAME_BYTES) if to_node else self._received()
                if frame and self._passes(frame):
                    heapq.heappush(queued, (time.monotonic() + self._delay_s, next(count), to_node, frame))
            while queued and queued[0][0] <= time.monotonic():
                _, _, to_node, frame = heapq.heappop(queued)
                with contextlib.suppress(OSError):  # a full queue drops frames, as links do
                    os.write(self._tap, frame) if not to_node else self._raw.send(frame)

    def _received(self) -> bytes:
        frame, address = self._raw.recvfrom(FRAME_BYTES)
        return b"" if address[2] == socket.PACKET_OUTGOING else frame

    def _passes(self, frame: bytes) -> bool:
        ports = _tcp_ports(frame)
        if ports:
            self._ports |= ports
            if self._forgotten is not None and max(ports) in self._forgotten:  # the client has the higher port
                return False
        return self._draw.random() >= self._loss

    def close(self) -> None:
        self._ended.set()
        self.join()
        os.close(self._tap)  # also removes the device
        self._raw.close()
        ip("link", "set", self._cable, "promisc", "off")
        ip("link", "set", self._cable, "master", self._bridge)


def _tcp_ports(frame: bytes) -> set[int]:
    """Both ports of a TCP segment over IPv4; empty for other frames."""
    if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
        return set()
    offset = 14 + (frame[14] & 0x0F) * 4
    return set(struct.unpack_from("!HH", frame, offset))


@contextlib.contextmanager
def lossy_link(node: Node, **how: float) -> Iterator[LossyLink]:
    link = LossyLink(node, **how)  # type: ignore[arg-type]
    link.start()
    try:
        yield link
    finally:
        link.close()
