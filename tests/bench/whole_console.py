"""What a whole console costs with 1,024 nodes: real sshd, real records, and the screen in a real terminal.

Stand-ins behind one real sshd replay the output of a real agent (`stand_ins`). The CPU of `gconsole batch` at three
sizes, and of the screen in a pty at two, gives that of one node and second, without what a process costs by itself; the
figures for 1,024 nodes at 1 Hz are these times 1,024. All 1,024 nodes are connected once, with a tick every 4 s.
"""

from __future__ import annotations

import os
import pty
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from statistics import linear_regression, mean
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
SIZES, SCREEN_SIZES, GATEWAY_SIZES = (64, 128, 256), (64, 128, 256), (32, 96)
#: ms. Interval of ticks with which all nodes are connected at once: two cores do not carry 1,024 servers at 1 Hz.
SLOW_MS = 4000
#: Seconds: until all have sampled, at most; then until the beginning is over; and measured.
STARTS_S, SETTLES_S, MEASURED_S = 240.0, 20.0, 20.0
#: Times that each view is measured, in turn, so that what happens now and then counts in all: windows of clock probes.
ROUNDS = 3
VIEWS = {"overview": "1", "ranks": "2", "GPUs": "6", "nodes": "n", "skew": "4"}
SIZE = (60, 200)
HEADLESS_PCT, SCREEN_PCT, GATEWAY_PCT, START_S, LOGIN_MS, DOWN_MBIT, RSS_MB = 60.0, 90.0, 20.0, 30.0, 12.0, 20.0, 800.0
#: Decodings of the calibration loop.
_CALIBRATION = 200_000


class Headless(msgspec.Struct):
    """`gconsole batch` on some nodes in its steady state, and its start."""

    nodes: int
    pct: float
    bytes_s: float  # from the nodes
    rss_mb: float
    start_s: float  # until every node has sampled
    start_cpu_s: float


