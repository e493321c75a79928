"""The web server of `gconsole serve`: on 127.0.0.1 only, authenticated, a screen of its own for each visitor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from textual.app import App
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ...text.sanitize import Printable, printable
from ..auth import TokenAuth
from ..middleware import RequestMiddleware
from ..problems import HttpProblemError
from ..server import Listen, open_socket, serving
from ..tokens import AccessScope, ApiToken, matching, new_token
from .visit import Visit

HOST: Final = "127.0.0.1"
#: Browsers that are connected at the same time.
MAX_VISITORS: Final = 8
#: Reasons of visits that ended, kept for the page that shows them.
MAX_REASONS: Final = 100
#: Seconds. A page that is reloaded closes its old connection at about the time when it opens the new one.
RELOAD_S: Final = 1.0
#: Bytes of one websocket message; a paste.
MAX_MESSAGE: Final = 1 << 20
#: Seconds between pings of the browser, and until a missing pong ends the connection.
PING_S, PONG_S = 15.0, 7.5
#: Files that the page may load, with their types. No other file is reachable.
FILES: Final[Mapping[str, str]] = {
    "page.css": "text/css", "screen.js": "text/javascript", "input.js": "text/javascript", "page.js": "text/javascript",
}  # fmt: skip

_log = logging.getLogger(__name__)
_PAGE = files(__package__) / "page"


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Aborts the connection to a browser that leaves a ping unanswered, instead of waiting until it reads the rest."""

    def keepalive_timeout(self) -> None:
        """Abort; the application receives a disconnect."""
        self.transport.abort()


class ConsoleServer:
    """Serves an app of its own to each of at most `visitors` browsers, as a page called `title`.

    `open_app(may_act)` makes the app of a visitor. The address that `open` yields is for looking; with `allow_actions`
    `acting_address` is a second one, for visitors who may act.
    """

    def __init__(
        self, open_app: Callable[[bool], App[Any]], title: str, *, visitors: int = MAX_VISITORS,
        allow_actions: bool = False,
    ) -> None:  # fmt: skip
        self._open_app, self._title, self._limit = open_app, title, visitors
        scopes: tuple[AccessScope, ...] = ("read", "run") if allow_actions else ("read",)
        tokens = tuple(ApiToken(new_token(), scope, scope) for scope in scopes)
        # Any port: it may be forwarded by ssh -L.
        self._auth = TokenAuth(tokens, frozenset({"localhost", HOST}), addresses="none", in_path=True)
        self._visits: set[Visit] = set()
        self._reasons: dict[str, str] = {}
        self._is_closing = False
        self.acting_address = ""

    @contextlib.asynccontextmanager
    async def open(self, port: int = 0) -> AsyncIterator[str]:
        """Serve until the block ends; yields the address. Port 0 picks a free one. Raises OSError if it is in use."""
        routes = [
            Route("/{token}/", self._get_console), Route("/{token}/files/{name}", self._get_file),
            Route("/{token}/busy", self._get_busy), Route("/{token}/ended", self._get_ended),
            WebSocketRoute("/{token}/socket", self._connect),
        ]  # fmt: skip
        app = Starlette(routes=routes, exception_handlers={HTTPException: _not_found})
        app.router.redirect_slashes = False
        listen = Listen(HOST, port)
        server_socket = open_socket(listen)
        streams = sys.stdout, sys.stderr
        async with serving(
            RequestMiddleware(app, self._auth, render=_rejection), listen, server_socket, _log.error,
            WebSocketConnection, ws_max_size=MAX_MESSAGE, ws_ping_interval=PING_S, ws_ping_timeout=PONG_S,
        ):  # fmt: skip
            root = listen.url(server_socket.getsockname()[1])
            addresses = [f"{root}/{token.value}/" for token in self._auth.tokens]
            self.acting_address = addresses[1] if len(addresses) > 1 else ""
            try:
                yield addresses[0]
            finally:
                self._is_closing = True
                for visit in self._visits:
                    visit.stop()
                await asyncio.gather(*(visit.gone.wait() for visit in self._visits))
                sys.stdout, sys.stderr = streams  # each app redirects them, and they do not end in order

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _get_console(self, request: Request) -> Response:
        return _html(request, "console.html", title=self._title)

    async def _get_busy(self, request: Request) -> Response:
        count = "1 browser is" if self._limit == 1 else f"{self._limit} browsers are"
        head = f"{count} connected, which is the limit."
        text = (
            "Close one of the windows (or leave its screen with q), then try again.\nFor more, restart with --visitors."
        )
        return _html(request, "words.html", 409, title=self._title, head=head, text=text, again="Try again")

    async def _get_ended(self, request: Request) -> Response:
        reason = self._reasons.get(request.query_params.get("visit", ""), "")
        text = reason or "The console goes on for the other visitors."
        return _html(
            request, "words.html", title=self._title, head="Your screen is closed.", text=text, again="Open again"
        )

    async def _get_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404)
        return Response((_PAGE / name).read_bytes(), headers=_headers(request), media_type=FILES[name])

    # -- visits ------------------------------------------------------------------------------------------------------

    async def _connect(self, socket: WebSocket) -> None:
        await socket.accept()
        if await self._is_free():
            page = await self._run_visit(socket)
        else:
            page = "busy"
        if not self._is_closing:
            await _send(socket, ["open_url", {"url": page, "new_tab": False}])
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # closed by the browser
            await socket.close()

    async def _is_free(self) -> bool:
        """Whether one more visitor is admitted, after waiting for one that is leaving."""
        leaving = [asyncio.create_task(visit.gone.wait()) for visit in self._visits]
        if len(self._visits) >= self._limit and leaving:
            await asyncio.wait(leaving, timeout=RELOAD_S, return_when=asyncio.FIRST_COMPLETED)
        for task in leaving:
            task.cancel()
        return len(self._visits) < self._limit and not self._is_closing

    async def _run_visit(self, socket: WebSocket) -> str:
        """Run the app of a visitor until it or the connection ends; returns the page to show then."""
        token = matching(self._auth.tokens, socket.path_params["token"])
        app = self._open_app(token is not None and token.permits("run"))
        visit = Visit(app, lambda data: _send(socket, data), getattr(app, "close_requests", None))
        self._visits.add(visit)
        receiving = asyncio.create_task(_receive(socket, visit))
        try:
            await visit.run(_number(socket, "width", 80), _number(socket, "height", 24))
        finally:
            self._visits.discard(visit)
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await receiving
        if not visit.reason:
            return "ended"
        name = secrets.token_hex(4)
        self._reasons[name] = visit.reason
        while len(self._reasons) > MAX_REASONS:
            del self._reasons[next(iter(self._reasons))]
        return f"ended?visit={name}"


