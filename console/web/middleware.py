"""What every request passes before it is looked at, and every answer after it was made: door, limits, headers."""

from __future__ import annotations

import asyncio
import math
from typing import Final

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import TokenAuth
from .limits import ACTS_SHARE, MAX_CONCURRENT, STALL_S, WRONG_SHARE, Rate
from .problems import HttpProblemError, http_problem

#: In every answer. Nothing of it is for a page, so a page may do nothing with it; the page of our own says otherwise.
HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def problem_response(error: HttpProblemError) -> Response:
    """A problem as the client gets it. It ends the connection: what is left of the request is not read."""
    headers = {**error.headers, "connection": "close"}
    body = msgspec.json.encode(error.problem)
    return Response(body, error.problem.status, headers, media_type="application/json")


class RequestMiddleware:
    """Wraps the application. `described` are the paths for which a browser may say the token as a password."""

    def __init__(self, app: ASGIApp, door: TokenAuth, described: frozenset[str], looks_s: float) -> None:
        self._app, self._door, self._described = app, door, described
        self._looks, self._acts, self._wrong = Rate(looks_s), Rate(ACTS_SHARE * looks_s), Rate(WRONG_SHARE * looks_s)
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        telling = _telling(send)
        try:
            self._admit(scope)
        except HttpProblemError as error:
            await problem_response(error)(scope, receive, telling)
            return
        self._answering += 1
        try:
            await self._app(scope, receive, telling)
        finally:
            self._answering -= 1

    def _admit(self, scope: Scope) -> None:
        """Raises Refused."""
        address = scope["client"][0] if scope["client"] else ""
        try:
            self._door.check(Headers(scope=scope), basic=scope["path"] in self._described)
        except HttpProblemError:
            self._pass(self._wrong, address)
            raise
        self._pass(self._looks if scope["method"] in ("GET", "HEAD") else self._acts, address)
        if self._answering >= MAX_CONCURRENT:
            raise http_problem(503, "busy", f"{MAX_CONCURRENT} requests are being answered", "try again in a moment",
                          Retry_After="1")  # fmt: skip

    @staticmethod
    def _pass(rate: Rate, address: str) -> None:
        wait_s = rate.wait_s(address)
        if wait_s > 0.0:
            raise http_problem(429, "too_many", f"more than {rate.rate_s:g} requests a second", "ask less often",
                          Retry_After=str(math.ceil(wait_s)))  # fmt: skip


def _telling(send: Send) -> Send:
    """Adds our headers, and gives up on a client that takes nothing off."""

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        async with asyncio.timeout(STALL_S):
            await send(message)

    return told
