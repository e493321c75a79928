"""Reachability probe: a TCP handshake, closed at once, without login or name lookup."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

Address = tuple[str, int]  # numeric host, with the zone if link-local (fe80::1%2), and port
#: Whether the node is reachable at its last address; None if that is unknown without a login.
ReachabilityProbe = Callable[[], Awaitable[bool | None]]

#: Seconds. Timeout of one probe; the next attempt covers longer round trips.
PROBE_TIMEOUT_S = 1.0
#: Seconds. A second SYN in case the first was lost; the kernel would resend it only after the timeout.
SYN_RETRY_S = 0.5


def address_of(sockaddr: tuple[Any, ...]) -> Address:
    """The Address of a socket address: (host, port) for IPv4, (host, port, flow, scope id) for IPv6."""
    host, port, *more = sockaddr
    zone = more[1] if len(more) == 2 else 0
    return (f"{host}%{zone}" if zone and "%" not in host else str(host)), int(port)


async def answers(address: Address) -> bool:
    """Whether `address` accepts a TCP connection."""
    attempts = {
        asyncio.create_task(_try_connect(address, 0.0)),
        asyncio.create_task(_try_connect(address, SYN_RETRY_S)),
    }
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            for attempt in asyncio.as_completed(attempts):
                return await attempt
    except (OSError, TimeoutError):
        return False
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
    return False


async def _try_connect(address: Address, delay_s: float) -> bool:
    """Connect after a delay and return True. Raises OSError if refused."""
    await asyncio.sleep(delay_s)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    return True


class LastAddresses:
    """The last address of each node that was reached directly."""

    def __init__(self) -> None:
        self._addresses: dict[str, Address] = {}

    def note(self, node: str, peer: object) -> None:
        """Store a node's address from its socket's peer name, if any."""
        match peer:
            case (str(host), int(port), *more):
                self._addresses[node] = address_of((host, port, *more))

    def of(self, node: str) -> Address | None:
        """The last address of a node, or None."""
        return self._addresses.get(node)

    async def answer(self, node: str) -> bool | None:
        """Whether the last address is reachable; None if there is none."""
        address = self._addresses.get(node)
        return None if address is None else await answers(address)
