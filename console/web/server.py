"""Serves the application until it is told to end; signals are its caller's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ..core.bus import Hub
from ..records import Log
from .connection import Connection
from .context import WebContext
from .listen import Listen

#: Answers under way have so long to be finished when the server ends.
END_S: Final = 3
#: A connection waits so long for its next request.
KEEP_ALIVE_S: Final = 15


class _Told(logging.Handler):
    """What uvicorn says of errors is an event of this console; of clients that talk nonsense it need not speak."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(logging.ERROR)
        self._hub = hub

    def emit(self, record: logging.LogRecord) -> None:
        self._hub.publish_own(Log(source="console", severity="error", text=f"http: {self.format(record)[-1500:]}"))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They belong to the whole program."""
        yield


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, context: WebContext, listen: Listen, at: socket.socket) -> AsyncIterator[None]:
    """Answer requests for as long as the block lasts; streams of events are ended at its end. It closes the socket."""
    config = uvicorn.Config(
        app, http=Connection, ws="none", loop="asyncio", lifespan="off", interface="asgi3", log_config=None,
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=END_S, ssl_certfile=listen.certificate, ssl_keyfile=listen.key,
    )  # fmt: skip
    server = _Server(config)
    telling = _Told(context.hub)
    logging.getLogger("uvicorn").addHandler(telling)
    running = asyncio.create_task(server.serve(sockets=[at]), name="http")
    try:
        yield
    finally:
        context.closing.set()
        server.should_exit = True
        try:
            await running
        finally:
            logging.getLogger("uvicorn").removeHandler(telling)
