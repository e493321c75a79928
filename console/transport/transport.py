"""Protocols of a transport: run one command on a node and exchange bytes with it."""

from __future__ import annotations

import socket
import struct
import sys
from typing import Protocol

import msgspec

from ..config.model import NodeConfig


class Receiver(Protocol):
    """Consumer of the command's output; called on the event loop, must not block."""

    def on_bytes(self, data: bytes) -> None:
        """Data from standard output."""

    def on_error_bytes(self, data: bytes) -> None:
        """Data from standard error."""

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        """The command ended, or the connection did (`error`); called once, last."""


class Channel(Protocol):
    """Standard input of the running command."""

    def write(self, data: bytes) -> None:
        """Queue bytes; no effect once the channel is closed."""

    def pause(self) -> None:
        """Stop reading until `resume`: back-pressure, no data is lost."""

    def resume(self) -> None:
        """Resume reading."""

    def unacked(self, silent_s: float) -> Unacked | None:
        """Data the node has not acknowledged on a channel silent for `silent_s`; None if unknown."""

    async def answers(self) -> bool | None:
        """Whether the node accepts another connection over the same path; None if unknown without a login."""

    def is_relay_late(self) -> bool:
        """Whether the host that passes on this node's bytes is late with those of all its nodes, but reachable."""

    def close(self) -> None:
        """Close the channel and any connection only it uses."""


class Transport(Protocol):
    """One way to reach nodes."""

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Start `command` (shell text) on a node. Raises FleetError."""
        ...

    async def answers(self, node: NodeConfig) -> bool | None:
        """Whether the node's last address is reachable; None if unknown without a login."""
        ...

    def forget_refused_prompts(self) -> None:
        """Allow dismissed prompts again: the user wants another attempt."""

    async def close(self) -> None:
        """Close connections shared between nodes (jump hosts)."""


#: `struct tcp_info` of linux/tcp.h, which getsockopt(TCP_INFO) fills, see tcp(7): the third of eight single bytes, and
#: the fifth of the 32 bit words behind them. The kernel only ever adds fields at its end.
_RETRANSMITS_AT, _UNACKED_AT, _BYTES = 2, 24, 28


class Unacked(msgspec.Struct, frozen=True):
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
