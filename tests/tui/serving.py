"""`gconsole serve` for tests: a websocket client that replaces the browser, and the real command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType

from textual.app import App
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

DEADLINE_S = 90.0


def open_demo(may_act: bool) -> App[None]:
    """The console on a fake cluster, which most tests serve."""
    from clusters import demo

    return demo().app()


class WebSocketClient:
    """Connects to the server as the page does. `output` is the text drawn since `clear_output`, without colours."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.origin = address[: address.index("/", len("http://"))]
        self._drawn = b""

    async def __aenter__(self) -> WebSocketClient:
        self.socket: ClientConnection = await connect_websocket(
            f"{self.address}socket?width=100&height=30", self.origin
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:  # fmt: skip
        await self.socket.close()

    @property
    def output(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z$]", "", self._drawn.decode(errors="replace"))

    def clear_output(self) -> None:
        self._drawn = b""

    async def type(self, keys: str) -> None:
        await self.send(["stdin", keys])

    async def send(self, message: object) -> None:
        await self.socket.send(json.dumps(message))

    async def until(self, *texts: str) -> None:
        """Wait until all these texts have been drawn."""
        async with deadline(lambda: f"{texts} not in {self.output[-2000:]!r}"):
            while not all(text in self.output for text in texts):
                try:
                    message = await self.socket.recv()
                except ConnectionClosed as error:
                    raise AssertionError(f"{error}: {self.output!r}") from error
                if isinstance(message, bytes):
                    self._drawn += message

    async def redirect_target(self) -> str | None:
        """The page that the server redirects this client to before it closes the connection; None: no redirect."""
        page = None
        async with deadline(lambda: f"nobody hung up; the screen: {self.output[-2000:]!r}"):
            with contextlib.suppress(ConnectionClosed):
                async for message in self.socket:
                    if isinstance(message, str):
                        message_kind, fields = json.loads(message)
                        page = fields["url"] if message_kind == "open_url" else page
        return page


async def connect_websocket(url: str, origin: str | None) -> ClientConnection:
    """A websocket to this address with this Origin header. Raises websockets.exceptions.InvalidStatus."""
    return await connect(url.replace("http://", "ws://", 1), origin=origin, proxy=None, max_size=None)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def deadline(message: object) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield
    except TimeoutError:
        raise AssertionError(message() if callable(message) else message) from None


@contextlib.contextmanager
def serving(*args: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The real `gconsole serve`, and its address; terminated at the end if it still runs."""
    argv = [sys.executable, "-m", "gconsole", "serve", *args]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GCONSOLE_")}
    with subprocess.Popen(argv, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as server:  # fmt: skip
        try:
            assert server.stdout is not None and server.stderr is not None
            for line in server.stdout:
                if line.strip().startswith("http://"):
                    yield server, line.strip()
                    break
            else:
                raise AssertionError(f"no address: {server.stderr.read()}")
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
                server.wait(DEADLINE_S)
