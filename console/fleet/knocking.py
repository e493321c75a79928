"""Whether anything answers at an address: a TCP handshake that is closed at once. No login, no name looked up."""

from __future__ import annotations

import asyncio
import socket

#: A handshake within this is an answer; a longer way than that is looked at by the next attempt.
PATIENCE_S = 1.0


async def answers(address: tuple[str, int]) -> bool:
    """Whether the kernel behind `address` (numeric) accepts a connection."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as knocking:
            knocking.setblocking(False)
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.get_running_loop().sock_connect(knocking, address)
    except (OSError, TimeoutError):
        return False
    return True


class Addresses:
    """Where each node was reached last, of those that are reached directly."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}

    def note(self, node: str, peer: object) -> None:
        """`peer` is a socket's peer name, or nothing."""
        match peer:
            case (str(host), int(port), *_) if "%" not in host:
                self._known[node] = (host, port)

    async def answer(self, node: str) -> bool | None:
        """Whether it answers there; None where it was never reached."""
        address = self._known.get(node)
        return None if address is None else await answers(address)
