"""Serves the application until it is told to end; signals are its caller's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from .connection import Connection
from .listening import Listen
from .served import Served

#: Answers under way have so long to be finished when the server ends.
END_S: Final = 3
#: A connection waits so long for its next request.
KEEP_ALIVE_S: Final = 15


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They belong to the whole program."""
        yield


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, served: Served, listen: Listen, at: socket.socket) -> AsyncIterator[None]:
    """Answer requests for as long as the block lasts; streams of events are ended at its end. It closes the socket."""
    config = uvicorn.Config(
        app, http=Connection, ws="none", loop="asyncio", lifespan="off", interface="asgi3", log_config=None,
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=END_S, ssl_certfile=listen.certificate, ssl_keyfile=listen.key,
    )  # fmt: skip
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[at]), name="http")
    try:
        yield
    finally:
        served.closing.set()
        server.should_exit = True
        await running
