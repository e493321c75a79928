"""Whether anything answers at an address: a TCP handshake that is closed at once. No login, no name looked up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

Address = tuple[str, int]  # numeric, with its zone where it is of one link only (fe80::1%2), and its port
#: Whether something answers where the node was last reached; None where that cannot be known without a login.
Knock = Callable[[], Awaitable[bool | None]]

#: A handshake within this is an answer; a longer way than that is looked at by the next attempt.
PATIENCE_S = 1.0
#: A first packet that got lost is sent again so soon; the kernel's own would go after the patience is over.
AGAIN_S = 0.5


def address_of(told: tuple[Any, ...]) -> Address:
    """What a socket or a resolver tells of an address: (host, port), of IPv6 (host, port, flow, zone)."""
    host, port, *more = told
    zone = more[1] if len(more) == 2 else 0
    return (f"{host}%{zone}" if zone and "%" not in host else str(host)), int(port)


async def answers(address: Address) -> bool:
    """Whether the kernel behind `address` accepts a connection."""
    knocks = {asyncio.create_task(_knock(address, 0.0)), asyncio.create_task(_knock(address, AGAIN_S))}
    try:
        async with asyncio.timeout(PATIENCE_S):
            for knock in asyncio.as_completed(knocks):
                return await knock
    except (OSError, TimeoutError):
        return False
    finally:
        for knock in knocks:
            knock.cancel()
        await asyncio.gather(*knocks, return_exceptions=True)
    return False


async def _knock(address: Address, after_s: float) -> bool:
    """True; raises OSError where it is refused."""
    await asyncio.sleep(after_s)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as knocking:
        knocking.setblocking(False)
        await asyncio.get_running_loop().sock_connect(knocking, address)
    return True


class LastAddresses:
    """Where each node was reached last, of those that are reached directly."""

    def __init__(self) -> None:
        self._known: dict[str, Address] = {}

    def note(self, node: str, peer: object) -> None:
        """`peer` is a socket's peer name, or nothing."""
        match peer:
            case (str(host), int(port), *more):
                self._known[node] = address_of((host, port, *more))

    def of(self, node: str) -> Address | None:
        return self._known.get(node)

    async def answer(self, node: str) -> bool | None:
        """Whether it answers there; None where it was never reached."""
        address = self._known.get(node)
        return None if address is None else await answers(address)
