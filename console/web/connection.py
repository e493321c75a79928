"""HTTP connection with timeouts for slow clients.

uvicorn itself has no timeout for the first request of a connection, nor for an incomplete request head.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import STALL_S
from .problems import HttpProblem

#: Seconds from connection or first byte of a request until its head is complete.
HEAD_S: Final = 10.0
#: Max open connections; further ones are aborted.
MAX_CONNECTIONS: Final = 512


class Connection(H11Protocol):
    """Aborts connections with an incomplete head or a blocked reader."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the head timeout; abort above the connection limit."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Stop or restart the head timeout."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end_head()
        elif self._head is None and not self.transport.is_closing():
            self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._end_head()  # uvicorn's own timer runs until the next request begins

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timeouts."""
        self._end_head()
        self._end_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the stall timeout."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the stall timeout."""
        self._end_stall()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, in our form."""
        problem = HttpProblem(status=400, name="no_http", text="malformed HTTP request")
        body = msgspec.json.encode(problem)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)),
                   (b"connection", b"close")]  # fmt: skip
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(HEAD_S, self.transport.abort)

    def _end_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
