"""TCP connections to nodes: name resolution and fast retry of lost SYNs below a login, and reachability probes."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Address = tuple[str, int]  # numeric host, with the zone if link-local (fe80::1%2), and port
#: Whether the node is reachable at its last address; None if that is unknown without a login.
ReachabilityProbe = Callable[[], Awaitable[bool | None]]

#: Seconds. Timeout of one probe; the next attempt covers longer round trips.
PROBE_TIMEOUT_S = 1.0
#: Seconds. A second SYN in case the first was lost; the kernel would resend it only after the timeout.
PROBE_SYN_RETRY_S = 0.5
#: Seconds until a second SYN from another port. The kernel resends after 1, 3, 7 and 15 s (tcp(7), RFC 6298),
#: which would delay recovery.
SYN_RETRY_S = 1.0
#: Seconds to wait for DNS before the last known address is tried too.
DNS_WAIT_S = 0.5


async def reach(host: str, port: int, last_address: Address | None) -> socket.socket:
    """Connect to the resolved name. Raises OSError; socket.gaierror if it does not resolve.

    `last_address` replaces a name that fails or is slow to resolve; the host key still identifies the node.
    """
    lookup = asyncio.ensure_future(_resolve(host, port))
    try:
        if last_address is not None:
            await asyncio.wait({lookup}, timeout=DNS_WAIT_S)
            if not lookup.done() or _has_failed(lookup):
                return await _reach_last(last_address, lookup)
        return await dial(await lookup)
    finally:
        lookup.cancel()
        await asyncio.gather(lookup, return_exceptions=True)


async def _reach_last(last_address: Address, lookup: asyncio.Future[list[Address]]) -> socket.socket:
    """Connect to the last address unless the name resolves first."""
    attempt = asyncio.create_task(dial([last_address]))
    pending: set[asyncio.Future[Any]] = {attempt, lookup}
    try:
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if _has_failed(lookup):
            await asyncio.wait({attempt})
    except asyncio.CancelledError:
        await _cancel([attempt])
        raise
    if attempt.done() and (attempt.exception() is None or _has_failed(lookup)):
        return attempt.result()
    await _cancel([attempt])
    return await dial(await lookup)


def _has_failed(lookup: asyncio.Future[list[Address]]) -> bool:
    return lookup.done() and lookup.exception() is not None


async def _resolve(host: str, port: int) -> list[Address]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(address_of(info[4]) for info in infos))


async def dial(addresses: list[Address]) -> socket.socket:
    """The first connection established to any of `addresses`, attempted in turn and in parallel.

    Raises the OSError of the first address once all have failed.
    """
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "the name has no addresses")
    attempts: dict[asyncio.Task[socket.socket], Address] = {}
    errors: dict[Address, OSError] = {}
    try:
        for address in itertools.cycle(addresses):
            if len(errors) == len(addresses):
                break
            if address in errors:
                continue
            attempts[asyncio.create_task(_connect(address))] = address
            done, _ = await asyncio.wait(attempts, timeout=SYN_RETRY_S, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                target = attempts.pop(attempt)
                try:
                    return attempt.result()
                except OSError as error:
                    errors[target] = error
    finally:
        await _cancel(attempts)
    raise errors[addresses[0]]


async def _connect(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _cancel(attempts: Iterable[asyncio.Task[socket.socket]]) -> None:
    """Cancel attempts, closing one that has just succeeded."""
    for attempt in attempts:
        attempt.cancel()
    for result in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(result, socket.socket):
            result.close()


def address_of(sockaddr: tuple[Any, ...]) -> Address:
    """The Address of a socket address: (host, port) for IPv4, (host, port, flow, scope id) for IPv6."""
    host, port, *more = sockaddr
    zone = more[1] if len(more) == 2 else 0
    return (f"{host}%{zone}" if zone and "%" not in host else str(host)), int(port)


async def answers(address: Address) -> bool:
    """Whether `address` accepts a TCP connection."""
    attempts = {asyncio.create_task(_try_connect(address, delay_s)) for delay_s in (0.0, PROBE_SYN_RETRY_S)}
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
    (await _connect(address)).close()
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
