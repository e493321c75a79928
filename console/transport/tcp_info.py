"""TCP_INFO: whether the peer's kernel acknowledges sent data."""

from __future__ import annotations

import socket
import struct
import sys
from dataclasses import dataclass

#: `struct tcp_info` of linux/tcp.h, which getsockopt(TCP_INFO) fills, see tcp(7): the third of eight single bytes, and
#: the fifth of the 32 bit words behind them. The kernel only ever adds fields at its end.
_RETRANSMITS_AT, _UNACKED_AT, _BYTES = 2, 24, 28


@dataclass(frozen=True)
class Unacked:
    """Sent data that the peer's kernel has not acknowledged.

    A stopped or slow program's kernel still acknowledges: this describes the path, not the program.
    """

    segments: int  # sent but not acknowledged
    retransmits: int  # retransmission timeouts of the oldest since the last acknowledgement


def unacked_on(connected: socket.socket) -> Unacked | None:
    """Unacknowledged data of a socket; None if unknown (not TCP, not Linux, or closed)."""
    if sys.platform != "linux" or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
    except OSError:
        return None
    if len(info) < _BYTES:
        return None
    return Unacked(struct.unpack_from("=I", info, _UNACKED_AT)[0], info[_RETRANSMITS_AT])