def measure(quick: bool) -> Outcome:
    sizes, screen_sizes, gateway_sizes, nodes = (
        ((2, 4), (2, 4), (2, 4), 16) if quick else (SIZES, SCREEN_SIZES, GATEWAY_SIZES, NODES)
    )
    settles_s, measured_s, rounds = (3.0, 4.0, 1) if quick else (SETTLES_S, MEASURED_S, ROUNDS)
    lines = record_lines()
    direct = [headless(lines, size, settles_s, measured_s) for size in sizes]
    through = [headless(lines, size, settles_s, measured_s, has_gateway=True) for size in gateway_sizes]
    slow = headless(lines, nodes, settles_s, measured_s, interval_ms=SLOW_MS)
    screens = [screen(lines, size, settles_s, measured_s, rounds) for size in screen_sizes]
    decode_us = in_new_process(calibrate_us)
    peer = f"decoding a gpu record {decode_us:.2f} µs"
    direct_pct = _slope(direct)
    slopes = {view: linear_regression(screen_sizes, [each[view] for each in screens]).slope for view in VIEWS}
    worst = max(slopes, key=lambda view: slopes[view])
    login_ms = 1000 * slow.start_cpu_s / nodes
    mbit_s = 8e-6 * NODES * direct[-1].bytes_s / direct[-1].nodes
    gateway_mbit_s = 8e-6 * NODES * through[-1].bytes_s / through[-1].nodes
    fleet = f"{NODES} nodes × {GPUS} GPUs × {RANKS} ranks at 1 Hz"
    return Outcome(
        [
            Row("CPU of a node and second, headless over SSH", f"{10 * direct_pct:.2f} ms", peer=peer,
                ratio=10_000 * direct_pct / decode_us),
            _goal(f"{fleet}, headless", NODES * direct_pct, "% of a core", HEADLESS_PCT),
            _goal(f"{fleet}, with the worst view, {worst}", NODES * slopes[worst], "% of a core", SCREEN_PCT),
            _goal(f"{fleet}, headless through a gateway", NODES * _slope(through), "% of a core", GATEWAY_PCT),
            _goal(f"{fleet}, from the nodes", mbit_s, "Mbit/s", DOWN_MBIT, 1),
            Row(f"{fleet}, from the nodes through a gateway", f"{gateway_mbit_s:.1f} Mbit/s"),
            Row(f"{slow.nodes} nodes, a tick each {SLOW_MS // 1000} s, headless", f"{slow.pct:.0f} % of a core"),
            _goal(f"{slow.nodes} nodes, warm start, all sampled", slow.start_s, "s", START_S),
            _goal("the same, CPU of the console for each login", login_ms, "ms", LOGIN_MS),
            _goal("the same, RSS after a minute", slow.rss_mb, "MB", RSS_MB),
        ],
        [
            f"stand-ins behind one sshd of OpenSSH replay 30 s of one real agent with {GPUS} simulated GPUs beside a"
            f" real job of {RANKS} ranks, as rows with digests, each node another second of it; ranks are those of one"
            " job of all nodes",
            f"headless: `gconsole batch`, {', '.join(map(str, sizes))} nodes: "
            + ", ".join(f"{each.pct:.1f} %" for each in direct)
            + "; the slope of a line through these times the number of nodes",
            f"the screen in a pty of 200x60, {', '.join(map(str, screen_sizes))} nodes: "
            + "; ".join(f"{view} {', '.join(f'{each[view]:.1f}' for each in screens)} %" for view in VIEWS)
            + f"; each view {rounds} times for {measured_s:g} s, in turn; the worst view is that with the steepest"
            " slope, which overestimates work of a limited share of a core",
            f"through one gateway, {' and '.join(map(str, gateway_sizes))} nodes: "
            + ", ".join(f"{each.pct:.1f} %" for each in through)
            + "; the gateway's own CPU does not count",
            "bytes: of TCP to the console, counted by the kernel at its end of the connections",
            f"load average {os.getloadavg()[0]:.1f} at the end; server, stand-ins and console share the cores",
        ],
        [
            "batch no longer counts the devices of all nodes ten times a second, and the topology is folded only for"
            " what it depends on: 22.6 to 14.8 % at 256 nodes",
            "digests of what nothing wants; windows of clock estimates whose length follows their CPU",
            "500 pings a second instead of 2,000 for clocks over SSH: skew 59 instead of 74 % of a core at 256 nodes,"
            " although decoding a record took 2.26 instead of 1.92 µs",
            "left, each 5 to 11 %: row reader, store, health state, black box, findings, asyncssh",
        ],
    )  # fmt: skip


def _goal(what: str, value: float, unit: str, most: float, digits: int = 0) -> Row:
    return Row(what, f"{value:.{digits}f} {unit}", f"≤ {most:g} {unit}", value <= most)


def _slope(measured: Sequence[Headless]) -> float:
    """% of a core of one node."""
    return linear_regression([each.nodes for each in measured], [each.pct for each in measured]).slope


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


def screen(lines: Sequence[bytes], nodes: int, settles_s: float, measured_s: float, rounds: int) -> dict[str, float]:
    """% of a core by view, of the console in a terminal: the mean of all rounds."""
    shares: dict[str, list[float]] = {view: [] for view in VIEWS}
    with stand_ins(lines, nodes) as hosts, _terminal([str(GCONSOLE), str(hosts)]) as (pid, terminal):
        time.sleep(settles_s + nodes / 10)
        for view, key in list(VIEWS.items()) * rounds:
            os.write(terminal, key.encode())
            time.sleep(settles_s / 3)
            with CpuShare(pid) as share:
                time.sleep(measured_s)
            shares[view].append(share.pct)
    return {view: mean(each) for view, each in shares.items()}


@contextmanager
def _terminal(argv: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pid of a program in a pty, and the pty; what it writes is read and dropped."""
    with tempfile.TemporaryDirectory() as state:
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", XDG_STATE_HOME=state)
            os.execv(argv[0], list(argv))
        ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        threading.Thread(target=_drain, args=(terminal,), daemon=True).start()
        try:
            yield pid, terminal
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
            os.close(terminal)


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # the program has ended
        return


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
