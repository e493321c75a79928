"""The gateway's program without a console: what a node sends is kept on its disk, and comes first with the next one.

Nodes are programs of this machine that count like a lingering agent, and forget only what is acknowledged.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from local_gateway import Outer, Receiver, until

from gconsole.config.model import NodeConfig
from gconsole.config.sections import AgentConfig, SshConfig
from gconsole.fleet.deploy.gateway_launch import GatewayLaunch, gateway_share, kept_text
from gconsole.fleet.wire import Kept
from gconsole.transport.gateway.transport import GatewayTransport
from gconsole.transport.login_limiter import LoginLimiter

pytestmark = pytest.mark.slow  # starts Python for each test

PROGRAM = os.urandom(8192)  # stands for the agent's modules: a blob
#: Numbers its records from the last acknowledged one, ten a second; `agent` and `acked` in its folder outlive it.
NODE = """
import json, os, sys, threading, time
folder = sys.argv[1]
sys.stdin.buffer.read(8192)
start = json.loads(sys.stdin.buffer.readline())["start"]
acked = int(open(folder + "/acked").read())
agent = open(folder + "/agent").read()
def send(line):
    sys.stdout.write(line + "\\n"); sys.stdout.flush()
send("motd")
send(json.dumps({"gconsole": {"protocol": [1, 1], "agent": agent, "arch": "x"}}, separators=(",", ":")))
def count():
    seq = acked
    takes_rows = bool(start["config"].get("rows"))
    if takes_rows:
        send('{"layout":0,"kind":"log","names":["text","severity"]}')
    while True:
        seq += 1
        if takes_rows:
            send('[0,%d,1,1,1,[["%s","info"]]]' % (seq, "x" * 100))
        else:
            send('{"kind":"log","seq":%d,"t":1,"text":"%s"}' % (seq, "x" * 100))
        time.sleep(0.1)
threading.Thread(target=count, daemon=True).start()
for line in sys.stdin.buffer:
    frame = json.loads(line)
    if "ack" in frame and frame["ack"] > acked:
        with open(folder + "/draft", "w") as f:
            f.write(str(frame["ack"]))
        os.rename(folder + "/draft", folder + "/acked")
