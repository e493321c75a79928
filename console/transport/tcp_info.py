"""What this machine's kernel knows of one TCP connection: whether the far kernel acknowledges what was sent."""

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
    """What the far kernel has not acknowledged.

    One whose program is stopped or slow acknowledges all the same: what is owed says something of the way, and of the
    connection, and nothing of the program.
    """

    segments: int  # sent, and not acknowledged
    retransmits: int  # how often the oldest of them was sent again, its time-outs since the last acknowledgement


def unacked_on(connected: socket.socket) -> Unacked | None:
    """None where that cannot be known: no TCP, not Linux, closed meanwhile."""
    if sys.platform != "linux" or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
    except OSError:
        return None
    if len(info) < _BYTES:
        return None
    return Unacked(struct.unpack_from("=I", info, _UNACKED_AT)[0], info[_RETRANSMITS_AT])
