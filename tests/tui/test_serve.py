"""`gconsole serve`: the console in a local browser, for one client with the token."""

from __future__ import annotations

import asyncio
import http.client
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest
from processes import processes_of, until_none_is_left
from serving import DEADLINE_S, DEMO_COMMAND, WebSocketClient, connect_websocket, deadline, serving
from websockets.exceptions import InvalidStatus

from gconsole.web.terminal import process
from gconsole.web.terminal.server import FILES, ConsoleServer

LOCAL = '[cluster]\nname = "odd-pod"\n[[nodes]]\nhosts = "here"\ntransport = "local"\n'
#: As awkward as a file name can be.
ODD_NAME = """a b'c";touch pwned;$(touch pwned)`touch pwned`&\\ü.toml"""


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with ConsoleServer(DEMO_COMMAND, "gconsole demo").open() as url:
        yield url


@dataclass
class PageResponse:
    status: int
    headers: Message
    text: str


async def get(address: str, **headers: str) -> PageResponse:
    return await asyncio.to_thread(_get, address, headers)


def _get(address: str, headers: dict[str, str]) -> PageResponse:
    _, _, host, path = address.split("/", 3)
    connection = http.client.HTTPConnection(host, timeout=DEADLINE_S)
    try:
        connection.request("GET", f"/{path}", headers=headers)
        response = connection.getresponse()
        return PageResponse(response.status, response.headers, response.read().decode(errors="replace"))
    finally:
        connection.close()


async def status_of(address: str, **headers: str) -> int:
    return (await get(address, **headers)).status


async def text_of(address: str) -> str:
    return (await get(address)).text


class TestTheDoor:
    @pytest.mark.parametrize("path", ["", "files/screen.js", "files/page.css", "busy", "ended"])
    async def test_every_path_is_served_with_the_token_and_forbidden_without_it(self, address: str, path: str):
        assert await status_of(address + path) in (200, 409)
        root, token = address.rstrip("/").rsplit("/", 1)
        for forbidden in (f"{root}/{path}", f"{root}/{token[:-1]}/{path}", f"{root}/{token}x/{path}"):
            assert await status_of(forbidden) == 403

    async def test_websocket_needs_the_token_and_the_server_origin(self, address: str):
        origin = WebSocketClient(address).origin
        root = address.rstrip("/").rsplit("/", 1)[0]
        for url, sent_origin in ((f"{root}/wrong/socket", origin), (f"{address}socket", "http://evil.example"),
                                 (f"{address}socket", None)):  # fmt: skip
            with pytest.raises(InvalidStatus) as refused:
                await connect_websocket(url, sent_origin)
            assert refused.value.response.status_code == 403

    async def test_foreign_host_or_origin_header_is_rejected(self, address: str):
        assert await status_of(address, Host="evil.example") == 403
        assert await status_of(address, Origin="http://evil.example") == 403

    async def test_other_files_cannot_be_reached(self, address: str):
        for name in ("files/../door.py", "files/%2e%2e%2fdoor.py", "files/console.html", "files//etc/passwd", "x"):
            assert await status_of(address + name) in (403, 404)

    async def test_server_listens_on_the_loopback_address_only(self, address: str):
        port = int(address.split("/")[2].partition(":")[2])
        assert listeners(port) == ["0100007F"]


