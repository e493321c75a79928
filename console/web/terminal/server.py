"""The web server of `gconsole serve`: on 127.0.0.1 only, authenticated, one browser session at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ...text.sanitize import Printable, printable
from ..auth import TokenAuth
from ..middleware import RequestMiddleware
from ..problems import HttpProblemError
from ..server import Listen, open_socket, serving
from ..tokens import ApiToken, new_token
from .process import LEAVE_S, TERM_S, BrowserSession

HOST: Final = "127.0.0.1"
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
    """Serves `argv`, a command that draws with Textual, as a page called `title`."""

    def __init__(self, argv: Sequence[str], title: str) -> None:
        self._argv, self._title = argv, title
        # Any port: it may be forwarded by ssh -L.
        self._auth = TokenAuth((ApiToken(new_token()),), frozenset({"localhost", HOST}), addresses="none", in_path=True)
        self._session: BrowserSession | None = None
        self._stderr = ""
        self._is_closing = False

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
        async with serving(
            RequestMiddleware(app, self._auth, render=_rejection), listen, server_socket, _log.error,
            WebSocketConnection, ws_max_size=MAX_MESSAGE, ws_ping_interval=PING_S, ws_ping_timeout=PONG_S,
        ):  # fmt: skip
            try:
                yield f"{listen.url(server_socket.getsockname()[1])}/{self._auth.tokens[0].value}/"
            finally:
                self._is_closing = True
                if self._session is not None:
                    await self._session.stop()

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _get_console(self, request: Request) -> Response:
        return _html(request, "console.html", title=self._title)

    async def _get_busy(self, request: Request) -> Response:
        text = (
            "Only one browser can be connected at a time, because each runs its own console with its own SSH "
            "connections.\nClose the other window (or quit its console with q), then try again."
        )
        head = "Another browser is connected."
        return _html(request, "words.html", 409, title=self._title, head=head, text=text, again="Try again")

    async def _get_ended(self, request: Request) -> Response:
        text = self._stderr or "No processes are left running."
        return _html(
            request, "words.html", title=self._title, head="The console has ended.", text=text, again="Restart"
        )

    async def _get_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404)
        return Response((_PAGE / name).read_bytes(), headers=_headers(request), media_type=FILES[name])

    # -- the session -------------------------------------------------------------------------------------------------

    async def _connect(self, socket: WebSocket) -> None:
        await socket.accept()
        if await self._is_free():
            await self._run_session(socket, _number(socket, "width", 80), _number(socket, "height", 24))
            page = "ended"
        else:
            page = "busy"
        if not self._is_closing:
            await _send(socket, ["open_url", {"url": page, "new_tab": False}])
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # closed by the browser
            await socket.close()

    async def _is_free(self) -> bool:
        """Whether there is no session, after waiting for one that is ending."""
        before = self._session
        if before is not None:
            try:
                await asyncio.wait_for(before.leaving.wait(), RELOAD_S)
                await asyncio.wait_for(before.gone.wait(), 2 * (LEAVE_S + TERM_S))
            except TimeoutError:
                return False
        return self._session in (None, before)  # another connection that waited may have been first

    async def _run_session(self, socket: WebSocket, width: int, height: int) -> None:
        """Run a console process until it or the connection ends."""
        self._session = session = BrowserSession(self._argv, lambda data: _send(socket, data))
        self._stderr = ""
        try:
            await session.start(width, height)
            receiving = asyncio.create_task(_receive(socket, session))
            ending = asyncio.create_task(session.ended())
            try:
                if not self._is_closing:
                    await asyncio.wait({receiving, ending}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await asyncio.shield(session.stop())
                receiving.cancel()
                results = await asyncio.gather(receiving, ending, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result
        except OSError as error:
            self._stderr = f"{self._argv[0]} cannot be started: {error.strerror}"
        finally:
            if self._session is session:  # the next session may have begun
                self._stderr = self._stderr or session.stderr
                self._session = None


async def serve(argv: Sequence[str], title: str, port: int, on_address: Callable[[str], None]) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; returns the exit code. Raises OSError if the port is in use."""
    loop = asyncio.get_running_loop()
    signalled: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not signalled.done():
            signalled.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    async with ConsoleServer(argv, title).open(port) as address:
        on_address(address)
        received = await signalled
    return 0 if received == signal.SIGINT else 128 + received


async def _receive(socket: WebSocket, session: BrowserSession) -> None:
    """Pass on what the browser sends until it disconnects. Invalid messages are ignored."""
    while (message := await socket.receive())["type"] != "websocket.disconnect":
        match _decoded(message.get("text") or ""):
            case ["stdin", str(keys)]:
                await session.send_input(keys.encode(errors="replace"))
            case ["resize", {"width": int(width), "height": int(height)}]:
                await session.resize(width, height)
            case ["focus" | "blur" as kind]:
                await session.send_event(kind)


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
