"""Limits and checks of every request and response of both servers: rates, sizes, timeouts, authentication, headers."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..text.documents import encode
from .auth import TokenAuth
from .problems import HttpProblemError, http_problem
from .tokens import ApiToken

_log = logging.getLogger(__name__)

#: Bytes of a request body; a job's environment and command line fit.
MAX_BODY: Final = 1 << 20
#: Seconds. From connection, or from the first byte of a request, until its head is complete.
HEAD_S: Final = 10.0
#: Seconds. From the head of a request until its body is complete.
BODY_S: Final = 10.0
#: Seconds. A client that reads nothing for this long is disconnected.
STALL_S: Final = 30.0
#: Seconds. Idle time of a connection between two requests.
KEEP_ALIVE_S: Final = 15
#: Seconds. When the server stops, requests in progress have this long to finish.
SHUTDOWN_S: Final = 3
#: Open connections; further ones are aborted.
MAX_CONNECTIONS: Final = 512
#: Concurrent requests, and event streams among them.
MAX_CONCURRENT: Final = 64
MAX_STREAMS: Final = 32
#: Addresses with a token bucket; the least recently used one is dropped.
_MAX_ADDRESSES: Final = 1024
#: Seconds of the rate that a bucket holds.
_BURST_S: Final = 2.0
#: Requests per second and address that read; those that change something or have no valid token get a share of it.
READS_PER_S: Final = 100.0
WRITE_SHARE: Final = 0.2
UNAUTHORIZED_SHARE: Final = 0.2
#: Headers of every response that has no other value for them: nothing may be loaded, kept or embedded.
HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
#: Headers of the response to a preflight of a site that is allowed; the token is a header, never a cookie.
PREFLIGHT: Final = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": "authorization, content-type, last-event-id",
    "access-control-max-age": "600",
}


def problem_response(error: HttpProblemError) -> Response:
    """A problem as JSON. It closes the connection: the rest of the request is not read."""
    headers = {**error.headers, "connection": "close"}
    body = encode(error.problem)
    return Response(body, error.problem.status, headers, media_type="application/json")


#: Called once for every request: its token if it has a valid one, address, method, path and status of the response.
Audit = Callable[[ApiToken | None, str, str, str, int], None]
#: Key of a request's token in its ASGI scope.
_TOKEN: Final = "gconsole.token"


def token_of_request(scope: Scope) -> ApiToken:
    """The token of an admitted request."""
    token: ApiToken = scope[_TOKEN]
    return token


def is_admitted(scope: Mapping[str, Any] | None) -> bool:
    """Whether a request has shown a valid token."""
    return scope is not None and _TOKEN in scope


class RequestMiddleware:
    """Wraps an application.

    `basic_paths` accept HTTP Basic; `render` makes the response of a rejected request; `audit` is called for every one.
    """

    def __init__(
        self, app: ASGIApp, auth: TokenAuth, reads_per_s: float = READS_PER_S,
        basic_paths: frozenset[str] = frozenset(), render: Callable[[HttpProblemError], Response] = problem_response,
        audit: Audit | None = None,
    ) -> None:  # fmt: skip
        self._app, self._auth, self._basic_paths, self._render = app, auth, basic_paths, render
        self._reads, self._writes = RateLimit(reads_per_s), RateLimit(WRITE_SHARE * reads_per_s)
        self._unauthorized = RateLimit(UNAUTHORIZED_SHARE * reads_per_s)
        self._in_progress = 0
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        site = origin if self._auth.allows(origin) else ""
        guarded_send = _guarded(send, lambda status: self._report(scope, status), site)
        try:
            if scope.get("method") == "OPTIONS" and self._auth.check_preflight(headers):
                _limit(self._reads, _address(scope))
                await Response(status_code=204, headers=PREFLIGHT)(scope, receive, guarded_send)
                return
            self._admit(scope)
        except HttpProblemError as error:
            self._log_request(scope, f"rejected: {error.problem.status} {error}")
            await self._render(error)(scope, receive, guarded_send)
            return
        self._log_request(scope, "accepted")
        self._in_progress += 1
        try:
            await self._app(scope, receive, guarded_send)
        finally:
            self._in_progress -= 1

    def _report(self, scope: Scope, status: int) -> None:
        if self._audit is not None:
            path = self._auth.without_token(scope["path"])
            self._audit(scope.get(_TOKEN), _address(scope), scope.get("method", "WebSocket"), path, status)

    def _log_request(self, scope: Scope, outcome: str) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            path = self._auth.without_token(scope["path"])
            _log.debug("HTTP %s %s %s", scope.get("method", "WebSocket"), path, outcome)

    def _admit(self, scope: Scope) -> None:
        """Raises HttpProblemError."""
        address, path = _address(scope), scope["path"]
        is_websocket = scope["type"] == "websocket"
        try:
            token = self._auth.check(
                Headers(scope=scope), path, basic=path in self._basic_paths, is_websocket=is_websocket
            )
        except HttpProblemError:
            _limit(self._unauthorized, address)
            raise
        scope[_TOKEN] = token
        _limit(self._reads if is_websocket or scope["method"] in ("GET", "HEAD") else self._writes, address)
        if self._in_progress >= MAX_CONCURRENT:
            raise http_problem(503, "busy", f"{MAX_CONCURRENT} requests are in progress", "retry after 1 s",
                          Retry_After="1")  # fmt: skip


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope["client"] else ""


def _limit(rate: RateLimit, address: str) -> None:
    wait_s = rate.wait_s(address)
    if wait_s > 0.0:
        raise http_problem(429, "too_many", f"rate limit of {rate.rate_s:g} requests/s exceeded",
                      f"retry after {wait_s:.1f} s", Retry_After=str(math.ceil(wait_s)))  # fmt: skip


def _guarded(send: Send, on_start: Callable[[int], None], site: str) -> Send:
    """Adds the headers, gives up on a client that reads nothing; `on_start` gets the status of the response.

    `site`: the origin of another site that may read the response, or "".
    """

    async def guarded_send(message: Message) -> None:
        if message["type"].endswith("http.response.start"):
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if site:
                headers["access-control-allow-origin"] = site
                headers.add_vary_header("Origin")
            on_start(message["status"])
        async with asyncio.timeout(STALL_S):
            await send(message)

    return guarded_send


class _TokenBucket(msgspec.Struct):
    tokens: float
    updated_s: float


class RateLimit:
    """A token bucket per address: `rate_s` tokens per second, at most two seconds of them."""

    def __init__(self, rate_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate_s, self._clock = rate_s, clock
        self._buckets: OrderedDict[str, _TokenBucket] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """0 if the request may pass, which takes a token; else seconds until there is one."""
        now_s, capacity = self._clock(), max(1.0, self.rate_s * _BURST_S)
        bucket = self._buckets.pop(address, None) or _TokenBucket(capacity, now_s)
        bucket.tokens = min(capacity, bucket.tokens + (now_s - bucket.updated_s) * self.rate_s)
        bucket.updated_s = now_s
        self._buckets[address] = bucket
        if len(self._buckets) > _MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1.0:
            return (1.0 - bucket.tokens) / self.rate_s
        bucket.tokens -= 1.0
        return 0.0
