"""What both servers do for every request and response: authentication, rate limits, headers, stall timeout."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import TokenAuth
from .limits import MAX_CONCURRENT, READS_PER_S, STALL_S, UNAUTHORIZED_SHARE, WRITE_SHARE, RateLimit
from .problems import HttpProblemError, http_problem

#: Headers of every response that has no other value for them: nothing may be loaded, kept or embedded.
HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def problem_response(error: HttpProblemError) -> Response:
    """A problem as JSON. It closes the connection: the rest of the request is not read."""
    headers = {**error.headers, "connection": "close"}
    body = msgspec.json.encode(error.problem)
    return Response(body, error.problem.status, headers, media_type="application/json")


class RequestMiddleware:
    """Wraps an application. `basic_paths` accept HTTP Basic; `render` makes the response of a rejected request."""

    def __init__(
        self, app: ASGIApp, auth: TokenAuth, reads_per_s: float = READS_PER_S,
        basic_paths: frozenset[str] = frozenset(), render: Callable[[HttpProblemError], Response] = problem_response,
    ) -> None:  # fmt: skip
        self._app, self._auth, self._basic_paths, self._render = app, auth, basic_paths, render
        self._reads, self._writes = RateLimit(reads_per_s), RateLimit(WRITE_SHARE * reads_per_s)
        self._unauthorized = RateLimit(UNAUTHORIZED_SHARE * reads_per_s)
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        guarded_send = _guarded(send)
        try:
            self._admit(scope)
        except HttpProblemError as error:
            await self._render(error)(scope, receive, guarded_send)
            return
        self._in_progress += 1
        try:
            await self._app(scope, receive, guarded_send)
        finally:
            self._in_progress -= 1

    def _admit(self, scope: Scope) -> None:
        """Raises HttpProblemError."""
        address, path = scope["client"][0] if scope["client"] else "", scope["path"]
        is_websocket = scope["type"] == "websocket"
        try:
            self._auth.check(Headers(scope=scope), path, basic=path in self._basic_paths, is_websocket=is_websocket)
        except HttpProblemError:
            _limit(self._unauthorized, address)
            raise
        _limit(self._reads if is_websocket or scope["method"] in ("GET", "HEAD") else self._writes, address)
        if self._in_progress >= MAX_CONCURRENT:
            raise http_problem(503, "busy", f"{MAX_CONCURRENT} requests are in progress", "retry after 1 s",
                          Retry_After="1")  # fmt: skip


def _limit(rate: RateLimit, address: str) -> None:
    wait_s = rate.wait_s(address)
    if wait_s > 0.0:
        raise http_problem(429, "too_many", f"rate limit of {rate.rate_s:g} requests/s exceeded",
                      f"retry after {wait_s:.1f} s", Retry_After=str(math.ceil(wait_s)))  # fmt: skip


def _guarded(send: Send) -> Send:
    """Adds the headers, and gives up on a client that reads nothing."""

    async def guarded_send(message: Message) -> None:
        if message["type"].endswith("http.response.start"):
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        async with asyncio.timeout(STALL_S):
            await send(message)

    return guarded_send