os._exit(0)
"""


class Console(Receiver):
    """What one node's stream carried: numbers by agent, and gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.agent, self.seqs, self.gaps = "", {}, []  # type: ignore[var-annotated]
        self._rest, self.rows = b"", 0

    def on_bytes(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            frame: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
            if "gconsole" in frame or "from" in frame:
                self.agent = frame["from"] if "from" in frame else frame["gconsole"]["agent"]
            elif "gap" in frame:
                self.gaps.append(frame)
            elif "seq" in frame or line.startswith(b"["):
                if line.startswith(b"["):
                    frame, self.rows = {"seq": json.loads(line)[1]}, self.rows + 1
                seqs = self.seqs.setdefault(self.agent, [])
                if not seqs or frame["seq"] > seqs[-1]:  # as the console does
                    seqs.append(frame["seq"])

    def until_seq(self, agent: str, seq: int) -> bool:
        return bool(self.seqs.get(agent)) and self.seqs[agent][-1] >= seq


class Site:
    def __init__(self, cache: Path, folder: Path, mib: int) -> None:
        self.outer, self.kept, self.cache, self.folder = Outer(), [], cache, folder  # type: ignore[var-annotated]
        (folder / "node.py").write_text(NODE)
        self.takes_rows = False  # the console does
        self.ssh = SshConfig(
            gateway="login1", record_on="login1", record_mib=mib, gateway_command="env NODE={node} /bin/sh -c"
        )
        agent = AgentConfig(cache_dir=str(cache))
        self.transport = GatewayTransport(
            LoginLimiter(8), lambda host: self.outer,
            lambda host: GatewayLaunch(host, agent, "c" * 16, lambda name, kept: self.kept.append(kept)),
            gateway_share, lambda name, error: None,
        )  # fmt: skip

    def set_agent(self, name: str, acked: int = 0) -> None:
        (self.folder / "agent").write_text(name)
        (self.folder / "acked").write_text(str(acked))

    def acked(self) -> int:
        return int((self.folder / "acked").read_text())

    def files(self) -> list[Path]:
        return sorted(self.cache.glob("kept/*/*-0*"))

    async def connect(self, after: int = 0, agent: str = "") -> tuple[Console, Any]:
        console = Console()
        command = f"exec {sys.executable} {self.folder}/node.py {self.folder}"
        channel = await self.transport.open(NodeConfig(name="node1", ssh=self.ssh), command, console)
        channel.write(PROGRAM)
        config = {"linger_s": 60, "orphan_s": 15, "rows": {"log": ["text", "severity"]} if self.takes_rows else None}
        start = {"console": "c" * 16, "agent": agent, "after": after, "config": config}
        channel.write(json.dumps({"start": start}).encode() + b"\n")
        return console, channel

    def lose(self) -> int:
        """Lose the console without a word; the gateway's pid."""
        [gateway] = self.transport._gateways.values()
        assert gateway._opening is not None
        connection: Any = gateway._opening.result()
        connection._is_closed = True  # it would end the process, which is not behind sshd here
        connection._liveness.cancel()
        channel = connection._channel
        pid = int(channel._process.get_pid())
        channel._stdin.close()
        gateway._opening = None
        return pid


@asynccontextmanager
async def site(tmp_path: Path, cache: Path, mib: int = 16) -> AsyncIterator[Site]:
    site = Site(cache, tmp_path, mib)
    try:
        yield site
    finally:
        await site.transport.close()
        await until(lambda: all(process.get_returncode() is not None for process in site.outer.processes))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("takes_rows", [False, True])
async def test_next_console_gets_the_past_first_then_the_rest_once_each(
    tmp_path: Path, cache: Path, takes_rows: bool
) -> None:
    async with site(tmp_path, cache) as gateway:
        gateway.takes_rows = takes_rows
        gateway.set_agent("a")
        console, channel = await gateway.connect()
        await until(lambda: console.until_seq("a", 3))
        channel.write(b'{"ack":2}\n')
        await until(lambda: gateway.acked() == 2)
        gateway.lose()
        await until(lambda: gateway.acked() > 20)
        console, channel = await gateway.connect(2, "a")
        await until(lambda: console.until_seq("a", gateway.acked() + 5))
        seqs = console.seqs["a"]
        assert seqs == list(range(3, len(seqs) + 3))
        assert [(kept.nodes, kept.killed) for kept in gateway.kept] == [(1, False)]
        assert gateway.files()
        assert 0 <= console.rows < len(seqs)
        assert (console.rows > 0) == takes_rows
        channel.write(b'{"ack":%d}\n' % seqs[-1])
        await until(lambda: not gateway.files())


async def test_files_of_a_killed_gateway_are_read_and_it_is_said_that_it_was_killed(
    tmp_path: Path, cache: Path
) -> None:
    async with site(tmp_path, cache) as gateway:
        gateway.set_agent("a")
        console, _ = await gateway.connect()
        await until(lambda: console.until_seq("a", 3))
        pid = gateway.lose()
        await until(lambda: gateway.acked() > 20)
        os.kill(pid, signal.SIGKILL)
        gateway.set_agent("b")  # the node was rebooted
        console, channel = await gateway.connect(2, "a")
        await until(lambda: console.until_seq("b", 5))
        assert console.seqs["a"] == list(range(1, console.seqs["a"][-1] + 1))  # the console drops what it has
        assert console.seqs["a"][-1] > 20
        assert console.seqs["b"][:5] == [1, 2, 3, 4, 5]
        assert [kept.killed for kept in gateway.kept] == [True]
        channel.write(b'{"ack":5}\n')
        await until(lambda: not gateway.files())


@pytest.mark.parametrize("takes_rows", [False, True])
async def test_damaged_frame_is_a_gap_with_its_place_and_the_torn_end_is_not_believed(
    tmp_path: Path, cache: Path, takes_rows: bool
) -> None:
    async with site(tmp_path, cache) as gateway:
        gateway.takes_rows = takes_rows
        gateway.set_agent("a")
        console, _ = await gateway.connect()
        await until(lambda: console.until_seq("a", 1))
        pid = gateway.lose()
        await until(lambda: len(gateway.files()) == 1 and gateway.files()[0].read_bytes().count(b"GCk1") >= 3)
        os.kill(pid, signal.SIGKILL)
        [path] = gateway.files()
        first, second, *rest = path.read_bytes().split(b"GCk1")[1:]
        frames = [first, second[:-1] + bytes([second[-1] ^ 1]), *rest]
        path.write_bytes(b"".join(b"GCk1" + frame for frame in frames) + b"GCk1" + rest[0][:40])
        console, _ = await gateway.connect()
        acked = gateway.acked()
        await until(lambda: console.until_seq("a", acked + 3))
        [gap] = console.gaps
        low, high = gap["gap"]
        assert f"{path.name} is damaged at byte {len(first) + 4}" in gap["reason"]
        seqs = console.seqs["a"]
        assert sorted([*seqs, *range(low, high + 1)]) == list(range(1, seqs[-1] + 1))


async def test_process_ends_and_leaves_its_files_when_the_time_is_over(tmp_path: Path, cache: Path) -> None:
    async with site(tmp_path, cache) as gateway:
        gateway.ssh = SshConfig(**{**{name: getattr(gateway.ssh, name) for name in gateway.ssh.__struct_fields__},
                                   "record_for_s": 10.0})  # fmt: skip
        gateway.set_agent("a")
        console, _ = await gateway.connect()
        await until(lambda: console.until_seq("a", 3))
        gateway.lose()
        await until(lambda: gateway.files())
        await until(lambda: all(process.get_returncode() is not None for process in gateway.outer.processes))
        [file] = gateway.files()
        assert {path.name for path in file.parent.iterdir()} == {"lock", file.name}
        assert not list((cache / "run").glob("*.who"))


def test_what_is_said_about_the_kept() -> None:
    assert "keeps nothing while no console is connected: no space" in kept_text("login1", Kept(error="no space"))
    text = kept_text("login1", Kept(nodes=2, bytes=2048, until=1_700_000_000, killed=True))
    assert "of 2 nodes were kept without a console, until 2023-11-1" in text
    assert text.endswith("its program was killed: what came later was not written")