async def _receive(socket: WebSocket, visit: Visit) -> None:
    """Pass on what the browser sends until it disconnects. Invalid messages are ignored."""
    try:
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            match _decoded(message.get("text") or ""):
                case ["stdin", str(keys)]:
                    await visit.send_input(keys.encode(errors="replace").decode())
                case ["resize", {"width": int(width), "height": int(height)}]:
                    visit.resize(width, height)
                case ["focus" | "blur" as kind]:
                    visit.focus(kind == "focus")
    finally:
        visit.stop()


async def _send(socket: WebSocket, data: bytes | list[Any]) -> None:
    """Send output as a binary message, or a message to the page as JSON. Dropped once the connection is closed."""
    if WebSocketState.DISCONNECTED in (socket.application_state, socket.client_state):
        return
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # RuntimeError: uvicorn, after a close frame
        if isinstance(data, bytes):
            await socket.send_bytes(data)
        else:
            await socket.send_text(json.dumps(data))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(socket: WebSocket, name: str, default: int) -> int:
    try:
        return int(socket.query_params.get(name, default))
    except ValueError:
        return default


def _headers(request: Request) -> dict[str, str]:
    """Everything is loaded from this server. Not every browser accepts its own websocket as 'self', so it is named."""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; connect-src 'self' ws://{request.headers['host']}"
    )
    return {"content-security-policy": policy}


def _html(request: Request, name: str, status: int = 200, **values: str) -> Response:
    text = Template((_PAGE / name).read_text(encoding="utf-8"))
    html = text.substitute({key: escape(value) for key, value in values.items()})
    return Response(html, status, _headers(request), media_type="text/html")


def _rejection(error: HttpProblemError) -> Response:
    headers = {**error.headers, "connection": "close"}
    hint = f"; {error.problem.try_}" if error.problem.try_ else ""
    return _text(printable(f"gconsole: {error.problem.text}{hint}"), error.problem.status, headers)


async def _not_found(request: Request, error: Exception) -> Response:
    return _text(printable("not found"), 404)


def _text(line: Printable, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The only answers that are text: a person may read them in a terminal."""
    return PlainTextResponse(f"{line}\n", status, headers)
