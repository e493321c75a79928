"""What a whole console costs with 1,024 nodes: real sshd, real records, and the screen in a real terminal.

Stand-ins behind one real sshd replay the output of a real agent (`stand_ins`), at 1 Hz, for `gconsole batch` and for
the screen in a pty, directly and through a gateway. A line through the CPU of smaller fleets gives that of one node and
second, without what a process costs by itself.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from itertools import cycle
from pathlib import Path
from statistics import linear_regression, mean, median
from termios import TIOCSWINSZ

import msgspec
from program import GCONSOLE

from gconsole.records import Gpu, decode

from .process import in_new_process
from .process_usage import CpuShare, memory_bytes
from .result import Outcome, Row
from .stand_ins import record_lines, stand_ins
from .stream import GPUS, RANKS

NODES = 1024
SIZES = (64, 128, 256)
#: ms. Interval of ticks with which all nodes are connected once more: what a node costs beside its records.
SLOW_MS = 4000
#: Seconds: until all have sampled, at most; then until the beginning is over; and measured.
STARTS_S, SETTLES_S, MEASURED_S = 300.0, 20.0, 20.0
#: Times that each view is measured, in turn, so that what happens now and then counts in all: windows of clock probes.
ROUNDS, GATEWAY_ROUNDS = 2, 1
VIEWS = {"overview": "1", "ranks": "2", "GPUs": "6", "nodes": "n", "skew": "4"}
#: Changes of the view whose first paint is awaited, seconds between two, and what the terminal then receives: the line
#: below the name of the view.
SWITCHES, QUICK_SWITCHES, APART_S, PAINTED = 100, 10, 0.7, "━".encode()
SIZE = (60, 200)
HEADLESS_PCT, SCREEN_PCT, START_S, LOGIN_MS, DOWN_MBIT, RSS_MB, PAINT_MS = 60.0, 90.0, 30.0, 12.0, 20.0, 800.0, 100.0
GATEWAY_PCT, GATEWAY_SCREEN_PCT, GATEWAY_MBIT = 20.0, 50.0, 6.0
#: Decodings of the calibration loop.
_CALIBRATION = 200_000
_COUNT = re.compile(rb"\d+/\d+")


class Headless(msgspec.Struct):
    """`gconsole batch` on some nodes in its steady state, and its start."""

    nodes: int
    pct: float
    bytes_s: float  # from the nodes
    rss_mb: float
    start_s: float  # until every node has sampled
    start_cpu_s: float


class Screen(msgspec.Struct):
    """The console in a terminal: % of a core by view, and ms from a key to the first paint of another view."""

    pct: dict[str, float]
    paint_ms: list[float]
    rss_mb: float
    late: list[str]  # views that were shown, and "keys", when the console wrote that it was late

    @property
    def worst(self) -> str:
        return max(self.pct, key=lambda view: self.pct[view])

    @property
    def text(self) -> str:
        late = f" (late: {', '.join(self.late)})" if self.late else ""
        return ", ".join(f"{view} {pct:.1f}" for view, pct in self.pct.items()) + f" %{late}"


def measure(quick: bool) -> Outcome:
    sizes, nodes = ((2, 4), 16) if quick else (SIZES, NODES)
    settles_s, measured_s, rounds = (3.0, 4.0, 1) if quick else (SETTLES_S, MEASURED_S, ROUNDS)
    lines = record_lines()
    some = [headless(lines, size, settles_s, measured_s) for size in sizes]
    all_ = headless(lines, nodes, settles_s, 3 * measured_s)
    slow = headless(lines, nodes, settles_s, measured_s, interval_ms=SLOW_MS)
    through = headless(lines, nodes, settles_s, 3 * measured_s, has_gateway=True)
    switches = QUICK_SWITCHES if quick else SWITCHES
    direct_screen = screen(lines, nodes, settles_s, measured_s, rounds, switches)
    gateway_screen = screen(
        lines, nodes, settles_s, measured_s, min(rounds, GATEWAY_ROUNDS), switches, has_gateway=True
    )  # fmt: skip
    decode_us = in_new_process(calibrate_us)
    node_pct = linear_regression([each.nodes for each in some], [each.pct for each in some]).slope
    fleet = f"{nodes} nodes × {GPUS} GPUs × {RANKS} ranks at 1 Hz"
    paints = direct_screen.paint_ms
    return Outcome(
        [
            Row("CPU of a node and second, headless over SSH", f"{10 * node_pct:.2f} ms",
                peer=f"decoding a gpu record {decode_us:.2f} µs", ratio=10_000 * node_pct / decode_us),
            _goal(f"{fleet}, headless", all_.pct, "% of a core", HEADLESS_PCT),
            _goal(f"{fleet}, with the worst view, {direct_screen.worst}", direct_screen.pct[direct_screen.worst],
                  "% of a core", SCREEN_PCT),
            _goal(f"{fleet}, headless through a gateway", through.pct, "% of a core", GATEWAY_PCT),
            _goal(f"{fleet}, through a gateway with the worst view, {gateway_screen.worst}",
                  gateway_screen.pct[gateway_screen.worst], "% of a core", GATEWAY_SCREEN_PCT),
            _goal("the same nodes, key to the first paint of another view, p99", _p99(paints), "ms", PAINT_MS),
            _goal("the same through a gateway", _p99(gateway_screen.paint_ms), "ms", PAINT_MS),
            _goal(f"{fleet}, from the nodes", 8e-6 * all_.bytes_s, "Mbit/s", DOWN_MBIT, 1),
            _goal(f"{fleet}, from the nodes through a gateway", 8e-6 * through.bytes_s, "Mbit/s", GATEWAY_MBIT, 1),
            Row(f"{slow.nodes} nodes, a tick each {SLOW_MS // 1000} s, headless", f"{slow.pct:.0f} % of a core"),
            _goal(f"{slow.nodes} nodes, a tick each {SLOW_MS // 1000} s, warm start, all sampled", slow.start_s, "s",
                  START_S),
            _goal("the same, CPU of the console for each login", 1000 * slow.start_cpu_s / nodes, "ms", LOGIN_MS),
            Row(f"{all_.nodes} nodes, a tick each second, warm start, all sampled", f"{all_.start_s:.0f} s"),
            _goal(f"{fleet}, headless, RSS after a minute", all_.rss_mb, "MB", RSS_MB),
            _goal(f"{fleet}, on the screen, RSS after all of its views", direct_screen.rss_mb, "MB", RSS_MB),
        ],
        [
            f"stand-ins behind one sshd of OpenSSH replay 30 s of one real agent with {GPUS} simulated GPUs beside a"
            f" real job of {RANKS} ranks, as rows with digests, each node another second of it; ranks are those of one"
            " job of all nodes",
            f"headless: `gconsole batch`; {', '.join(str(each.nodes) for each in some)} nodes: "
            + ", ".join(f"{each.pct:.1f} %" for each in some)
            + "; the line through these gives the CPU of a node",
            f"the screen in a pty of 200x60: {direct_screen.text}; each view {rounds} times for {measured_s:g} s, in"
            f" turn; through a gateway, once: {gateway_screen.text}",
            f"{len(paints)} keys that change the view, {APART_S:g} s apart; median {median(paints):.0f} ms,"
            f" {median(gateway_screen.paint_ms):.0f} ms through a gateway",
            "the gateway's own CPU does not count, and it shares the cores with all that its nodes' logins need",
            "bytes: of TCP to the console, counted by the kernel at its end of the connections",
            f"load average {os.getloadavg()[0]:.1f} at the end; server, stand-ins and console share the cores",
        ],
        [
            "batch no longer counts the devices of all nodes ten times a second, and the topology is folded only for"
            " what it depends on: 22.6 to 14.8 % at 256 nodes",
            "digests of what nothing wants; windows of clock estimates whose length follows their CPU; 500 pings a"
            " second instead of 2,000 for clocks over SSH; frames of a tenth of a core",
            "no sink gets records that it does not read, sums of the recent past only where they are asked for, fewer"
            " snapshots in the black box: 0.70 of the CPU of the parts behind SSH",
            "pauses in threads that compare clocks and pack the black box: at 400 nodes the longest time from a key"
            " to the paint fell from 3.4 to 1.0 s; with all nodes on the screen a core is full, and the console is"
            " late",
        ],
    )  # fmt: skip


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def _goal(what: str, value: float, unit: str, most: float, digits: int = 0) -> Row:
    return Row(what, f"{value:.{digits}f} {unit}", f"≤ {most:g} {unit}", value <= most)


def headless(
    lines: Sequence[bytes], nodes: int, settles_s: float, measured_s: float, *, interval_ms: int = 1000,
    has_gateway: bool = False,
) -> Headless:  # fmt: skip
    """One size, without a screen."""
    with stand_ins(lines, nodes, interval_ms, has_gateway=has_gateway) as hosts:
        began = time.monotonic()
        process = subprocess.Popen(
            [str(GCONSOLE), "batch", str(hosts), "--for", "1h"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if f"{nodes}/{nodes} sampled" in line:
                    break
                if time.monotonic() - began > STARTS_S:
                    raise RuntimeError(f"not all of {nodes} nodes sampled: {line.strip()}")
            start_s, start_cpu_s = time.monotonic() - began, _cpu_s(process.pid)
            time.sleep(settles_s)
            before = _received(process.pid)
            with CpuShare(process.pid) as share:
                time.sleep(measured_s)
            received = _received(process.pid) - before
            rss_mb = memory_bytes(process.pid)[0] / 1e6
        finally:
            process.terminate()
            process.communicate(timeout=60)
    return Headless(nodes, share.pct, received / measured_s, rss_mb, start_s, start_cpu_s)


def screen(
    lines: Sequence[bytes], nodes: int, settles_s: float, measured_s: float, rounds: int, switches: int, *,
    has_gateway: bool = False,
) -> Screen:  # fmt: skip
    """The console in a terminal: the mean of all rounds, and then the paints after keys."""
    shares: dict[str, list[float]] = {view: [] for view in VIEWS}
    with (
        stand_ins(lines, nodes, has_gateway=has_gateway) as hosts,
        _terminal([str(GCONSOLE), str(hosts)]) as (pid, terminal, output),
    ):
        output.wait_for(b"%d/%d" % (nodes, nodes))
        time.sleep(2 * settles_s)
        for view, key in list(VIEWS.items()) * rounds:
            os.write(terminal, key.encode())
            time.sleep(settles_s / 3)
            with CpuShare(pid) as share, output.watched(view):
                time.sleep(measured_s)
            shares[view].append(share.pct)
        with output.watched("keys"):
            paints = [1e3 * output.paint_s(key) for key, _ in zip(cycle(VIEWS.values()), range(switches), strict=False)]
        rss_mb = memory_bytes(pid)[0] / 1e6
    return Screen({view: mean(each) for view, each in shares.items()}, paints, rss_mb, sorted(output.late))


class _Output:
    """What a program writes to its pty: read and dropped, except for a paint and some words."""

    def __init__(self, terminal: int) -> None:
        self.late: set[str] = set()  # what was measured when the program wrote that it was late
        self._measured = ""
        self._counts: set[bytes] = set()  # such as 64/64, of nodes in the title
        self._terminal = terminal
        self._pressed_s: float | None = None
        self._paint_s = 0.0
        self._painted = threading.Event()
        threading.Thread(target=self._drain, daemon=True).start()

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Note in `late` if the program writes meanwhile that it is late."""
        self._measured = what
        yield
        self._measured = ""

    def wait_for(self, count: bytes) -> None:
        """Wait until the program has written this count. RuntimeError without it."""
        deadline_s = time.monotonic() + STARTS_S
        while count not in self._counts:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"no {count.decode()} on the screen within {STARTS_S:g} s")
            time.sleep(0.5)

    def paint_s(self, key: str) -> float:
        """Press a key that changes the view; seconds until the first paint of that view. RuntimeError without one."""
        time.sleep(APART_S)
        self._painted.clear()
        self._pressed_s = time.monotonic()
        os.write(self._terminal, key.encode())
        if not self._painted.wait(30):
            raise RuntimeError(f"no paint after the key {key}")
        return self._paint_s

    def _drain(self) -> None:
        try:
            while data := os.read(self._terminal, 1 << 16):
                if self._measured and b"the console is late" in data:
                    self.late.add(self._measured)
                self._counts.update(_COUNT.findall(data))
                if self._pressed_s is not None and PAINTED in data:
                    self._paint_s, self._pressed_s = time.monotonic() - self._pressed_s, None
                    self._painted.set()
        except OSError:  # the program has ended
            return


@contextmanager
def _terminal(argv: Sequence[str]) -> Iterator[tuple[int, int, _Output]]:
    """The pid of a program in a pty, the pty, and what it writes there."""
    with tempfile.TemporaryDirectory() as state:
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", XDG_STATE_HOME=state)
            os.execv(argv[0], list(argv))
        ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        try:
            yield pid, terminal, _Output(terminal)
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
            os.close(terminal)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _received(pid: int) -> int:
    """Bytes that a process has received over its TCP connections."""
    shown = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(
        int(word.partition(":")[2])
        for head, details in zip(shown[::2], shown[1::2], strict=True) if f"pid={pid}," in head
        for word in details.split() if word.startswith("bytes_received:")
    )  # fmt: skip


def calibrate_us() -> float:
    """µs of CPU to decode one `gpu` record, in a separate process."""
    line = msgspec.json.encode(Gpu(node="node001", index=1, uuid="GPU-1", util_pct=97.5, power_w=612.5, temp_c=71.0))
    began = time.process_time()
    for _ in range(_CALIBRATION):
        decode(line)
    return 1e6 * (time.process_time() - began) / _CALIBRATION
