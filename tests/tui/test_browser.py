"""The console in a real browser: drawing, keys and mouse, and no requests to other hosts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chromium import DEADLINE_S, PROGRAM, PageClosed, Tab, chromium
from serving import open_demo
from tmux import Tmux

from gconsole.web.terminal.server import ConsoleServer

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed"),
    pytest.mark.usefixtures("painted_at_every_change"),
]
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


async def ink_share(open_tab: Open, picture: bytes) -> tuple[float, int]:
    """The share of a picture that is not ground, and its colours."""
    async with open_tab("about:blank") as tab:
        share, colours = await tab.evaluate(COUNT.replace("PICTURE", base64.b64encode(picture).decode()))
    return share, colours


@pytest.mark.full  # test_serve shows it with a websocket
async def test_key_pressed_in_the_browser_switches_the_console_view(browser: Open) -> None:
    async with ConsoleServer(open_demo, "gconsole demo").open() as address, browser(address) as tab:
        await tab.until(lambda: "demo-ring" in tab.output, "the console was not drawn")
        await tab.until(lambda: "metric" in tab.output, "the map has no keys")  # the page has the focus
        before = await tab.screenshot()
        assert "wchan" not in tab.output
        await tab.press("2", "Digit2", "2")
        await tab.until(lambda: "wchan" in tab.output, "the key did not arrive")
        after = await tab.screenshot()
        assert await tab.evaluate("document.title") == "gconsole demo"
        hosts = {urlsplit(url).netloc for url in tab.requests if not url.startswith("data:")}
        assert hosts == {urlsplit(address).netloc}
        assert tab.errors == []
        assert before != after
        for picture in (before, after):
            share, colours = await ink_share(browser, picture)
            assert share > 0.02 and colours > 20, "the picture is as good as empty"
        await tab.press("q", "KeyQ", "q")
        await tab.until(lambda: any(url.endswith("/ended") for url in tab.requests), "no word about the end")
        await until_page_shows(tab, "Your screen is closed")


@pytest.mark.full  # test_serve shows it with two connections
async def test_second_browser_window_is_refused_until_the_first_one_ends(browser: Open) -> None:
    async with ConsoleServer(open_demo, "gconsole demo", visitors=1).open() as address, browser(address) as first:
        await first.until(lambda: "demo-ring" in first.output, "the console was not drawn")
        async with browser(address) as second:
            await until_page_shows(second, "1 browser is connected, which is the limit")
            await first.press("q", "KeyQ", "q")
            await until_page_shows(first, "Your screen is closed")
            second.clear_output()
            await second.evaluate("document.querySelector('a').click()")
            await second.until(lambda: "demo-ring" in second.output, "the way was not free")


async def test_reloaded_page_is_drawn_again(browser: Open) -> None:
    async with ConsoleServer(open_demo, "gconsole demo").open() as address, browser(address) as tab:
        await tab.until(lambda: "demo-ring" in tab.output, "the console was not drawn")
        tab.clear_output()
        await tab.call("Page.reload")
        await tab.until(lambda: "demo-ring" in tab.output, "the page was not drawn again")


async def until_page_shows(tab: Tab, text: str) -> None:
    """Wait until the page contains this text; between two pages a call may fail."""
    end = time.monotonic() + DEADLINE_S
    page_text = None
    while text not in (page_text or ""):
        assert time.monotonic() < end, f"{text!r} not on the page: {page_text!r}"
        with contextlib.suppress(PageClosed):
            page_text = await tab.evaluate("document.body ? document.body.innerText : ''")
        await asyncio.sleep(0.05)


#: What Textual writes, and its neighbours: cursor addresses, erasure, wide and combining characters, wrapping.
SEQUENCES = [
    "plain\r\nsecond\x1b[1;3HXY",
    "\x1b[2;5H\x1b[1;38;2;1;2;3;48;5;17mbold\x1b[0m\x1b[4;1Hend\x1b[1Jx",
    "0123456789abcdefghijklmnop",
    "line\nfeed\r\n\r\n\r\n\r\n\r\n\r\nscrolled",
    "abcdefgh\x1b[1;3H\x1b[K\x1b[2;1Hxxxxxxxx\x1b[2;4H\x1b[1K\x1b[3;1Hyyyyyyy\x1b[3;2H\x1b[3X",
    "日本語 ok\x1b[2;1H한글 e\u0301 ─│█▌⠋ é\x1b[3;1H日本\x1b[3;3Hx",
    "\x1b[?1049hsecond\x1b[2J\x1b[3;3Hscreen\x1b[1A\x1b[2Dup\x1b[5Gcolumn\x1b[6drow",
    "\x1b]8;id=1;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07\x1bPdcs\x1b\\after\x1b(B.",
    "a\tb\b\bc\x1b[4;2H\x1b[Jrest",
]


@pytest.mark.full  # the emulator itself, in a real browser
async def test_browser_screen_matches_tmux_for_terminal_sequences(browser: Open, tmp_path: Path) -> None:
    async with ConsoleServer(open_demo, "x").open() as address, browser(address) as tab:
        await tab.until(lambda: "demo-ring" in tab.output, "the console was not drawn")
        for number, text in enumerate(SEQUENCES):
            (tmp_path / str(number)).write_text(text)
            expected = await asyncio.to_thread(drawn_by_tmux, tmp_path / str(number))
            at_once, by_character = (
                f"screen.write({json.dumps(text)})",
                f"for (const c of {json.dumps(text)}) screen.write(c)",
            )
            for write in (at_once, by_character):
                lines = await tab.evaluate(
                    "(() => { const screen = new Screen(20, 6, { reply() {}, copy() {} }); " + write
                    + "; return screen.rows.map((row) => row.map((cell) => cell.text).join('').trimEnd()); })()"
                )  # fmt: skip
                assert lines == expected, text


def drawn_by_tmux(file: Path) -> list[str]:
    terminal = Tmux(f"stty -opost; cat {file}; sleep 60", columns=20, rows=6)
    try:
        return read_until_stable(lambda: [line.rstrip() for line in terminal.screen().split("\n")[:6]])
    finally:
        terminal.close()


def read_until_stable(read: Callable[[], list[str]]) -> list[str]:
    """The lines, once they are not empty and equal in two successive reads."""
    end, last = time.monotonic() + DEADLINE_S, [""]
    while time.monotonic() < end:
        lines = read()
        if any(lines) and lines == last:
            return lines
        last = lines
        time.sleep(0.2)
    raise AssertionError(last)


async def test_mouse_click_paste_and_resize_reach_the_console(browser: Open) -> None:
    async with ConsoleServer(open_demo, "gconsole demo").open() as address, browser(address) as tab:
        await tab.until(lambda: "demo-ring" in tab.output, "the console was not drawn")
        assert "wchan" not in tab.output
        position = await tab.evaluate(
            "(() => { const box = [...document.querySelectorAll('.row span')].find((span) => "
            "span.textContent.includes('Ranks')).getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + 3]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await tab.call(
                "Input.dispatchMouseEvent", type=kind, x=position[0], y=position[1], button="left", clickCount=1
            )
        await tab.until(lambda: "wchan" in tab.output, "the click did not arrive")
        tab.clear_output()
        await tab.call("Input.insertText", text="6")
        await tab.until(lambda: "60.0G" in tab.output, "the text did not arrive")
        tab.clear_output()
        await tab.call("Emulation.setDeviceMetricsOverride", width=1800, height=1000, deviceScaleFactor=1, mobile=False)
        await tab.until(lambda: "commands" in tab.output, "the size did not arrive")
        rows = await tab.evaluate("document.querySelectorAll('.row').length")
        assert rows > 50 and tab.errors == []
