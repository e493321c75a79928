"""Consoles in separate processes: one that records, and one whose screen is captured."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fork_server
from fork_server import GCONSOLE
from tmux import Tmux

from gconsole.records import AgentCost, Node, Record
from gconsole.session.format.layout import SessionError

from .measurements import is_kept
from .record_counts import Tally

DEADLINE_S = 60.0


def until(condition: Callable[[], object], description: str, deadline_s: float = DEADLINE_S) -> float:
    """Wait until a condition holds; the elapsed time in seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < deadline_s, f"not within {deadline_s:g} s: {description}"
        time.sleep(0.1)
    return time.monotonic() - began


def any_instant() -> int:
    """Wait a random part of a second, so that faults are not synchronised with ticks; CLOCK_REALTIME, ns."""
    time.sleep(random.random())
    return time.time_ns()


def environment(folder: Path) -> dict[str, str]:
    """The environment of a console with a temporary home."""
    return {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "", "XDG_STATE_HOME": ""}


@dataclass
class Latency:
    """Latency of ticks from the node's clock to the console's, by node, ns; in the rig both are one clock."""

    ticks: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, record: Record) -> None:
        if isinstance(record, AgentCost):
            self.ticks[record.node].append((record.rx, record.rx - record.t))

    def of(self, nodes: Sequence[str], begin_ns: int, end_ns: int) -> list[int]:
        """Latencies of the ticks that arrived between two instants."""
        return [latency_ns for node in nodes for rx, latency_ns in self.ticks[node] if begin_ns <= rx < end_ns]


class SessionReader:
    """A session while a console writes it: the records on the disk so far."""

    def __init__(self, session: Path) -> None:
        self.latency = Latency()
        self.boots: dict[str, str] = {}  # node → its last boot id
        self.tally = Tally(session, self._take)

    def _take(self, record: Record) -> None:
        self.latency.take(record)
        if isinstance(record, Node):
            self.boots[record.node] = record.boot_id

    def read(self) -> Tally:
        with contextlib.suppress(SessionError, FileNotFoundError):  # the recording has not started
            self.tally.read()
        return self.tally

    def wait_for(self, nodes: Sequence[str], state: str = "ok", deadline_s: float = DEADLINE_S) -> None:
        until(lambda: all(self.read().state(node) == state for node in nodes), f"{nodes} {state}", deadline_s)

    def wait_for_ticks(self, nodes: Sequence[str], count: int = 2, deadline_s: float = DEADLINE_S) -> None:
        """Wait until that many more ticks of each of these nodes are on the disk."""
        self.read()
        wanted = {node: len(self.latency.ticks[node]) + count for node in nodes}
        until(
            lambda: self.read() and all(len(self.latency.ticks[node]) >= wanted[node] for node in nodes),
            f"{count} ticks of {nodes}; states {[self.tally.state(node) for node in nodes]}", deadline_s,
        )  # fmt: skip


class Recorder(SessionReader):
    """A `gconsole record` process and its session."""

    def __init__(
        self, hosts: Path, folder: Path, name: str = "night", argv: Sequence[object] = (GCONSOLE,), *options: str,
        sessions: Path | None = None,
    ) -> None:  # fmt: skip
        """`argv`: the program or its replacement; `sessions`: the sessions folder, for a separate disk."""
        self.folder, self.name = folder, name
        self._sessions = sessions or folder / "sessions"
        super().__init__(self._sessions / name)
        self._argv = [*map(str, argv), "record", str(hosts), "--name", name, "--quiet", *options]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        env = environment(self.folder) | {"GCONSOLE_SESSIONS_FOLDER": str(self._sessions)}
        popen = subprocess.Popen if is_kept() else fork_server.Popen  # figures are those of a separate program
        with (self.folder / f"{self.name}.stderr").open("ab") as errors:
            return popen(
                self._argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, text=True
            )

    def again(self) -> None:
        """Run the same command again after the process has ended."""
        self.process.wait(DEADLINE_S)
        self.process = self._start()

    def read(self) -> Tally:
        assert self.process.poll() is None, (self.folder / f"{self.name}.stderr").read_text()[-2000:]
        return super().read()

    def stop(self) -> Tally:
        """Stop it normally."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(DEADLINE_S)
        return super().read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@dataclass(frozen=True)
class ScreenContent:
    """One screen content, and the time since which it was shown (console CLOCK_REALTIME, ns)."""

    at: int
    text: str


class Screen:
    """The console in a terminal. While it is `watched`, every screen content is kept with its time."""

    def __init__(self, hosts: Path, folder: Path, *options: str) -> None:
        self.sessions = folder / "of-the-screen"
        env = {"HOME": str(folder), "GCONSOLE_SESSIONS_FOLDER": str(self.sessions)}
        command = " ".join(map(shlex.quote, [str(GCONSOLE), "tui", str(hosts), *options]))
        self.terminal = Tmux(command, env, columns=160, rows=45)
        self._pictures: list[ScreenContent] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def record(self, name: str) -> SessionReader:
        """Start recording incoming records."""
        self.terminal.press("r")
        self.terminal.until("Records all incoming data")
        self.terminal.press("-l", name)
        self.terminal.press("Enter")
        recorded = SessionReader(self.sessions / name)
        until(recorded.tally.session.path.exists, f"{name} is recorded")
        return recorded

    def watch(self) -> None:
        self._pictures, self._over = [], threading.Event()
        self._thread = threading.Thread(target=self._capture_screens, daemon=True)
        self._thread.start()

    def stop_watching(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _capture_screens(self) -> None:
        while not self._over.wait(0.15):
            text = self.terminal.screen()
            if not self._pictures or self._pictures[-1].text != text:
                self._pictures.append(ScreenContent(time.time_ns(), text))

    def first_match(self, pattern: str, since_ns: int) -> ScreenContent | None:
        """The first screen content since then that matches a regular expression."""
        return next(
            (
                content
                for content in tuple(self._pictures)
                if content.at >= since_ns and re.search(pattern, content.text)
            ),
            None,
        )

    def close(self) -> None:
        self.stop_watching()
        self.terminal.press("q", "q")  # the second q confirms during a recording
        with contextlib.suppress(AssertionError):
            self.terminal.until_gone()
        self.terminal.close()


def python_with(script: Path) -> list[str]:
    """The program run by a test script, in the same interpreter."""
    return [sys.executable, str(script)]
