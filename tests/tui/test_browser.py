"""The console in a real browser: drawn there, moved by a real key, and asking nobody else for anything."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chromium import DEADLINE_S, PROGRAM, PageGone, Tab, chromium
from serving import INVENTED

from gconsole.web.terminal.server import ConsoleServer

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")
Open = Callable[[str], AbstractAsyncContextManager[Tab]]

#: Pixels of a picture by how often their colour occurs, the commonest (the ground) left out; and how many colours.
COUNT = """(async () => {
  const image = new Image(); image.src = "data:image/png;base64,PICTURE"; await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer), counts = {};
  for (const pixel of pixels) counts[pixel] = (counts[pixel] || 0) + 1;
  const sorted = Object.values(counts).sort((a, b) => b - a);
  return [sorted.slice(1).reduce((a, b) => a + b, 0) / pixels.length, sorted.length];
})()"""


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Open]:
    async with chromium(tmp_path / "profile") as tab:
        yield tab


async def inked(open_tab: Open, picture: bytes) -> tuple[float, int]:
    """The share of a picture that is not ground, and its colours."""
    async with open_tab("about:blank") as tab:
        share, colours = await tab.evaluate(COUNT.replace("PICTURE", base64.b64encode(picture).decode()))
    return share, colours


async def test_a_key_that_is_pressed_in_the_browser_moves_the_console(browser: Open) -> None:
    async with ConsoleServer(INVENTED, "gconsole demo").open() as address, browser(address) as tab:
        await tab.until(lambda: "demo-ring" in tab.drawn, "the console was not drawn")
        await tab.until(lambda: "metric" in tab.drawn, "the map has no keys")  # nobody clicked: the page has the keys
        before = await tab.screenshot()
        assert "wchan" not in tab.drawn
        await tab.press("2", "Digit2", "2")
        await tab.until(lambda: "wchan" in tab.drawn, "the key did not arrive")
        after = await tab.screenshot()
        assert await tab.evaluate("document.title") == "gconsole demo"
        hosts = {urlsplit(url).netloc for url in tab.requests if not url.startswith("data:")}
        assert hosts == {urlsplit(address).netloc}
        assert tab.errors == []
        assert before != after
        for picture in (before, after):
            share, colours = await inked(browser, picture)
            assert share > 0.02 and colours > 20, "the picture is as good as empty"
        await tab.press("q", "KeyQ", "q")
        await tab.until(lambda: any(url.endswith("/ended") for url in tab.requests), "no word about the end")
        await says(tab, "The console has ended")


async def test_the_second_window_says_that_somebody_is_here(browser: Open) -> None:
    async with ConsoleServer(INVENTED, "gconsole demo").open() as address, browser(address) as first:
        await first.until(lambda: "demo-ring" in first.drawn, "the console was not drawn")
        async with browser(address) as second:
            await says(second, "Another browser is connected")
            await first.press("q", "KeyQ", "q")
            await says(first, "The console has ended")
            second.forget()
            await second.evaluate("document.querySelector('a').click()")
            await second.until(lambda: "demo-ring" in second.drawn, "the way was not free")


async def test_a_page_that_is_loaded_again_goes_on(browser: Open) -> None:
    async with ConsoleServer(INVENTED, "gconsole demo").open() as address, browser(address) as tab:
        await tab.until(lambda: "demo-ring" in tab.drawn, "the console was not drawn")
        tab.forget()
        await tab.do("Page.reload")
        await tab.until(lambda: "demo-ring" in tab.drawn, "the page was not drawn again")


async def says(tab: Tab, words: str) -> None:
    """Wait until the page has these words; between two pages there is no page, or none to ask."""
    end = time.monotonic() + DEADLINE_S
    found = None
    while words not in (found or ""):
        assert time.monotonic() < end, f"{words!r} not on the page: {found!r}"
        with contextlib.suppress(PageGone):
            found = await tab.evaluate("document.body ? document.body.innerText : ''")
        await asyncio.sleep(0.05)
