"""Protocols of a transport: run one command on a node and exchange bytes with it."""

from __future__ import annotations

from typing import Protocol

from ..config.model import NodeConfig
from .tcp_info import Unacked


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
