"""A real lingering agent, to which tests connect as consoles."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gconsole.config import load
from gconsole.fleet.deploy import agent_payload
from gconsole_remote.agent import cache_users

CONSOLE, DEADLINE_S = "c0ffee0000000001", 60.0


@dataclass(frozen=True)
class Resources:
    """Resources of the agent process at one instant."""

    threads: int
    descriptors: int
    rss_bytes: int


class Agent:
    """A real lingering agent behind its socket, without its original connection."""

    def __init__(self, folder: Path) -> None:
        hosts = folder / "hosts.toml"
        hosts.write_text(
            f'[ssh]\ntransport = "local"\n[agent]\nlinger_s = 60\nsimulate_gpus = 2\nwire = "readable"\n'
            f'cache_dir = "{folder}/cache"\n'
            '[[nodes]]\nhosts = "here"\nprocess_filter = "env:NOBODY_HAS=this"\n'
        )
        node = load(str(hosts)).nodes[0]
        self._start = agent_payload.start(node, CONSOLE, "", 0, 1000)
        self.path = folder / "cache" / "run" / cache_users.socket_name(CONSOLE)
        self.id, self.seq = "", 0
        command = agent_payload.command(node.agent.python, node.agent.run_as)
        pipe = subprocess.PIPE
        with subprocess.Popen(["/bin/sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe) as relay:
            assert relay.stdin and relay.stdout and relay.stderr
            payload = agent_payload.build()
            relay.stdin.write(payload.preamble + _line({"start": self._start}) + payload.archive)
            relay.stdin.flush()
            assert "gconsole_lacks" in json.loads(relay.stdout.readline())
            hello = relay.stdout.readline()
            assert hello, relay.stderr.read()
            self.id = json.loads(hello)["gconsole"]["agent"]
            relay.kill()
        self.pid = self._described()["pid"]

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        """A connection as a console, which has sent a ping."""
        with _connected(self.path) as console:
            start = {**self._start, "agent": self.id, "after": self.seq}
            console.sendall(_line({"start": start}) + _line({"ping": 1}))
            yield console

    def meet(
        self, *, until_seq: int = 0, until_kinds: Collection[str] = (), since_ns: int = 0, abruptly: bool = False
    ) -> None:
        """Connect as a console, read up to record `until_seq` and at least the answer to a ping, and disconnect.

        `until_kinds`: also up to a record of each of these kinds that was made since `since_ns` (CLOCK_REALTIME).
        """
        with self.connected() as console, console.makefile("rb") as stream:
            has_answered, missing = False, set(until_kinds)
            while not has_answered or self.seq < until_seq or missing:
                frame = json.loads(stream.readline())
                has_answered = has_answered or "pong" in frame
                if frame.get("t", 0) >= since_ns:
                    missing.discard(frame.get("kind"))
                self.seq = max(self.seq, frame.get("seq", 0))
            console.sendall(_line({"ack": self.seq}))
            if abruptly:
                console.shutdown(socket.SHUT_RDWR)

    def took(self) -> Resources:
        process = Path(f"/proc/{self.pid}")
        pages = int((process / "statm").read_text().split()[1])
        return Resources(
            len(list((process / "task").iterdir())), len(list((process / "fd").iterdir())),
            pages * os.sysconf("SC_PAGE_SIZE"),
        )  # fmt: skip

    def end(self) -> None:
        with _connected(self.path) as console:
            console.sendall(_line({"stop": True}))
            console.recv(1)

    def _described(self) -> dict[str, Any]:
        with _connected(self.path) as console, console.makefile("rb") as stream:
            console.sendall(_line({"who": True}))
            described: dict[str, Any] = json.loads(stream.readline())
            return described


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(DEADLINE_S)
    connection.connect(str(path))
    return connection


def _line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def until(condition: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)
