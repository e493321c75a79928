"""(c) Start-up time: `gconsole --help` compared with an empty Python script, and the first screen of the console."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from rig import Rig

from tests.bench.process_usage import run

from .result import Outcome, Row, middle

PAIRS, PAINTS = 25, 9
HELP_GOAL, PAINT_GOAL_S = 4.0, 1.0
#: A word that occurs only in the header of the screen.
CLUSTER = "benchmark-pod"
NODES = 4
LINES, COLUMNS = 40, 140
PAINT_DEADLINE_S = 20.0


def measure(quick: bool) -> Outcome:
    pairs, paints = (5, 3) if quick else (PAIRS, PAINTS)
    helps, pythons = [], []
    gconsole = str(Path(sys.executable).parent / "gconsole")
    for _ in range(pairs):
        helps.append(run([gconsole, "--help"]).wall_s * 1000)
        pythons.append(run([sys.executable, "-c", "pass"]).wall_s * 1000)
    ratio = statistics.median(helps) / statistics.median(pythons)
    with Rig(nodes=NODES, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"), cluster={"name": CLUSTER})
        first_paint([gconsole, str(target)])  # warm
        painted = [first_paint([gconsole, str(target)]) for _ in range(paints)]
    return Outcome(
        [
            Row("gconsole --help, wall", middle(helps, "ms", 0), "≤ 4 × an empty Python", ratio <= HELP_GOAL,
                f"python -c pass {middle(pythons, 'ms', 0)}", ratio),
            Row("first screen of the console, warm", middle(painted, "s"), "≤ 1 s",
                statistics.median(painted) <= PAINT_GOAL_S),
        ],
        [
            "`gconsole --help` and `python -c pass` of the same interpreter, in turns",
            f"`gconsole hosts.toml` in a pseudo-terminal of {COLUMNS}×{LINES}, {NODES} real sshd nodes: from exec until"
            " the name of the cluster, which the header shows, has been written to the terminal",
        ],
    )  # fmt: skip


def first_paint(argv: list[str]) -> float:
    """Seconds from exec until the header is on the terminal; then quit."""
    return painted(argv, CLUSTER.encode())


def painted(argv: list[str], text: bytes) -> float:
    """The same until that word is on the terminal."""
    began = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", LINES=str(LINES), COLUMNS=str(COLUMNS))
        os.execv(argv[0], argv)
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        took = _wait_for(terminal, text, began)
        os.write(terminal, b"q")
        _drain(terminal)
    finally:
        os.close(terminal)  # a program that has not quit gets SIGHUP
        os.waitpid(child, 0)
    return took


def _wait_for(terminal: int, text: bytes, began: float) -> float:
    received = b""
    while time.perf_counter() - began < PAINT_DEADLINE_S:
        if select.select([terminal], [], [], 0.1)[0]:
            received += os.read(terminal, 1 << 16)
            if text in received:
                return time.perf_counter() - began
    raise RuntimeError(f"no header within {PAINT_DEADLINE_S:g} s; it began: {received[:300]!r}")


def _drain(terminal: int) -> None:
    """Read until the program exits: blocked writes would prevent that."""
    deadline = time.monotonic() + PAINT_DEADLINE_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                if not os.read(terminal, 1 << 16):
                    return
            except OSError:  # EIO: the other side is closed
                return