def listeners(port: int) -> list[str]:
    """Addresses, in the kernel's hexadecimal form, with a socket on this port."""
    rows = [line.split()[1].split(":") for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [address for address, port_hex in rows if int(port_hex, 16) == port]


def without_comments(text: str, name: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) if name.endswith(".css") else text


class TestThePage:
    async def test_page_and_its_assets_reference_no_other_host(self, address: str):
        page = await text_of(address)
        named = re.findall(r'(?:src|href)="(.*?)"', page)
        assert {name.removeprefix("files/") for name in named if name.startswith("files/")} == set(FILES)
        for name, text in [("", page), *[(name, await text_of(address + name)) for name in named
                                         if name.endswith((".css", ".js"))]]:  # fmt: skip
            bare = without_comments(text, name)
            assert re.findall(r"(?:https?|wss?)://[\w.-]+", bare) == [], name
            assert re.findall(r"""(?:src|href|url\(|@import)[=\s]*["']?//""", bare) == [], name

    async def test_content_security_policy_allows_this_server_only(self, address: str):
        headers = (await get(address)).headers
        policy = headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer"
        assert policy.startswith("default-src 'none'")
        assert "http" not in policy and "*" not in policy
        assert re.findall(r"wss?://\S+", policy.replace(";", " ")) == [f"ws://{address.split('/')[2]}"]

    async def test_title_is_html_escaped(self):
        async with ConsoleServer(DEMO_COMMAND, "<script>alert(1)</script>").open() as url:
            assert "<script>alert" not in await text_of(url)


class TestAVisitor:
    async def test_typed_keys_reach_the_console_and_q_ends_it(self, address: str):
        async with WebSocketClient(address) as client:
            await client.until("demo-ring", "GPU")
            client.clear_output()
            await client.type("2")
            await client.until("wchan")
            await client.type("q")
            assert await client.redirect_target() == "ended"
        assert "The console has ended" in await text_of(address + "ended")

    async def test_console_resizes_with_the_browser_window_and_ignores_invalid_sizes(self, address: str):
        async with WebSocketClient(address) as client:
            await client.until("demo-ring")
            client.clear_output()
            await client.send(["resize", {"width": 200, "height": 60}])
            await client.until("commands")
            await client.send(["resize", {"width": -5, "height": 10**9}])
            await client.type("?")
            await client.until("Everywhere")

    async def test_malformed_websocket_messages_are_ignored(self, address: str):
        async with WebSocketClient(address) as client:
            await client.until("demo-ring")
            for text in ("{", "[]", '["resize", {"width": "x"}]', '["stdin"]', '["stdin", 5]', '["\\ud800"]', "null"):
                await client.socket.send(text)
            client.clear_output()
            await client.type("2")
            await client.until("wchan")

    async def test_second_browser_is_rejected_as_busy_while_one_is_connected(self, address: str):
        async with WebSocketClient(address) as first:
            await first.until("demo-ring")
            async with WebSocketClient(address) as second:
                assert await second.redirect_target() == "busy"
            assert "Another browser is connected" in await text_of(address + "busy")
            first.clear_output()
            await first.type("2")
            await first.until("wchan")
        async with WebSocketClient(address) as third:
            await third.until("demo-ring")

    @pytest.mark.full  # test_browser reloads a real page
    async def test_reloaded_page_gets_a_new_console(self, address: str):
        """The new page's connection may come before the old one's is closed."""
        first = WebSocketClient(address)
        async with first:
            await first.until("demo-ring")
            second = WebSocketClient(address)
            coming = asyncio.ensure_future(second.__aenter__())
            await asyncio.sleep(0)
        await coming
        try:
            await second.until("demo-ring")
        finally:
            await second.__aexit__(None, None, None)

    async def test_startup_failure_is_shown_escaped_on_the_page(self):
        argv = [sys.executable, "-c", "import sys; sys.exit('hosts.toml: <b>no such node</b>')"]
        async with ConsoleServer(argv, "x").open() as address:
            async with WebSocketClient(address) as client:
                assert await client.redirect_target() == "ended"
            assert "hosts.toml: &lt;b&gt;no such node&lt;/b&gt;" in await text_of(address + "ended")
        async with ConsoleServer(["/no/such/program"], "x").open() as address:
            async with WebSocketClient(address) as client:
                assert await client.redirect_target() == "ended"
            assert "/no/such/program cannot be started: No such file" in await text_of(address + "ended")

    async def test_console_that_ignores_sigterm_is_killed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        monkeypatch.setattr(process, "LEAVE_S", 0.1)
        monkeypatch.setattr(process, "TERM_S", 0.1)
        stubborn = (
            "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
            "print('__GANGLION__', flush=True)\nos.write(1, b'D\\0\\0\\0\\5hello')\ntime.sleep(600)"
        )
        async with ConsoleServer([sys.executable, "-c", stubborn], "x").open() as address:
            async with WebSocketClient(address) as client:
                await client.until("hello")
            pid = int((tmp_path / "pid").read_text())
        until_none_is_left([pid])


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "gconsole", "serve", *args]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


class TestTheCommand:
    async def test_hosts_file_with_shell_characters_in_its_name_is_passed_unchanged(self, tmp_path: Path):
        (tmp_path / ODD_NAME).write_text(LOCAL)
        with serving(ODD_NAME, "--set", "agent.simulate_gpus=3", cwd=tmp_path) as (_, address):
            async with WebSocketClient(address) as client:
                await client.until("odd-pod", "3/3")
        assert names_in(tmp_path) == [ODD_NAME]

    async def test_ctrl_c_stops_the_server_and_all_its_children(self, tmp_path: Path):
        (tmp_path / "hosts.toml").write_text(LOCAL)
        with serving("hosts.toml", cwd=tmp_path) as (server, address):
            async with WebSocketClient(address) as client:
                await client.until("1/1")
                children = processes_of(server.pid)
                assert len(children) >= 2  # the console, and the agent of its node
                server.send_signal(signal.SIGINT)
                assert await client.redirect_target() is None
            async with deadline("it still runs"):
                assert await asyncio.to_thread(server.wait) == 0
            assert server.stderr is not None and server.stderr.read() == ""
        until_none_is_left(children)

    async def test_killed_server_leaves_no_child_process(self, tmp_path: Path):
        (tmp_path / "hosts.toml").write_text(LOCAL)
        with serving("hosts.toml", cwd=tmp_path) as (server, address):
            async with WebSocketClient(address) as client:
                await client.until("1/1")
                children = processes_of(server.pid)
                server.kill()
                await client.redirect_target()
        until_none_is_left(children)

    def test_invalid_configuration_is_reported_at_startup(self, tmp_path: Path):
        (tmp_path / "hosts.toml").write_text("[cluster]\nnmae = 1\n")
        result = run("hosts.toml", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        assert "hosts.toml:2: cluster.nmae" in result.stderr

    def test_occupied_port_is_reported_without_a_traceback(self, tmp_path: Path):
        (tmp_path / "hosts.toml").write_text(LOCAL)
        with serving("hosts.toml", cwd=tmp_path) as (_, address):
            port = address.split("/")[2].partition(":")[2]
            result = run("hosts.toml", "--port", port, cwd=tmp_path)
        assert result.returncode == 4
        assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
        assert "Traceback" not in result.stderr
