"""A way to run one command on a node and talk with it; three kinds implement it."""

from __future__ import annotations

from typing import Protocol

from ..config.model import NodeConfig
from .tcp_info import Unacked


class Receiver(Protocol):
    """Who gets what the command writes; called on the event loop, must not block."""

    def on_bytes(self, data: bytes) -> None:
        """Bytes of its standard output."""

    def on_error_bytes(self, data: bytes) -> None:
        """Bytes of its standard error."""

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        """The command ended, or the connection did (`error`); called once, nothing comes after."""


class Channel(Protocol):
    """The running command's standard input."""

    def write(self, data: bytes) -> None:
        """Queue bytes; does nothing once the channel has ended."""

    def pause(self) -> None:
        """Read nothing more from the command until `resume`; the far side has to wait, nothing is lost."""

    def resume(self) -> None:
        """Read on."""

    def unacked(self, silent_s: float) -> Unacked | None:
        """What the node has not acknowledged, on a channel silent for so long; None where that is not known."""

    async def answers(self) -> bool | None:
        """Whether the node takes another connection the same way; None where that is not known without a login."""

    def close(self) -> None:
        """End the channel and whatever connection only it used."""


class Transport(Protocol):
    """One kind of way to nodes."""

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Start `command` (shell text) on a node. Raises FleetError."""
        ...

    async def answers(self, node: NodeConfig) -> bool | None:
        """Whether anything answers where the node was last reached; None where that is not known without a login."""
        ...

    def forget_refused_prompts(self) -> None:
        """A person wants another attempt: what they would not type before may be asked for again."""

    async def close(self) -> None:
        """Close what is shared between nodes (jump hosts)."""
