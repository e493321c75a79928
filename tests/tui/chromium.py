"""A headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
import shutil
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect

DEADLINE_S = 60.0
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
_FLAGS = (
    "--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--disable-gpu",
    "--window-size=1000,640",
    "--no-sandbox",  # it refuses to work for root, and in many containers; nothing but our own page is opened
)  # fmt: skip


class PageClosed(Exception):
    """The page was closed during a call."""


class Tab:
    """One page. `requests` are the URLs it requested; `output` is the text its websocket received, without colours."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._bytes = b""
        self._message_received = asyncio.Event()
        self.requests: list[str] = []
        self.errors: list[str] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def attach(cls, address: str) -> AsyncIterator[Self]:
        async with connect(address, max_size=None, proxy=None) as socket:
            tab = cls(socket)
            listening = asyncio.ensure_future(tab._listen())
            for domain in ("Page", "Network", "Runtime", "Log"):
                await tab.call(f"{domain}.enable")
            # The page behaves like that of a focused window.
            await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
            try:
                yield tab
            finally:
                listening.cancel()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; its result."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        async with asyncio.timeout(DEADLINE_S):
            answer = await self._answers[number]
        if "error" in answer:
            raise PageClosed(f"{method}: {answer['error']}")
        return answer["result"]

    async def _listen(self) -> None:
        async for message in self._socket:
            event = json.loads(message)
            self._message_received.set()
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event)
                continue
            params = event["params"]
            match event["method"]:
                case "Network.requestWillBeSent":
                    self.requests.append(params["request"]["url"])
                case "Network.webSocketCreated":
                    self.requests.append(params["url"])
                case "Network.webSocketFrameReceived" if params["response"]["opcode"] == 2:
                    self._bytes += base64.b64decode(params["response"]["payloadData"])
                case "Runtime.exceptionThrown":
                    self.errors.append(str(params["exceptionDetails"]))
                case "Log.entryAdded" if params["entry"]["level"] == "error":
                    self.errors.append(params["entry"]["text"])

    @property
    def output(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z$]", "", self._bytes.decode(errors="replace"))

    def clear_output(self) -> None:
        self._bytes = b""

    async def until(self, condition: Callable[[], object], description: str) -> None:
        """Wait until the condition holds; it is checked after every message of the page."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():
                    self._message_received.clear()
                    await self._message_received.wait()
        except TimeoutError:
            raise AssertionError(f"{description}; {self.errors}; drawn: {self.output[-1500:]!r}") from None

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        result = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def press(self, key: str, code: str, text: str) -> None:
        """Press and release a key."""
        number = ord(text.upper())
        key_fields = {"key": key, "code": code, "windowsVirtualKeyCode": number, "nativeVirtualKeyCode": number}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, unmodifiedText=text, **key_fields)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **key_fields)

    async def screenshot(self) -> bytes:
        """Screenshot as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


def fetch(url: str, method: str = "GET") -> bytes:
    """Body of a response, without any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, method=method), timeout=DEADLINE_S) as response:
        body: bytes = response.read()
    return body


@contextlib.asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Callable[[str], contextlib.AbstractAsyncContextManager[Tab]]]:
    """A browser with its profile in `folder`; yields a function that opens a tab at an address."""
    assert PROGRAM is not None
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *_FLAGS, f"--user-data-dir={folder}", "about:blank", stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            log = b""
            while not (listening_line := re.search(rb"DevTools listening on ws://([\w.:\[\]]+)/", log)):
                line = await process.stderr.readline()
                assert line, f"Chromium ended: {log.decode(errors='replace')}"
                log += line
        reading = asyncio.ensure_future(process.stderr.read())  # so that it never waits for us
        devtools = f"http://{listening_line[1].decode()}/json"

        @contextlib.asynccontextmanager
        async def tab(address: str) -> AsyncIterator[Tab]:
            target = json.loads(await asyncio.to_thread(fetch, f"{devtools}/new?about:blank", "PUT"))
            async with Tab.attach(target["webSocketDebuggerUrl"]) as opened:
                await opened.call("Page.navigate", url=address)
                yield opened
            await asyncio.to_thread(fetch, f"{devtools}/close/{target['id']}")

        yield tab
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
    await reading
