"""The web server: on this machine only, behind the door, one visitor at a time, ended with everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from aiohttp import WSMsgType, web

from . import pages
from .auth import TerminalAuth
from .process import LEAVE_S, TERM_S, BrowserSession

HOST: Final = "127.0.0.1"
#: A page that is loaded anew closes its old connection at about the time when it opens the new one.
RELOAD_S: Final = 1.0
#: Bytes of one message of a browser: a paste.
_MOST_BYTES: Final = 1 << 20
_EVERY_S: Final = 15.0  # a browser that does not answer within half of that is gone


class ConsoleServer:
    """Serves `argv`, which draws with Textual, as a page called `title`."""

    def __init__(self, argv: Sequence[str], title: str) -> None:
        self._argv, self._title = argv, title
        self._door = TerminalAuth()
        self._visitor: BrowserSession | None = None
        self._last_words = ""
        self._is_closing = False

    @contextlib.asynccontextmanager
    async def open(self, port: int = 0) -> AsyncIterator[str]:
        """Listen until the block ends; its address. Raises OSError where the port is taken. 0 is any free one."""
        app = web.Application(middlewares=[self._at_the_door])
        app.add_routes([
            web.get("/{token}/", self._page), web.get("/{token}/files/{name}", self._file),
            web.get("/{token}/socket", self._socket), web.get("/{token}/busy", self._busy),
            web.get("/{token}/ended", self._ended),
        ])  # fmt: skip
        app.on_shutdown.append(self._say_goodbye)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=LEAVE_S + TERM_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, port).start()
            yield f"http://{HOST}:{runner.addresses[0][1]}/{self._door.token}/"
        finally:
            await runner.cleanup()

    # -- the door ----------------------------------------------------------------------------------------------------

    @web.middleware
    async def _at_the_door(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        headers = request.headers
        socket = headers.get("Upgrade", "").lower() == "websocket" or request.path.endswith("/socket")
        refusal = self._door.refusal(request.path, headers.get("Host"), headers.get("Origin"), is_socket=socket)
        if refusal is not None:
            return web.Response(status=403, text=f"gconsole: {refusal}\n", headers=pages.refusal_headers())
        return await handler(request)

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        return _html(request, pages.console_page(self._title))

    async def _busy(self, request: web.Request) -> web.Response:
        return _html(request, pages.busy_page(self._title), status=409)

    async def _ended(self, request: web.Request) -> web.Response:
        return _html(request, pages.ended_page(self._title, self._last_words))

    async def _file(self, request: web.Request) -> web.Response:
        found = pages.FILES.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound(headers=pages.refusal_headers())
        file, content_type = found
        return web.Response(body=file.read_bytes(), content_type=content_type, headers=pages.headers(request.host))

    # -- the visitor -------------------------------------------------------------------------------------------------

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=_EVERY_S, max_msg_size=_MOST_BYTES)
        await socket.prepare(request)
        if await self._is_free():
            await self._serve(socket, _number(request, "width", 80), _number(request, "height", 24))
            page = "ended"
        else:
            page = "busy"
        with contextlib.suppress(ConnectionError):
            if not self._is_closing:  # then there is nobody to ask for another page
                await socket.send_json(["open_url", {"url": page, "new_tab": False}])
            await socket.close()
        return socket

    async def _is_free(self) -> bool:
        """Whether nobody is here, or is about to have left."""
        before = self._visitor
        if before is not None:
            try:
                await asyncio.wait_for(before.leaving.wait(), RELOAD_S)
                await asyncio.wait_for(before.gone.wait(), 2 * (LEAVE_S + TERM_S))
            except TimeoutError:
                return False
        return self._visitor in (None, before)  # of several who waited, one was first

    async def _serve(self, socket: web.WebSocketResponse, width: int, height: int) -> None:
        """A process for this visitor, until either of them leaves."""

        async def draw(data: bytes) -> None:
            with contextlib.suppress(ConnectionError):  # the browser is gone: what is still drawn goes nowhere
                await socket.send_bytes(data)

        self._visitor = visitor = BrowserSession(self._argv, draw)
        self._last_words = ""
        try:
            await visitor.start(width, height)
            typing = asyncio.create_task(_listen(socket, visitor))
            ending = asyncio.create_task(visitor.ended())
            try:
                if not self._is_closing:
                    await asyncio.wait({typing, ending}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await asyncio.shield(visitor.stop())
                typing.cancel()
                results = await asyncio.gather(typing, ending, return_exceptions=True)
            for found in results:
                if isinstance(found, Exception) and not isinstance(found, ConnectionError):  # that is only a way to go
                    raise found
        except OSError as error:
            self._last_words = f"{self._argv[0]} cannot be started: {error.strerror}"
        finally:
            if self._visitor is visitor:  # the next one may be here already
                self._last_words = self._last_words or visitor.last_words
                self._visitor = None

    async def _say_goodbye(self, app: web.Application) -> None:
        """The server ends: so does the visitor, in order; its page then says that the connection is lost."""
        self._is_closing = True
        if self._visitor is not None:
            await self._visitor.stop()


async def serve(argv: Sequence[str], title: str, port: int, say: Callable[[str], None]) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP comes; an exit code. `say` gets the address. Raises OSError."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[int] = loop.create_future()

    def leave(number: int) -> None:
        if not asked.done():
            asked.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave, number)
    async with ConsoleServer(argv, title).open(port) as address:
        say(address)
        came = await asked
    return 0 if came == signal.SIGINT else 128 + came


async def _listen(socket: web.WebSocketResponse, visitor: BrowserSession) -> None:
    """What the browser says, in the words of textual.js, until it goes away. What is none of them is left out."""
    async for message in socket:
        match _decoded(message.data) if message.type is WSMsgType.TEXT else None:
            case ["stdin", str(typed)]:
                await visitor.send_bytes(typed.encode(errors="replace"))
            case ["resize", {"width": int(width), "height": int(height)}]:
                await visitor.set_terminal_size(width, height)
            case ["focus"]:
                await visitor.focus()
            case ["blur"]:
                await visitor.blur()
            case ["ping", str(stamp)]:
                await socket.send_json(["pong", stamp])


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _number(request: web.Request, name: str, default: int) -> int:
    try:
        return int(request.query.get(name, default))
    except ValueError:
        return default


def _html(request: web.Request, text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", headers=pages.headers(request.host))
