"""The TCP connection below a login: where a name leads, and a first packet that is sent again soon enough."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Iterable
from typing import Any

from .reachability import Address, address_of

#: A first packet that got lost is sent again so soon, from another port. The kernel's own go after 1, 3, 7 and 15 s
#: (tcp(7), RFC 6298): a link that came back in between would be found that much later.
AGAIN_S = 1.0
#: A name server that says nothing for so long is waited for no more alone, where a node was reached before.
NAME_S = 0.5


async def reach(host: str, port: int, known: Address | None) -> socket.socket:
    """A connection to wherever the name leads. Raises OSError, of it socket.gaierror where it leads nowhere.

    `known` is where the node was reached before; it stands in for a name that is gone or late. That the same node is
    there its host key has to show, as ever.
    """
    looking = asyncio.ensure_future(_look_up(host, port))
    try:
        if known is not None:
            await asyncio.wait({looking}, timeout=NAME_S)
            if not looking.done() or _has_failed(looking):
                return await _reach_known(known, looking)
        return await dial(await looking)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _reach_known(known: Address, looking: asyncio.Future[list[Address]]) -> socket.socket:
    """At the known address, until the name says better."""
    trying = asyncio.create_task(dial([known]))
    both: set[asyncio.Future[Any]] = {trying, looking}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if _has_failed(looking):
            await asyncio.wait({trying})
    except asyncio.CancelledError:
        await _let_go([trying])
        raise
    if trying.done() and (trying.exception() is None or _has_failed(looking)):
        return trying.result()
    await _let_go([trying])
    return await dial(await looking)


def _has_failed(looking: asyncio.Future[list[Address]]) -> bool:
    return looking.done() and looking.exception() is not None


async def _look_up(host: str, port: int) -> list[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(address_of(one[4]) for one in found))


async def dial(addresses: list[Address]) -> socket.socket:
    """The first connection that comes about to any of them, tried in turn, each while those before may still succeed.

    Raises the OSError of the first address once all of them have failed.
    """
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
    tries: dict[asyncio.Task[socket.socket], Address] = {}
    errors: dict[Address, OSError] = {}
    try:
        for address in itertools.cycle(addresses):
            if len(errors) == len(addresses):
                break
            if address in errors:
                continue
            tries[asyncio.create_task(_try(address))] = address
            done, _ = await asyncio.wait(tries, timeout=AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                where = tries.pop(one)
                try:
                    return one.result()
                except OSError as error:
                    errors[where] = error
    finally:
        await _let_go(tries)
    raise errors[addresses[0]]


async def _try(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, address)
    except BaseException:
        connecting.close()
        raise
    return connecting


async def _let_go(tries: Iterable[asyncio.Task[socket.socket]]) -> None:
    """End the tries that nobody needs any more, also one that has just succeeded."""
    for one in tries:
        one.cancel()
    for ended in await asyncio.gather(*tries, return_exceptions=True):
        if isinstance(ended, socket.socket):
            ended.close()
