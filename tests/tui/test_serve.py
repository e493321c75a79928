"""`gconsole serve`: the console in a local browser, for one client with the token."""

from __future__ import annotations

import asyncio
import http.client
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest
from clusters import demo
from fake_cluster import FakeCluster
from processes import processes_of, until_none_is_left
from serving import DEADLINE_S, WebSocketClient, connect_websocket, deadline, open_demo, serving
from textual.app import App
from websockets.exceptions import InvalidStatus

from gconsole.core.control import CaptureRequest
from gconsole.tui.visitor_app import VisitorApp, VisitorControl, VisitorRefusal
from gconsole.web.terminal import driver, visit
from gconsole.web.terminal.server import FILES, ConsoleServer

pytestmark = pytest.mark.usefixtures("painted_at_every_change")
LOCAL = '[cluster]\nname = "odd-pod"\n[[nodes]]\nhosts = "here"\ntransport = "local"\n'
#: As awkward as a file name can be.
ODD_NAME = """a b'c";touch pwned;$(touch pwned)`touch pwned`&\\ü.toml"""


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with ConsoleServer(open_demo, "gconsole demo").open() as url:
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
        async with ConsoleServer(open_demo, "<script>alert(1)</script>").open() as url:
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
        assert "Your screen is closed" in await text_of(address + "ended")

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

    async def test_browser_beyond_the_limit_is_rejected_as_busy_until_another_one_leaves(self):
        async with ConsoleServer(open_demo, "x", visitors=2).open() as address:
            first, second = WebSocketClient(address), WebSocketClient(address)
            async with first, second:
                await first.until("demo-ring")
                await second.until("demo-ring")
                async with WebSocketClient(address) as third:
                    assert await third.redirect_target() == "busy"
                assert "2 browsers are connected, which is the limit" in await text_of(address + "busy")
                await second.type("q")
                assert await second.redirect_target() == "ended"
                first.clear_output()
                await first.type("2")
                await first.until("wchan")
                async with WebSocketClient(address) as fourth:
                    await fourth.until("demo-ring")

    @pytest.mark.full  # test_browser reloads a real page
    async def test_reloaded_page_gets_a_new_screen_at_the_limit(self):
        """The new page's connection may come before the old one's is closed."""
        async with ConsoleServer(open_demo, "x", visitors=1).open() as address:
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

    async def test_error_of_a_screen_is_shown_escaped_and_ends_that_visit_only(self):
        class Failing(App[None]):
            def on_key(self) -> None:
                raise ValueError("no <b>such</b> rank")

        apps = iter([Failing(), open_demo(False)])
        async with ConsoleServer(lambda may_act: next(apps), "x").open() as address:
            failing, other = WebSocketClient(address), WebSocketClient(address)
            async with failing, other:
                await other.until("demo-ring")
                await failing.type("x")
                page = await failing.redirect_target()
                assert page is not None and page.startswith("ended?visit=")
                assert "ValueError: no &lt;b&gt;such&lt;/b&gt; rank" in await text_of(address + page)
                other.clear_output()
                await other.type("2")
                await other.until("wchan")

    async def test_visitor_who_reads_nothing_is_disconnected_and_delays_nobody(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(visit, "STALL_S", 1.0)
        stopped, drawing = asyncio.Event(), asyncio.Event()

        async def write(data: bytes) -> None:
            drawing.set()
            await stopped.wait()  # as a connection whose other end reads nothing

        stalled = visit.Visit(open_demo(False), write)
        async with ConsoleServer(open_demo, "x").open() as address, WebSocketClient(address) as other:
            running = asyncio.create_task(stalled.run(100, 30))
            await drawing.wait()
            await other.until("demo-ring")
            other.clear_output()
            await other.type("2")
            await other.until("wchan")
            async with deadline("the stalled visit does not end"):
                await running
        assert stalled.reason == "The browser did not read what was drawn for it."

    async def test_output_that_nobody_receives_is_bounded(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(driver, "MAX_QUEUED", 100)
        queue = driver.OutputQueue()
        for _ in range(3):
            queue.put(b"x" * 40)
        assert queue.backlog == 0
        with pytest.raises(driver.SlowReaderError):
            await queue.receive()

    async def test_visitors_are_shown_the_same_data_with_views_of_their_own(self):
        cluster = demo()
        async with ConsoleServer(lambda may_act: cluster.app(), "x").open() as address:
            first, second = WebSocketClient(address), WebSocketClient(address)
            async with first, second:
                await first.type("2")
                await first.until("wchan")
                await second.type("6")
                await second.until("H100 80GB")
                assert "wchan" not in second.output


class TestAVisitorWhoMayOnlyLook:
    @pytest.fixture
    async def both(self) -> AsyncIterator[tuple[WebSocketClient, WebSocketClient, FakeCluster]]:
        """(who may look, who may act, their cluster)."""
        cluster = demo()
        watchers: defaultdict[str, set[str]] = defaultdict(set)

        def open_app(may_act: bool) -> App[None]:
            return VisitorApp(
                cluster.store, cluster, may_act=may_act, watchers=watchers, cluster="c", expected_nodes=cluster.names,
                now=cluster.now,
            )  # fmt: skip

        server = ConsoleServer(open_app, "x", allow_actions=True)
        async with server.open() as address:
            looking, acting = WebSocketClient(address), WebSocketClient(server.acting_address)
            async with looking, acting:
                await looking.until("demo-ring")
                await acting.until("demo-ring")
                yield looking, acting, cluster

    async def test_captures_and_recordings_are_refused(
        self, both: tuple[WebSocketClient, WebSocketClient, FakeCluster]
    ):
        looking, acting, cluster = both
        for key in ("s", "d", "r", "M", "e", "R", "\x13"):
            looking.clear_output()
            await looking.type(key)
            await looking.until("read-only: visitors")
        assert not [call for call in cluster.calls if call[0] in ("capture", "mark", "record", "reconnect")]
        await acting.type("M")
        await acting.until("Marker")
        await acting.type("queue rose\r")
        await acting.until("marker added")
        assert ("mark", "queue rose") in cluster.calls

    async def test_control_refuses_every_action_by_itself(self):
        cluster = demo()
        control = VisitorControl(cluster, "v", False, defaultdict(set))
        for work in (control.mark("x"), control.reconnect("a"), control.add_nodes("b"), control.remove_node("a"),
                     control.capture(CaptureRequest("1")), control.profile(1), control.examine(["a"]),
                     control.stop_job("j", ["a"], 1.0), control.start_job({})):  # fmt: skip
            with pytest.raises(VisitorRefusal, match="read-only"):
                await work
        assert cluster.calls == []

    async def test_output_of_a_job_is_watched_until_the_last_visitor_leaves(self):
        cluster, watchers = demo(), defaultdict[str, set[str]](set)
        first, second = (VisitorControl(cluster, who, False, watchers) for who in "ab")
        await first.watch_job("j", ["n"], True)
        await second.watch_job("j", ["n"], True)
        before = len(cluster.calls)
        await first.release()
        assert len(cluster.calls) == before
        await second.release()
        assert len(cluster.calls) == before + 1


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
                assert children  # the agent of the node
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
